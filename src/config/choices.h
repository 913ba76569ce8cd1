/*
 * config/choices: the closed lists of words a key may take. Each list becomes an enum (config.h) and a table
 * of texts (table.c). X(constant, text in a file, what is missing: "" when the choice works today). A word
 * whose third column is not empty is known but refused, with that text as the reason.
 */
#ifndef CONFIG_CHOICES_H
#define CONFIG_CHOICES_H

#include "config/family.h"

#define CHOICES_preset(X)                                                                                    \
    X(PRESET_NONE, "none", "")                                                                               \
    X(PRESET_DEBUG, "debug", "")                                                                             \
    X(PRESET_DEMO, "demo", "")                                                                               \
    X(PRESET_10M, "10M", "")                                                                                 \
    X(PRESET_42M, "42M", "")                                                                                 \
    X(PRESET_124M, "124M", "")                                                                               \
    X(PRESET_1B, "1B", "")                                                                                   \
    X(PRESET_3B, "3B", "")                                                                                   \
    X(PRESET_8B, "8B", "")                                                                                   \
    X(PRESET_70B, "70B", "")                                                                                 \
    X(PRESET_405B, "405B", "")                                                                               \
    X(PRESET_QWEN3_DEBUG, "qwen3-debug", "")                                                                 \
    X(PRESET_QWEN3_0_6B, "qwen3-0.6B", "")                                                                   \
    X(PRESET_QWEN3_1_7B, "qwen3-1.7B", "")                                                                   \
    X(PRESET_QWEN3_4B, "qwen3-4B", "")                                                                       \
    X(PRESET_QWEN3_8B, "qwen3-8B", "")                                                                       \
    X(PRESET_QWEN3_14B, "qwen3-14B", "")                                                                     \
    X(PRESET_QWEN3_32B, "qwen3-32B", "")

#define CHOICES_norm(X)                                                                                      \
    X(NORM_RMSNORM, "rmsnorm", "")                                                                           \
    X(NORM_LAYERNORM, "layernorm", "layer normalization is not built yet")

#define CHOICES_activation(X)                                                                                \
    X(ACTIVATION_SILU, "silu", "")                                                                           \
    X(ACTIVATION_GELU, "gelu", "GELU is not built yet")                                                      \
    X(ACTIVATION_RELU, "relu", "ReLU is not built yet")

#define CHOICES_rope_scaling(X)                                                                              \
    X(ROPE_SCALING_NONE, "none", "")                                                                         \
    X(ROPE_SCALING_LLAMA3, "llama3", "")                                                                     \
    X(ROPE_SCALING_LINEAR, "linear", "linear rope scaling is not built yet")                                 \
    X(ROPE_SCALING_YARN, "yarn", "yarn rope scaling is not built yet")

#define CHOICES_init_style(X)                                                                                \
    X(INIT_HF, "hf", "")                                                                                     \
    X(INIT_KEMPNER, "kempner", "")                                                                           \
    X(INIT_TITAN, "titan", "")

#define CHOICES_FAMILY(X, constant, name, ...) X(MODEL_FAMILY_##constant, name, "")
#define CHOICES_model_family(X)                FAMILIES(CHOICES_FAMILY, X)

#define CHOICES_model_type(X) X(MODEL_TYPE_TRANSFORMER, "transformer", "")

#define CHOICES_sdpa(X)                                                                                      \
    X(SDPA_AUTO, "auto", "")                                                                                 \
    X(SDPA_FLASH, "flash", "")                                                                               \
    X(SDPA_EFFICIENT, "efficient", "")                                                                       \
    X(SDPA_CUDNN, "cudnn", "")                                                                               \
    X(SDPA_MATH, "math", "")

#define CHOICES_moe_router(X)                                                                                \
    X(MOE_ROUTER_SOFTMAX_TOPK, "softmax_topk", "")                                                           \
    X(MOE_ROUTER_SIGMOID_TOPK, "sigmoid_topk", "")

#define CHOICES_moe_bias_schedule(X)                                                                         \
    X(MOE_BIAS_CONSTANT, "constant", "")                                                                     \
    X(MOE_BIAS_COSINE_DECAY, "cosine_decay", "")                                                             \
    X(MOE_BIAS_LINEAR_WARMUP, "linear_warmup", "")

