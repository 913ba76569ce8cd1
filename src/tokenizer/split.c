/* tokenizer/split: the pre-tokenizers. There are three kinds of steps: split at the matches of a pattern, add
   a leading space, replace spaces with a mark (Metaspace). Each piece passes all steps before the next piece
   (depth first), so pieces are never collected. */
#include "tokenizer/describe.h"
#include "tokenizer/formats/formats.h"

/* ---- loading ---- */

/* \w+|[^\w\s]+ of Rust's regex, where \w also contains the joiners U+200C and U+200D. */
#define RUST_WORDS COMMON_WORDS "\\x{200c}\\x{200d}"
static const char words[] = "[" RUST_WORDS "]+|[^" RUST_WORDS "\\s]+";
static const char punctuation[] = "[!-/:-@\\[-`{-~\\p{P}]";

static const char *const behaviors[] = {[SPLIT_ISOLATED] = "Isolated",
                                        [SPLIT_REMOVED] = "Removed",
                                        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
                                        [SPLIT_CONTIGUOUS] = "Contiguous"};
static const char *const schemes[] = {
    [PREPEND_NEVER] = "never", [PREPEND_FIRST] = "first", [PREPEND_ALWAYS] = "always"};

/* *out = the index of the member's text in `names`. */
static ott_status get_choice(const json_t *object, const char *key, const char *const *names, int count,
                             int *out) {
    const char *name = json_string_value(json_object_get(object, key));
    if (!name) return status_fail(OTT_ERR_FORMAT, "%s is missing or not a string", key);
    for (*out = 0; *out < count; ++*out)
        if (strcmp(names[*out], name) == 0) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "%s '%s' is not supported", key, str_show(name).text);
}

static ott_status get_behavior(const json_t *object, split_behavior *out) {
    int choice;
    TRY(get_choice(object, "behavior", behaviors, sizeof behaviors / sizeof *behaviors, &choice));
    return *out = (split_behavior)choice, OTT_OK;
}

static ott_status new_split_step(tokenizer *t, split_step step, split_step **out) {
    *out = NULL;
    if (t->split_count == TOKENIZER_MAX_STEPS)
        return status_fail(OTT_ERR_UNSUPPORTED, "more than %d steps", TOKENIZER_MAX_STEPS);
    t->split[t->split_count] = step;
    return *out = &t->split[t->split_count++], OTT_OK;
}

static ott_status add_regex(tokenizer *t, const char *regex, split_behavior behavior, bool invert) {
    split_step *step;
    TRY(new_split_step(t, (split_step){.kind = SPLIT_PATTERN, .behavior = behavior, .invert = invert},
                       &step));
    return regex_compile(t->account, (text_view){regex, (int64_t)strlen(regex)}, &step->pattern);
}

static ott_status load_split(tokenizer *t, const json_t *object) {
    split_step *step;
    TRY(new_split_step(t, (split_step){.kind = SPLIT_PATTERN}, &step));
    TRY(get_behavior(object, &step->behavior));
    TRY(json_member_bool(object, "invert", false, &step->invert));
    return json_get_pattern(t, object, &step->pattern);
}

static ott_status load_byte_level_split(tokenizer *t, const json_t *object) {
    bool space, regex;
    split_step *step;
    TRY(json_member_bool(object, "add_prefix_space", true, &space));
    TRY(json_member_bool(object, "use_regex", true, &regex));
    if (space) TRY(new_split_step(t, (split_step){.kind = SPLIT_ADD_SPACE}, &step));
    if (regex) TRY(add_regex(t, TOKENIZER_GPT2, SPLIT_ISOLATED, false));
    t->model.byte_level = true; /* pieces are bytes; the vocabulary's texts are converted to bytes */
    return OTT_OK;
}

/* Reads prepend_scheme. Older files have add_prefix_space instead. */
static ott_status get_prepend(const json_t *object, metaspace_prepend *out) {
    const json_t *scheme = json_object_get(object, "prepend_scheme");
    bool add;
    int choice;
    TRY(json_member_bool(object, "add_prefix_space", true, &add));
    *out = add ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (!scheme || json_is_null(scheme)) return OTT_OK;
    if (!json_is_string(scheme)) return status_fail(OTT_ERR_FORMAT, "prepend_scheme is not a string");
    TRY(get_choice(object, "prepend_scheme", schemes, sizeof schemes / sizeof *schemes, &choice));
    return *out = (metaspace_prepend)choice, OTT_OK;
}

