/*
 * api/module: the tree behind a public module: a node for each layer that has a name, its parameters, and
 * what a forward keeps for backward. Internal to this floor.
 *
 * A node is a kind (module_table) with a body of its own. Layers made of layers (attention, mlp, transformer
 * layer) hold the nn layers of their parts by value; the parts' nodes point into them and give them names and
 * parameters. Only the root of a tree is run; it has the plan that everything it keeps lies in.
 */
#ifndef API_MODULE_H
#define API_MODULE_H

#include "api/tensor.h"
#include "nn/draw.h"
#include "nn/linear.h"
#include "ottava/module.h"

/* A tensor on its way through modules; without a buffer it is the caller's. */
typedef struct module_value {
    tensor t;
    plan_buffer buffer;
} module_value;

/* What a kind of module does; a NULL member is nothing to do. */
typedef struct module_table {
    const char *kind; /* "linear" */
    bool is_linear;   /* its body is a linear_body */
    bool is_model;    /* its body is a model_body (api/module_model.h): x is tokens, and it has no dx */
    /* OTT_ERR_DTYPE, OTT_ERR_SHAPE, OTT_ERR_ARGUMENT; NULL: x is [M, in] of the module's dtype. */
    ott_status (*check_input)(const ott_module *m, const ott_tensor *x, const char *function);
    /* y from x, whose buffer it takes over, or closes. */
    ott_status (*forward)(exec *cx, ott_module *m, module_value *x, const tensor *y);
    /* dx (NULL: not wanted) from dy, whose buffer it closes. */
    ott_status (*backward)(exec *cx, ott_module *m, module_value *dy, const tensor *dx);
    ott_status (*connect)(ott_module *m);               /* after specs have changed */
    ott_status (*prepare)(ott_module *m, int64_t rows); /* before a forward of so many rows */
    ott_status (*set_sequences)(ott_module *m, const int64_t *start, int count);
    void (*rename)(ott_module *m);             /* gives the nn layer its name */
    void (*release)(ott_module *m, device *d); /* what the body holds */
    ott_status (*make_weights)(ott_module *m); /* of a root; NULL: its parameters say how */
} module_table;

typedef struct module_parameter {
    parameter *p;            /* `own`, or a model's */
    parameter own;           /* its name: from the root of the tree, owned */
    const char *local;       /* "weight" */
    bool drawn;              /* it has its initial values, or others */
    draw_distribution start; /* else how they are drawn when they are first needed */
    uint64_t seed, stream;
    ott_tensor *value, *gradient; /* views given out; NULL until asked for */
} module_parameter;

enum { MODULE_PARAMETERS = 2 };

struct ott_module {
    handle handle;
    const module_table *table;
    ott_module *parent; /* NULL: a root */
    char *label;        /* its name in the parent, "0" */
    char *name;         /* from the root, "0.self_attn"; "" for a root */
    ott_module **children;
    int child_count;
    module_parameter parameters[MODULE_PARAMETERS];
    int parameter_count;
    int64_t in, out;
    ott_dtype dtype;
    bool training;
    int micro_batch;
    void *body;
    /* of a root */
    bool has_weights;              /* nothing of them is still to be drawn */
    plan *plan;                    /* immediate; NULL until the first forward */
    const char *no_forward_reason; /* why backward cannot run; NULL: a forward is kept */
    int64_t kept_rows, kept_step;
    bool kept_first;      /* it was the first micro-batch of its step */
    bool first_of_region; /* its backward updates the scales of grad_output */
};

/* The body of a linear module. */
typedef struct linear_body {
    linear own;
    linear *layer; /* own, or in the layer it is part of */
    activation_specs input_specs, grad_specs;
    activation x;
    char *skip_reason; /* the layer's, owned; NULL */
    bool converted;
    linear_spec converted_spec;
    char converted_recipe[32];
    ott_group *converted_group; /* NULL: alone */
    /* the FP8 recipe it runs or last ran under, or that a checkpoint's state is of */
    char fp8_recipe[32]; /* "": none */
    bool was_fp8;        /* fp8_spec is known */
    linear_spec fp8_spec;
    delayed_store store;
    /* layers that have run in a region (api/autocast.h) */
    bool registered;
    ott_group *region_group;
    ott_module *next_registered;
} linear_body;

