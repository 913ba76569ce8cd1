/* jinja/lex: splits a template into text and the tokens of tags. Removes white space around tags as Jinja2
   does with trim_blocks and lstrip_blocks. */
#include "base/text/text.h"
#include "tokenizer/jinja/syntax.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <utf8proc.h>

typedef struct lexer {
    jinja *t;
    const char *at, *end;
    int line;
    jinja_token *tokens;
    int64_t count, capacity;
    bool strips;     /* the previous tag ended with "-": the white space after the tag is removed */
    bool trims_line; /* only a line end directly after the previous tag is removed */
} lexer;

static ott_status add_lexed(lexer *l, jinja_token token) {
    TRY(mem_reserve(l->t->account, MEM_OTHER, l->count + 1, "tokens of a template", &l->capacity,
                    &l->tokens));
    token.line = l->line;
    l->tokens[l->count++] = token;
    return OTT_OK;
}

static ott_status add_text_token(lexer *l, jinja_token_kind kind, const char *from, const char *to) {
    return add_lexed(l, (jinja_token){.kind = kind, .text = {from, to - from}});
}

static bool lexer_starts_with(const lexer *l, const char *at, const char *word) {
    size_t n = strlen(word);
    return (size_t)(l->end - at) >= n && memcmp(at, word, n) == 0;
}

static ott_status fail_at_line(const lexer *l, const char *what) {
    return status_fail(OTT_ERR_FORMAT, "line %d: %s", l->line, what);
}

static void pass_lines(lexer *l, const char *to) {
    for (; l->at < to; l->at++) l->line += *l->at == '\n';
}

/* ---- between tags ---- */

static const char *find_tag(const lexer *l) {
    for (const char *at = l->at; at + 1 < l->end; at++)
        if (*at == '{' && (at[1] == '{' || at[1] == '%' || at[1] == '#')) return at;
    return l->end;
}

/* Returns the end of the text before a tag, without the white space that the tag removes. */
static const char *strip_before(const lexer *l, const char *from, const char *tag) {
    const char *to = tag;
    char mark = tag + 2 < l->end ? tag[2] : '\0';
    if (tag == l->end || mark == '+') return to;
    if (mark == '-') {
        while (to > from && isspace((unsigned char)to[-1])) to--;
        return to;
    }
    if (tag[1] == '{') return to;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t')) to--;
    bool begins_line = to > from ? to[-1] == '\n' : to == l->t->text || to[-1] == '\n';
    return begins_line ? to : tag;
}

static ott_status lex_text(lexer *l) {
    const char *tag = find_tag(l), *from = l->at;
    if (l->strips)
        while (from < tag && isspace((unsigned char)*from)) from++;
    else if (l->trims_line && from < tag && *from == '\n')
        from++;
    const char *to = strip_before(l, from, tag);
    l->strips = l->trims_line = false;
    if (to > from) TRY(add_text_token(l, JINJA_TOKEN_TEXT, from, to));
    pass_lines(l, tag);
    return OTT_OK;
}

/* ---- inside of tags ---- */

/* Decodes the escape that follows a backslash at *from, and moves *from after it. Writes the character to
   `to` and returns its bytes. An unknown escape stays as it is. */
static int unescape(const char **from, const char *end, char *to) {
    static const char names[] = "nrtbfv0\\'\"", values[] = "\n\r\t\b\f\v\0\\'\"";
    const char *at = *from, *known = *at ? strchr(names, *at) : NULL;
    const int digits = *at == 'x' ? 2 : *at == 'u' ? 4 : 0;
    char hex[5] = "";
    for (int i = 0; i < digits && at + 1 + i < end && isxdigit((unsigned char)at[1 + i]); i++)
        hex[i] = at[1 + i];
    const int32_t code = (int32_t)strtol(hex, NULL, 16);
    if (digits && hex[digits - 1] && (code < 0xd800 || code > 0xdfff))
        return *from += 1 + digits, (int)utf8proc_encode_char(code, (utf8proc_uint8_t *)to);
    *from += 1;
    if (known) return to[0] = values[known - names], 1;
    to[0] = '\\';
    to[1] = *at;
    return 2;
}

static ott_status lex_string(lexer *l) {
    char quote = *l->at;
    const char *from = l->at + 1, *to = from;
    while (to < l->end && *to != quote) to += *to == '\\' && to + 1 < l->end ? 2 : 1;
    if (to >= l->end) return fail_at_line(l, "a string has no closing quote");
    void *memory;
    int64_t bytes = 0;
    TRY(arena_alloc(l->t->memory, to - from + 1, &memory));
    for (const char *at = from; at < to;) {
        if (*at != '\\')
            ((char *)memory)[bytes++] = *at++;
        else
            at++, bytes += unescape(&at, to, (char *)memory + bytes);
    }
    TRY(add_text_token(l, JINJA_TOKEN_STRING, memory, (char *)memory + bytes));
    pass_lines(l, to + 1);
    return OTT_OK;
}

