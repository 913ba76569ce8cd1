/* tokenizer/jinja/value: what expressions give: Python's values, as far as templates meet them. Internal to jinja. */
#ifndef TOKENIZER_JINJA_VALUE_H
#define TOKENIZER_JINJA_VALUE_H

#include "tokenizer/jinja/syntax.h"

typedef enum jinja_kind {
    JINJA_UNDEFINED, /* a name or member that is not there: empty, false; its own members are an error */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INTEGER,
    JINJA_REAL,
    JINJA_STRING, /* UTF-8; its elements are characters */
    JINJA_LIST,   /* tuples too */
    JINJA_DICT,
    JINJA_NAMESPACE, /* a dictionary whose members are set */
    JINJA_LOOP,      /* "loop" in a loop's body */
    JINJA_MACRO,
    JINJA_FUNCTION /* of the language, by its name */
} jinja_kind;

typedef struct jinja_list jinja_list;
typedef struct jinja_dict jinja_dict;
typedef struct jinja_loop jinja_loop;

typedef struct jinja_value {
    jinja_kind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        text_view text; /* of a string; of what is undefined or a function its name */
        jinja_list *list;
        jinja_dict *dict;
        const jinja_loop *loop;
        const jinja_node *macro;
    };
} jinja_value;

struct jinja_list {
    jinja_value *of;
    int64_t count, capacity;
    int nesting;     /* lists and dictionaries in each other, this one counted */
    bool tuple;      /* which differs in how it is shown, and equals no list */
    bool grows;      /* the list of messages, or a tail of it, which can grow: jinja_list_count */
    int64_t skipped; /* grows: elements of the messages before these */
};

typedef struct jinja_entry {
    uint64_t hash;
    jinja_value key, value;
} jinja_entry;

struct jinja_dict {
    jinja_entry *of; /* in the order they were set */
    int32_t *slots;  /* [2 * capacity] entry + 1, 0: free; NULL: few entries, which are searched */
    int64_t count, capacity;
    int nesting;
};

struct jinja_loop {
    const jinja_list *over;
    int64_t index; /* from 0 */
};

/* A rendering: all that it makes is freed with it. */
typedef struct jinja_work {
    mem *account;
    arena *memory;
    const jinja_settings *settings;
    int64_t bytes, steps, steps_most;
    int line; /* of what is computed, for messages */
    /* renderings of prefixes */
    int64_t messages; /* how many messages this rendering has of a list that grows */
    int64_t seen;     /* the rendering so far is the same with any number of messages from this one on */
} jinja_work;

