/* tokenizer/jinja/value: values of expressions, with Python's semantics. Internal to jinja. */
#ifndef TOKENIZER_JINJA_VALUE_H
#define TOKENIZER_JINJA_VALUE_H

#include "tokenizer/jinja/syntax.h"

typedef enum jinja_kind {
    JINJA_UNDEFINED, /* a missing name or member: empty text, false; reading a member of it is an error */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INTEGER,
    JINJA_REAL,
    JINJA_STRING, /* UTF-8; its elements are characters */
    JINJA_LIST,   /* list or tuple */
    JINJA_DICT,
    JINJA_NAMESPACE, /* a dictionary with assignable members */
    JINJA_LOOP,      /* the variable "loop" in the body of a for loop */
    JINJA_MACRO,
    JINJA_FUNCTION /* a built-in function */
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
        text_view text; /* of a string: its text; of an undefined value or a function: its name */
        jinja_list *list;
        jinja_dict *dict;
        const jinja_loop *loop;
        const jinja_node *macro;
    };
} jinja_value;

struct jinja_list {
    jinja_value *items;
    int64_t count, capacity;
    int nesting;     /* depth of nested lists and dictionaries, including this one */
    bool tuple;      /* true: a tuple, which prints differently and never equals a list */
    bool grows;      /* the list of messages or its tail: its length differs between renderings */
    int64_t skipped; /* if `grows`: number of messages before the first element */
};

typedef struct jinja_entry {
    uint64_t hash;
    jinja_value key, value;
} jinja_entry;

struct jinja_dict {
    jinja_entry *entries; /* entries in insertion order */
    int32_t *slots;       /* [2 * capacity] index + 1, 0: free; NULL: few entries, linear search */
    int64_t count, capacity;
    int nesting;
};

struct jinja_loop {
    const jinja_list *over;
    int64_t index; /* index of the current element, from 0 */
};

/* State of a rendering. Its arena owns all values. */
typedef struct jinja_work {
    mem *account;
    arena *memory;
    const jinja_settings *settings;
    int64_t bytes, steps, steps_most;
    int line; /* current line, for messages */
    /* used to render prefixes of a conversation */
    int64_t messages; /* number of messages in this rendering */
    int64_t seen;     /* the output so far is equal in all renderings of at least `seen` messages */
} jinja_work;

/* Allocates from the arena. OTT_ERR_UNSUPPORTED above the limits of jinja.h. */
ott_status jinja_work_alloc(jinja_work *w, int64_t bytes, void **out);
#define jinja_work_alloc(w, bytes, out) jinja_work_alloc(w, bytes, MEM_OUT(out))
/* Counts steps. OTT_ERR_UNSUPPORTED above the limit, OTT_ERR_STOPPED if canceled. */
ott_status jinja_work_steps(jinja_work *w, int64_t count);
/* Counts the steps of memcpy or memcmp of a text. */
static inline ott_status jinja_work_read(jinja_work *w, int64_t bytes) {
    return jinja_work_steps(w, 1 + bytes / 64);
}
/* Counts the steps of processing a text byte by byte. */
static inline ott_status jinja_work_write(jinja_work *w, int64_t bytes) {
    return jinja_work_steps(w, 1 + bytes / 8);
}
/* Fails with a message that begins with "line 3: ". */
#define jinja_work_fail(w, code, ...) status_context(status_fail(code, __VA_ARGS__), "line %d", (w)->line)

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

const char *jinja_value_kind(const jinja_value *v); /* text for messages, "a string" */
bool jinja_value_truth(const jinja_value *v);
/* Like jinja_value_truth. For the list of messages, records on which messages the output depends. */
bool jinja_value_truth_now(jinja_work *w, const jinja_value *v);
/* If v is the list of messages, replaces it by a copy. The output then depends on the number of messages. */
ott_status jinja_value_fix(jinja_work *w, jinja_value *v);
ott_status jinja_value_equal(jinja_work *w, const jinja_value *a, const jinja_value *b, bool *out);
/* Compares two numbers, strings or lists: < 0, 0 or > 0. Other kinds are an error. */
ott_status jinja_value_order(jinja_work *w, const jinja_value *a, const jinja_value *b, int *out);
static inline bool jinja_value_is_number(const jinja_value *v) {
    return v->kind == JINJA_BOOL || v->kind == JINJA_INTEGER || v->kind == JINJA_REAL;
}
double jinja_value_real(const jinja_value *v);        /* value of a number or a bool */
int64_t jinja_value_as_integer(const jinja_value *v); /* value of an integer or a bool */

ott_status jinja_value_list(jinja_work *w, jinja_value *out); /* makes an empty list */
ott_status jinja_list_append(jinja_work *w, jinja_list *l, jinja_value v);
ott_status jinja_list_append_all(jinja_work *w, jinja_list *l, const jinja_list *from);
/* Makes a copy of a list or tuple. */
ott_status jinja_value_list_copy(jinja_work *w, const jinja_list *from, jinja_value *out);
/* Returns the number of a list's elements in this rendering. */
static inline int64_t jinja_list_count(const jinja_work *w, const jinja_list *l) {
    int64_t grown = w->messages - l->skipped;
    return !l->grows || grown > l->count ? l->count : grown > 0 ? grown : 0;
}
/* Records that a rendering of fewer than `messages` messages may have another output from here on. */
static inline void jinja_work_see(jinja_work *w, int64_t messages) {
    if (w->seen < messages) w->seen = messages;
}
ott_status jinja_value_dict(jinja_work *w, jinja_value *out); /* makes an empty dictionary */
/* Finds a key; *out is NULL if absent. */
ott_status jinja_dict_find(jinja_work *w, const jinja_dict *d, const jinja_value *key,
                           const jinja_value **out);
