/*
 * nn/draw: draws initial values of parameters (normal, uniform or constant) on several threads. Each value is
 * a pure function of seed, stream and element index, so it does not depend on sharding or threads.
 */
#ifndef NN_DRAW_H
#define NN_DRAW_H

#include "base/cancellation.h"
#include "nn/linear/frozen.h"

/* deviation > 0: normal with this standard deviation; values beyond `truncation` deviations are drawn again
   (0: they are kept). deviation 0, bound > 0: uniform in [-bound, bound). Both 0: always `constant`. */
typedef struct draw_distribution {
    double deviation, truncation, bound;
    float constant;
} draw_distribution;

typedef struct draw {
    device *device;
    struct pool *pool;
    float *host;                   /* [piece] drawn values */
    int64_t piece;                 /* number of elements that are drawn in one piece */
    const frozen_filling *filling; /* scales of a parameter that is stored as FP8 codes; else NULL */
    bool measures; /* true in the first pass: draws all elements to measure amaxes; stores nothing */
    cancellation_progress progress;
    int64_t done; /* number of elements stored so far */
} draw;

/* total: number of elements to draw, for progress; threads 0: all cores; cancel NULL: draws to the end.
   Drawing returns OTT_ERR_STOPPED when `cancel` stops it. Call draw_close also if draw_open fails. */
ott_status draw_open(draw *w, device *d, const cancellation *cancel, int64_t total, int threads);
void draw_close(draw *w);
/* Draws rows [first, first + count) of parameter p from one stream. Stores the rows in this rank's shard. */
ott_status draw_rows(draw *w, draw_distribution s, uint64_t seed, uint64_t stream, const parameter *p,
                     int64_t first, int64_t count);

/* Master dither: adds a random offset to each of `count` values that were loaded from a file of format
   `loaded` (OTT_BF16 or OTT_F16). The offset is uniform and smaller than half the distance to the neighboring
   value of that format, so each value still rounds to the loaded one. Zeros, infinities and NaNs do not
   change. Value i uses draw first + i of (seed, stream). Why: "Master dither" in
   docs/explanation/numerics.md. */
void draw_dither(float *values, int64_t count, ott_dtype loaded, uint64_t seed, uint64_t stream,
                 uint64_t first);

#endif
