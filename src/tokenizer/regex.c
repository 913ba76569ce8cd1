/* tokenizer/regex: runs a tokenizer's regular expressions with PCRE2. They are written in Oniguruma's Ruby
   syntax. Syntax that PCRE2 interprets differently is translated (\s, \w) or refused. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/internal.h"
#include <ctype.h>
#include <inttypes.h>
#include <pcre2.h>

/* ---- from Oniguruma's meaning to PCRE2's ---- */

/* PCRE2's \s also contains U+180E. PCRE2's \w contains all numbers but no marks. Oniguruma's \w contains
   marks, circled and squared letters, decimal digits and some other numbers. */
#define SPACES "\\p{Z}\\t-\\r\\x{85}"
#define WORDS  COMMON_WORDS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

typedef struct translation {
    text_view from;
    int64_t at;
    bool in_class;
    str to;
} translation;

static char peek(const translation *t, int64_t ahead) {
    return t->at + ahead < t->from.bytes ? t->from.at[t->at + ahead] : '\0';
}

static void copy_unchanged(translation *t, int64_t bytes) {
    if (bytes > t->from.bytes - t->at) bytes = t->from.bytes - t->at;
    str_append_bytes(&t->to, t->from.at + t->at, bytes);
    t->at += bytes;
}

static ott_status refuse_pattern(const translation *t, const char *what) {
    return status_fail(OTT_ERR_UNSUPPORTED, "the regular expression '%s': %s, at byte %" PRId64,
                       str_show(t->from.at).text, what, t->at);
}

static ott_status translate_set(translation *t, const char *set, bool complement) {
    if (t->in_class && complement) return refuse_pattern(t, "\\S or \\W inside brackets is not supported");
    const char *opening = complement ? "[^" : "[";
    str_printf(&t->to, "%s%s%s", t->in_class ? "" : opening, set, t->in_class ? "" : "]");
    t->at += 2;
    return OTT_OK;
}

static ott_status translate_escape(translation *t) {
    switch (peek(t, 1)) {
    case 's': return translate_set(t, SPACES, false);
    case 'S': return translate_set(t, SPACES, true);
    case 'w': return translate_set(t, WORDS, false);
    case 'W': return translate_set(t, WORDS, true);
    case 'b': /* \b in brackets is a backspace in both syntaxes */
        if (t->in_class) break;
        /* fall through */
    case 'B': return refuse_pattern(t, "word boundaries are not supported");
    case 'h':
    case 'H': return refuse_pattern(t, "\\h (a hexadecimal digit in Oniguruma) is not supported");
    case 'K':
    case 'Q':
    case 'E': return refuse_pattern(t, "\\K, \\Q and \\E are not supported");
    case '\0': return refuse_pattern(t, "it ends in a backslash");
    default: break;
    }
    bool braced = peek(t, 2) == '{'; /* \p{L}, not \pL */
    copy_unchanged(t, 2);
    while (braced && t->at < t->from.bytes && peek(t, 0) != '}') copy_unchanged(t, 1);
    if (braced) copy_unchanged(t, 1);
    return OTT_OK;
}

static ott_status translate_in_class(translation *t) {
    char c = peek(t, 0);
    /* Refuses nested sets, and [:punct:], which contains symbols in Oniguruma. */
    if (c == '[') return refuse_pattern(t, "brackets inside brackets are not supported");
    if (c == '&' && peek(t, 1) == '&') return refuse_pattern(t, "&& inside brackets is not supported");
    if (c == ']') t->in_class = false;
    copy_unchanged(t, 1);
    return OTT_OK;
}

/* Refuses inline options other than i: "(?m" has another meaning in Ruby. "(*" exists only in PCRE2. */
static ott_status translate_group(translation *t) {
    if (peek(t, 1) == '*') return refuse_pattern(t, "(* is not supported");
    if (peek(t, 1) == '?' && (isalpha((unsigned char)peek(t, 2)) || peek(t, 2) == '-'))
        for (int64_t i = 2; peek(t, i) != ':' && peek(t, i) != ')'; i++)
            if (peek(t, i) != 'i' && peek(t, i) != '-')
                return refuse_pattern(t, "of the inline options only i is supported");
    copy_unchanged(t, 1);
    return OTT_OK;
}

static ott_status translate_next(translation *t) {
    char c = peek(t, 0);
    if (c == '\\') return translate_escape(t);
    if (t->in_class) return translate_in_class(t);
    if (c == '(') return translate_group(t);
    if (c == '[') {
        /* A ']' directly after the opening bracket is a member of the class, in PCRE2 and in Ruby. */
        t->in_class = true;
        copy_unchanged(t, peek(t, 1) == '^' ? 2 : 1);
        if (peek(t, 0) == ']') copy_unchanged(t, 1);
        return OTT_OK;
    }
    /* {n,m}+ is possessive in PCRE2, but in Ruby it matches {n,m} once or more often. */
    if (c == '}' && peek(t, 1) == '+') return refuse_pattern(t, "{n,m}+ is not supported");
    copy_unchanged(t, 1);
    return OTT_OK;
}

