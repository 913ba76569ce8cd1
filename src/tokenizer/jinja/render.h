/* tokenizer/jinja/render: state of a rendering, and its names. Internal to jinja. */
#ifndef TOKENIZER_JINJA_RENDER_H
#define TOKENIZER_JINJA_RENDER_H

#include "tokenizer/jinja/value.h"

/* The names that a body sets. Names of enclosing scopes are visible too. */
typedef struct scope scope;
struct scope {
    jinja_dict *names;
    const scope *around; /* enclosing scope; NULL: this is the template's scope */
};

typedef enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE } jump;

/* The statements after the current one: the rest of its body, then of the enclosing bodies (`around`). */
typedef struct frame frame;
struct frame {
    const jinja_node *next;
    const frame *around;
};

/* Prefixes of the conversation (fewer messages). Their renderings branch off the full rendering. */
typedef struct branches {
    jinja_prefix *items; /* [count], with ascending numbers of messages */
    int64_t count, next; /* next: index of the first prefix that is not rendered yet */
    str *tails;
    bool running;      /* true while a branch is rendered */
    jinja_undos undos; /* log of namespace changes in the branch */
} branches;

typedef struct rendering {
    jinja_work work;
    scope *global, *here;
    str *out;
    jinja_spans *generation;
    branches *branches; /* NULL: do not render prefixes */
    const frame *frames;
    int bodies; /* number of enclosing macros, captured texts and loops */
    jump jump;  /* why a loop's body is being left */
    int depth;
} rendering;

#define FAIL(r, code, ...) jinja_work_fail(&(r)->work, code, __VA_ARGS__)

/* Returns the value of a name: undefined if absent. */
ott_status scope_find(rendering *r, text_view name, jinja_value *out);
ott_status scope_set(rendering *r, text_view name, jinja_value v);
/* Opens a scope in which names are set. Its caller restores r->here, but not after an error, which ends the
   rendering. */
ott_status scope_open(rendering *r, const scope *around, scope *own);
/* Sets the name, the names or the namespace's member of an assignment's target. */
ott_status scope_assign(rendering *r, const jinja_node *target, jinja_value v);

#endif
