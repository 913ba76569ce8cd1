/*
 * tokenizer/jinja: renders the subset of Jinja (the template language of Jinja2 3.1, BSD) that chat templates
 * use, with the options of transformers: trim_blocks, lstrip_blocks, break and continue, {% generation %}.
 *
 * Supported statements: output, if, for (filter, else, unpacking), set (names, namespaces, blocks), macro,
 * filter, generation. Supported expressions: literals, lists, dictionaries, members, indexes, slices, calls,
 * filters, tests, arithmetic, comparisons, conditions. Functions, methods, filters and tests are the ones
 * that chat templates use. Anything else is an OTT_ERR_UNSUPPORTED with its line, never different output.
 * strftime_now does not read a clock: its time is a setting, so the same conversation always renders to the
 * same text.
 *
 * Templates are untrusted files, so size, nesting, steps, memory and output are limited. Every operation that
 * does not take constant time counts its steps, so a rendering takes at most about a second.
 */
#ifndef TOKENIZER_JINJA_JINJA_H
#define TOKENIZER_JINJA_JINJA_H

#include "base/text/str.h"
#include "base/cancellation.h"
#include <jansson.h>
#include <time.h>

typedef struct jinja jinja;

enum {
    JINJA_TEXT_MOST = 1 << 20, /* maximum bytes of a template */
    JINJA_NESTING_MOST = 100,  /* depth of nested tags, expressions, values */
    JINJA_CALLS_MOST = 500,    /* depth of statements, expressions and macros during rendering */
    /* A step runs a node, compares or copies an element, or reads 64 bytes of text: about 0.1 us. */
    JINJA_STEPS_MOST = 10000000,
    JINJA_MEMORY_MOST = 64 << 20, /* bytes allocated by a rendering, including its output */
};

/* Parses a template. Errors begin with the line: "line 3: ...". OTT_ERR_FORMAT: invalid template;
   OTT_ERR_UNSUPPORTED: a feature that is not supported. */
ott_status jinja_open(mem *account, const char *text, int64_t bytes, jinja **out);
void jinja_close(jinja *t); /* does nothing for NULL */
/* True if the template has {% generation %}. */
bool jinja_marks_generation(const jinja *t);

/* Bytes [begin, end) of the rendered text. */
typedef struct jinja_span {
    int64_t begin, end;
} jinja_span;

/* Zero-initialize with {.account = m}; free with jinja_spans_free. */
typedef struct jinja_spans {
    mem *account;
    jinja_span *items; /* [count] spans in ascending order */
    int64_t count;
} jinja_spans;
void jinja_spans_free(jinja_spans *s);

/* A step limit shared by several renderings. */
typedef struct jinja_budget {
    int64_t most, taken;
} jinja_budget;

/* Zero-initialized: at most JINJA_STEPS_MOST steps, no cancellation, no strftime_now. */
typedef struct jinja_settings {
    const cancellation *cancellation; /* checked every few milliseconds; NULL: not cancelable */
    jinja_budget *budget;             /* NULL: JINJA_STEPS_MOST for this rendering */
    const struct tm *today; /* the time that strftime_now formats; NULL: strftime_now is undefined */
} jinja_settings;

/* Renders the template with the members of the object `context` as its variables, and appends the text to
   `out`. generation: receives the spans inside {% generation %}; may be NULL. OTT_ERR_ARGUMENT: the template
   called raise_exception (the message is its argument). OTT_ERR_STOPPED: canceled. Other errors as for
   jinja_open. */
ott_status jinja_render(const jinja *t, const json_t *context, const jinja_settings *settings, str *out,
                        jinja_spans *generation);

/* Text of the first `count` messages: the first `shared` bytes of the full text, followed by `bytes` bytes at
   offset `at` of the string `tails`. */
typedef struct jinja_prefix {
    int64_t count; /* input: 1 <= count < messages */
    bool known;    /* output; false: render these messages separately */
    int64_t shared, at, bytes;
} jinja_prefix;

/* Like jinja_render without {% generation %}. Also finds the text of the first `count` messages of the list
   `messages` for each prefix (ascending counts); the time is linear in the number of messages. A prefix is
   known only if the template loops over the messages outside of other loops and macros, and if what it read
   up to the prefix's last message does not depend on later messages. Appends to `tails`. */
ott_status jinja_render_prefixes(const jinja *t, const json_t *context, const jinja_settings *settings,
                                 str *out, jinja_prefix *prefixes, int64_t count, str *tails);

#endif