static ott_status load_metaspace_split(tokenizer *t, const json_t *object) {
    split_step *step, *word_step;
    bool split;
    TRY(new_split_step(t, (split_step){.kind = SPLIT_METASPACE}, &step));
    TRY(json_get_character(t->texts, object, "replacement", &step->replacement));
    TRY(get_prepend(object, &step->prepend));
    TRY(json_member_bool(object, "split", true, &split));
    if (!split) return OTT_OK;
    return new_split_step(t,
                          (split_step){.kind = SPLIT_PATTERN,
                                       .behavior = SPLIT_MERGED_WITH_NEXT,
                                       .pattern = {.literal = step->replacement}},
                          &word_step);
}

static ott_status load_punctuation(tokenizer *t, const json_t *object) {
    split_behavior behavior = SPLIT_ISOLATED;
    if (json_object_get(object, "behavior")) TRY(get_behavior(object, &behavior));
    return add_regex(t, punctuation, behavior, false);
}

static ott_status load_digits(tokenizer *t, const json_t *object) {
    bool individual;
    TRY(json_member_bool(object, "individual_digits", false, &individual));
    return add_regex(t, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false);
}

static ott_status load_split_step(tokenizer *t, const json_t *object, const char *type, void *unused) {
    (void)unused;
    /* In Hugging Face, later steps would receive bytes written as characters. */
    if (t->model.byte_level)
        return status_fail(OTT_ERR_UNSUPPORTED, "a pre-tokenizer after ByteLevel is not supported");
    if (strcmp(type, "Split") == 0) return load_split(t, object);
    if (strcmp(type, "ByteLevel") == 0) return load_byte_level_split(t, object);
    if (strcmp(type, "Metaspace") == 0) return load_metaspace_split(t, object);
    if (strcmp(type, "Digits") == 0) return load_digits(t, object);
    if (strcmp(type, "Punctuation") == 0) return load_punctuation(t, object);
    if (strcmp(type, "Whitespace") == 0) return add_regex(t, words, SPLIT_REMOVED, true);
    if (strcmp(type, "WhitespaceSplit") == 0) return add_regex(t, "\\s", SPLIT_REMOVED, false);
    return status_fail(OTT_ERR_UNSUPPORTED, "this pre-tokenizer is not supported");
}

ott_status split_load(tokenizer *t, const json_t *root) {
    return json_each_step(t, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                          load_split_step, NULL);
}

/* ---- splitting at a pattern ---- */

/* State of splitting a text. Its parts (matches and the text between them) are added from left to right. A
   part is kept back while the next part may be merged with it. */
typedef struct splitter {
    encode_run *run;
    int step;
    const split_step *how;
    text_view text;
    bool at_start;
    bool held, previous; /* a part is held; the previous part was a match */
    int64_t begin, end;  /* the part that is held */
} splitter;

static ott_status hand_on(splitter *c, int64_t begin, int64_t end) {
    if (begin == end) return OTT_OK;
    return split_run(c->run, c->step + 1, (text_view){c->text.at + begin, end - begin},
                     c->at_start && begin == 0);
}

/* Passes the part that was kept back to the next step, and keeps back the part [begin, end). */
static ott_status hold_piece(splitter *c, int64_t begin, int64_t end) {
    if (c->held) TRY(hand_on(c, c->begin, c->end));
    c->held = true;
    c->begin = begin;
    c->end = end;
    return OTT_OK;
}

static ott_status merge_with_next(splitter *c, int64_t begin, int64_t end, bool match) {
    if (match) return hold_piece(c, begin, end);
    if (c->held) begin = c->begin;
    c->held = false;
    return hand_on(c, begin, end);
}

static ott_status add_split_part(splitter *c, int64_t begin, int64_t end, bool match) {
    bool previous = c->previous;
    match ^= c->how->invert;
    c->previous = match;
    switch (c->how->behavior) {
    case SPLIT_ISOLATED: return hand_on(c, begin, end);
    case SPLIT_REMOVED: return match ? OTT_OK : hand_on(c, begin, end);
    case SPLIT_MERGED_WITH_NEXT: return merge_with_next(c, begin, end, match);
    case SPLIT_MERGED_WITH_PREVIOUS:
        if (!c->held || !match || previous) return hold_piece(c, begin, end);
        break;
    case SPLIT_CONTIGUOUS:
        if (!c->held || match != previous) return hold_piece(c, begin, end);
        break;
    }
    c->end = end;
    return OTT_OK;
}

