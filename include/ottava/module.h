/*
 * Ottava: layers and whole models as objects, and how they come to compute in FP8. Two ways, as in the frameworks:
 *
 *   conversion (torchao's)           ott_convert_to_float8_training turns a module's linear layers into FP8
 *                                    ones for good;
 *   a region (TransformerEngine's)   between ott_autocast_begin and ott_autocast_end every linear layer that
 *                                    runs takes the region's recipe.
 *
 * Both may be used on the same module: a converted layer keeps its own recipe in a region.
 *
 * Ownership: an object made by ott_x_open is closed by ott_x_close (NULL is allowed); a module that was given
 * to ott_sequential_open is closed with the sequential. What a getter returns is borrowed: it lives as long
 * as the module. Use after close is OTT_ERR_ARGUMENT.
 *
 * Threads: all of a context belongs to one thread at a time; a second one gets OTT_ERR_ARGUMENT. Callbacks
 * (log, filter, all_reduce) may call what opens objects and looks inside; what runs, changes or closes
 * modules is OTT_ERR_ARGUMENT in them.
 *
 * Numbers: parameters and their gradients are fp32; activations are bf16 or fp32, by the module's option
 * dtype. Errors name the function, the argument, and both shapes where two do not agree.
 */
#ifndef OTTAVA_MODULE_H
#define OTTAVA_MODULE_H

#include "ottava/fp8.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ott_module ott_module;
typedef struct ott_optimizer ott_optimizer;

/* ---- opening modules ---- */

/*
 * What the options share: dtype is that of x, y and their gradients, OTT_BF16 (default) or OTT_F32. Weights
 * start as N(0, init_std), biases as 0, norms as 1. A seed other than 0 makes them a function of seed,
 * parameter name and element alone; 0: another draw for each module a context opens.
 */

/* y[M, out_features] = x[M, in_features] weight^T + bias; weight[out_features, in_features]. */
typedef struct ott_linear_options {
    size_t struct_size;
    int64_t in_features, out_features; /* must be given */
    int bias;                          /* 1 (default): with bias[out_features] */
    ott_dtype dtype;
    double init_std; /* 0.02 */
    uint64_t seed;
} ott_linear_options;

/* RMSNorm: y[M, dim] = x / sqrt(mean(x^2) + epsilon) * weight[dim]. */
typedef struct ott_norm_options {
    size_t struct_size;
    int64_t dim;    /* must be given */
    double epsilon; /* 1e-5 */
    ott_dtype dtype;
} ott_norm_options;

/* Causal self-attention with rotary positions and grouped heads: x[M, dim] to y[M, dim], M tokens of the
   sequences ott_module_set_sequences says. Its linears: q_proj, k_proj, v_proj, o_proj, without bias. */
typedef struct ott_attention_options {
    size_t struct_size;
    int64_t dim, heads;    /* must be given */
    int64_t kv_heads;      /* heads share these; 0: as many as heads */
    int64_t head_dim;      /* even; 0: dim / heads */
    int64_t window;        /* keys a query sees, itself included; 0: all before it */
    double rope_theta;     /* 10000 */
    int64_t max_positions; /* longest sequence, 2048 */
    ott_dtype dtype;
    double init_std;
    uint64_t seed;
} ott_attention_options;

/* SwiGLU: y = down_proj(silu(gate_proj(x)) * up_proj(x)), without biases. */
typedef struct ott_mlp_options {
    size_t struct_size;
    int64_t dim, hidden; /* must be given */
    ott_dtype dtype;
    double init_std;
    uint64_t seed;
} ott_mlp_options;

/* A Llama-like block: h = x + self_attn(input_layernorm(x)), y = h + mlp(post_attention_layernorm(h)). */
typedef struct ott_transformer_layer_options {
    size_t struct_size;
    int64_t dim, heads, hidden; /* must be given */
    int64_t kv_heads, head_dim, window;
    double rope_theta;
    int64_t max_positions; /* these five as in ott_attention_options */
    double norm_epsilon;   /* 1e-5 */
    ott_dtype dtype;
    double init_std;
    uint64_t seed;
} ott_transformer_layer_options;

