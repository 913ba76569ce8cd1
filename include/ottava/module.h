/*
 * ottava/module.h: layers and whole models as objects with forward and backward, an optimizer, checkpoints,
 * and two ways to run linear layers in FP8:
 *
 *   conversion (torchao)           ott_convert_to_float8_training makes linear layers FP8 layers for good
 *   autocast (TransformerEngine)   between ott_autocast_begin and ott_autocast_end (a "region"), each linear
 *                                  layer uses the recipe of the region
 *
 * Both can be combined: a converted layer keeps its own recipe inside a region. One training step:
 *
 *     ott_optimizer_zero_grad(optimizer);
 *     ott_module_forward(module, x, y);
 *     ott_mse_loss(y, target, &loss, dy);
 *     ott_module_backward(module, dy, NULL);
 *     ott_optimizer_step(optimizer, NULL);
 *
 * Examples: examples/convert_toy.c, examples/autocast_block.c, examples/model_loop.c,
 * examples/distill.c.
 *
 * Ownership: close every object with its ott_x_close. Closing NULL or a closed object does nothing. A
 * sequential owns its modules and closes them. Getters return borrowed objects and texts, valid as long as
 * the module. Use after close returns OTT_ERR_ARGUMENT.
 *
 * Threads: one thread at a time may use a context and its objects; a second one gets OTT_ERR_ARGUMENT.
 * Callbacks (log, filter, all_reduce) may open objects and call getters. Calls that run, change or close
 * modules return OTT_ERR_ARGUMENT in a callback.
 *
 * Numbers: parameters and their gradients are fp32. Activations are bf16 or fp32, the option `dtype`. Error
 * texts name the function, the argument, and both shapes if two do not agree. M: number of rows (tokens).
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
 * Members that all options share. dtype: format of x, y and their gradients, OTT_BF16 (default) or OTT_F32.
 * init_std (default 0.02): initial weights are normal with this standard deviation; biases are 0, norm
 * weights 1. seed: if not 0, the initial weights depend only on seed, parameter name and element; if 0
 * (default), each module that the context opens gets different weights. Weights are drawn when they are first
 * needed. "Required" members have no default.
 */

/* y[M, out_features] = x[M, in_features] weight^T + bias; weight[out_features, in_features]. */
typedef struct ott_linear_options {
    size_t struct_size;
    int64_t in_features, out_features; /* required */
    int bias;                          /* 1 (default): adds bias[out_features] */
    ott_dtype dtype;
    double init_std;
    uint64_t seed;
} ott_linear_options;

/* RMSNorm: y[M, dim] = x / sqrt(mean(x^2) + epsilon) * weight[dim]. */
typedef struct ott_norm_options {
    size_t struct_size;
    int64_t dim;    /* required */
    double epsilon; /* default 1e-5 */
    ott_dtype dtype;
} ott_norm_options;

/* Causal self-attention with rotary position embeddings and grouped-query heads; x and y are [M, dim].
   ott_module_set_sequences divides the rows into sequences. q_proj, k_proj, v_proj and o_proj lack a bias. */
typedef struct ott_attention_options {
    size_t struct_size;
    int64_t dim, heads; /* required */
    int64_t kv_heads;   /* key and value heads, a divisor of heads; 0 (default): as many as heads */
    int64_t head_dim;   /* even; 0 (default): dim / heads */
    /* tokens that a query attends to: its own and those before it; 0 (default): no limit */
    int64_t window;
    double rope_theta;     /* default 10000 */
    int64_t max_positions; /* longest sequence; default 2048 */
    ott_dtype dtype;
    double init_std;
    uint64_t seed;
} ott_attention_options;

/* SwiGLU: y = down_proj(silu(gate_proj(x)) * up_proj(x)), without biases. */
typedef struct ott_mlp_options {
    size_t struct_size;
    int64_t dim, hidden; /* required */
    ott_dtype dtype;
    double init_std;
    uint64_t seed;
} ott_mlp_options;