/* ---- building ---- */

/* A root with an empty body of `body_bytes`. */
ott_status module_make(ott_context *context, const module_table *table, int64_t in, int64_t out,
                       ott_dtype dtype, int64_t body_bytes, ott_module **made);
/* Makes a root a part of m, and owned by it. */
ott_status module_add_child(ott_module *m, const char *label, ott_module *child);
/* local: static. rows 0: a vector. Zero-filled. */
ott_status module_add_parameter(ott_module *m, const char *local, int64_t rows, int64_t columns,
                                const parameter **out);
/* Names of the whole tree anew. */
ott_status module_rename(ott_module *root);
/* Gives a new tree its names, says how its weights are drawn, connects it and hands it out; closes it on failure. */
ott_status module_finish(ott_module *root, double deviation, uint64_t seed, ott_status built,
                         ott_module **out);
void module_close_tree(ott_module *m); /* NULL is allowed */
/* Makes the initial weights of the whole that m is in, where nothing has yet: before they are read or changed. */
ott_status module_make_weights(ott_module *m);
/* All of a root's weights have come from elsewhere. */
void module_mark_weights_set(ott_module *root);

/* The parts that other kinds are made of. *layer is filled in and belongs to the whole. */
ott_status module_make_linear(ott_context *context, linear *layer, int64_t in, int64_t out, bool bias,
                              ott_dtype dtype, ott_module **made);
struct norm;
ott_status module_make_norm(ott_context *context, struct norm *layer, int64_t dim, double epsilon,
                            ott_dtype dtype, ott_module **made);

/* ---- options ---- */

/* OTT_ERR_ARGUMENT, "FUNCTION: NAME = VALUE: ...". */
ott_status module_option_positive(int64_t value, const char *name, const char *function);
ott_status module_option_dtype(ott_dtype value, const char *function);
ott_status module_option_deviation(double value, const char *function);
ott_status module_option_epsilon(double value, const char *name, const char *function);

/* ---- walking ---- */

typedef ott_status (*module_visitor)(void *user, ott_module *m);
/* Parts before the whole, in the order they run. */
ott_status module_visit(ott_module *m, module_visitor visit, void *user);
ott_status module_visit_linears(ott_module *m, module_visitor visit, void *user);
static inline linear_body *module_linear_body(const ott_module *m) {
    return m->table->is_linear ? m->body : NULL;
}
/* The i-th parameter of the tree under m; NULL: there are not that many. */
module_parameter *module_parameter_at(const ott_module *m, int index);
/* A name from the root, as seen from m. */
const char *module_relative_name(const ott_module *m, const char *name);
/* "linear \"0\"", "linear": for messages. */
const char *module_show(const ott_module *m, char out[96]);

/* ---- running ---- */

/* As api_enter, and OTT_ERR_ARGUMENT inside of a callback (filter, log, all_reduce) of another call,
   which would find the module half way through a change. */
ott_status module_enter(ott_context *context, const char *function);
/* return MODULE_INSIDE(context, call): as API_INSIDE. */
#define MODULE_INSIDE(context, call)                                                                         \
    (module_enter((context), __func__) == OTT_OK ? api_left((context), (call)) : OTT_ERR_ARGUMENT)

/* What a root runs with: a plan of its own, one rank. */
ott_status module_exec(ott_module *root, exec *cx);
/* Makes a value that backward will read the module's own. */
ott_status module_own_input(exec *cx, module_value *x);
/* Lets go of what a finished forward of the root of m kept; `because` is static and completes "there is no
   forward to go back through: ". */
void module_drop_forward(ott_module *m, const char *because);
ott_status module_connect(ott_module *m);
/* Compute weights of all linears are made anew when they are next used. */
void module_weights_changed(ott_module *m);

#endif
