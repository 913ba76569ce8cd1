/*
 * model/block: one transformer block: norm, mixer, norm and feed-forward around a residual stream. The mixer
 * is attention or another layer in which a token affects later tokens (model/mixer.h). Names with "attention"
 * belong to the mixer of any kind, names with "mlp" to the feed-forward of any kind (model/ffn.h).
 *
 * The residual stream between blocks is a pair: the residual h, and delta, the output of the last projection.
 * The next norm adds the two in one fused op. A block runs in steps, so that buffers of the previous block
 * can be closed in between:
 *
 *     block_enter     h1 = x + delta, n1 = norm(h1)
 *     block_run       mixer, h2 = h1 + its projection, n2 = norm(h2), feed-forward -> delta
 *     block_finalize  keeps what backward needs, as the block's checkpointing says, and closes the rest
 *     block_backward
 *
 * Variants of model families: a norm after the mixer and after the feed-forward, or a multiplier, changes the
 * projection before it is added to the residual. In models without the norms n1 and n2, the mixer reads h1
 * and the feed-forward reads h2. With a parallel residual, n2 is norm(h1).
 */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "model/ffn.h"
#include "model/mixer.h"

/* What backward recomputes instead of reading from memory. The gradients are bit-identical. */
typedef enum checkpointing {
    CHECKPOINT_NONE,
    CHECKPOINT_SELECTIVE, /* recomputes the norm before the mixer and the mixer, from h1 */
    CHECKPOINT_OP,  /* recomputes norms, SwiGLU and quantized inputs; keeps outputs of GEMMs and the mixer */
    CHECKPOINT_FULL /* recomputes the block from h1 */
} checkpointing;

#define LAYER(kind) kind kind;
#define SAVED(kind) kind##_saved kind;

typedef struct block {
    parameter *parameters; /* [parameter_count] parameters of this block's layers; owned by the model */
    int parameter_count;
    norm attention_norm, mlp_norm; /* norms before mixer and feed-forward; weight NULL: no norm */
    bool parallel_residual;        /* the feed-forward reads norm(h1); mlp_norm is attention_norm */
    /* norms of projections before they are added to the residual; weight NULL: no norm */
    norm attention_post_norm, mlp_post_norm;
    float multiplier;        /* factor of the projections; 0: none; not with post norms */
    const mixer_kind *mixer; /* NULL: the block is on another pipeline stage */
    union {                  /* the layer of the kind `mixer`; each kind has a member with its name */
        MIXER_KINDS(LAYER)
    };
    const ffn_kind *ffn; /* NULL: the block is on another pipeline stage */
    union {              /* the layer of the kind `ffn` */
        FFN_KINDS(LAYER)
    };
    /* Quantized copies that n1, n2 and the gradients of the projections need. block_connect sets them. */
    activation_specs attention_input, mlp_input; /* copies of n1; of n2 */
    activation_specs grad_attention;             /* copies of the gradient of the mixer's projection */
    activation_specs grad_mlp;                   /* copies of the gradient of the feed-forward's projection */
    /* Quantized copies of the gradients of h2 and of the block's output: grad_attention and grad_mlp, or none
       if a post norm or multiplier changes the projection. */
    activation_specs grad_h2, grad_output;
    checkpointing checkpointing;
} block;

/* Input and statistics (nn/norm.h) of a post norm, kept for its backward. */
typedef struct block_added {
    tensor x, rstd; /* x[T,D], rstd[norm_kept(post norm), T] */
    plan_buffer x_buffer, rstd_buffer;
} block_added;

/* The tensors that forward keeps for backward: one struct for each block and in-flight micro-batch. */
typedef struct block_saved {
    tensor h1, h2, rstd1, rstd2; /* h1, h2: [T,D]; rstd1, rstd2: [norm_kept(norm), T] (nn/norm.h) */
    /* in backward with a parallel residual: the part of h1's gradient [T,D] that skips the mixer */
    tensor skip_grad;
    plan_buffer h1_buffer, h2_buffer, rstd1_buffer, rstd2_buffer, skip_grad_buffer;
    activation n1, n2;
    block_added attention_added, mlp_added;
    union { /* tensors of the kind block.mixer */
        MIXER_KINDS(SAVED)
    };
    union { /* tensors of the kind block.ffn */
        FFN_KINDS(SAVED)
    };
} block_saved;

#undef LAYER
#undef SAVED

/* The layers of the block's mixer and feed-forward, of any kind. */
static inline mixer_layer block_mixer(block *b) {
    return (mixer_layer){.attention = &b->attention};
}
static inline ffn_layer block_ffn(block *b) {
    return (ffn_layer){.mlp = &b->mlp};
}

/* Fills the block's activation_specs from the specs of its layers. Call it when a layer's spec changes. */
ott_status block_connect(block *b);
/* Computes s->h1 and s->n1. x[T,D] and delta[T,D] are only read; the caller may close them afterwards. If
   delta is NULL, h1 is x itself, and *x_buffer becomes a buffer of *s. If not, x_buffer is not used. */
ott_status block_enter(exec *cx, const block *b, const tensor *x, plan_buffer *x_buffer, const tensor *delta,
                       block_saved *s);
/* Opens delta[T,D], the feed-forward's projection; the caller closes it. Block output: s->h2 + delta. */
ott_status block_run(exec *cx, block *b, const sequence_metadata *at, block_saved *s, tensor *delta,
                     plan_buffer *delta_buffer);
/* Call it after the next norm has read s->h2 and delta. Closes all tensors that backward does not read. */
ott_status block_finalize(exec *cx, block *b, block_saved *s);
/* g: the gradient of the block's output, with the copies b->grad_output. Opens dx, the gradient of x and of
   delta, with the copies dx_specs (NULL: none). Closes g and all tensors of *s. */
ott_status block_backward(exec *cx, block *b, const sequence_metadata *at, block_saved *s, activation *g,
                          const activation_specs *dx_specs, activation *dx);

#endif