/* A Llama-like block: h = x + self_attn(input_layernorm(x)), y = h + mlp(post_attention_layernorm(h)). */
typedef struct ott_transformer_layer_options {
    size_t struct_size;
    int64_t dim, heads, hidden;         /* required */
    int64_t kv_heads, head_dim, window; /* see ott_attention_options */
    double rope_theta;                  /* see ott_attention_options */
    int64_t max_positions;              /* see ott_attention_options */
    double norm_epsilon;                /* default 1e-5 */
    ott_dtype dtype;
    double init_std;
    uint64_t seed;
} ott_transformer_layer_options;

OTT_API void ott_linear_options_init(ott_linear_options *options, size_t size);
#define ott_linear_options_init(options) ott_linear_options_init(options, sizeof *(options))
OTT_API void ott_norm_options_init(ott_norm_options *options, size_t size);
#define ott_norm_options_init(options) ott_norm_options_init(options, sizeof *(options))
OTT_API void ott_attention_options_init(ott_attention_options *options, size_t size);
#define ott_attention_options_init(options) ott_attention_options_init(options, sizeof *(options))
OTT_API void ott_mlp_options_init(ott_mlp_options *options, size_t size);
#define ott_mlp_options_init(options) ott_mlp_options_init(options, sizeof *(options))
OTT_API void ott_transformer_layer_options_init(ott_transformer_layer_options *options, size_t size);
#define ott_transformer_layer_options_init(options)                                                          \
    ott_transformer_layer_options_init(options, sizeof *(options))

/* Open a module. options must not be NULL. OTT_ERR_ARGUMENT or OTT_ERR_DTYPE for an invalid option. */
OTT_API ott_status ott_linear_open(ott_context *context, const ott_linear_options *options, ott_module **out);
OTT_API ott_status ott_norm_open(ott_context *context, const ott_norm_options *options, ott_module **out);
OTT_API ott_status ott_attention_open(ott_context *context, const ott_attention_options *options,
                                      ott_module **out);
OTT_API ott_status ott_mlp_open(ott_context *context, const ott_mlp_options *options, ott_module **out);
OTT_API ott_status ott_transformer_layer_open(ott_context *context,
                                              const ott_transformer_layer_options *options, ott_module **out);
/* Runs modules[count] one after the other; count is 1 or more. Their names become "0", "1", ... The
   sequential owns the modules, unless the call fails: OTT_ERR_SHAPE or OTT_ERR_DTYPE if an output does not
   fit the next input. */
OTT_API ott_status ott_sequential_open(ott_context *context, ott_module *const *modules, int count,
                                       ott_module **out);
/* Closes the module and its parts. Does nothing for a module that is part of another. */
OTT_API void ott_module_close(ott_module *module);

/* ---- a whole model ---- */

/*
 * Opens the model of a configuration: [model], or the Hugging Face folder model.hf_path. It is the model that
 * ott_train would train, with the same initial weights (train.seed), precision ([float8]), activation
 * checkpointing, frozen parameters and checkpoints. Its parts are the embedding, norms and linear layers,
 * with their full Hugging Face names: ott_module_child(model, "model.layers.0.self_attn.q_proj").
 *
 *     ott_module_forward    x: tokens[sequences, length], OTT_I32, 0 to vocab - 1.
 *                           y: logits[sequences * length, vocab].
 *                           Each row of x is a sequence, unless you called ott_module_set_sequences.
 *                           A sequence has at most train.seq_len tokens.
 *     ott_module_backward   dy: gradient of the logits. dx: NULL.
 *
 * The model runs on the context's device, on one rank; train.device and [distributed] are ignored. The
 * configuration is copied. Initial weights are drawn, or read from model.hf_path, when they are first needed,
 * but not if a checkpoint is loaded before. Delayed scaling updates its scales after each backward. In an
 * enabled autocast region ott_module_forward of a model returns OTT_ERR_UNSUPPORTED.
 *
 * OTT_ERR_CONFIG if the configuration describes no model. OTT_ERR_UNSUPPORTED for settings that only
 * ott_train has: float8.schedule, fp16, train.offload; parameters, gradients or moments that are not fp32.
 */
OTT_API ott_status ott_model_open(ott_context *context, ott_config *config, ott_module **out);
/*
 * A dense model or a mixture of experts. Each member has the name, the meaning, the default and the limits of
 * a key in section [model] of a configuration: `ottava train --help model` or ott_config_help_about. A member
 * that is 0 or NULL gets the default, which for some keys depends on the family (qk_norm, tie_embeddings). To
 * set a number to 0 where 0 is not the default, give -1. Truth values: 1 true, -1 false, 0 the default. Texts
 * and lists are borrowed for the call.
 */
