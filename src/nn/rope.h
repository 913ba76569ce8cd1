/*
 * nn/rope: rotary position embedding (Su et al. 2021), as Hugging Face's families have it: of a head's halves or of
 * neighbours, of all of a head or of its first columns, with frequencies stretched for long sequences.
 */
#ifndef NN_ROPE_H
#define NN_ROPE_H

#include "tensor/exec.h"

typedef enum rope_kind {
    ROPE_PLAIN,
    ROPE_LLAMA3,   /* Llama 3.1: by wavelength */
    ROPE_LINEAR,   /* positions divided by factor (Chen et al. 2023) */
    ROPE_YARN,     /* by how often a pair turns in the original length (Peng et al. 2023) */
    ROPE_LONGROPE, /* each pair by a factor of its own (Ding et al. 2024) */
    ROPE_DYNAMIC   /* by a base that grows with the length (dynamic NTK scaling) */
} rope_kind;

enum { ROPE_MOST_FACTORS = 256 };

typedef struct rope_options {
    rope_kind kind;
    double theta;
    double rotary_share; /* of a head's columns that turn; 0: all */
    bool interleaved;    /* pairs are neighbours, not half of what turns apart */
    /* Not of ROPE_PLAIN. */
    double factor;
    int64_t original_max_position;                      /* not of ROPE_LINEAR */
    double low_frequency_factor, high_frequency_factor; /* ROPE_LLAMA3 */
    double beta_fast, beta_slow;                        /* ROPE_YARN: turns in the original length */
    double attention_factor;       /* of cosine and sine, ROPE_YARN and _LONGROPE; 0: the rule's */
    double mscale, mscale_all_dim; /* ROPE_YARN, for the rule's (DeepSeek-V2); 0: none */
    int factors;                   /* ROPE_LONGROPE: one for each pair */
    float short_factor[ROPE_MOST_FACTORS], long_factor[ROPE_MOST_FACTORS];
} rope_options;

/* Tables of cosine and sine, [positions, pairs of a head] fp32, in one device block the rope owns. */
typedef struct rope {
    int64_t head_dim;
    bool interleaved;
    tensor cosine, sine;
    void *block;
} rope;

/* Columns of a head that turn. */
int64_t rope_columns(const rope_options *o, int64_t head_dim);
/* Inverse frequency of pair j of these columns, scaled as the options say for so many positions. */
double rope_frequency(const rope_options *o, int64_t columns, int64_t positions, int64_t j);
/* What cosine and sine are multiplied by, which scales attention. */
double rope_cos_sin_scale(const rope_options *o);
/* Of ROPE_YARN: what attention is scaled by for a stretched length, mscale being how much of it. */
double rope_mscale(const rope_options *o, double mscale);
/* positions: as many as will be looked up; longrope takes its long factors, and dynamic frequencies follow, where they are more
   than the original. */
ott_status rope_build(rope *r, device *d, const rope_options *o, int64_t head_dim, int64_t positions);
void rope_release(rope *r, device *d);
/* x[T, heads*head_dim] rotated in place by position[T]; inverse: rotated back, which is the gradient. */
ott_status rope_apply(exec *cx, const rope *r, const tensor *x, const tensor *position, bool inverse);
/* The same of the columns of wider heads from `first` on. */
ott_status rope_apply_within(exec *cx, const rope *r, const tensor *x, int64_t head_dim, int64_t first,
                             const tensor *position, bool inverse);

#endif
