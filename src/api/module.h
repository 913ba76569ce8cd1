/*
 * api/module: the tree of nodes of a public module, one node per named layer, with parameters and the state
 * saved for backward. Internal to this folder.
 *
 * A node has a kind (module_table) and a body. Composite layers (attention, mlp, transformer layer) hold the
 * nn layers of their parts by value; the nodes of the parts point into them and provide names and parameters.
 * Only the root of a tree runs; its plan holds all saved buffers.
 */
#ifndef API_MODULE_H
#define API_MODULE_H

#include "api/tensor.h"
#include "nn/draw.h"
#include "nn/linear.h"
#include "ottava/module.h"

/* A tensor passed from module to module. buffer.id is 0 if the memory is the caller's. */
typedef struct module_value {
    tensor t;
    plan_buffer buffer;
} module_value;

/* The functions of a kind of module. NULL: nothing to do. */
typedef struct module_table {
    const char *kind; /* "linear" */
    bool is_linear;   /* its body is a linear_body */
    bool is_model;    /* its body is a model_body (api/module_model.h); x is tokens, dx is NULL */
    /* Checks x: OTT_ERR_DTYPE, OTT_ERR_SHAPE, OTT_ERR_ARGUMENT. NULL: x is [M, in] of the module's dtype. */
    ott_status (*check_input)(const ott_module *m, const ott_tensor *x, const char *function);
    /* Computes y from x. Closes x's buffer, or saves it for backward. */
    ott_status (*forward)(exec *cx, ott_module *m, module_value *x, const tensor *y);
    /* Computes dx (NULL: not needed) from dy. Closes dy's buffer. */
    ott_status (*backward)(exec *cx, ott_module *m, module_value *dy, const tensor *dx);
    ott_status (*connect)(ott_module *m);               /* after specs have changed */
    ott_status (*prepare)(ott_module *m, int64_t rows); /* before a forward of `rows` rows */
    ott_status (*set_sequences)(ott_module *m, const int64_t *start, int count);
    void (*rename)(ott_module *m);             /* sets the name of the nn layer */
    void (*release)(ott_module *m, device *d); /* frees the body's memory */
    ott_status (*make_weights)(ott_module *m); /* root: initial weights; NULL: draw_weights */
} module_table;

typedef struct module_parameter {
    parameter *p;      /* `own`, or a model's parameter */
    parameter own;     /* own.name: full name from the root, owned */
    const char *local; /* "weight" */
    bool drawn;        /* has values; if not, they are drawn when first needed, by the next members */
    draw_distribution start;
    uint64_t seed, stream;
    ott_tensor *value, *gradient; /* views for the public getters; NULL until requested */
} module_parameter;

enum { MODULE_PARAMETERS = 2 };

struct ott_module {
    handle handle;
    const module_table *table;
    ott_module *parent; /* NULL: a root */
    char *label;        /* its name in the parent, "0" */
    char *name;         /* full name from the root, "0.self_attn"; "" for a root */
    ott_module **children;
    int child_count;
    module_parameter parameters[MODULE_PARAMETERS];
    int parameter_count;
    int64_t in, out; /* columns of x and y */
    ott_dtype dtype;
    bool training;
    int micro_batch;
    void *body;
    /* Used in a root only. */
    bool has_weights;              /* all parameters have values */
    plan *plan;                    /* immediate; NULL until the first forward */
    const char *no_forward_reason; /* why backward cannot run; NULL: a forward is saved */
    int64_t kept_rows, kept_step;  /* rows and optimizer step of the saved forward */
    bool kept_first;               /* the saved forward was the first micro-batch of its step */
    bool first_of_region;          /* its backward updates the scales of grad_output */
};

/* The body of a linear module. */
typedef struct linear_body {
    linear own;
    linear *layer; /* `own`, or a member of the composite layer it is part of */
    activation_specs input_specs, grad_specs;
    activation x;
    char *skip_reason; /* layer->skip_reason, owned; NULL */
    bool converted;    /* by ott_convert_to_float8_training, with the next three members */
    linear_spec converted_spec;
    char converted_recipe[32];
    ott_group *converted_group; /* NULL: this rank only */
    char fp8_recipe[32];        /* current or last FP8 recipe, also of loaded scaling state; "": none */
    bool was_fp8;               /* fp8_spec is set */
    linear_spec fp8_spec;
    delayed_store store;
    /* List of layers that ran FP8 in a region (api/autocast.h). */
    bool registered;
    ott_group *region_group;
    ott_module *next_registered;
} linear_body;

