/*
 * tokenizer/jinja: the part of Jinja (the template language of Jinja2 3.1, BSD) in which models' chat templates are written,
 * as transformers runs it: trim_blocks, lstrip_blocks, break and continue, {% generation %}.
 *
 * Understood: output, if, for (filter, else, unpacking), set (names, namespaces, blocks), macro, filter, generation;
 * literals, lists, dictionaries, members, indexes, slices, calls, filters, tests, arithmetic, comparisons, conditions; the
 * functions, methods, filters and tests that chat templates use. Anything else is an OTT_ERR_UNSUPPORTED with its line, never
 * another output. strftime_now reads no clock: its time is a setting, so that the same conversation is always the same text.
 *
 * A template is a file from elsewhere: its size, nesting, steps, memory and output are limited. Every operation that does
 * not take constant time counts its steps, so that a rendering takes about a second at most.
 */
#ifndef TOKENIZER_JINJA_JINJA_H
#define TOKENIZER_JINJA_JINJA_H

#include "base/str.h"
#include "base/cancellation.h"
#include <jansson.h>
#include <time.h>

typedef struct jinja jinja;

enum {
    JINJA_TEXT_MOST = 1 << 20, /* bytes of a template */
    JINJA_NESTING_MOST = 100,  /* of tags, expressions, values */
    JINJA_CALLS_MOST = 500,    /* statements, expressions and macros, one inside the other */
    JINJA_STEPS_MOST =
        10000000, /* nodes run, elements compared or copied, 64 bytes of text read: about 0.1 us each */
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

/* Steps of several renderings together. */
typedef struct jinja_budget {
    int64_t most, taken;
} jinja_budget;

/* Zero-initialised: a rendering of JINJA_STEPS_MOST steps that is not stopped, without strftime_now. */
typedef struct jinja_settings {
    const cancellation
        *cancellation;      /* checked every few milliseconds; NULL: the rendering is never stopped */
    jinja_budget *budget;   /* NULL: JINJA_STEPS_MOST for this rendering */
    const struct tm *today; /* the time that strftime_now formats; NULL: strftime_now is undefined */
} jinja_settings;

/*
 * Appends the template with the members of `context`, an object, as its variables. generation: gets the places that
 * {% generation %} wrote; NULL: they are not recorded. OTT_ERR_ARGUMENT: the template's own raise_exception, with its words;
 * OTT_ERR_STOPPED; otherwise as the template's fault or as above.
 */
ott_status jinja_render(const jinja *t, const json_t *context, const jinja_settings *settings, str *out,
                        jinja_spans *generation);

/* The text of the first `count` messages: the first `shared` bytes of the text of all, then `bytes` bytes at `at` of the tails. */
typedef struct jinja_prefix {
    int64_t count; /* in: 1 <= count < messages */
    bool known;    /* out: false: the template must be rendered for these messages separately */
    int64_t shared, at, bytes;
} jinja_prefix;

/*
 * jinja_render without {% generation %}, and the texts of prefixes of the list `messages` (ascending), in a time that is linear
 * in the messages. A prefix is known if the template loops over the messages outside of other loops and macros, and reads
 * nothing before its last message that depends on how many messages follow. Appends to `tails`.
 */
ott_status jinja_render_prefixes(const jinja *t, const json_t *context, const jinja_settings *settings,
                                 str *out, jinja_prefix *prefixes, int64_t count, str *tails);

#endif