OTT_API void ott_linear_options_init(ott_linear_options *options);
OTT_API void ott_norm_options_init(ott_norm_options *options);
OTT_API void ott_attention_options_init(ott_attention_options *options);
OTT_API void ott_mlp_options_init(ott_mlp_options *options);
OTT_API void ott_transformer_layer_options_init(ott_transformer_layer_options *options);

/* options must be given. OTT_ERR_ARGUMENT names the option that cannot be. */
OTT_API ott_status ott_linear_open(ott_context *context, const ott_linear_options *options, ott_module **out);
OTT_API ott_status ott_norm_open(ott_context *context, const ott_norm_options *options, ott_module **out);
OTT_API ott_status ott_attention_open(ott_context *context, const ott_attention_options *options,
                                      ott_module **out);
OTT_API ott_status ott_mlp_open(ott_context *context, const ott_mlp_options *options, ott_module **out);
OTT_API ott_status ott_transformer_layer_open(ott_context *context,
                                              const ott_transformer_layer_options *options, ott_module **out);
/* modules[count], count >= 1, run one after the other; named "0", "1", ... Takes ownership of them, except
   when it fails. OTT_ERR_SHAPE and OTT_ERR_DTYPE when one's output is not the next one's input. */
OTT_API ott_status ott_sequential_open(ott_context *context, ott_module *const *modules, int count,
                                       ott_module **out);
/* Closes the module and all in it. Nothing for a module that is part of another. */
OTT_API void ott_module_close(ott_module *module);

/* ---- a whole model ---- */

/*
 * The model a configuration describes ([model], or the Hugging Face folder model.hf_path), as ott_train would train it:
 * the same initial weights (train.seed), precision ([float8]), recomputation, frozen parameters and checkpoints. Its
 * parts are its embedding, norms and linear layers, by their full names in Hugging Face files:
 * ott_module_child(model, "model.layers.0.self_attn.q_proj").
 *
 *     ott_module_forward    x: tokens[sequences, length], OTT_I32, 0 to vocab - 1; y: logits[sequences * length, vocab].
 *                           Each row of x is a sequence, unless ott_module_set_sequences says otherwise, of which
 *                           none is longer than train.seq_len.
 *     ott_module_backward   dy: the gradient of the logits; dx: NULL.
 *
 * It runs on the context's device, on one rank (train.device and [distributed] are not asked). The configuration is
 * copied. Weights are made, or read from model.hf_path, when they are first needed, so not where a checkpoint is loaded
 * first. No region: a forward in one that is enabled is OTT_ERR_UNSUPPORTED. Delayed scaling: scales are updated when a
 * backward is done.
 * OTT_ERR_CONFIG when no model is described; OTT_ERR_UNSUPPORTED for float8.schedule and for fp16.
 */
OTT_API ott_status ott_model_open(ott_context *context, ott_config *config, ott_module **out);
/*
 * Forward, loss and backward in one, as a run does it: the logits of all tokens never exist where train.loss_fn is
 * chunked_cross_entropy. tokens and targets[sequences, length], OTT_I32; targets as in ott_cross_entropy_loss, already
 * shifted. labels: how many targets count in all micro-batches of the optimizer step; 0: those of this call. *loss
 * (NULL: not wanted): the sum of this call's losses / labels, so that a step's calls add up to its mean. In training
 * parameter gradients are added to; in evaluation the loss is all.
 */
OTT_API ott_status ott_model_loss(ott_module *model, const ott_tensor *tokens, const ott_tensor *targets,
                                  int64_t labels, double *loss);

/* What a run's checkpoint counts; all since the first step, through every save and load. */
typedef struct ott_model_counters {
    size_t struct_size;
    int64_t step;    /* optimizer steps */
    int64_t updates; /* of them, those that were not skipped */
    int64_t samples; /* sequences (rows of tokens) that training went through: a run reads on from this row */
    int64_t tokens;  /* of them */
} ott_model_counters;

OTT_API void ott_model_counters_init(ott_model_counters *counters);
OTT_API ott_status ott_model_read_counters(const ott_module *model, ott_model_counters *out);

/* ---- running ---- */