typedef struct ott_model_options {
    size_t struct_size;
    const char *family;                         /* "llama" (default), "qwen3", "gemma2", "deepseek_v3", ... */
    int64_t dim, n_layers, n_heads, vocab_size; /* required */
    int64_t n_kv_heads, head_dim;               /* defaults: n_heads, dim / n_heads */
    int64_t ffn_hidden_dim;                     /* default: ffn_dim_multiplier x 8/3 dim */
    double ffn_dim_multiplier;                  /* default 1 */
    /* longest sequence; default 2048. With rope_scaling "dynamic" it may be rope_factor times as long. */
    int64_t max_seq_len;
    int tie_embeddings;
    /* blocks */
    const char *norm_type;  /* "rmsnorm", "layernorm" */
    const char *activation; /* "silu", "gelu", "relu", "geglu", "geglu_tanh" */
    double norm_eps;        /* default 1e-5 */
    int qk_norm, attention_bias, attention_output_bias, mlp_bias, fused_qkv, fused_gate_up;
    /* attention windows: all layers have one except every full_attention_every-th layer, or except the layers
       in full_attention_layers (the first layer is 0) */
    int64_t sliding_window, full_attention_every;
    const int32_t *full_attention_layers; /* [full_attention_layer_count] */
    int full_attention_layer_count;
    /* caps and factors of scores, logits and the residual stream */
    double attention_softcap, final_logit_softcap;
    double embedding_multiplier, residual_multiplier, attention_multiplier, logits_scaling;
    int scale_attention_by_layer;
    /* rotary embedding */
    double rope_theta, rope_local_theta, partial_rotary_factor;
    int rope_interleaved;
    const char *rope_scaling; /* "llama3", "linear", "yarn", "longrope", "dynamic" */
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_max_position;
    double rope_beta_fast, rope_beta_slow, rope_mscale, rope_mscale_all_dim, rope_attention_factor;
    const float *rope_short_factor, *rope_long_factor; /* longrope: one factor per rotated pair of a head */
    int rope_short_factor_count, rope_long_factor_count;
    /* latent attention (MLA), with deepseek_v2 and deepseek_v3 */
    int64_t kv_lora_rank, q_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    /* mixture of experts */
    int64_t num_experts, moe_top_k; /* defaults: 0 (a dense model), 2 */
    int64_t moe_frequency, moe_first_dense_layers;
    const int32_t *moe_dense_layers; /* [moe_dense_layer_count] */
    int moe_dense_layer_count;
    const char *moe_router;    /* "softmax_topk", "sigmoid_topk" */
    int moe_normalize_weights; /* default: true */
    double moe_route_scale;
    int64_t moe_groups, moe_top_groups, moe_shared_experts;
    int64_t moe_expert_hidden_dim;    /* default: moe_expert_ffn_multiplier x ffn_hidden_dim */
    double moe_expert_ffn_multiplier; /* default 1 */
    double moe_capacity_factor;
    double moe_aux_loss_weight;          /* default 0.01; sigmoid_topk: 0 */
    double moe_sequence_aux_loss_weight; /* of each sequence of max_seq_len tokens */
    double moe_router_z_loss_weight;
    int moe_gradient_scale;
    /* initial weights; members that all options of this header have */
    const char *init_style; /* "kempner" (default), "hf", "titan" */
    double init_std;
    ott_dtype dtype;
    uint64_t seed;
} ott_model_options;

OTT_API void ott_model_options_init(ott_model_options *options, size_t size);
#define ott_model_options_init(options) ott_model_options_init(options, sizeof *(options))
/*
 * Opens a model without a configuration. ott_model_open opens the same model for a configuration with the
 * same keys in [model], and with these keys: train.mixed_precision is "bf16" or "fp32", as dtype; train.seed
 * is seed; train.seq_len is the longest sequence. The two models have the same initial weights, losses and
 * checkpoints. ott_model_optimizer_open opens the default optimizer. ott_convert_to_float8_training converts
 * the model to FP8.
 *
 *     ott_model_options_init(&options);
 *     options.family = "qwen3";
 *     options.dim = 256, options.n_layers = 4, options.n_heads = 8, options.vocab_size = 4096;
 *     options.n_kv_heads = 2;
 *     ott_model_open_options(context, &options, &model);
 *
 * OTT_ERR_CONFIG for an invalid member, or for members that contradict each other.
 */
