/* data/tokenize: converts lines of text to lines of ids and back, and conversations to texts, as a stream. */
#include "data/tokenize.h"
#include "base/json/json_member.h"
#include "base/json/json_text.h"
#include "data/jsonl/chat_row.h"
#include "data/jsonl/row_text.h"
#include "data/ends.h"
#include <inttypes.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* bytes per read */

typedef struct line_stream {
    mem *account;
    const ott_tokenize_options *options;
    tokenizer *tokenizer;
    tokenizer_scratch *scratch;
    unsigned flags;   /* flags of tokenizer_encode */
    int32_t bos, eos; /* ids added to the begin and end of a text; -1: none */
    int64_t vocab;
    ott_read_fn read;
    ott_bytes_fn write;
    void *read_user, *write_user;
    str held;          /* an incomplete line, or the decoded text of a JSON line */
    str out;           /* output not written yet */
    tokenizer_ids ids; /* token ids of the current line */
    int64_t line;      /* number of the line, from 1 */
    chat *template;    /* chat template for conversations; else NULL */
    uint8_t *learned;  /* [ids.count] 1 if the token is a target */
    /* decoder of the current line */
    tokenizer_stream decoder;
    bool begun;     /* the line already had an id */
    bool eos_waits; /* the last id was an EOS, which is decoded only if another id follows */
} line_stream;

/* ---- text to ids ---- */

static void append_number(str *out, int32_t id) {
    char digits[12];
    int at = sizeof digits;
    do digits[--at] = (char)('0' + id % 10);
    while (id /= 10);
    str_append_bytes(out, digits + at, (int64_t)sizeof digits - at);
}

/* Encodes a line that is a JSON string. Its text may contain line ends. */
static ott_status encode_json(line_stream *s, const char *line, int64_t bytes) {
    json_error_t error;
    json_t *text;
    TRY(json_text_parse(line, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &text, &error));
    ott_status status = !text ? status_fail(OTT_ERR_FORMAT, "is not JSON: %s at byte %d of the line",
                                            error.text, error.position)
                        : !json_is_string(text)
                            ? status_fail(OTT_ERR_FORMAT, "is not a JSON string, as \"some text\"")
                            : tokenizer_encode(s->tokenizer, s->scratch, json_string_value(text),
                                               (int64_t)json_string_length(text), s->flags, &s->ids);
    json_decref(text);
    return status;
}

static ott_status encode_line(line_stream *s, const char *line, int64_t bytes) {
    s->ids.count = 0;
    if (s->options->jsonl)
        TRY(encode_json(s, line, bytes));
    else
        TRY(tokenizer_encode(s->tokenizer, s->scratch, line, bytes, s->flags, &s->ids));
    for (int64_t i = 0; i < s->ids.count; i++) {
        if (i > 0) str_append_bytes(&s->out, " ", 1);
        append_number(&s->out, s->ids.ids[i]);
    }
    return OTT_OK;
}

/* ---- conversations to text ---- */

static void show_object(line_stream *s, const str *text) {
    str_append(&s->out, "{\"text\": ");
    str_append_json(&s->out, text->text ? text->text : "", text->length);
    for (int list = 0; list < 2; list++) {
        str_append(&s->out, list ? "], \"learned\": [" : ", \"ids\": [");
        for (int64_t i = 0; i < s->ids.count; i++) {
            if (i > 0) str_append(&s->out, ", ");
            append_number(&s->out, list ? s->learned[i] : s->ids.ids[i]);
        }
    }
    str_append(&s->out, "]}");
}

/* Appends the text of the ids, with [[ and ]] around the targets. */
static ott_status show_masked(line_stream *s) {
    tokenizer_stream decoder = tokenizer_stream_start(s->tokenizer, false);
    for (int64_t i = 0; i < s->ids.count; i++) {
        bool learned = s->learned[i], before = i > 0 && s->learned[i - 1];
        if (learned != before) str_append(&s->out, learned ? "[[" : "]]");
        TRY(tokenizer_stream_push(&decoder, s->ids.ids[i], &s->out));
    }
    TRY(tokenizer_stream_finish(&decoder, &s->out));
    if (s->ids.count > 0 && s->learned[s->ids.count - 1]) str_append(&s->out, "]]");
    return OTT_OK;
}

static ott_status show_conversation(line_stream *s, const chat_conversation *conversation) {
    str text = {.account = s->account};
    ott_status status;
    TRY_OUT(chat_encode(s->template, s->scratch, conversation, &s->ids, &s->learned));
    if (s->options->mask) TRY_OUT(show_masked(s));
    if (!s->options->mask) TRY_OUT(chat_render(s->template, conversation, false, &text));
    if (s->options->jsonl)
        show_object(s, &text);
    else
        str_append_bytes(&s->out, text.text ? text.text : "", text.length);
out:
    str_free(&text);
    return status;
}

