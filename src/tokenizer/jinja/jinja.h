/*
 * tokenizer/jinja: the part of Jinja (the template language of Jinja2 3.1, BSD) in which models' chat templates are written,
 * as transformers runs it: trim_blocks, lstrip_blocks, break and continue, {% generation %}.
 *
 * Understood: output, if, for (filter, else, unpacking), set (names, namespaces, blocks), macro, generation; literals,
 * lists, dictionaries, members, indexes, slices, calls, filters, tests, arithmetic, comparisons, conditions; the functions,
 * methods, filters and tests that chat templates use. Anything else is an OTT_ERR_UNSUPPORTED with its line, never another
 * output. No clock: strftime_now is undefined, so that a template that asks for today's date takes the one it has for that case
 * and the same conversation is always the same text.
 *
 * A template is a file from elsewhere: its size, nesting, steps, memory and output are limited.
 */
#ifndef TOKENIZER_JINJA_JINJA_H
#define TOKENIZER_JINJA_JINJA_H

#include "base/str.h"
#include <jansson.h>

typedef struct jinja jinja;

enum {
    JINJA_TEXT_MOST = 1 << 20, /* bytes of a template */
    JINJA_NESTING_MOST = 100,  /* of tags, expressions, values */
    JINJA_CALLS_MOST = 500,    /* statements, expressions and macros, one inside the other */
    JINJA_STEPS_MOST = 10000000,
    JINJA_MEMORY_MOST = 64 << 20, /* bytes that a rendering makes, its output among them */
};

/* Errors begin with the line: "line 3: ...". OTT_ERR_FORMAT: no template; OTT_ERR_UNSUPPORTED: none that is understood. */
ott_status jinja_open(mem *account, const char *text, int64_t bytes, jinja **out);
void jinja_close(jinja *t); /* NULL is allowed */
/* Has it {% generation %}? */
bool jinja_marks_generation(const jinja *t);

/* Bytes [begin, end) of what was rendered. */
typedef struct jinja_span {
    int64_t begin, end;
} jinja_span;

/* Zero-initialise with {.account = m}; free with jinja_spans_free. */
typedef struct jinja_spans {
    mem *account;
    jinja_span *of; /* [count] in order */
    int64_t count;
} jinja_spans;
void jinja_spans_free(jinja_spans *s);

/*
 * Appends the template with the members of `context`, an object, as its variables. generation: gets what {% generation %}
 * wrote; NULL: nobody asks. OTT_ERR_ARGUMENT: the template's own raise_exception, with its words; else as the template's fault
 * or as above.
 */
ott_status jinja_render(const jinja *t, const json_t *context, str *out, jinja_spans *generation);

#endif