/*
 * y[M, out_features] from x[M, in_features], both of the module's dtype, not overlapping; M >= 1. In training
 * (the default) what backward needs is kept inside; x may be changed afterwards. A module keeps one forward:
 * another one, in training or evaluation, drops it. Parts of a module cannot be run alone.
 */
OTT_API ott_status ott_module_forward(ott_module *module, const ott_tensor *x, ott_tensor *y);
/*
 * dx[M, in_features] (NULL: not wanted) from dy[M, out_features], the gradients of x and of y; parameter
 * gradients are added to (ott_optimizer_zero_grad clears them). Uses up what the last forward kept:
 * OTT_ERR_ARGUMENT when there is none, because there was no forward, it was used, or it was an evaluation.
 * May run outside of the region the forward ran in.
 */
OTT_API ott_status ott_module_backward(ott_module *module, const ott_tensor *dy, ott_tensor *dx);
/* 1 (default): training. 0: evaluation: nothing is kept for backward and no amax is recorded. Holds for all
   parts. */
OTT_API ott_status ott_module_set_training(ott_module *module, int training);
/*
 * Where sequences begin among the rows of x: start[count] ascends from 0, the last one ends with the last
 * row. Attention does not look across, and positions count from each start. count 0: one sequence of all rows
 * (default). Copied; holds for all parts from the next forward on.
 */
OTT_API ott_status ott_module_set_sequences(ott_module *module, const int64_t *start, int count);
/*
 * Which micro-batch of its optimizer step the next forwards run (TransformerEngine's is_first_microbatch): -1
 * (default): weights are quantized in every forward; 0: the first, weights are quantized and kept; above 0:
 * the kept ones are used and no weight amax is recorded, unless a step was made since. Parameters written by
 * hand count from the next 0 or -1. Gradients are added to in every case. Holds for all parts.
 */
OTT_API ott_status ott_module_set_micro_batch(ott_module *module, int index);

/* ---- looking inside ---- */

/*
 * The getters that return no status: NULL, -1 or 0 when the module is not one or there is no such thing, with
 * the reason in ott_error_text.
 */

/* "linear", "norm", "attention", "mlp", "sequential", "transformer_layer", "model", "embedding" */
OTT_API const char *ott_module_kind(const ott_module *module);
OTT_API int64_t ott_module_in_features(const ott_module *module); /* 0: it takes tokens */
OTT_API int64_t ott_module_out_features(const ott_module *module);
OTT_API ott_dtype ott_module_dtype(const ott_module *module); /* OTT_DTYPE_COUNT: not a module */
/* The part of this name, "0" or "self_attn.q_proj"; "" is the module itself. NULL: none. Borrowed. */
OTT_API ott_module *ott_module_child(ott_module *module, const char *fqn);
/* 1: a linear layer that computes in FP8, because it was converted or by the region it last ran in. */
OTT_API int ott_module_is_float8(const ott_module *module);
/* Why the last conversion left this linear layer as it was: "the filter refused it"; NULL when it did not. */
OTT_API const char *ott_module_skip_reason(const ott_module *module);
/* The recipe of a linear layer that computes in FP8, "tensorwise"; NULL otherwise. */
OTT_API const char *ott_module_recipe(const ott_module *module);

/* Parameters of the module and all its parts, in the order they are used. Names are relative to it:
   "0.weight", "self_attn.q_proj.weight"; they change when it becomes part of another. */
OTT_API int ott_module_parameter_count(const ott_module *module);
OTT_API const char *ott_module_parameter_name(const ott_module *module, int index);
/* -1: no parameter of this name. */
OTT_API int ott_module_parameter_index(const ott_module *module, const char *name);
/* The fp32 master and its fp32 gradient: [rows, columns], a vector has one row. Borrowed; they may be read
 * and written. */
OTT_API ott_status ott_module_parameter_value(ott_module *module, int index, ott_tensor **out);
OTT_API ott_status ott_module_parameter_gradient(ott_module *module, int index, ott_tensor **out);

/* State of delayed scaling of a linear layer; `which` is "input", "weight" or "grad_output". *scale: what the
   next cast multiplies by; *amax: the largest of its history. OTT_ERR_NOT_FOUND when this tensor has none.
   Either may be NULL. */