static ott_status lex_number(lexer *l) {
    char digits[64];
    int64_t length = 0, points = 0;
    const char *at = l->at;
    for (; at < l->end && length < (int64_t)sizeof digits - 1; at++) {
        bool exponent =
            (*at == 'e' || *at == 'E') && at + 1 < l->end && (isdigit((unsigned char)at[1]) || at[1] == '-');
        bool point = *at == '.' && at + 1 < l->end && isdigit((unsigned char)at[1]);
        bool sign = *at == '-' && (at[-1] == 'e' || at[-1] == 'E');
        if (*at == '_') continue;
        if (!isdigit((unsigned char)*at) && !exponent && !point && !sign) break;
        points += exponent || point;
        digits[length++] = *at;
    }
    digits[length] = '\0';
    jinja_token token = {.kind = points ? JINJA_TOKEN_REAL : JINJA_TOKEN_INTEGER,
                         .text = {l->at, at - l->at}};
    errno = 0;
    if (points)
        token.real = text_to_double(digits, NULL);
    else
        token.integer = strtoll(digits, NULL, 10);
    if (errno == ERANGE) return fail_at_line(l, "a number is too large");
    l->at = at;
    return add_lexed(l, token);
}

static bool is_name_character(char c) {
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static ott_status lex_sign(lexer *l) {
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    int64_t bytes = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (lexer_starts_with(l, l->at, two[i])) bytes = 2;
    if (bytes == 1 && !strchr("+-*/%~()[]{}:,.|=<>", *l->at)) {
        char shown[8] = {isprint((unsigned char)*l->at) ? *l->at : '?'};
        return status_fail(OTT_ERR_FORMAT, "line %d: '%s' has no meaning in a tag", l->line, shown);
    }
    TRY(add_text_token(l, JINJA_TOKEN_SIGN, l->at, l->at + bytes));
    l->at += bytes;
    return OTT_OK;
}

static ott_status lex_token(lexer *l) {
    if (isspace((unsigned char)*l->at)) return pass_lines(l, l->at + 1), OTT_OK;
    if (*l->at == '\'' || *l->at == '"') return lex_string(l);
    if (isdigit((unsigned char)*l->at)) return lex_number(l);
    if (!is_name_character(*l->at)) return lex_sign(l);
    const char *to = l->at;
    while (to < l->end && is_name_character(*to)) to++;
    TRY(add_text_token(l, JINJA_TOKEN_NAME, l->at, to));
    l->at = to;
    return OTT_OK;
}

/* Returns the length of the tag's end at `at`, including its "-" or "+"; 0 if no tag ends there. */
static int64_t end_bytes(const lexer *l, const char *at, const char *closing) {
    if (lexer_starts_with(l, at, closing)) return 2;
    return (*at == '-' || *at == '+') && lexer_starts_with(l, at + 1, closing) ? 3 : 0;
}

static void note_end(lexer *l, const char *at, bool is_output) {
    l->strips = *at == '-';
    l->trims_line = !is_output && *at != '+';
}

static ott_status lex_tag(lexer *l, bool is_output) {
    const char *closing = is_output ? "}}" : "%}";
    int64_t bytes;
    int braces = 0; /* number of open braces: "}}" inside braces does not end the tag */
    TRY(add_lexed(l, (jinja_token){.kind = is_output ? JINJA_TOKEN_OUTPUT_BEGIN : JINJA_TOKEN_BLOCK_BEGIN}));
    l->at += 2;
    if (l->at < l->end && (*l->at == '-' || *l->at == '+')) l->at++;
    while (l->at < l->end) {
        bytes = braces ? 0 : end_bytes(l, l->at, closing);
        if (bytes) {
            note_end(l, l->at, is_output);
            l->at += bytes;
            return add_lexed(
                l, (jinja_token){.kind = is_output ? JINJA_TOKEN_OUTPUT_END : JINJA_TOKEN_BLOCK_END});
        }
        braces += (*l->at == '{') - (*l->at == '}' && braces);
        TRY(lex_token(l));
    }
    return fail_at_line(l, is_output ? "{{ has no }}" : "{% has no %}");
}

static ott_status lex_comment(lexer *l) {
    for (const char *at = l->at + 2; at < l->end; at++) {
        int64_t bytes = end_bytes(l, at, "#}");
        if (!bytes) continue;
        note_end(l, at, false);
        pass_lines(l, at + bytes);
        return OTT_OK;
    }
    return fail_at_line(l, "{# has no #}");
}

static ott_status lex_all(lexer *l) {
    while (l->at < l->end) {
        TRY(lex_text(l));
        if (l->at == l->end) break;
        TRY(l->at[1] == '#' ? lex_comment(l) : lex_tag(l, l->at[1] == '{'));
    }
    return add_lexed(l, (jinja_token){.kind = JINJA_TOKEN_END});
}

ott_status jinja_lex(jinja *t, int64_t bytes, jinja_token **out) {
    lexer l = {.t = t, .at = t->text, .end = t->text + bytes, .line = 1};
    ott_status status = lex_all(&l);
    if (status != OTT_OK) return mem_free(t->account, l.tokens), status;
    return *out = l.tokens, OTT_OK;
}