#define CHOICES_precision(X)                                                                                 \
    X(PRECISION_BF16, "bf16", "")                                                                            \
    X(PRECISION_FP16, "fp16", "")                                                                            \
    X(PRECISION_FP32, "fp32", "")                                                                            \
    X(PRECISION_FP8, "fp8", "")

/* "every_n" is also written as the number N itself (train.activation_checkpointing_every holds it). */
#define CHOICES_checkpointing(X)                                                                             \
    X(CHECKPOINTING_NONE, "none", "")                                                                        \
    X(CHECKPOINTING_SELECTIVE, "selective", "")                                                              \
    X(CHECKPOINTING_FULL, "full", "")                                                                        \
    X(CHECKPOINTING_OP, "op", "")                                                                            \
    X(CHECKPOINTING_EVERY_N, "every_n", "")                                                                  \
    X(CHECKPOINTING_MEMORY_BUDGET, "memory_budget", "a memory budget is not built yet; use op or full")

#define CHOICES_loss(X)                                                                                      \
    X(LOSS_CROSS_ENTROPY, "cross_entropy", "")                                                               \
    X(LOSS_CHUNKED_CROSS_ENTROPY, "chunked_cross_entropy", "")

#define CHOICES_data_format(X)                                                                               \
    X(DATA_AUTO, "auto", "")                                                                                 \
    X(DATA_TEXT, "text", "")                                                                                 \
    X(DATA_JSONL, "jsonl", "")                                                                               \
    X(DATA_SQUAD, "squad", "")                                                                               \
    X(DATA_INSTRUCTION, "instruction", "")                                                                   \
    X(DATA_HELLASWAG, "hellaswag", "")                                                                       \
    X(DATA_TOKENS, "tokens", "")                                                                             \
    X(DATA_BYTES, "bytes", "")                                                                               \
    X(DATA_SYNTHETIC, "synthetic", "")

#define CHOICES_compile_mode(X)                                                                              \
    X(COMPILE_DEFAULT, "default", "")                                                                        \
    X(COMPILE_REDUCE_OVERHEAD, "reduce-overhead", "")                                                        \
    X(COMPILE_MAX_AUTOTUNE, "max-autotune", "")

#define CHOICES_optimizer(X)                                                                                 \
    X(OPTIMIZER_ADAMW, "adamw", "")                                                                          \
    X(OPTIMIZER_ADAM, "adam",                                                                                \
      "Adam with weight decay inside the gradient is not built yet; with weight_decay = 0 it is adamw")      \
    X(OPTIMIZER_LION, "lion", "Lion is not built yet")                                                       \
    X(OPTIMIZER_MUON, "muon", "Muon is not built yet")                                                       \
    X(OPTIMIZER_SCHEDULE_FREE_ADAMW, "schedule_free_adamw", "schedule-free AdamW is not built yet")

#define CHOICES_scheduler(X)                                                                                 \
    X(SCHEDULER_COSINE, "cosine", "")                                                                        \
    X(SCHEDULER_LINEAR, "linear", "")                                                                        \
    X(SCHEDULER_WSD, "wsd", "")                                                                              \
    X(SCHEDULER_CONSTANT, "constant", "")                                                                    \
    X(SCHEDULER_NONE, "none", "")                                                                            \
    X(SCHEDULER_REX, "rex", "the REX schedule is not built yet")                                             \
    X(SCHEDULER_INVERSE_SQUARE_ROOT, "inverse-square-root",                                                  \
      "the inverse-square-root schedule is not built yet")

#define CHOICES_wsd_decay(X)                                                                                 \
    X(WSD_DECAY_COSINE, "cosine", "")                                                                        \
    X(WSD_DECAY_LINEAR, "linear", "")                                                                        \
    X(WSD_DECAY_SQRT, "sqrt", "")

#define CHOICES_pp_schedule(X)                                                                               \
    X(PP_1F1B, "1f1b", "")                                                                                   \
    X(PP_GPIPE, "gpipe", "")                                                                                 \
    X(PP_INTERLEAVED_1F1B, "interleaved_1f1b", "")

