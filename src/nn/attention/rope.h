/*
 * nn/attention/rope: rotary position embedding (Su et al. 2021) in the variants of Hugging Face's families.
 * Pairs are columns j and j + half of a head, or neighboring columns. All columns of a head rotate, or only
 * the first ones. Frequencies may be scaled.
 */
#ifndef NN_ATTENTION_ROPE_H
#define NN_ATTENTION_ROPE_H

#include "kinds/choices.h"
#include "tensor/exec.h"

enum { ROPE_MOST_FACTORS = 256 };

typedef struct rope_options {
    kind_rope_scaling kind;
    double theta;
    double partial_rotary_factor; /* fraction of a head's columns that rotate; 0: all */
    bool interleaved;             /* true: pairs are neighboring columns; false: columns j and j + half */
    /* ROPE_PLAIN uses none of the options below. */
    double factor;
    int64_t original_max_position;                      /* trained positions; not read by ROPE_LINEAR */
    double low_frequency_factor, high_frequency_factor; /* limits of ROPE_LLAMA3 */
    double beta_fast, beta_slow;   /* not scaled above beta_fast rotations, fully below beta_slow (YaRN) */
    double attention_factor;       /* factor of cosine and sine, ROPE_YARN and ROPE_LONGROPE; 0: derived */
    double mscale, mscale_all_dim; /* ROPE_YARN: inputs of the derived attention_factor; 0: none */
    int factors;                   /* ROPE_LONGROPE: number of factors, one per pair */
    float short_factor[ROPE_MOST_FACTORS], long_factor[ROPE_MOST_FACTORS];
} rope_options;

/* Tables of cosine and sine, fp32[positions, pairs per head], in one device block that the rope owns. */
typedef struct rope {
    int64_t head_dim;
    bool interleaved;
    tensor cosine, sine;
    void *block;
} rope;

/* Number of columns of a head that rotate. */
int64_t rope_columns(const rope_options *o, int64_t head_dim);
/* Radians per position of pair j, in tables of `positions` rows. columns: the result of rope_columns. */
double rope_frequency(const rope_options *o, int64_t columns, int64_t positions, int64_t j);
/* Factor of cosines and sines: attention_factor or derived for YaRN and LongRoPE, 1 for other kinds. */
double rope_cos_sin_scale(const rope_options *o);
/* YaRN's 0.1 mscale ln(factor) + 1; 1 if factor <= 1. mscale: the option mscale or mscale_all_dim. */
double rope_mscale(const rope_options *o, double mscale);
/* Builds tables for `positions` positions. If these are more than original_max_position, LongRoPE uses
   long_factor, and dynamic NTK increases theta. */
ott_status rope_build(rope *r, device *d, const rope_options *o, int64_t head_dim, int64_t positions);
void rope_release(rope *r, device *d);
/* Rotates x[T, heads * head_dim] in place by position[T]. inverse: rotates back, as for the gradient. */
ott_status rope_apply(exec *cx, const rope *r, const tensor *x, const tensor *position, bool inverse);
/* Like rope_apply, for heads of head_dim columns of which only the columns from `first` on rotate. */
ott_status rope_apply_within(exec *cx, const rope *r, const tensor *x, int64_t head_dim, int64_t first,
                             const tensor *position, bool inverse);

#endif
