/* nn/draw: draws initial values. */
#include "nn/draw.h"
#include "base/fmath.h"
#include "base/pool.h"
#include "base/rng.h"
#include "fp8/cast.h"
#include <math.h>

/* Returns x. While x is beyond the truncation, draws it again, at index + count, index + 2 count ... */
static double redraw(const draw_distribution *s, uint64_t seed, uint64_t stream, int64_t index, int64_t count,
                     float x) {
    while (s->truncation > 0 && fabs((double)x) > s->truncation) {
        index += count;
        x = rng_normal(seed, stream, (uint64_t)index);
    }
    return (double)x;
}

enum { LEAST_PIECE = 1 << 12, LARGEST_PIECE = 1 << 18 }; /* limits of the number of elements in a piece */
/* below this number of elements, drawing on one thread is faster */
enum { FEW = 1 << 18 };

/* Elements [first, first + length) of a random stream of `count` elements. */
typedef struct piece {
    draw_distribution s;
    uint64_t seed, stream;
    int64_t first, length, count;
    float *out; /* [length] drawn values */
} piece;

static float uniform(const piece *p, int64_t i) {
    double x = (double)rng_uniform(p->seed, p->stream, (uint64_t)(p->first + i));
    return (float)(p->s.bound * (2.0 * x - 1.0));
}

static void fill_share(void *argument, int thread, int threads) {
    const piece *p = argument;
    int64_t begin, end;
    pool_share(p->length, 16, thread, threads, &begin, &end);
    if (begin >= end) return;
    if (p->s.deviation == 0) {
        for (int64_t i = begin; i < end; i++) p->out[i] = p->s.bound > 0 ? uniform(p, i) : p->s.constant;
        return;
    }
    rng_normals(p->seed, p->stream, (uint64_t)(p->first + begin), end - begin, p->out + begin);
    for (int64_t i = begin; i < end; i++)
        p->out[i] =
            (float)(p->s.deviation * redraw(&p->s, p->seed, p->stream, p->first + i, p->count, p->out[i]));
}

/* Stores drawn elements [first, first + count) in format d. If w->measures is set, only updates amaxes. */
static ott_status store_values(draw *w, int64_t first, int64_t count, ott_dtype d, char *to) {
    if (w->measures) return frozen_fill_measure(w->filling, first, count, w->host), OTT_OK;
    if (w->filling)
        frozen_fill_encode(w->filling, first, count, w->host, (uint8_t *)w->host);
    else
        cast_in_place(w->host, OTT_F32, d, count);
    TRY(device_copy_in(w->device, to, w->host, count * dtype_bytes(d)));
    return cancellation_progress_update(&w->progress, w->done += count);
}

/* Draws elements [first, first + length) of a random stream and stores them at `to`, on the device, in format
   d. Element 0 of the stream is element `begin` of the parameter. */
static ott_status draw_elements(draw *w, const piece *source, int64_t begin, int64_t first, int64_t length,
                                ott_dtype d, char *to) {
    piece next = *source;
    for (next.first = first; length > 0; next.first += next.length, length -= next.length) {
        next.length = length < w->piece ? length : w->piece;
        pool_run(w->pool, fill_share, &next);
        TRY(store_values(w, begin + next.first, next.length, d, to));
        to += next.length * dtype_bytes(d);
    }
    return OTT_OK;
}

/* A value depends on its index among all `count` rows, so it does not depend on sharding. */
ott_status draw_rows(draw *w, draw_distribution s, uint64_t seed, uint64_t stream, const parameter *p,
                     int64_t first, int64_t count) {
    const parameter_part shard = parameter_shard_part(p);
    int64_t total = tensor_count(p->shard.value), begin = first * p->columns;
    piece source = {.s = s, .seed = seed, .stream = stream, .count = count * p->columns, .out = w->host};
    ott_dtype d = p->shard.value.dtype;
    parameter_run run;
    if (w->measures) return draw_elements(w, &source, begin, 0, source.count, d, NULL);
    for (int64_t at = 0; at < total; at += run.count) {
        run = parameter_run_at(&shard, p->columns, at, total - at);
        int64_t from = run.first > begin ? run.first : begin, to = run.first + run.count;
        if (to > begin + source.count) to = begin + source.count;
        char *place = (char *)p->shard.value.data + (at + from - run.first) * dtype_bytes(d);
        if (from < to) TRY(draw_elements(w, &source, begin, from - begin, to - from, d, place));
    }
    return OTT_OK;
}

/* Number of low mantissa bits that fp32 has but `loaded` lacks. fp16's subnormals are multiples of 2^-24. */
static int dropped_bits(uint32_t bits, ott_dtype loaded) {
    enum { F16_LEAST_EXPONENT = 127 - 14, F16_DROPPED = 13, BF16_DROPPED = 16 };
    if (loaded == OTT_BF16) return BF16_DROPPED;
    int exponent = (int)(bits >> 23 & 0xff);
    return exponent < F16_LEAST_EXPONENT ? F16_DROPPED + F16_LEAST_EXPONENT - exponent : F16_DROPPED;
}

/* Adds to x a random offset of less than half of `loaded`'s spacing, by adding to its bits. Also if x is a
   power of two, it rounds back to x: below x, fp32 and `loaded` are both twice as dense as above x. */
static float dither(float x, ott_dtype loaded, uint32_t word) {
    uint32_t bits = fmath_bits(x), magnitude = bits & 0x7fffffffu;
    if (magnitude == 0 || magnitude >= 0x7f800000u) return x;
    uint32_t half = 1u << (dropped_bits(bits, loaded) - 1), choices = 2 * half - 1;
    return fmath_from_bits(bits + (uint32_t)((uint64_t)word * choices >> 32) - (half - 1));
}

void draw_dither(float *values, int64_t count, ott_dtype loaded, uint64_t seed, uint64_t stream,
                 uint64_t first) {
    rng_block block = rng_philox(seed, stream, first / 4);
    for (int64_t i = 0; i < count; i++) {
        uint64_t index = first + (uint64_t)i;
        if (index % 4 == 0) block = rng_philox(seed, stream, index / 4);
        values[i] = dither(values[i], loaded, block.word[index % 4]);
    }
}

ott_status draw_open(draw *w, device *d, const cancellation *cancel, int64_t total, int threads) {
    int64_t share = total / 64;
    *w = (draw){.device = d};
    w->piece = share < LEAST_PIECE ? LEAST_PIECE : share > LARGEST_PIECE ? LARGEST_PIECE : share;
    w->progress = cancellation_progress_begin(cancel, "Initializing weights", total);
    TRY(mem_alloc_array(d->account, MEM_OTHER, w->piece, sizeof(float), "initial weights", &w->host));
    return pool_open(d->account, total < FEW ? 1 : threads, &w->pool);
}

void draw_close(draw *w) {
    pool_close(w->pool);
    mem_free(w->device->account, w->host);
}
