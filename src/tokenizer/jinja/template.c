/* jinja/template: opens and closes templates, and frees lists of spans. */
#include "tokenizer/jinja/syntax.h"

void jinja_spans_free(jinja_spans *s) {
    mem_free(s->account, s->items);
    *s = (jinja_spans){.account = s->account};
}

/* Copies a template with line ends as \n, without the last line end. Returns the number of bytes. */
static int64_t normalize_lines(const char *text, int64_t bytes, char *to) {
    int64_t count = 0;
    for (int64_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n') continue;
        to[count++] = text[i] == '\r' ? '\n' : text[i];
    }
    return count > 0 && to[count - 1] == '\n' ? count - 1 : count;
}

static ott_status open_template(jinja *t, const char *text, int64_t bytes) {
    jinja_token *tokens;
    if (bytes > JINJA_TEXT_MOST)
        return status_fail(OTT_ERR_UNSUPPORTED, "a template of %lld bytes: at most %d are read",
                           (long long)bytes, JINJA_TEXT_MOST);
    int64_t wrong = str_utf8_error(text, bytes);
    if (wrong >= 0) return status_fail(OTT_ERR_FORMAT, "byte %lld is not UTF-8", (long long)wrong);
    TRY(arena_open(t->account, MEM_OTHER, &t->memory));
    TRY(arena_alloc(t->memory, bytes + 1, &t->text));
    TRY(jinja_lex(t, normalize_lines(text, bytes, t->text), &tokens));
    ott_status status = jinja_parse(t, tokens);
    mem_free(t->account, tokens);
    return status;
}

ott_status jinja_open(mem *account, const char *text, int64_t bytes, jinja **out) {
    jinja *t;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(jinja), "a template", &t));
    t->account = account;
    ott_status status = open_template(t, text, bytes);
    if (status != OTT_OK) return jinja_close(t), status;
    return *out = t, OTT_OK;
}

void jinja_close(jinja *t) {
    if (!t) return;
    arena_close(t->memory);
    mem_free(t->account, t);
}

bool jinja_marks_generation(const jinja *t) {
    return t->marks_generation;
}