OTT_API ott_status ott_model_open_options(ott_context *context, const ott_model_options *options,
                                          ott_module **out);
/*
 * Runs forward, loss and backward in one call, as ott_train does. With train.loss_fn = chunked_cross_entropy
 * the logits of only one chunk of tokens are in memory at a time. tokens and targets: [sequences, length],
 * OTT_I32; the target of a token is the token after it, or -100 if it does not count. labels: the number of
 * targets that count in all micro-batches of the optimizer step; 0: the number in this call. *loss (may be
 * NULL) is the sum of this call's losses divided by labels. So the losses of a step's micro-batches add up to
 * the step's mean. Adds to the parameter gradients, except in evaluation.
 */
OTT_API ott_status ott_model_loss(ott_module *model, const ott_tensor *tokens, const ott_tensor *targets,
                                  int64_t labels, double *loss);
/* Makes ott_model_loss call your loss function (types.h); loss NULL: cross-entropy again. `user` is passed to
   it. The function computes on the host. For a loss on the device, call ott_module_forward and
   ott_module_backward. OTT_ERR_CONFIG if train.loss_fn is chunked_cross_entropy or train.z_loss_weight is not
   0. */
OTT_API ott_status ott_model_set_loss(ott_module *model, ott_loss_fn loss, void *user);

/* Progress of training since its first step. Checkpoints save and restore it. */
typedef struct ott_model_counters {
    size_t struct_size;
    int64_t step;    /* optimizer steps so far */
    int64_t updates; /* steps that changed parameters; the others were skipped (a gradient was not finite) */
    /* trained sequences (rows of `tokens`); a resumed run continues at the row of this index */
    int64_t samples;
    int64_t tokens; /* trained tokens so far */
} ott_model_counters;

OTT_API void ott_model_counters_init(ott_model_counters *counters, size_t size);
#define ott_model_counters_init(counters) ott_model_counters_init(counters, sizeof *(counters))
OTT_API ott_status ott_model_read_counters(const ott_module *model, ott_model_counters *out);

/* ---- running ---- */

/* The functions of this section return OTT_ERR_ARGUMENT for a module that is part of another module. */

/*
 * Computes y[M, out_features] from x[M, in_features]. Both have the module's dtype and do not overlap; M is 1
 * or more. In training (the default) the module saves what backward needs; x may be changed afterwards. A
 * module saves only its last forward.
 */
OTT_API ott_status ott_module_forward(ott_module *module, const ott_tensor *x, ott_tensor *y);
/*
 * Computes dx[M, in_features], the gradient of x (NULL: not needed), from dy[M, out_features], the gradient
 * of y. Adds to the parameter gradients; ott_optimizer_zero_grad clears them. OTT_ERR_ARGUMENT if no forward
 * ran since the last backward, or if the last forward was an evaluation. May run outside the autocast region
 * of its forward.
 */
OTT_API ott_status ott_module_backward(ott_module *module, const ott_tensor *dy, ott_tensor *dx);
/* 1 (default): training. 0: evaluation, which saves nothing and records no amax. Applies to all parts. */
OTT_API ott_status ott_module_set_training(ott_module *module, int training);
/*
 * Divides the rows of x into sequences: start[count] are their first rows, ascending from 0; the last
 * sequence ends at the last row. Attention stays inside a sequence, and positions start at 0 in each. count 0
 * (default): all rows are one sequence. Copied. Applies to all parts from the next forward on.
 */
OTT_API ott_status ott_module_set_sequences(ott_module *module, const int64_t *start, int count);
/*
 * Sets the index, in the optimizer step, of the micro-batch that the next forwards compute
 * (TransformerEngine's is_first_microbatch). -1 (default): every forward quantizes the weights. 0: the first
 * micro-batch, which quantizes the weights and keeps the quantized copies. Above 0: a later one, which reuses
 * the copies and records no weight amax, unless an optimizer step ran in between. If you write parameters
 * yourself, set -1 or 0 before the next forward. Applies to all parts.
 */