#define CHOICES_reshard(X)                                                                                   \
    X(RESHARD_DEFAULT, "default", "")                                                                        \
    X(RESHARD_ALWAYS, "always", "")                                                                          \
    X(RESHARD_NEVER, "never", "")

#define CHOICES_reduce_dtype(X)                                                                              \
    X(REDUCE_FLOAT32, "float32", "")                                                                         \
    X(REDUCE_BFLOAT16, "bfloat16", "")

#define CHOICES_async_mode(X)                                                                                \
    X(ASYNC_DISABLED, "disabled", "")                                                                        \
    X(ASYNC_ASYNC, "async", "")                                                                              \
    X(ASYNC_PINNED, "async_with_pinned_mem", "")

#define CHOICES_export_dtype(X)                                                                              \
    X(EXPORT_FLOAT32, "float32", "")                                                                         \
    X(EXPORT_BFLOAT16, "bfloat16", "")                                                                       \
    X(EXPORT_FLOAT16, "float16", "")

#define CHOICES_save_hf(X)                                                                                   \
    X(SAVE_HF_FALSE, "false", "")                                                                            \
    X(SAVE_HF_FINAL, "final", "")                                                                            \
    X(SAVE_HF_EVERY, "every", "")

#define CHOICES_log_style(X)                                                                                 \
    X(LOG_STYLE_TITAN, "titan", "")                                                                          \
    X(LOG_STYLE_KEMPNER, "kempner", "")                                                                      \
    X(LOG_STYLE_AUTOMODEL, "automodel", "")

/* The words but the last are recipe names of fp8/recipe.h. */
#define CHOICES_recipe(X)                                                                                    \
    X(RECIPE_TENSORWISE, "tensorwise", "")                                                                   \
    X(RECIPE_ROWWISE, "rowwise", "")                                                                         \
    X(RECIPE_ROWWISE_WITH_GW_HP, "rowwise_with_gw_hp", "")                                                   \
    X(RECIPE_DELAYED, "delayed", "")                                                                         \
    X(RECIPE_CURRENT, "current", "")                                                                         \
    X(RECIPE_BLOCK, "block", "")                                                                             \
    X(RECIPE_MXFP8, "mxfp8", "")                                                                             \
    X(RECIPE_CUSTOM, "custom", "")

#define CHOICES_amax_algo(X)                                                                                 \
    X(ALGO_MAX, "max", "")                                                                                   \
    X(ALGO_MOST_RECENT, "most_recent", "")

#define CHOICES_mx_scale(X)                                                                                  \
    X(MX_SCALE_ROUNDUP, "roundup", "")                                                                       \
    X(MX_SCALE_FLOOR, "floor", "")

#define CHOICES_fp8_format(X)                                                                                \
    X(FP8_FORMAT_RECIPE, "recipe", "")                                                                       \
    X(FP8_FORMAT_HYBRID, "hybrid", "")                                                                       \
    X(FP8_FORMAT_E4M3, "e4m3", "")

#define CHOICES_fast_accum(X)                                                                                \
    X(FAST_ACCUM_RECIPE, "recipe", "")                                                                       \
    X(FAST_ACCUM_TRUE, "true", "")                                                                           \
    X(FAST_ACCUM_FALSE, "false", "")

#define CHOICES_sum(X)                                                                                       \
    X(SUM_FP32, "fp32", "")                                                                                  \
    X(SUM_HOPPER, "hopper", "")                                                                              \
    X(SUM_HOPPER_FAST, "hopper_fast", "")                                                                    \
    X(SUM_HOPPER_SPLIT, "hopper_split", "")

/* After the first, the words of CHOICES_sum in their order. */
#define CHOICES_gemm_sum(X)                                                                                  \
    X(GEMM_SUM_DEFAULT, "default", "")                                                                       \
    X(GEMM_SUM_FP32, "fp32", "")                                                                             \
    X(GEMM_SUM_HOPPER, "hopper", "")                                                                         \
    X(GEMM_SUM_HOPPER_FAST, "hopper_fast", "")                                                               \
    X(GEMM_SUM_HOPPER_SPLIT, "hopper_split", "")

#endif
