/*
 * nn/rope: rotary position embedding (Su et al. 2021), halves rotated as Hugging Face does, with Llama 3's
 * scaling of the frequencies.
 */
#ifndef NN_ROPE_H
#define NN_ROPE_H

#include "tensor/exec.h"

typedef enum rope_kind { ROPE_PLAIN, ROPE_LLAMA3 } rope_kind;

typedef struct rope_options {
    rope_kind kind;
    double theta;
    /* ROPE_LLAMA3 only */
    double factor, low_frequency_factor, high_frequency_factor;
    int64_t original_max_position;
} rope_options;

/* Tables of cosine and sine, [positions, head_dim/2] fp32, in one device block the rope owns. */
typedef struct rope {
    int64_t head_dim;
    tensor cosine, sine;
    void *block;
} rope;

ott_status rope_build(rope *r, device *d, const rope_options *o, int64_t head_dim, int64_t positions);
void rope_release(rope *r, device *d);
/* x[T, heads*head_dim] rotated in place by position[T]; inverse: rotated back, which is the gradient. */
ott_status rope_apply(exec *cx, const rope *r, const tensor *x, const tensor *position, bool inverse);

#endif
