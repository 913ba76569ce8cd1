/*
 * api/module/module: the tree of nodes of a public module: one node per named layer, with its parameters and
 * the state that forward saves for backward. Internal to this folder.
 *
 * A node has a kind (module_table) and a body. The body of a composite layer (attention, mlp, transformer
 * layer) contains the nn layers of its parts. The nodes of the parts point to these layers, and have their
 * names and parameters. Only the root of a tree runs. Its plan has the buffers that the tree's layers save
 * for backward.
 */
#ifndef API_MODULE_MODULE_H
#define API_MODULE_MODULE_H

#include "api/fp8/tensor.h"
#include "nn/draw.h"
#include "nn/linear/linear.h"
#include "ottava/module.h"

/* A tensor that one module passes to the next. buffer.id is 0 if the memory belongs to the caller. */
typedef struct module_value {
    tensor t;
    plan_buffer buffer;
} module_value;

/* The functions of one kind of module. Where a pointer is NULL, nothing is done. */
typedef struct module_table {
    const char *kind; /* name of the kind, "linear" */
    bool is_linear;   /* the body is a linear_body */
    /* the body is a model_body (api/module/model.h), the input is tokens, and there is no dx */
    bool is_model;
    /* Checks the input of a forward. NULL: the input must be [M, in] in m's dtype. */
    ott_status (*check_input)(const ott_module *m, const ott_tensor *x, const char *function);
    /* Computes y from x. Closes x's buffer, or keeps it for backward. */
    ott_status (*forward)(exec *cx, ott_module *m, module_value *x, const tensor *y);
    /* Computes dx (NULL: not needed) from dy. Closes dy's buffer. */
    ott_status (*backward)(exec *cx, ott_module *m, module_value *dy, const tensor *dx);
    ott_status (*connect)(ott_module *m);               /* connects layers; called after specs changed */
    ott_status (*prepare)(ott_module *m, int64_t rows); /* prepares a forward of `rows` rows */
    ott_status (*set_sequences)(ott_module *m, const int64_t *start, int count);
    void (*rename)(ott_module *m);             /* gives the nn layer the node's name */
    void (*release)(ott_module *m, device *d); /* frees the body's memory */
    ott_status (*make_weights)(ott_module *m); /* sets the initial weights of a root; NULL: draw_weights */
} module_table;

typedef struct module_parameter {
    parameter *p;      /* the parameter: points to `own`, or into a model */
    parameter own;     /* own.name (owned) is the full name from the root */
    const char *local; /* name in the module, "weight" */
    /* the parameter has values; false: they must still be drawn from the distribution `start` */
    bool drawn;
    draw_distribution start;
    uint64_t seed, stream;
    ott_tensor *value, *gradient; /* views for the public getters; NULL until a getter is called */
} module_parameter;

enum { MODULE_PARAMETERS = 2 };

struct ott_module {
    handle handle;
    const module_table *table;
    ott_module *parent; /* NULL: the node is a root */
    char *label;        /* name in the parent, "0" */
    char *name;         /* full name from the root, "0.self_attn"; "" for a root */
    ott_module **children;
    int child_count;
    module_parameter parameters[MODULE_PARAMETERS];
    int parameter_count;
    int64_t in, out; /* number of columns of x and of y */
    ott_dtype dtype;
    bool training;
    int micro_batch;
    void *body;
    /* These members are used only in a root. */
    bool has_weights;              /* all parameters of the tree have values */
    plan *plan;                    /* immediate plan; NULL until the first forward */
    const char *no_forward_reason; /* why no forward is saved for backward; NULL: one is saved */
    int64_t kept_rows, kept_step;  /* rows and optimizer step of the saved forward */
    bool kept_first;               /* the saved forward computed the first micro-batch of its step */
    bool first_of_region;          /* its backward updates the autocast region's grad_output scales */
};

/* The body of a linear module. */
typedef struct linear_body {
    linear own;
    linear *layer; /* the layer: `own`, or a layer in the body of a composite module */
    activation_specs input_specs, grad_specs;
    activation x;
    char *skip_reason; /* owned text that layer->skip_reason points to; NULL: none */
    bool converted;    /* ott_convert_to_float8_training set the converted_ members */
    linear_spec converted_spec;
    char converted_recipe[32];
    ott_group *converted_group; /* ranks that share amaxes; NULL: this rank only */
    char fp8_recipe[32];        /* FP8 recipe of the last run or of the loaded scaling state; "": none */
    bool was_fp8;               /* fp8_spec is set */
    linear_spec fp8_spec;
    delayed_store store;
    /* these members link the list of layers that ran FP8 in a region (api/fp8/autocast.h) */
    bool registered;
    ott_group *region_group;
    ott_module *next_registered;
} linear_body;

