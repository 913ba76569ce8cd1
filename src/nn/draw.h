/*
 * nn/draw: initial values of parameters: normal, uniform or constant, a pure function of seed, stream and element, made on
 * several threads.
 */
#ifndef NN_DRAW_H
#define NN_DRAW_H

#include "base/cancellation.h"
#include "nn/frozen.h"

/* Normal of this deviation, cut at `cut` deviations (0: not cut); deviation 0: uniform in [-bound, bound); both 0: all
   `constant`. */
typedef struct draw_distribution {
    double deviation, truncation, bound;
    float constant;
} draw_distribution;

typedef struct draw {
    device *device;
    struct pool *pool;
    float *host;                   /* [piece] */
    int64_t piece;                 /* elements that are made at once: a small share of all */
    const frozen_filling *filling; /* of the parameter, where it keeps codes; NULL: numbers */
    bool measures;                 /* filling: all of the whole is drawn to be measured, and nothing stored */
    cancellation_progress progress;
    int64_t done;
} draw;

/* For `total` elements in all, on so many threads (0: all cores); OTT_ERR_STOPPED when the cancel (NULL: nobody) ends
   it. Closed with draw_close, also when this fails. */
ott_status draw_open(draw *w, device *d, const cancellation *cancel, int64_t total, int threads);
void draw_close(draw *w);
/* Rows [first, first + count) of p, which have this stream by themselves: of them those that are on this rank. */
ott_status draw_rows(draw *w, draw_distribution s, uint64_t seed, uint64_t stream, const parameter *p,
                     int64_t first, int64_t count);

/* Adds a random offset to each of `count` values that were loaded from a file of format `loaded` (OTT_BF16 or OTT_F16). The
   offset is uniform and smaller than half the distance to the neighbor in `loaded`, so each value still rounds to what was
   loaded. Zeros, infinities and NaNs stay. Value i uses draw first + i of (seed, stream). Why: docs/numerics.md, "Master
   dither". */
void draw_dither(float *values, int64_t count, ott_dtype loaded, uint64_t seed, uint64_t stream,
                 uint64_t first);

#endif