static ott_status render_line(line_stream *s, const char *line, int64_t bytes) {
    json_t *object;
    chat_conversation conversation;
    s->ids.count = 0;
    TRY(data_row_object((text_view){line, bytes}, "line", &object));
    ott_status status = chat_row_read(object, &conversation);
    if (status == OTT_OK) {
        status = show_conversation(s, &conversation);
        chat_row_close(&conversation);
    }
    json_decref(object);
    return status;
}

/* ---- ids to text ---- */

static ott_status show_token(line_stream *s, int32_t id) {
    return s->options->jsonl ? tokenizer_stream_push(&s->decoder, id, &s->held)
                             : tokenizer_stream_push(&s->decoder, id, &s->out);
}

/* Decodes the next id of a line. A BOS at the line's start and an EOS at its end are not decoded: the
   tokenizer added them. Other BOS and EOS are part of the text. */
static ott_status decode_id(line_stream *s, int32_t id) {
    bool first = !s->begun, waits = s->eos_waits;
    s->begun = true;
    s->eos_waits = false;
    if (waits) TRY(show_token(s, s->eos));
    if (first && id == s->bos) return OTT_OK;
    s->eos_waits = id == s->eos;
    return s->eos_waits ? OTT_OK : show_token(s, id);
}

static ott_status parse_id(const line_stream *s, const char *text, int64_t bytes, int32_t *id) {
    int64_t value = 0;
    for (int64_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return status_fail(OTT_ERR_FORMAT, "\"%.*s\" is not a token id", (int)(bytes < 40 ? bytes : 40),
                               text);
        if (value < INT32_MAX) value = 10 * value + (text[i] - '0');
    }
    if (value >= s->vocab)
        return status_fail(OTT_ERR_FORMAT, "%.*s is not a token id of %s: its ids are below %" PRId64,
                           (int)(bytes < 40 ? bytes : 40), text, tokenizer_path(s->tokenizer), s->vocab);
    *id = (int32_t)value;
    return OTT_OK;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* Decodes the ids in `text`. With options->jsonl, decoded text is appended to s->held. */
static ott_status decode_ids(line_stream *s, const char *text, int64_t bytes) {
    for (int64_t at = 0, end; at < bytes; at = end) {
        int32_t id = 0;
        while (at < bytes && is_blank(text[at])) at++;
        for (end = at; end < bytes && !is_blank(text[end]);) end++;
        if (end == at) break;
        TRY(parse_id(s, text + at, end - at, &id));
        TRY(decode_id(s, id));
    }
    return OTT_OK;
}

static ott_status decode_line(line_stream *s, const char *line, int64_t bytes) {
    TRY(decode_ids(s, line, bytes));
    s->begun = s->eos_waits = false;
    TRY(tokenizer_stream_finish(&s->decoder, s->options->jsonl ? &s->held : &s->out));
    s->decoder = tokenizer_stream_start(s->tokenizer, false);
    if (!s->options->jsonl) return OTT_OK;
    str_append_json(&s->out, s->held.text ? s->held.text : "", s->held.length);
    s->held.length = 0;
    return OTT_OK;
}

/* ---- lines ---- */

static void flush_line(line_stream *s) {
    if (s->out.length > 0) s->write(s->write_user, s->out.text, s->out.length);
    s->out.length = 0;
}

/* Processes a line with its newline, or the last line without one. */
static ott_status take_line(line_stream *s, const char *line, int64_t bytes, bool newline) {
    ott_status status = s->options->chat     ? render_line(s, line, bytes)
                        : s->options->decode ? decode_line(s, line, bytes)
                                             : encode_line(s, line, bytes);
    if (status != OTT_OK) return status_context(status, "line %" PRId64, s->line);
    if (newline) str_append_bytes(&s->out, "\n", 1);
    s->line++;
    return OTT_OK;
}

static ott_status hold_text(line_stream *s, const char *text, int64_t bytes) {
    if (bytes > TOKENIZE_DOCUMENT_LIMIT - s->held.length)
        return status_fail(OTT_ERR_UNSUPPORTED, "line %" PRId64 " has more than 1 GiB", s->line);
    str_append_bytes(&s->held, text, bytes);
    return str_finish(&s->held);
}

static ott_status take_held(line_stream *s, const char *text, int64_t bytes, bool newline) {
    TRY(hold_text(s, text, bytes));
    str line = s->held;
    s->held = (str){.account = s->account}; /* decoding writes to s->held */
    ott_status status = take_line(s, line.text ? line.text : "", line.length, newline);
    str_free(&line);
    return status;
}

static ott_status take_piece(line_stream *s, const char *text, int64_t bytes) {
    const char *end = text + bytes, *stop;
    while ((stop = memchr(text, '\n', (size_t)(end - text)))) {
        TRY(s->held.length > 0 ? take_held(s, text, stop - text, true)
                               : take_line(s, text, stop - text, true));
        text = stop + 1;
        if (s->out.length >= PIECE) flush_line(s);
    }
    return hold_text(s, text, end - text);
}

/* Decodes the ids of an incomplete line. The last id stays in s->held: digits of it may follow. */
static ott_status decode_complete_ids(line_stream *s) {
    if (!s->options->decode || s->options->jsonl || s->held.length == 0) return OTT_OK;
    int64_t complete = s->held.length;
    while (complete > 0 && !is_blank(s->held.text[complete - 1])) complete--;
    ott_status status = decode_ids(s, s->held.text, complete);
    if (status != OTT_OK) return status_context(status, "line %" PRId64, s->line);
    memmove(s->held.text, s->held.text + complete, (size_t)(s->held.length - complete));
    s->held.length -= complete;
    return OTT_OK;
}

static ott_status read_lines(line_stream *s) {
    char buffer[PIECE];
    int64_t got;
    while ((got = s->read(s->read_user, buffer, sizeof buffer)) > 0 && got <= (int64_t)sizeof buffer) {
        ott_status status = take_piece(s, buffer, got);
        if (status == OTT_OK) status = decode_complete_ids(s);
        flush_line(s); /* writes earlier output before returning an error */
        TRY(status);
        TRY(str_finish(&s->out));
    }
    if (got > (int64_t)sizeof buffer)
        return status_fail(OTT_ERR_ARGUMENT,
                           "ott_tokenize: read returned %" PRId64
                           ", but the buffer it was given has %zu bytes",
                           got, sizeof buffer);
    if (got < 0) return status_fail(OTT_ERR_IO, "the input cannot be read");
    if (s->held.length == 0 && !s->begun) return OTT_OK;
    ott_status status = take_held(s, "", 0, false);
    flush_line(s);
    return status == OTT_OK ? str_finish(&s->out) : status;
}

static ott_status open_lines(line_stream *s, const char *path) {
    TRY(tokenizer_open(s->account, path, &s->tokenizer));
    TRY(tokenizer_scratch_open(s->account, s->tokenizer, &s->scratch));
    s->vocab = tokenizer_vocab(s->tokenizer);
    s->decoder = tokenizer_stream_start(s->tokenizer, false);
    if (s->options->chat) {
        const char *date = s->options->chat_date;
        TRY(chat_open(s->account, s->tokenizer, &(chat_settings){.date = date ? date : ""}, &s->template));
    }
    /* Finds out which of BOS and EOS the tokenizer adds to a text. Decoding leaves these out. */
    int32_t bos = tokenizer_bos(s->tokenizer), eos = tokenizer_eos(s->tokenizer);
    s->bos = s->eos = -1;
    s->ids.count = 0;
    TRY(tokenizer_encode(s->tokenizer, s->scratch, "", 0, s->flags, &s->ids));
    for (int64_t i = 0; i < s->ids.count; i++) {
        if (s->ids.ids[i] == bos) s->bos = bos;
        if (s->ids.ids[i] == eos) s->eos = eos;
    }
    return OTT_OK;
}

ott_status tokenize_stream(mem *account, const logger *log, const char *tokenizer_path,
                           const ott_tokenize_options *o, ott_read_fn read, void *read_user,
                           ott_bytes_fn write, void *write_user) {
    line_stream s = {.account = account,
                     .options = o,
                     .flags = TOKENIZER_MATCH_SPECIAL | (o->no_special ? 0 : TOKENIZER_ADD_SPECIAL),
                     .read = read,
                     .write = write,
                     .read_user = read_user,
                     .write_user = write_user,
                     .held = {.account = account},
                     .out = {.account = account},
                     .ids = {.account = account},
                     .line = 1};
    ott_status status = open_lines(&s, tokenizer_path);
    if (status == OTT_OK && !o->chat && !o->decode)
        ends_log(log, s.tokenizer, "text", s.bos, s.eos, "no_special leaves it out");
    if (status == OTT_OK) status = read_lines(&s);
    str_free(&s.held);
    str_free(&s.out);
    tokenizer_ids_free(&s.ids);
    mem_free(account, s.learned);
    chat_close(s.template);
    tokenizer_scratch_close(s.scratch);
    tokenizer_close(s.tokenizer);
    return status;
}