OTT_API ott_status ott_module_set_micro_batch(ott_module *module, int index);

/* ---- getters ---- */

/*
 * Getters without a status return NULL, -1, 0 or OTT_DTYPE_COUNT on errors; see ott_error_text.
 */

/* "linear", "norm", "attention", "mlp", "sequential", "transformer_layer", "model", "embedding" */
OTT_API const char *ott_module_kind(const ott_module *module);
OTT_API int64_t ott_module_in_features(const ott_module *module); /* 0 if the module reads tokens */
OTT_API int64_t ott_module_out_features(const ott_module *module);
OTT_API ott_dtype ott_module_dtype(const ott_module *module);
/* Returns the part with this name, "0" or "self_attn.q_proj". "" is the module itself. NULL: no such part. */
OTT_API ott_module *ott_module_child(ott_module *module, const char *fqn);
/* 1 for a linear layer that computes in FP8: it was converted, or last run in an autocast region. */
OTT_API int ott_module_is_float8(const ott_module *module);
/* Why the last conversion skipped this linear layer, "the filter refused it"; NULL if it was not skipped. */
OTT_API const char *ott_module_skip_reason(const ott_module *module);
/* The recipe's name, "tensorwise", of a linear layer that computes in FP8; NULL for every other module. */
OTT_API const char *ott_module_recipe(const ott_module *module);

/* Parameters of the module and its parts, indices 0 to count - 1, in the order of use. Names are relative to
   the module: "0.weight", "self_attn.q_proj.weight". Valid until the module becomes part of another. */
OTT_API int ott_module_parameter_count(const ott_module *module);
OTT_API const char *ott_module_parameter_name(const ott_module *module, int index);
/* Index of the parameter with this name; -1 if there is none. */
OTT_API int ott_module_parameter_index(const ott_module *module, const char *name);
/* The fp32 master weight and its fp32 gradient, [rows, columns]; a vector has one row. Borrowed; you may read
   and write them. OTT_ERR_ARGUMENT for the gradient of a frozen parameter. */
OTT_API ott_status ott_module_parameter_value(ott_module *module, int index, ott_tensor **out);
OTT_API ott_status ott_module_parameter_gradient(ott_module *module, int index, ott_tensor **out);

/* State of delayed scaling for one tensor of a linear layer; `which` is "input", "weight" or "grad_output".
   *scale: factor of the next cast. *amax: maximum of the amax history. Either may be NULL. OTT_ERR_NOT_FOUND
   if this tensor has no delayed scaling. */
OTT_API ott_status ott_module_scale(const ott_module *module, const char *which, float *scale, float *amax);

/* ---- conversion ---- */

/* Your filter: returns nonzero to convert this linear layer. fqn: name in the converted module, or "". */
typedef int (*ott_filter_fn)(void *user, const char *fqn, const ott_module *module);

typedef struct ott_convert_options {
    size_t struct_size;
    /* NULL: tensorwise. The recipe is copied, so you may close or change it after the call. Its callbacks for
       delayed scaling must stay callable as long as a layer uses them. */
    ott_recipe *recipe;
    ott_filter_fn filter; /* NULL: all layers */
    void *user;           /* passed to filter */
    /* 1: also skip the layers that torchao's _auto_filter_for_recipe skips: dimensions that are not multiples
       of 16, and layers too small for a speedup. Tensorwise and rowwise recipes only. */
    int auto_filter;
    /* [filter_fqn_count] skip layers with one of these texts in their name. */
    const char *const *filter_fqns;
    int filter_fqn_count;
    /* Delayed scaling uses the maximum amax over this group, which must stay open. NULL: this rank only. */
    ott_group *amax_group;
} ott_convert_options;

typedef struct ott_convert_summary {
    size_t struct_size;
    int converted, linears; /* number of linear layers: converted by this call; in the module */
} ott_convert_summary;