/* ---- building ---- */

/* Makes a root with a zero-filled body of `body_bytes`. */
ott_status module_make(ott_context *context, const module_table *table, int64_t in, int64_t out,
                       ott_dtype dtype, int64_t body_bytes, ott_module **made);
/* Makes the root `child` a part of m, which owns it from then on. Call module_rename afterwards. */
ott_status module_add_child(ott_module *m, const char *label, ott_module *child);
/* Adds a zero-filled parameter. local: static text. rows 0: a vector. */
ott_status module_add_parameter(ott_module *m, const char *local, int64_t rows, int64_t columns,
                                const parameter **out);
/* Computes the full names of the tree again. */
ott_status module_rename(ott_module *root);
/* Last step of opening a module: names the tree, sets how its weights are drawn, connects it and sets *out.
   built: the status so far. Closes the tree on failure. deviation: as init_std. */
ott_status module_finish(ott_module *root, double deviation, uint64_t seed, ott_status built,
                         ott_module **out);
void module_close_tree(ott_module *m); /* NULL is allowed */
/* Draws the initial weights of the tree of m, unless done. Call before weights are read or changed. */
ott_status module_make_weights(ott_module *m);
/* Marks all weights of a root as set, after a checkpoint was loaded. */
void module_mark_weights_set(ott_module *root);

/* Make a linear or norm node. layer: the nn layer in a composite layer to fill in; NULL: the node's own. */
ott_status module_make_linear(ott_context *context, linear *layer, int64_t in, int64_t out, bool bias,
                              ott_dtype dtype, ott_module **made);
struct norm;
ott_status module_make_norm(ott_context *context, struct norm *layer, int64_t dim, double epsilon,
                            ott_dtype dtype, ott_module **made);

/* ---- options ---- */

/* Check an option. OTT_ERR_ARGUMENT or OTT_ERR_DTYPE, "FUNCTION: NAME = VALUE: ...". */
ott_status module_option_positive(int64_t value, const char *name, const char *function);
ott_status module_option_dtype(ott_dtype value, const char *function);
ott_status module_option_deviation(double value, const char *function);
ott_status module_option_epsilon(double value, const char *name, const char *function);

/* ---- walking ---- */

typedef ott_status (*module_visitor)(void *user, ott_module *m);
/* Visit a node after its children, children in the order they run. The second visits linear layers only. */
ott_status module_visit(ott_module *m, module_visitor visit, void *user);
ott_status module_visit_linears(ott_module *m, module_visitor visit, void *user);
static inline linear_body *module_linear_body(const ott_module *m) {
    return m->table->is_linear ? m->body : NULL;
}
/* The parameter with this index in the tree under m; NULL if the index is out of range. */
module_parameter *module_parameter_at(const ott_module *m, int index);
/* Strips m's own name from a full name. */
const char *module_relative_name(const ott_module *m, const char *name);
/* Writes kind and name for messages: "linear \"0\"", "linear". Returns out. */
const char *module_show(const ott_module *m, char out[96]);

/* ---- running ---- */

/* As api_enter, but OTT_ERR_ARGUMENT inside a callback: the interrupted call may be changing the module. */
ott_status module_enter(ott_context *context, const char *function);
/* return MODULE_INSIDE(context, call): as API_INSIDE, with module_enter. */
#define MODULE_INSIDE(context, call)                                                                         \
    (module_enter((context), __func__) == OTT_OK ? api_left((context), (call)) : OTT_ERR_ARGUMENT)

/* The execution context of a root: its own plan, one rank. */
ott_status module_exec(ott_module *root, exec *cx);
/* Copies the caller's x to the module's memory: the caller may change it before backward reads it. */
ott_status module_own_input(exec *cx, module_value *x);
/* Drops the saved forward of m's root. because: reason for a later error, static text. */
void module_drop_forward(ott_module *m, const char *because);
/* Recomputes which quantized copies the layers of m's tree need; call after a spec has changed. */
ott_status module_connect(ott_module *m);
/* Invalidates the quantized weights of all linear layers of m; the next forward quantizes them again. */
void module_weights_changed(ott_module *m);

#endif
