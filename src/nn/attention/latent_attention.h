/*
 * nn/attention/latent_attention: multi-head latent attention (MLA, nn/attention/latent.h). k and v come from
 * a latent; q comes from another latent or from a projection of the input. k has as many heads as q. The
 * heads of q and k, or of v, are padded with zeros, so that all have head_dim columns.
 */
#ifndef NN_ATTENTION_LATENT_ATTENTION_H
#define NN_ATTENTION_LATENT_ATTENTION_H

#include "nn/attention/core.h"
#include "nn/attention/latent.h"

typedef struct latent_attention {
    attention_core core; /* head_dim: the larger of the widths of a q or k head and of a v head */
    latent_shape shape;
    latent_path query, key; /* query.a.weight NULL: q is a projection of the input */
    linear q;
    activation_specs grad_q; /* specs of the gradient of q's output */
} latent_attention;

/* What forward saves for backward; one per in-flight micro-batch. */
typedef struct latent_attention_saved {
    attention_core_saved core;
    latent_saved query, key;
} latent_attention_saved;

/* Like nn/attention/attention.h's functions. */
ott_status latent_attention_connect(latent_attention *a, activation_specs *input,
                                    activation_specs *grad_output);
ott_status latent_attention_forward(exec *cx, latent_attention *a, const sequence_metadata *at,
                                    const activation *x, latent_attention_saved *s);
ott_status latent_attention_discard(exec *cx, latent_attention_saved *s);
ott_status latent_attention_backward(exec *cx, latent_attention *a, const sequence_metadata *at,
                                     latent_attention_saved *s, const activation *x, const activation *g,
                                     const tensor *dx);

#endif