OTT_API void ott_convert_options_init(ott_convert_options *options, size_t size);
#define ott_convert_options_init(options) ott_convert_options_init(options, sizeof *(options))
OTT_API void ott_convert_summary_init(ott_convert_summary *summary, size_t size);
#define ott_convert_summary_init(summary) ott_convert_summary_init(summary, sizeof *(summary))
/*
 * Converts the linear layers of a module to FP8, in place. Weights and names stay the same, and an optimizer
 * of the module stays valid. Dimensions need not be multiples of 16. Each skipped layer is logged with its
 * reason. A warning is logged if a text of filter_fqns matches no linear layer, or if nothing was converted.
 * Later calls may convert more layers or change recipes; a layer that a call skips keeps its recipe. The last
 * forward is discarded: run a new one before backward. ott_optimizer_step updates delayed scales, except for
 * layers that run in an autocast region (ott_autocast_end). OTT_ERR_UNSUPPORTED if the device cannot run the
 * recipe. options and out may be NULL.
 */
OTT_API ott_status ott_convert_to_float8_training(ott_module *module, const ott_convert_options *options,
                                                  ott_convert_summary *out);

/* ---- regions ---- */

typedef struct ott_autocast_options {
    size_t struct_size;
    int enabled;           /* 1 (default); 0: layers that are not converted run in their dtype */
    ott_recipe *recipe;    /* NULL: the recipe "delayed". Copied. */
    ott_group *amax_group; /* see ott_convert_options */
} ott_autocast_options;

OTT_API void ott_autocast_options_init(ott_autocast_options *options, size_t size);
#define ott_autocast_options_init(options) ott_autocast_options_init(options, sizeof *(options))
/*
 * Opens an autocast region for forward passes of all modules of the context. Regions nest, at most 32 deep;
 * the innermost one counts. A layer that ran with another recipe before changes its recipe, with one log line
 * per forward. It keeps its state of delayed scaling if format and margin are the same. OTT_ERR_UNSUPPORTED
 * if the device cannot run the recipe. options may be NULL.
 *
 *     ott_autocast_begin(context, NULL);
 *     ott_module_forward(module, x, y);
 *     ott_autocast_end(context);
 *     ott_module_backward(module, dy, NULL);
 */
OTT_API ott_status ott_autocast_begin(ott_context *context, const ott_autocast_options *options);
/*
 * Closes the innermost autocast region; OTT_ERR_ARGUMENT if none is open. Delayed scaling is updated for all
 * layers that ever ran in a region. Input and weight scales: at the end of the outermost region, unless it
 * and all regions inside it were disabled. grad_output scales: after the backward of the first module that
 * ran FP8 layers in the region. With an amax group these updates are collective: all ranks must make the same
 * calls.
 */
OTT_API ott_status ott_autocast_end(ott_context *context);
/* Number of open regions; -1 if context is NULL. */
OTT_API int ott_autocast_depth(const ott_context *context);

/* ---- losses ---- */

/*
 * Write the mean loss to *loss, and its gradient with respect to the first argument to `gradient`, with the
 * same shape and dtype, as ott_module_backward takes it. gradient may be the first argument itself; loss and
 * gradient may be NULL. Sums have a fixed order, so results do not depend on threads. OTT_ERR_SHAPE for empty
 * tensors.
 */

/* Mean squared error of output and target, which have equal shapes and are fp32, bf16 or fp16. The gradient
   is 2 (output - target) / count. */
OTT_API ott_status ott_mse_loss(const ott_tensor *output, const ott_tensor *target, double *loss,
                                ott_tensor *gradient);
/*
 * Cross-entropy: the mean of log(sum(exp(logits[i, :]))) - logits[i, target[i]] over the rows that count.
 * Gradient: (softmax(logits[i, :]) - onehot(target[i])) / number of rows that count, and 0 for the other
 * rows. logits[M, classes]: fp32, bf16 or fp16. target[1, M] or [M, 1], OTT_I32: 0 to classes - 1, or -100
 * for a row that does not count. OTT_ERR_ARGUMENT for any other target, and if no row counts. For a language
 * model you shift the targets: target[i] is the token after token i.
 */
OTT_API ott_status ott_cross_entropy_loss(const ott_tensor *logits, const ott_tensor *target, double *loss,
                                          ott_tensor *gradient);

/* ---- optimizer ---- */