static ott_status translate(translation *t) {
    if (memchr(t->from.at, '\0', (size_t)t->from.bytes)) return refuse_pattern(t, "a NUL is not supported");
    while (t->at < t->from.bytes) TRY(translate_next(t));
    return str_finish(&t->to);
}

/* ---- compiling ---- */

static void *take_memory(PCRE2_SIZE bytes, void *account) {
    void *memory;
    return mem_alloc(account, MEM_OTHER, (int64_t)bytes, "a regular expression", &memory) == OTT_OK ? memory
                                                                                                    : NULL;
}

static void free_block(void *block, void *account) {
    mem_free(account, block);
}

static ott_status compile_translated(pcre2_general_context *memory, text_view regex, const str *text,
                                     uint32_t options, pcre2_code **out) {
    int error = 0;
    PCRE2_SIZE at;
    PCRE2_UCHAR message[128];
    pcre2_compile_context *context = pcre2_compile_context_create(memory);
    if (!context) return OTT_ERR_MEMORY;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* In Ruby, ^ and $ match at the ends of every line. \C matches one byte, maybe a part of a character. */
    *out = pcre2_compile((PCRE2_SPTR)text->text, (PCRE2_SIZE)text->length,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | options, &error,
                         &at, context);
    pcre2_compile_context_free(context);
    if (error == PCRE2_ERROR_HEAP_FAILED) return OTT_ERR_MEMORY;
    if (!*out) {
        pcre2_get_error_message(error, message, sizeof message);
        return status_fail(OTT_ERR_UNSUPPORTED, "the regular expression '%s' is not understood: %s",
                           str_show(regex.at).text, (const char *)message);
    }
    /* without JIT, the slower interpreter gives the same matches */
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return OTT_OK;
}

ott_status regex_compile(mem *account, text_view regex, pattern *out) {
    translation t = {.from = regex, .to = {.account = account}};
    *out = (pattern){.source = regex};
    pcre2_general_context *memory = pcre2_general_context_create(take_memory, free_block, account);
    ott_status status = memory ? translate(&t) : OTT_ERR_MEMORY;
    if (status == OTT_OK)
        status = compile_translated(memory, regex, &t.to, PCRE2_USE_OFFSET_LIMIT, &out->code);
    if (status == OTT_OK)
        status = compile_translated(memory, regex, &t.to, PCRE2_USE_OFFSET_LIMIT | PCRE2_AUTO_CALLOUT,
                                    &out->counted);
    out->ascii = ascii_rule_find(regex);
    pcre2_general_context_free(memory);
    str_free(&t.to);
    return status;
}

void regex_free(pattern *p) {
    pcre2_code_free(p->code);
    pcre2_code_free(p->counted);
    *p = (pattern){0};
}

/* ---- matching ---- */

enum { STACK_FIRST = 32 << 10, STACK_MOST = 16 << 20 }; /* bytes of the JIT stack */

/* Limits the time of any pattern on any text. PCRE2 counts steps only in its interpreter with a callout
   before each item, which is slow. So a search first runs without counting, from a few positions and with a
   few backtracking steps each; this is enough for tokenizers' patterns. If it is not enough, the search runs
   with counting, against the text's budget. One in SAMPLE of the other searches is counted, too, and its
   steps count SAMPLE times. */
enum { FREE_STEPS = 64, FREE_PLACES = 64, SAMPLE = 64, BUDGET_PER_BYTE = 1024, BUDGET_OF_ANY = 1000000 };

ott_status regex_matcher_open(mem *account, matcher *out) {
    *out = (matcher){.memory = pcre2_general_context_create(take_memory, free_block, account)};
    if (!out->memory) return OTT_ERR_MEMORY;
    out->context = pcre2_match_context_create(out->memory);
    out->data = pcre2_match_data_create(1, out->memory);
    out->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, out->memory);
    if (out->context && out->data && out->stack) {
        pcre2_jit_stack_assign(out->context, NULL, out->stack);
        regex_matcher_begin(out, 0);
        return OTT_OK;
    }
    regex_matcher_close(out);
    return status_fail(OTT_ERR_MEMORY, "out of memory: the work space of regular expressions");
}

void regex_matcher_begin(matcher *m, int64_t bytes) {
    m->budget = m->left = BUDGET_OF_ANY + BUDGET_PER_BYTE * bytes;
    m->searches = 0; /* so that the text determines which searches are counted */
}

void regex_matcher_close(matcher *m) {
    pcre2_jit_stack_free(m->stack);
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_general_context_free(m->memory);
    *m = (matcher){0};
}