OTT_API ott_status ott_module_scale(const ott_module *module, const char *which, float *scale, float *amax);

/* ---- conversion ---- */

/* Is this linear layer to be converted? Not 0: yes. fqn: its name in the converted module, "" for that
 * itself. */
typedef int (*ott_filter_fn)(void *user, const char *fqn, const ott_module *module);

typedef struct ott_convert_options {
    size_t struct_size;
    /* NULL: tensorwise. Copied as it stands now; it may be closed or changed later, except that delayed
       scaling calls its callbacks, if it has any, as long as layers run it */
    ott_recipe *recipe;
    ott_filter_fn filter; /* NULL: all */
    void *user;           /* given to filter */
    /* 1: leave out what torchao's _auto_filter_for_recipe leaves out: dimensions that are not multiples of
       16, and layers too small to gain; for tensorwise and rowwise scaling only */
    int auto_filter;
    const char *const *filter_fqns; /* [filter_fqn_count] layers whose name contains one of these stay */
    int filter_fqn_count;
    /* Delayed scaling: the largest amax of this group's ranks counts; must stay open. NULL: of this one */
    ott_group *amax_group;
} ott_convert_options;

typedef struct ott_convert_summary {
    size_t struct_size;
    int converted, linears; /* of this call */
} ott_convert_summary;

OTT_API void ott_convert_options_init(ott_convert_options *options);
OTT_API void ott_convert_summary_init(ott_convert_summary *summary);
/*
 * Converts the linear layers of a module, parts before the whole they are in; a linear layer itself is
 * converted in place. Weights and names stay. Any dimensions are taken, multiples of 16 or not. Each layer
 * that stays is logged with its reason; a text of filter_fqns that is in no linear layer's name, and a call
 * that converts nothing, with a warning. A call may follow another with other filters and recipes; a layer
 * that it filters stays as it is. Drops what the last forward kept. Delayed scaling: scales are updated by
 * ott_optimizer_step, or by the region that a layer runs in. options and out may be NULL.
 */
OTT_API ott_status ott_convert_to_float8_training(ott_module *module, const ott_convert_options *options,
                                                  ott_convert_summary *out);

/* ---- regions ---- */

typedef struct ott_autocast_options {
    size_t struct_size;
    int enabled;           /* 1 (default); 0: layers that are not converted run in their dtype */
    ott_recipe *recipe;    /* NULL: delayed, every device's default. Copied as in ott_convert_options */
    ott_group *amax_group; /* as in ott_convert_options */
} ott_autocast_options;

OTT_API void ott_autocast_options_init(ott_autocast_options *options);
/*
 * Opens a region for the forward passes of all modules of the context; it replaces the region around it,
 * which is back after its end. A layer that meets another recipe than it had takes it on, with one log line;
 * delayed scaling's state goes on where format and margin stay the same. options may be NULL.
 */
OTT_API ott_status ott_autocast_begin(ott_context *context, const ott_autocast_options *options);
/*
 * Closes the innermost region; OTT_ERR_ARGUMENT when none is open. The end of the outermost one, if a region
 * in it or itself was enabled, updates the scales of input and weight of every layer that has run in a
 * region; those of grad_output are updated when the backward of the first module that ran FP8 layers in the
 * region is done. With an amax group these are collective calls: every rank makes the same ones.
 */
OTT_API ott_status ott_autocast_end(ott_context *context);
/* How many regions are open; -1: not a context. */
OTT_API int ott_autocast_depth(const ott_context *context);

/* ---- losses ---- */

/*
 * *loss: the mean; gradient: d loss / d (first argument), of its shape and dtype, what ott_module_backward
 * takes; it may be that tensor itself. Either may be NULL: not wanted. Sums have one fixed order (16 lanes,
 * blocks in double), so the bits do not depend on threads. OTT_ERR_SHAPE for tensors without elements.
 */

/* Mean over all elements of (output - target)^2; gradient 2 (output - target) / count. Equal shapes, each
   fp32, bf16 or fp16. */
OTT_API ott_status ott_mse_loss(const ott_tensor *output, const ott_tensor *target, double *loss,
                                ott_tensor *gradient);