/* AdamW as in torch.optim.AdamW. */
typedef struct ott_adamw_options {
    size_t struct_size;
    double lr;                    /* learning rate; default 1e-3 */
    double beta1, beta2, epsilon; /* defaults: beta1 0.9, beta2 0.999, epsilon 1e-8 */
    double weight_decay;          /* default 0.01; applies to matrices, not to norms and biases */
    double max_norm;              /* gradients are clipped to this global L2 norm; 0 (default): no clipping */
} ott_adamw_options;

typedef struct ott_step_info {
    size_t struct_size;
    int64_t updates;  /* parameter updates so far */
    double grad_norm; /* global L2 norm of the gradients, before clipping */
    int skipped;      /* 1: a gradient was not finite, so the parameters did not change */
} ott_step_info;

OTT_API void ott_adamw_options_init(ott_adamw_options *options, size_t size);
#define ott_adamw_options_init(options) ott_adamw_options_init(options, sizeof *(options))
OTT_API void ott_step_info_init(ott_step_info *info, size_t size);
#define ott_step_info_init(info) ott_step_info_init(info, sizeof *(info))
/* Opens AdamW for all parameters of the module. The module must stay open. options may be NULL. */
OTT_API ott_status ott_adamw_open(ott_context *context, ott_module *module, const ott_adamw_options *options,
                                  ott_optimizer **out);
/* Opens the optimizer of a model's configuration: [optimizer] and train.grad_clip_norm. The learning rate
   follows [scheduler] over train.max_steps steps, until ott_optimizer_set_lr is called. OTT_ERR_UNSUPPORTED
   for optimizers that evaluate averaged weights (schedule-free). */
OTT_API ott_status ott_model_optimizer_open(ott_module *model, ott_optimizer **out);
OTT_API void ott_optimizer_close(ott_optimizer *optimizer);
/* Sets the learning rate, 0 to 1e6, for all later steps. */
OTT_API ott_status ott_optimizer_set_lr(ott_optimizer *optimizer, double lr);
/* Updates the parameters from the current gradients, then the delayed scales of converted layers. A step with
   a gradient that is not finite changes no parameter. out may be NULL. */
OTT_API ott_status ott_optimizer_step(ott_optimizer *optimizer, ott_step_info *out);
/* Sets all gradients to 0. Call it before the first micro-batch of each step. */
OTT_API ott_status ott_optimizer_zero_grad(ott_optimizer *optimizer);

/* ---- state ---- */

/*
 * Saves a checkpoint folder with the parameters, the optimizer's state (optimizer may be NULL) and the state
 * of delayed scaling. The folder is complete, or absent if the call fails. Call it between steps: gradients
 * are not saved. A folder that an earlier ott_checkpoint_save wrote is replaced. OTT_ERR_IO for any other
 * existing file or folder, also for a checkpoint that a run wrote. Files:
 *
 *     model.safetensors        parameters
 *     optimizer.safetensors    "<parameter>.exp_avg", "<parameter>.exp_avg_sq"
 *     float8.safetensors       "<linear>.<input|weight|grad_output>.<format>.amax_history" and ".scale"
 *     state.json               counters, a checksum of every file
 *
 * A model's folder is a checkpoint of a run: it also has config.toml, the model's dimensions and the counters
 * (ott_model_read_counters), but no history.json and sources.json, which a run does not need. `ottava train`
 * resumes from it (checkpoint.load_path), if it was saved with an optimizer.
 */
OTT_API ott_status ott_checkpoint_save(const char *folder, ott_module *module, ott_optimizer *optimizer);
/*
 * Loads a folder of ott_checkpoint_save into a module with the same parameters; training continues with the
 * same bits. A model also loads a run's folder step-N, with its counters. optimizer NULL: the optimizer's
 * state is not read. All files are checked before anything changes. Errors name the damaged file, or the
 * tensor that does not fit. Linear layers get the state of delayed scaling that was saved for their names. A
 * layer that runs another recipe, or that has no saved state, starts with a new state; a log line reports
 * this. Options of the optimizer, such as the learning rate, are not in the folder.
 */
OTT_API ott_status ott_checkpoint_load(const char *folder, ott_module *module, ott_optimizer *optimizer);

#ifdef __cplusplus
}
#endif
#endif
