/*
 * model/block: one transformer block: norm, attention, norm, feed-forward around a residual stream.
 *
 * The stream between blocks is a pair: the residual h and the delta that the last projection made; the next
 * norm adds them (one fused op). A block is run in steps, so that what the previous block still lends can be
 * let go in between:
 *
 *     block_enter   h1 = x + delta, n1 = norm(h1)
 *     block_run     attention, h2 = h1 + its projection, n2 = norm(h2), feed-forward; makes the next delta
 *     block_finalize  keeps what backward needs, by the block's checkpointing, and closes the rest
 *     block_backward
 *
 * Some families have a norm behind attention and behind the feed-forward, or multiply what they add: that is done to
 * the projection before the residual takes it. Some have none before: then h1 and h2 themselves go in. And some run both
 * side by side: then n2 is norm(h1) too.
 */
#ifndef MODEL_BLOCK_H
#define MODEL_BLOCK_H

#include "model/ffn.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/moe.h"
#include "nn/norm.h"

/* What is recomputed in backward instead of kept. Same gradients, bit for bit, in every mode. */
typedef enum checkpointing {
    CHECKPOINT_NONE,
    CHECKPOINT_SELECTIVE, /* attention, from h1 */
    CHECKPOINT_OP,        /* norms, SwiGLU and quantized inputs; matrix products and attention are kept */
    CHECKPOINT_FULL       /* all but h1 */
} checkpointing;

typedef struct block {
    parameter *parameters; /* of its layers, [parameter_count]; the model's */
    int parameter_count;
    norm attention_norm, mlp_norm;           /* weight NULL: none */
    bool parallel_residual;                  /* the feed-forward sees h1; mlp_norm is attention_norm again */
    norm attention_post_norm, mlp_post_norm; /* of what is added; weight NULL: none */
    float multiplier;                        /* of what is added; 0: as it is. Not with those */
    attention attention;
    const ffn_kind *ffn; /* NULL: the block is on another stage of a pipeline */
    union {              /* of that kind */
        mlp mlp;
        moe moe;
    };
    activation_specs attention_input, mlp_input; /* of n1 and n2 */
    activation_specs grad_attention;             /* of o's grad_output */
    activation_specs grad_mlp;                   /* of down's */
    activation_specs grad_h2,
        grad_output; /* of the gradients of h2 and of the block's output: these, where those are
                                              the projections' too */
    checkpointing checkpointing;
} block;

/* What the norm behind a projection saw. */
typedef struct block_added {
    tensor x, rstd; /* [T,D], [T] */
    plan_buffer x_buffer, rstd_buffer;
} block_added;

/* One for each micro-batch in flight. */
typedef struct block_saved {
    tensor h1, h2, rstd1, rstd2; /* [T,D], [norm_kept, T] */
    tensor skip_grad;            /* [T,D], in backward: what reaches h1 past attention that runs beside */
    plan_buffer h1_buffer, h2_buffer, rstd1_buffer, rstd2_buffer, skip_grad_buffer;
    activation n1, n2;
    block_added attention_added, mlp_added;
    attention_saved attention;
    union { /* of the block's ffn */
        mlp_saved mlp;
        moe_saved moe;
    };
} block_saved;

ott_status block_connect(block *b);
/* x[T,D] and delta[T,D] are borrowed. delta NULL: h1 is x itself, and *x_buffer is taken over. */
ott_status block_enter(exec *cx, const block *b, const tensor *x, plan_buffer *x_buffer, const tensor *delta,
                       block_saved *s);
/* Opens delta[T,D]; the residual that goes with it is s->h2. */
ott_status block_run(exec *cx, block *b, const sequence_metadata *at, block_saved *s, tensor *delta,
                     plan_buffer *delta_buffer);
ott_status block_finalize(exec *cx, block *b, block_saved *s);
/* g: the gradient of the block's output, with forms b->grad_mlp; closed here. Opens dx, the gradient of x and
   of delta, with forms dx_specs (NULL: none). Closes all of s. */
ott_status block_backward(exec *cx, block *b, const sequence_metadata *at, block_saved *s, activation *g,
                          const activation_specs *dx_specs, activation *dx);

#endif
