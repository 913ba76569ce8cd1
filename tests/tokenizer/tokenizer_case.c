/* tokenizer/tokenizer_case: makes small tokenizer.json files, and checks a tokenizer. */
#include "tokenizer/tokenizer_case.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void add_token(json_t *vocab, const char *name) {
    if (!json_object_get(vocab, name))
        assert_int_equal(json_object_set_new(vocab, name, json_integer((json_int_t)json_object_size(vocab))),
                         0);
}

static void add_characters(json_t *vocab, const char *alphabet) {
    for (const char *p = alphabet; *p;) {
        char one[8] = {*p++};
        for (int i = 1; (*p & 0xc0) == 0x80; i++) one[i] = *p++;
        add_token(vocab, one);
    }
}

static void add_merges(json_t *vocab, json_t *list, const char *merges) {
    char *copy = strdup(merges);
    for (char *merge = copy, *end; *merge; merge = end) {
        char result[128];
        end = merge + strcspn(merge, "|");
        if (*end) *end++ = '\0';
        json_array_append_new(list, json_string(merge));
        snprintf(result, sizeof result, "%.*s%s", (int)strcspn(merge, " "), merge, strchr(merge, ' ') + 1);
        add_token(vocab, result);
    }
    free(copy);
}

static json_t *make(json_t *vocab, const char *merges) {
    json_t *list = json_array();
    add_merges(vocab, list, merges);
    json_t *root = json_pack("{s:[], s:n, s:n, s:n, s:n, s:{s:s, s:o, s:o}}", "added_tokens", "normalizer",
                             "pre_tokenizer", "post_processor", "decoder", "model", "type", "BPE", "vocab",
                             vocab, "merges", list);
    assert_non_null(root);
    return root;
}

json_t *case_json(const char *alphabet, const char *merges) {
    json_t *vocab = json_object();
    add_characters(vocab, alphabet);
    return make(vocab, merges);
}

json_t *case_bytes(const char *merges) {
    json_t *vocab = json_object();
    for (int byte = 0, others = 0; byte < 256; byte++) {
        bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
        int c = prints ? byte : 0x100 + others++;
        char name[3] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f))};
        if (c < 0x80) strcpy(name, (char[]){(char)c, '\0'});
        add_token(vocab, name);
    }
    json_t *root = make(vocab, merges);
    case_set(root, "pre_tokenizer", "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}");
    case_set(root, "decoder", "{\"type\": \"ByteLevel\"}");
    return root;
}

json_t *case_characters(const char *merges) {
    json_t *vocab = json_object();
    add_token(vocab, "<unk>");
    add_token(vocab, "<s>");
    add_token(vocab, "</s>");
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        add_token(vocab, name);
    }
    add_characters(vocab, "\xe2\x96\x81"
                          "abcdefghijklmnopqrstuvwxyz");
    json_t *root = make(vocab, merges);
    case_set(root, "model.unk_token", "\"<unk>\"");
    case_set(root, "model.byte_fallback", "true");
    case_set(root, "pre_tokenizer",
             "{\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": \"first\","
             " \"split\": false}");
    case_set(root, "decoder",
             "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\":"
             " \"\xe2\x96\x81\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"},"
             " {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}");
    return root;
}

void case_set(json_t *root, const char *path, const char *text) {
    char key[64];
    const char *dot;
    for (; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        root = json_object_get(root, key);
        assert_non_null(root);
    }
    if (!text) {
        assert_int_equal(json_object_del(root, path), 0);
        return;
    }
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!value) fail_msg("not JSON: %s", text);
    assert_int_equal(json_object_set_new(root, path, value), 0);
}

const char *case_write(folder *f, json_t *root) {
    char *text = json_dumps(root, JSON_COMPACT);
    assert_non_null(text);
    const char *path = folder_write_text(f, "tokenizer.json", text);
    free(text);
    json_decref(root);
    return path;
}

tokenizer *case_open(folder *f, json_t *root) {
    tokenizer *t;
    if (tokenizer_open(f->account, case_write(f, root), &t) != OTT_OK) fail_msg("%s", status_text());
    return t;
}

void case_refuse(folder *f, json_t *root, ott_status expected, const char *message) {
    tokenizer *t;
    ott_status status = tokenizer_open(f->account, case_write(f, root), &t);
    if (status != expected) fail_msg("%s instead of \"%s\"", status ? status_text() : "it opens", message);
    assert_null(t);
    assert_error_names("/tokenizer.json: ");
    assert_error_names(message);
}

static ott_status encode(folder *f, const tokenizer *t, const char *text, int64_t bytes, unsigned flags,
                         tokenizer_ids *ids) {
    tokenizer_scratch *s;
    *ids = (tokenizer_ids){.account = f->account};
    if (tokenizer_scratch_open(f->account, t, &s) != OTT_OK) fail_msg("%s", status_text());
    ott_status status = tokenizer_encode(t, s, text, bytes < 0 ? (int64_t)strlen(text) : bytes, flags, ids);
    tokenizer_scratch_close(s);
    return status;
}

char *case_ids(folder *f, const tokenizer *t, const char *text, int64_t bytes, unsigned flags) {
    tokenizer_ids ids;
    if (encode(f, t, text, bytes, flags, &ids) != OTT_OK) {
        tokenizer_ids_free(&ids);
        return strdup(status_text());
    }
    char *out = calloc((size_t)ids.count + 1, 12), *p = out;
    assert_non_null(out);
    for (int64_t i = 0; i < ids.count; i++) p += sprintf(p, i ? " %d" : "%d", ids.ids[i]);
    tokenizer_ids_free(&ids);
    return out;
}

void assert_tokens(folder *f, const tokenizer *t, const char *text, unsigned flags, const char *expected) {
    tokenizer_ids ids;
    str names = {.account = f->account};
    if (encode(f, t, text, -1, flags, &ids) != OTT_OK) fail_msg("%s", status_text());
    for (int64_t i = 0; i < ids.count; i++)
        str_printf(&names, i ? "|%s" : "%s", tokenizer_token(t, ids.ids[i]));
    assert_string_equal(names.text ? names.text : "", expected);
    str_free(&names);
    tokenizer_ids_free(&ids);
}

static void decode_streamed(const tokenizer *t, const int32_t *ids, int64_t count, bool skip_special,
                            str *out) {
    tokenizer_stream s = tokenizer_stream_start(t, skip_special);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(tokenizer_stream_push(&s, ids[i], out), OTT_OK);
        /* a stream never writes an incomplete character */
        assert_int_equal(str_utf8_error(out->text, out->length), -1);
    }
    assert_int_equal(tokenizer_stream_finish(&s, out), OTT_OK);
}

void assert_decodes(folder *f, const tokenizer *t, const char *ids, bool skip_special, const char *expected,
                    int64_t bytes, bool streamed) {
    int32_t list[4096];
    int64_t count = 0;
    char *end;
    for (const char *p = ids; *p; p = end) {
        assert_true(count < 4096);
        list[count++] = (int32_t)strtol(p, &end, 10);
    }
    for (int way = 0; way < (streamed ? 2 : 1); way++) {
        str out = {.account = f->account};
        if (way == 0)
            assert_int_equal(tokenizer_decode(t, list, count, skip_special, &out), OTT_OK);
        else
            decode_streamed(t, list, count, skip_special, &out);
        if (bytes < 0) bytes = (int64_t)strlen(expected);
        assert_int_equal(out.length, bytes);
        assert_memory_equal(out.text ? out.text : "", expected, (size_t)bytes);
        str_free(&out);
    }
}
