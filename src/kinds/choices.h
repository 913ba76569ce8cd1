/*
 * kinds/choices: the choices that the configuration shares with layers, models and parallel/, as enums and
 * words. Configuration files have the words. KIND_LISTS calls LIST(name, list) for each choice, and `list`
 * calls X(constant, word) for each value.
 */
#ifndef KINDS_CHOICES_H
#define KINDS_CHOICES_H

/* activation of dense feed-forwards; ACTIVATION_SILU: the family's */
#define KIND_ACTIVATIONS(X)                                                                                  \
    X(ACTIVATION_SILU, "silu")                                                                               \
    X(ACTIVATION_GELU, "gelu")                                                                               \
    X(ACTIVATION_RELU, "relu")                                                                               \
    X(ACTIVATION_GEGLU, "geglu")                                                                             \
    X(ACTIVATION_GEGLU_TANH, "geglu_tanh")

/* how the frequencies of rotary embedding are scaled (nn/attention/rope.h) */
#define KIND_ROPE_SCALINGS(X)                                                                                \
    X(ROPE_PLAIN, "none")                                                                                    \
    X(ROPE_LLAMA3, "llama3")     /* Llama 3.1: by wavelength */                                              \
    X(ROPE_LINEAR, "linear")     /* position interpolation: positions / factor (Chen et al. 2023) */         \
    X(ROPE_YARN, "yarn")         /* by how often a pair rotates in the original length (Peng et al. 2023) */ \
    X(ROPE_LONGROPE, "longrope") /* each pair by its own factor (Ding et al. 2024) */                        \
    X(ROPE_DYNAMIC, "dynamic")   /* dynamic NTK: theta grows with the number of positions */

/* deviations of initial weights */
#define KIND_INIT_STYLES(X)                                                                                  \
    X(INIT_HF, "hf")                                                                                         \
    X(INIT_KEMPNER, "kempner")                                                                               \
    X(INIT_TITAN, "titan")

/* initial values of an adapter's A */
#define KIND_LORA_INITS(X)                                                                                   \
    X(LORA_INIT_XAVIER, "xavier")                                                                            \
    X(LORA_INIT_KAIMING, "kaiming")                                                                          \
    X(LORA_INIT_GAUSSIAN, "gaussian")

/* granularity of the scales of frozen weights in FP8; FROZEN_RECIPE: the recipe's */
#define KIND_FROZEN_GRANULARITIES(X)                                                                         \
    X(FROZEN_RECIPE, "recipe")                                                                               \
    X(FROZEN_TENSOR, "tensor")                                                                               \
    X(FROZEN_CHANNEL, "channel")                                                                             \
    X(FROZEN_BLOCK, "block")

/* tensors in mapped host memory: none, the optimizer's moments, moments and master weights */
#define KIND_OFFLOADS(X)                                                                                     \
    X(OFFLOAD_NONE, "none")                                                                                  \
    X(OFFLOAD_MOMENTS, "moments")                                                                            \
    X(OFFLOAD_STATE, "state")

/* pipeline schedules; config refuses PP_ZERO_BUBBLE if distributed.pp > 1 */
#define KIND_PP_SCHEDULES(X)                                                                                 \
    X(PP_1F1B, "1f1b")                                                                                       \
    X(PP_GPIPE, "gpipe")                                                                                     \
    X(PP_INTERLEAVED_1F1B, "interleaved_1f1b")                                                               \
    X(PP_ZERO_BUBBLE, "zero_bubble")

#define KIND_LISTS(LIST)                                                                                     \
    LIST(activation, KIND_ACTIVATIONS)                                                                       \
    LIST(rope_scaling, KIND_ROPE_SCALINGS)                                                                   \
    LIST(init_style, KIND_INIT_STYLES)                                                                       \
    LIST(lora_init, KIND_LORA_INITS)                                                                         \
    LIST(frozen_granularity, KIND_FROZEN_GRANULARITIES)                                                      \
    LIST(offload, KIND_OFFLOADS)                                                                             \
    LIST(pp_schedule, KIND_PP_SCHEDULES)

/* typedef enum kind_activation { ACTIVATION_SILU, ... } kind_activation; and so on. */
#define KIND_CONSTANT(constant, word) constant,
#define KIND_ENUM(name, list)         typedef enum kind_##name{list(KIND_CONSTANT)} kind_##name;
KIND_LISTS(KIND_ENUM)
#undef KIND_ENUM
#undef KIND_CONSTANT

#define KIND_WORD(constant, word) word, /* a table of words: {KIND_ACTIVATIONS(KIND_WORD)} */

#endif