/*
 * Mean over the rows that count of log(sum(exp(logits[i, :]))) - logits[i, target[i]]; gradient
 * (softmax(logits[i, :]) - [target[i]]) / rows that count, 0 in the others. logits[M, classes]: fp32, bf16 or
 * fp16. target[1, M] or [M, 1], OTT_I32: 0 to classes - 1, or -100 for a row that does not count;
 * OTT_ERR_ARGUMENT for another, and when no row counts. Logits and targets lie at the same index: a language
 * model's targets are shifted by the caller.
 */
OTT_API ott_status ott_cross_entropy_loss(const ott_tensor *logits, const ott_tensor *target, double *loss,
                                          ott_tensor *gradient);

/* ---- optimizer ---- */

/* AdamW as torch.optim.AdamW computes it. */
typedef struct ott_adamw_options {
    size_t struct_size;
    double lr;                    /* 1e-3 */
    double beta1, beta2, epsilon; /* 0.9, 0.999, 1e-8 */
    double weight_decay;          /* 0.01; of matrices only, not of norms and biases */
    double max_norm;              /* largest L2 norm of all gradients together; 0 (default): no clipping */
} ott_adamw_options;

typedef struct ott_step_info {
    size_t struct_size;
    int64_t updates;  /* done so far */
    double grad_norm; /* L2 norm of all gradients, before clipping */
    int skipped;      /* 1: a gradient is not finite, parameters stay */
} ott_step_info;

OTT_API void ott_adamw_options_init(ott_adamw_options *options);
OTT_API void ott_step_info_init(ott_step_info *info);
/* For all parameters of the module, which must stay open. options may be NULL. */
OTT_API ott_status ott_adamw_open(ott_context *context, ott_module *module, const ott_adamw_options *options,
                                  ott_optimizer **out);
/* The optimizer of a model's configuration: [optimizer], train.grad_clip_norm, and the learning rate of [scheduler] at
   each step, of train.max_steps, until ott_optimizer_set_lr gives another. */
OTT_API ott_status ott_model_optimizer_open(ott_module *model, ott_optimizer **out);
OTT_API void ott_optimizer_close(ott_optimizer *optimizer);
OTT_API ott_status ott_optimizer_set_lr(ott_optimizer *optimizer, double lr);
/* One update from the gradients as they stand; then the scales of converted layers with delayed scaling are
   updated. out may be NULL. */
OTT_API ott_status ott_optimizer_step(ott_optimizer *optimizer, ott_step_info *out);
OTT_API ott_status ott_optimizer_zero_grad(ott_optimizer *optimizer);

/* ---- state ---- */

/*
 * Saves parameters, the state of delayed scaling and, when given, the optimizer's, as a folder that is
 * complete or absent: model.safetensors; optimizer.safetensors ("<parameter>.exp_avg", ".exp_avg_sq");
 * float8.safetensors ("<linear>.<input|weight|grad_output>.<format>.amax_history", ".scale"); state.json.
 * Replaces an earlier one of this name; OTT_ERR_IO when the name is taken by something else, a run's own checkpoint
 * included. To be called between steps: gradients are not saved. optimizer may be NULL.
 *
 * A model's is a run's checkpoint: config.toml as well, the model's dimensions and the counters
 * (ott_model_read_counters), without history.json and sources.json, which runs do without. `ottava train` goes on from
 * it (checkpoint.load_path), but for one that was saved without an optimizer, which has the weights alone.
 */
OTT_API ott_status ott_checkpoint_save(const char *folder, ott_module *module, ott_optimizer *optimizer);
/*
 * Loads what ott_checkpoint_save wrote into a module with the same parameters: training goes on with the same
 * bits. A model takes a run's folder step-N too, its counters included. optimizer NULL: its file is not read. What is damaged is an error that names the file, what does
 * not fit one that names the tensor, before anything changes. Delayed scaling's state goes to the linear layers of the same name:
 * where the module runs another recipe it is dropped, and where the file has none it starts anew; both are
 * logged. Options of the optimizer (learning rate) stay as they were opened.
 */
OTT_API ott_status ott_checkpoint_load(const char *folder, ott_module *module, ott_optimizer *optimizer);

#ifdef __cplusplus
}
#endif
#endif