/* ---- building ---- */

/* Makes a module without a parent. Its body is zero-filled and has `body_bytes` bytes. */
ott_status module_make(ott_context *context, const module_table *table, int64_t in, int64_t out,
                       ott_dtype dtype, int64_t body_bytes, ott_module **made);
/* Makes the root `child` a part of m, which then owns it. Call module_rename afterwards. */
ott_status module_add_child(ott_module *m, const char *label, ott_module *child);
/* Adds a zero-filled parameter. local: its name in the module, a static text. rows 0: a vector. */
ott_status module_add_parameter(ott_module *m, const char *local, int64_t rows, int64_t columns,
                                const parameter **out);
/* Updates the full names of all nodes of the tree. */
ott_status module_rename(ott_module *root);
/* Last step of opening a module: names the tree, sets how weights are drawn (deviation: init_std), connects
   the layers and sets *out. If this step or an earlier one (`built`) failed, closes the tree. */
ott_status module_finish(ott_module *root, double deviation, uint64_t seed, ott_status built,
                         ott_module **out);
void module_close_tree(ott_module *m); /* does nothing for NULL */
/* Draws the initial weights of m's tree, if not done yet. Call it before weights are read or changed. */
ott_status module_make_weights(ott_module *m);
/* Records that all weights of a root have values, after a checkpoint was loaded. */
void module_mark_weights_set(ott_module *root);

/* Make a linear or norm node. layer: a layer in a composite module's body; NULL: one in the node's body. */
ott_status module_make_linear(ott_context *context, linear *layer, int64_t in, int64_t out, bool bias,
                              ott_dtype dtype, ott_module **made);
struct norm;
ott_status module_make_norm(ott_context *context, struct norm *layer, int64_t dim, double epsilon,
                            ott_dtype dtype, ott_module **made);

/* ---- options ---- */

/* Check an option. If it is invalid, the error text is "FUNCTION: NAME = VALUE: ...". */
ott_status module_option_positive(int64_t value, const char *name, const char *function);
ott_status module_option_dtype(ott_dtype value, const char *function);
ott_status module_option_deviation(double value, const char *function);
ott_status module_option_epsilon(double value, const char *name, const char *function);

typedef ott_status (*module_visitor)(void *user, ott_module *m);
/* Visit each node after its children. Children are visited in the order in which they run.
   module_visit_linears visits only linear layers. */
ott_status module_visit(ott_module *m, module_visitor visit, void *user);
ott_status module_visit_linears(ott_module *m, module_visitor visit, void *user);
static inline linear_body *module_linear_body(const ott_module *m) {
    return m->table->is_linear ? m->body : NULL;
}
/* The parameter with this index in m's tree; NULL if the index is out of range. */
module_parameter *module_parameter_at(const ott_module *m, int index);
/* Returns the part of a full name that follows m's own name. */
const char *module_relative_name(const ott_module *m, const char *name);
/* Writes the kind and name of m for messages: "linear \"0\"", or "linear" if it has no name. Returns out. */
const char *module_show(const ott_module *m, char out[96]);

/* ---- running ---- */

/* Like api_enter, but fails inside a callback, because the interrupted call may be changing the module. */
ott_status module_enter(ott_context *context, const char *function);
/* `return MODULE_INSIDE(context, call);` makes the call between module_enter and api_leave. */
#define MODULE_INSIDE(context, call)                                                                         \
    (module_enter((context), __func__) == OTT_OK ? api_left((context), (call)) : OTT_ERR_ARGUMENT)

/* Fills in an execution context for the root of a tree: the root's plan, and a group with only this rank. */
ott_status module_exec(ott_module *root, exec *cx);
/* Copies the caller's x to memory of the module, because the caller may change x before backward reads it. */
ott_status module_own_input(exec *cx, module_value *x);
/* Discards what the last forward saved. because: reason in the error of a later backward, a static text. */
void module_drop_forward(ott_module *m, const char *because);
/* Finds out which quantized copies the layers of m's tree need. Call it after a spec changed. */
ott_status module_connect(ott_module *m);
/* Makes the next forward quantize the weights of all linear layers of m again. */
void module_weights_changed(ott_module *m);

#endif