ott_status jinja_dict_find_text(jinja_work *w, const jinja_dict *d, text_view key, const jinja_value **out);
ott_status jinja_dict_set(jinja_work *w, jinja_dict *d, jinja_value key, jinja_value value);
/* Removes the last added entry. */
void jinja_dict_drop_last(jinja_dict *d);

/* Log of changes of namespaces, to undo them (undo.c). Zero-initialize; free `items` with mem_free. */
typedef struct jinja_undo jinja_undo;
typedef struct jinja_undos {
    jinja_undo *items; /* [count] recorded changes */
    int64_t count, capacity;
} jinja_undos;
/* Records the value of `name`; call before setting it. */
ott_status jinja_undos_note(jinja_work *w, jinja_undos *u, jinja_dict *dict, text_view name);
void jinja_undos_run(jinja_undos *u); /* undoes all changes, latest first, and clears the log */

/* Converts JSON; strings are borrowed. */
ott_status jinja_value_from_json(jinja_work *w, const json_t *json, jinja_value *out);
/* Lists the elements that a loop iterates over: a list's elements, a string's characters, a dictionary's
   keys; none if v is undefined. */
ott_status jinja_value_elements(jinja_work *w, const jinja_value *v, jinja_list **out);
/* Returns v.name or v["name"]; undefined if absent. */
ott_status jinja_member(jinja_work *w, const jinja_value *v, text_view name, jinja_value *out);
ott_status jinja_value_copy_text(jinja_work *w, const char *at, int64_t bytes, jinja_value *out);
/* Makes a string of the text and frees the text. Returns `status` if it is an error. */
ott_status jinja_value_take_text(jinja_work *w, str *text, ott_status status, jinja_value *out);
ott_status jinja_text_length(jinja_work *w, text_view text, int64_t *out); /* counts characters */
/* Finds the first occurrence of a nonempty part; NULL if absent. */
ott_status jinja_text_find(jinja_work *w, text_view text, text_view part, const char **out);

/* Python's str() of a value; an undefined value is empty. */
ott_status jinja_show(jinja_work *w, const jinja_value *v, jinja_value *out);
/* Joins the texts of the elements, or of the member `member` of each element, with a separator. */
ott_status jinja_show_joined(jinja_work *w, const jinja_value *v, const text_view *member,
                             text_view separator, jinja_value *out);
/* json.dumps like transformers' tojson: unsorted, not escaped to ASCII; indent < 0: on one line. */
ott_status jinja_show_json(jinja_work *w, const jinja_value *v, int64_t indent, jinja_value *out);

/* Evaluated arguments of a call: positional arguments first, then keyword arguments. */
enum { JINJA_ARGUMENTS_MOST = 16 };
typedef struct jinja_arguments {
    int count;
    text_view name[JINJA_ARGUMENTS_MOST]; /* empty for a positional argument */
    jinja_value value[JINJA_ARGUMENTS_MOST];
} jinja_arguments;
/* Returns the argument at position `place` or with keyword `name`; NULL if not given. */
const jinja_value *jinja_argument(const jinja_arguments *a, int place, const char *name);
/* OTT_ERR_UNSUPPORTED if there are more than `most` positional arguments, or a keyword that is not in `names`
   (NULL-terminated). `function`: name of the function for messages. */
ott_status jinja_arguments_check(const jinja_work *w, const jinja_arguments *a, const char *function,
                                 int most, const char *const *names);

/* A call of a filter, method or function. */
typedef struct jinja_call {
    const char *name;
    const jinja_value *v; /* the value before "|" or "."; NULL for a function */
    const jinja_arguments *a;
    int option; /* from the row */
} jinja_call;

/* The filter and method "items": [(key, value), ...] of a dictionary. */
ott_status jinja_items(jinja_work *w, const jinja_call *c, jinja_value *out);

/* A row of a table of filters, methods or functions. A row without a name ends the table. */
enum { JINJA_ARGUMENTS_ANY = -1 }; /* the function checks its arguments itself */
typedef struct jinja_builtin {
    const char *name;
    ott_status (*apply)(jinja_work *w, const jinja_call *c, jinja_value *out);
    int positional;          /* maximum number of positional arguments, or JINJA_ARGUMENTS_ANY */
    const char *keywords[4]; /* supported keyword arguments, NULL-terminated */
    int option;              /* distinguishes rows that have the same function */
} jinja_builtin;
const jinja_builtin *jinja_builtin_find(const jinja_builtin *table, text_view name); /* NULL if absent */
/* Checks the arguments and calls the function of the row. */
ott_status jinja_builtin_call(jinja_work *w, const jinja_builtin *b, const jinja_value *v,
                              const jinja_arguments *a, jinja_value *out);

/* Call the filter, test or method `name`. *found: false if it does not exist or is not supported. */
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
/* Returns object[key]; undefined if absent. */
ott_status jinja_index(jinja_work *w, const jinja_value *object, const jinja_value *key, jinja_value *out);
/* Returns object[bounds[0]:bounds[1]:bounds[2]]; each bound is none or an integer. */
ott_status jinja_slice(jinja_work *w, const jinja_value *object, const jinja_value bounds[3],
                       jinja_value *out);

/* Bytes of a name to show in messages: at most 60. */
static inline int jinja_shown_bytes(text_view name) {
    return (int)(name.bytes < 60 ? name.bytes : 60);
}

#endif