regex_walk regex_walk_start(const pattern *p, matcher *m, text_view text) {
    return (regex_walk){.pattern = p, .matcher = m, .text = text, .last_end = -1};
}

static ott_status fail_match(const regex_walk *w, int code) {
    PCRE2_UCHAR message[128];
    if (code == PCRE2_ERROR_CALLOUT)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "a regular expression of the tokenizer fails at byte %" PRId64
                           " of a text of %" PRId64 " bytes: it backtracks more than the %" PRId64
                           " steps allowed for a text",
                           w->from, w->text.bytes, w->matcher->budget);
    pcre2_get_error_message(code, message, sizeof message);
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "a regular expression of the tokenizer fails at byte %" PRId64 " of a text of %" PRId64
                       " bytes: %s",
                       w->from, w->text.bytes, (const char *)message);
}

static int run_code(const regex_walk *w, const pcre2_code *code) {
    return pcre2_match(code, (PCRE2_SPTR)w->text.at, (PCRE2_SIZE)w->text.bytes, (PCRE2_SIZE)w->from,
                       PCRE2_NO_UTF_CHECK, w->matcher->data, w->matcher->context);
}

/* State of a counted search. An item of the regex costs 1 plus its distance from the previous item. */
typedef struct search_count {
    matcher *matcher;
    int64_t times; /* number of searches that this search represents; multiplies the costs */
    int64_t at;    /* offset of the previous item in the text */
} search_count;

static int count_item(pcre2_callout_block *block, void *context) {
    search_count *c = context;
    int64_t at = (int64_t)block->current_position, moved = at > c->at ? at - c->at : c->at - at;
    c->at = at;
    c->matcher->left -= c->times * (1 + moved);
    return c->matcher->left < 0 ? PCRE2_ERROR_CALLOUT : 0;
}

static int search_counted(const regex_walk *w, int64_t times) {
    matcher *m = w->matcher;
    search_count count = {.matcher = m, .times = times, .at = w->from};
    pcre2_set_callout(m->context, count_item, &count);
    pcre2_set_match_limit(m->context, UINT32_MAX);
    pcre2_set_offset_limit(m->context, PCRE2_UNSET);
    int code = run_code(w, w->pattern->counted);
    pcre2_set_callout(m->context, NULL, NULL);
    return code;
}

static int search_match(const regex_walk *w) {
    matcher *m = w->matcher;
    if (++m->searches % SAMPLE == 0) return search_counted(w, SAMPLE);
    pcre2_set_match_limit(m->context, FREE_STEPS);
    pcre2_set_offset_limit(m->context, (PCRE2_SIZE)(w->from + FREE_PLACES));
    int code = run_code(w, w->pattern->code);
    bool further = code == PCRE2_ERROR_NOMATCH && w->text.bytes > w->from + FREE_PLACES;
    return further || code == PCRE2_ERROR_MATCHLIMIT ? search_counted(w, 1) : code;
}

static ott_status find_regex(regex_walk *w) {
    int code = search_match(w);
    w->begin = w->end = -1;
    if (code == PCRE2_ERROR_NOMATCH) return OTT_OK;
    if (code < 0) return fail_match(w, code);
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(w->matcher->data);
    w->begin = (int64_t)bounds[0];
    w->end = (int64_t)bounds[1];
    STATUS_REQUIRE(w->begin >= w->from && w->end >= w->begin);
    return OTT_OK;
}

/* Finds the match by plain code, without PCRE2, if the pattern has such code and the text is ASCII. */
static bool find_ascii(regex_walk *w) {
    if (!w->pattern->ascii || w->from == w->text.bytes) return false;
    int64_t end = ascii_match(w->pattern->ascii, w->text, w->from);
    if (end < 0) return false;
    w->begin = w->from;
    w->end = end;
    return true;
}

static void find_literal(regex_walk *w) {
    text_view rest = {w->text.at + w->from, w->text.bytes - w->from}, literal = w->pattern->literal;
    const char *found = memmem(rest.at, (size_t)rest.bytes, literal.at, (size_t)literal.bytes);
    w->begin = found ? found - w->text.at : -1;
    w->end = found ? w->begin + literal.bytes : -1;
}

ott_status regex_walk_next(regex_walk *w) {
    for (;;) {
        w->begin = w->end = -1;
        if (w->from > w->text.bytes) return OTT_OK;
        if (!w->pattern->code)
            find_literal(w);
        else if (!find_ascii(w))
            TRY(find_regex(w));
        if (w->begin < 0) return OTT_OK;
        w->from = w->end;
        if (w->begin != w->end || w->end != w->last_end) break;
        /* An empty match directly after the last match does not count: searches one character later. */
        w->from += w->from < w->text.bytes ? text_character_bytes((unsigned char)w->text.at[w->from]) : 1;
    }
    w->last_end = w->end;
    return OTT_OK;
}