static ott_status run_pattern(encode_run *run, int step, text_view text, bool at_start) {
    const split_step *how = &run->t->split[step];
    splitter c = {.run = run, .step = step, .how = how, .text = text, .at_start = at_start};
    regex_walk w = regex_walk_start(&how->pattern, &run->s->matcher, text);
    int64_t done = 0;
    for (;;) {
        TRY(regex_walk_next(&w));
        if (w.begin < 0) break;
        if (done < w.begin) TRY(add_split_part(&c, done, w.begin, false));
        TRY(add_split_part(&c, w.begin, w.end, true));
        done = w.end;
    }
    if (done < text.bytes) TRY(add_split_part(&c, done, text.bytes, false));
    return c.held ? hand_on(&c, c.begin, c.end) : OTT_OK;
}

/* ---- steps that change the text ---- */

static ott_status run_add_space(encode_run *run, int step, text_view text, bool at_start) {
    if (text.at[0] == ' ') return split_run(run, step + 1, text, at_start);
    str *buffer = &run->s->split_text[step];
    buffer->length = 0;
    str_append_bytes(buffer, " ", 1);
    str_append_bytes(buffer, text.at, text.bytes);
    TRY(str_finish(buffer));
    return split_run(run, step + 1, (text_view){buffer->text, buffer->length}, at_start);
}

/* Replaces every space with the mark, one character. To avoid branches, always writes four bytes and then
   advances by the size of the character. */
static void mark_spaces(text_view text, text_view mark, str *out) {
    enum { PART = 1024 };
    char part[4 * PART + 4], four[4] = {0};
    memcpy(four, mark.at, (size_t)mark.bytes);
    for (int64_t at = 0, end; at < text.bytes; at = end) {
        int64_t used = 0;
        end = text.bytes - at < PART ? text.bytes : at + PART;
        for (int64_t i = at; i < end; i++) {
            bool space = text.at[i] == ' ';
            memcpy(part + used, four, 4);
            part[used] = space ? four[0] : text.at[i];
            used += space ? mark.bytes : 1;
        }
        str_append_bytes(out, part, used);
    }
}

/* Returns the end of the text to process next, which begins at `at`. If words can be encoded separately, it
   fits the CPU's cache and ends before a space that follows another ASCII character. */
static int64_t stretch_end(const encode_run *run, int step, text_view text, int64_t at) {
    enum { STRETCH = 1 << 15 };
    const tokenizer *t = run->t;
    bool marks = text_starts_with(t->split[step].replacement, (text_view){METASPACE, sizeof METASPACE - 1});
    if (!t->model.splits_words || !marks || step + 1 < t->split_count) return text.bytes;
    for (int64_t i = at + STRETCH; i < text.bytes; i++) {
        unsigned char before = (unsigned char)text.at[i - 1];
        if (text.at[i] == ' ' && before != ' ' && before < 0x80) return i;
    }
    return text.bytes;
}

static ott_status run_metaspace(encode_run *run, int step, text_view text, bool at_start) {
    const split_step *how = &run->t->split[step];
    str *buffer = &run->s->split_text[step];
    bool wanted = how->prepend == PREPEND_ALWAYS || (how->prepend == PREPEND_FIRST && at_start);
    for (int64_t at = 0, end; at < text.bytes; at = end) {
        end = stretch_end(run, step, text, at);
        buffer->length = 0;
        if (at == 0 && wanted && text.at[0] != ' ' && !text_starts_with(text, how->replacement))
            str_append_bytes(buffer, how->replacement.at, how->replacement.bytes);
        mark_spaces((text_view){text.at + at, end - at}, how->replacement, buffer);
        TRY(str_finish(buffer));
        TRY(split_run(run, step + 1, (text_view){buffer->text, buffer->length}, at_start && at == 0));
    }
    return OTT_OK;
}

enum { BYTES_BETWEEN_CHECKS = 1 << 16 };

static ott_status encode_piece(encode_run *run, text_view piece) {
    tokenizer_scratch *s = run->s;
    s->unchecked += piece.bytes;
    if (s->unchecked >= BYTES_BETWEEN_CHECKS) {
        s->unchecked = 0;
        TRY(cancellation_check(s->cancellation));
    }
    return run->t->unigram.scores ? unigram_encode(run, piece) : bpe_encode(run, piece);
}

ott_status split_run(encode_run *run, int step, text_view text, bool at_start) {
    if (text.bytes == 0) return OTT_OK;
    if (step == run->t->split_count) return encode_piece(run, text);
    switch (run->t->split[step].kind) {
    case SPLIT_ADD_SPACE: return run_add_space(run, step, text, at_start);
    case SPLIT_METASPACE: return run_metaspace(run, step, text, at_start);
    default: return run_pattern(run, step, text, at_start);
    }
}