/* OTT_ERR_UNSUPPORTED beyond the limits of jinja.h. */
ott_status jinja_work_alloc(jinja_work *w, int64_t bytes, void **out);
/* OTT_ERR_STOPPED too. */
ott_status jinja_work_steps(jinja_work *w, int64_t count);
/* The steps of reading a text once. */
static inline ott_status jinja_work_read(jinja_work *w, int64_t bytes) {
    return jinja_work_steps(w, 1 + bytes / 64);
}
/* The steps of work on each byte of a text. */
static inline ott_status jinja_work_write(jinja_work *w, int64_t bytes) {
    return jinja_work_steps(w, 1 + bytes / 8);
}
/* "line 3: ..." */
ott_status jinja_work_fail(const jinja_work *w, ott_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline jinja_value jinja_value_bool(bool truth) {
    return (jinja_value){.kind = JINJA_BOOL, .truth = truth};
}
static inline jinja_value jinja_value_integer(int64_t integer) {
    return (jinja_value){.kind = JINJA_INTEGER, .integer = integer};
}
static inline jinja_value jinja_value_string(text_view text) {
    return (jinja_value){.kind = JINJA_STRING, .text = text};
}
static inline jinja_value jinja_value_undefined(text_view name) {
    return (jinja_value){.kind = JINJA_UNDEFINED, .text = name};
}

const char *jinja_value_kind(const jinja_value *v); /* "a string", for messages */
bool jinja_value_truth(const jinja_value *v);
ott_status jinja_value_equal(jinja_work *w, const jinja_value *a, const jinja_value *b, bool *out);
/* -1, 0, 1 of two numbers, strings or lists; else an error. */
ott_status jinja_value_order(jinja_work *w, const jinja_value *a, const jinja_value *b, int *out);
/* Is it an element of a list, a key of a dictionary, a part of a string? Nothing is in what is undefined. */
ott_status jinja_value_in(jinja_work *w, const jinja_value *a, const jinja_value *b, bool *out);
static inline bool jinja_value_is_number(const jinja_value *v) {
    return v->kind == JINJA_BOOL || v->kind == JINJA_INTEGER || v->kind == JINJA_REAL;
}
double jinja_value_real(const jinja_value *v); /* of a number */

ott_status jinja_value_list(jinja_work *w, jinja_value *out); /* empty */
ott_status jinja_list_append(jinja_work *w, jinja_list *l, jinja_value v);
/* How many elements this rendering has of a list. */
static inline int64_t jinja_list_count(const jinja_work *w, const jinja_list *l) {
    int64_t grown = w->messages - l->skipped;
    return !l->grows || grown > l->count ? l->count : grown > 0 ? grown : 0;
}
/* Renderings of fewer messages than this may differ from here on. */
static inline void jinja_work_see(jinja_work *w, int64_t messages) {
    if (w->seen < messages) w->seen = messages;
}
ott_status jinja_value_dict(jinja_work *w, jinja_value *out); /* empty */
/* *out NULL: absent. */
ott_status jinja_dict_find(jinja_work *w, const jinja_dict *d, const jinja_value *key,
                           const jinja_value **out);
ott_status jinja_dict_find_text(jinja_work *w, const jinja_dict *d, text_view key, const jinja_value **out);
ott_status jinja_dict_set(jinja_work *w, jinja_dict *d, jinja_value key, jinja_value value);
/* Takes the entry out that was added last. */
void jinja_dict_drop_last(jinja_dict *d);

/* Changes of namespaces, to be taken back (undo.c). Zero-initialised; `of` is given back with mem_free. */
typedef struct jinja_undo jinja_undo;
typedef struct jinja_undos {
    jinja_undo *of; /* [count] */
    int64_t count, room;
} jinja_undos;
/* Before `name` is set. */
ott_status jinja_undos_note(jinja_work *w, jinja_undos *u, jinja_dict *of, text_view name);
void jinja_undos_run(jinja_undos *u); /* latest change first; leaves none */

/* From JSON, whose texts are borrowed. */
ott_status jinja_value_from_json(jinja_work *w, const json_t *json, jinja_value *out);
/* What a loop goes over: a list's elements, a string's characters, a dictionary's keys, nothing of what is undefined. */
ott_status jinja_value_elements(jinja_work *w, const jinja_value *v, jinja_list **out);
/* v.name or v["name"]; undefined where there is none. */
ott_status jinja_member(jinja_work *w, const jinja_value *v, text_view name, jinja_value *out);
/* [(key, value), ...] of a dictionary. */
ott_status jinja_value_items(jinja_work *w, const jinja_value *v, jinja_value *out);
ott_status jinja_value_copy_text(jinja_work *w, const char *at, int64_t bytes, jinja_value *out);
ott_status jinja_text_length(jinja_work *w, text_view text, int64_t *out); /* characters */
/* Where a part that is not empty first is; NULL: nowhere. */
ott_status jinja_text_find(jinja_work *w, text_view text, text_view part, const char **out);

/* Python's str() and repr(); NAME of what is undefined is empty. */
ott_status jinja_show(jinja_work *w, const jinja_value *v, jinja_value *out);
/* The elements, or a member of each, as texts with a separator between. */
ott_status jinja_show_joined(jinja_work *w, const jinja_value *v, const text_view *member,
                             text_view separator, jinja_value *out);
/* json.dumps as transformers' tojson: not sorted, not escaped to ASCII; indent < 0: on one line. */
ott_status jinja_show_json(jinja_work *w, const jinja_value *v, int64_t indent, jinja_value *out);

/* Arguments of a call, evaluated: those with a place first, then those with a name. */
enum { JINJA_ARGUMENTS_MOST = 16 };
typedef struct jinja_arguments {
    int count;
    text_view name[JINJA_ARGUMENTS_MOST]; /* empty: by place */
    jinja_value value[JINJA_ARGUMENTS_MOST];
} jinja_arguments;
/* The one at `place`, or called `name`; NULL: it is not given. */
const jinja_value *jinja_argument(const jinja_arguments *a, int place, const char *name);
/* OTT_ERR_UNSUPPORTED where there are more by place than `most`, or one by a name that is not in `names` (NULL-ended). */
ott_status jinja_arguments_check(const jinja_work *w, const jinja_arguments *a, const char *of, int most,
                                 const char *const *names);

/* `found` false: the language has one that is not built, or has none. */
ott_status jinja_filter(jinja_work *w, text_view name, const jinja_value *v, const jinja_arguments *a,
                        jinja_value *out, bool *found);
ott_status jinja_test(jinja_work *w, text_view name, const jinja_value *v, const jinja_arguments *a,
                      bool *out, bool *found);
ott_status jinja_method(jinja_work *w, text_view name, const jinja_value *v, const jinja_arguments *a,
                        jinja_value *out, bool *found);
ott_status jinja_function(jinja_work *w, text_view name, const jinja_arguments *a, jinja_value *out);
bool jinja_function_exists(const jinja_work *w, text_view name);

/* ---- operators (operator.c) ---- */

/* + - ~ * / // % */
ott_status jinja_calculate(jinja_work *w, text_view sign, const jinja_value *a, const jinja_value *b,
                           jinja_value *out);
ott_status jinja_negate(jinja_work *w, jinja_value *v);
/* == != < > <= >= in */
ott_status jinja_compare(jinja_work *w, text_view sign, const jinja_value *a, const jinja_value *b,
                         bool *out);
/* of[key]; undefined where there is none. */
ott_status jinja_index(jinja_work *w, const jinja_value *of, const jinja_value *key, jinja_value *out);
/* of[from:to:step], each none or a number. */
ott_status jinja_slice(jinja_work *w, const jinja_value *of, const jinja_value bounds[3], jinja_value *out);

#endif
