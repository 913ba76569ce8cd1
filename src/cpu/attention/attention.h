/*
 * cpu/attention/attention: functions that attention.c and attention_backward.c share. Keys are processed in
 * tiles of TILE keys. Scores are transposed, [key][query]: a lane is a query, so the softmax of a query needs
 * no operation across lanes.
 *
 * Positions count from the start of the document. Packed arrays are fp32. Their rows have `width` elements:
 * head_dim rounded up to a multiple of 16 and padded with 0. Rows beyond the document are 0.
 */
#ifndef CPU_ATTENTION_ATTENTION_H
#define CPU_ATTENTION_ATTENTION_H

#include "cpu/gemm/tile.h"
#include "cpu/rows.h"

/* The innermost loop of a matrix product keeps ROWS x VECTORS vectors of 16 sums in registers. */
#ifdef CPU_ISA_avx512
enum { ROWS = 8, VECTORS = 2 };
#else
enum { ROWS = 4, VECTORS = 1 };
#endif
#ifdef CPU_ISA_scalar
#define UNROLL /* at the scalar level vectors are arrays in memory, so unrolling has no effect */
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
enum {
    TILE = ATTENTION_TILE,
    BLOCK_MAX = 512,           /* the largest attention.block */
    QUERIES = 64,              /* queries in a score tile of backward; divides attention.block */
    QUERY_LANES = 16 * VECTORS /* queries in a vector of scores, one in each lane */
};
#define SCRATCH_FLOATS (CPU_SCRATCH_BYTES / (int64_t)sizeof(float))
_Static_assert(TILE % QUERIES == 0 && QUERIES % QUERY_LANES == 0 && TILE % ROWS == 0,
               "blocks fit into tiles");

/* Arguments of an attention call, and values derived from them. */
typedef struct attention {
    int64_t head_dim, width, heads, kv_heads, tokens, documents, window;
    /* number of cached keys before the first query; if it is not 0, there is only one document */
    int64_t past;
    int64_t block; /* queries that are processed together with each tile of keys; a multiple of QUERIES */
    int64_t pairs; /* visible (query, key) pairs of one head */
    /* true: operands of products over head_dim (scores, dp) are packed in pairs (cpu/simd/avx512bf16.h) */
    bool in_pairs;
    int64_t score_width; /* packed elements in a row of operands for scores and dp */
    /* [documents] first token of each document; the last document, which may be empty, ends at `tokens` */
    const int32_t *cu_seqlens;
    float scale, softcap;
} attention;

/* A document. Its keys are `length` rows of k and v from row `first` on. Its queries, at positions [past,
   length), are rows of q from row `first` on. */
typedef struct document {
    int64_t first, length;
} document;

SIMD document document_of(const attention *s, int64_t index) {
    int64_t first = s->cu_seqlens[index],
            end = index + 1 < s->documents ? s->cu_seqlens[index + 1] : s->tokens;
    return (document){.first = first, .length = s->past + end - first};
}
/* Returns the row of q, o and lse for the query at position i of a document. */
SIMD int64_t query_row(const attention *s, const document *d, int64_t i) {
    return d->first + i - s->past;
}

/* Checks what op_check does not check, and fills s. Defined in attention.c. */
ott_status ISA(attention_open)(const char *op, const tensor *q, const tensor *k, const tensor *cu_seqlens,
                               const tensor *lse, int64_t head_dim, int64_t window, int64_t past, float scale,
                               attention *s);
/* Returns OTT_ERR_UNSUPPORTED if a thread's scratch cannot hold `floats` floats. */
ott_status ISA(attention_fits)(const char *op, const attention *s, int64_t floats);

/* Returns the next `count` floats (a multiple of 16) of a scratch buffer. Adds count to *used. */
SIMD float *reserve_floats(float *base, int64_t *used, int64_t count) {
    *used += count;
    return base + *used - count;
}

/* ---- causal mask and window ---- */

SIMD int64_t clamp(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}
/* Returns the first key that query i sees. Query i sees keys [first_key(i), i]. */
SIMD int64_t first_key(int64_t window, int64_t i) {
    return window > 0 && i >= window ? i - window + 1 : 0;
}
/* Rounds a number of queries up to a multiple of QUERY_LANES. The added queries are 0. */
SIMD int64_t padded_lanes(int64_t count) {
    return (count + QUERY_LANES - 1) / QUERY_LANES * QUERY_LANES;
}
/* Returns the first query after key j that does not see key j, at most `limit`. */
SIMD int64_t end_query(int64_t window, int64_t j, int64_t limit) {
    return window > 0 && limit - j > window ? j + window : limit;
}

/* Returns the number of visible (query, key) pairs of a document's queries [0, count). */
static inline int64_t visible_pairs(int64_t window, int64_t count) {
    int64_t ramp = window > 0 && window < count ? window : count;
    return ramp * (ramp + 1) / 2 + (count - ramp) * ramp;
}

/* ---- products ---- */

typedef struct product {
    const float *a; /* element (row, k) of a is at a[row * a_row + k * a_depth] */
    int64_t a_row, a_depth;
    const float *b; /* [depth][ldb]; a vector has adjacent elements of a row of b */
    int64_t ldb;
    float *c; /* the sums c[rows][ldc] */
    int64_t ldc;
} product;

/* A product whose rows of b and c have `width` elements. */
SIMD product product_of(const float *a, int64_t a_row, int64_t a_depth, const float *b, float *c,
                        int64_t width) {
    return (product){.a = a, .a_row = a_row, .a_depth = a_depth, .b = b, .ldb = width, .c = c, .ldc = width};
}

/* Unrolled loops over the rows or vectors of a tile of sums. The bounds are constants. */
#define EACH_ROW(r, rows)       UNROLL for (int r = 0; r < ROWS; r++) if (r < (rows))
#define EACH_VECTOR(v, vectors) UNROLL for (int v = 0; v < VECTORS; v++) if (v < (vectors))

/* Adds a(row, k) * b[k][lane] to sum[row][lane] by fmaf, for k in [begin, end) in ascending order. If
   operands are packed in pairs, k counts pairs. */
SIMD void product_chain(const product *p, int rows, int vectors, int64_t begin, int64_t end,
                        gemm_arithmetic how, v16 sum[ROWS][VECTORS]) {
    for (int64_t k = begin; k < end; k++) {
        v16 right[VECTORS];
        EACH_VECTOR(v, vectors) right[v] = v16_load(p->b + k * p->ldb + 16 * v);
        EACH_ROW(r, rows) {
            v16 left = v16_set1(p->a[r * p->a_row + k * p->a_depth]);
            EACH_VECTOR(v, vectors) sum[r][v] = gemm_extended(left, right[v], sum[r][v], how);
        }
    }
}

/* Sets c to scale * (sum of `depth` products a * b, added from 0), for ROWS rows and VECTORS vectors. */
SIMD void product_scaled(const product *p, int64_t depth, float scale, gemm_arithmetic how) {
    v16 sum[ROWS][VECTORS], factor = v16_set1(scale);
    EACH_ROW(r, ROWS) EACH_VECTOR(v, VECTORS) sum[r][v] = v16_zero();
    product_chain(p, ROWS, VECTORS, 0, depth, how, sum);
    EACH_ROW(r, ROWS)
    EACH_VECTOR(v, VECTORS) v16_store(p->c + r * p->ldc + 16 * v, v16_mul(factor, sum[r][v]));
}

/* Adds the products a * b of terms [begin, end) to the sums in c. `rows` and `vectors` are constants. */
SIMD void product_add(const product *p, int rows, int vectors, int64_t begin, int64_t end) {
    v16 sum[ROWS][VECTORS];
    EACH_ROW(r, rows) EACH_VECTOR(v, vectors) sum[r][v] = v16_load(p->c + r * p->ldc + 16 * v);
    product_chain(p, rows, vectors, begin, end, GEMM_FMA, sum);
    EACH_ROW(r, rows) EACH_VECTOR(v, vectors) v16_store(p->c + r * p->ldc + 16 * v, sum[r][v]);
}

/* Like product_add, for all `width` lanes of c. `rows` is a constant. */
SIMD void product_add_wide(product p, int rows, int64_t width, int64_t begin, int64_t end) {
    int64_t lane = 0;
    for (; lane + 16 * VECTORS <= width; lane += 16 * VECTORS, p.b += 16 * VECTORS, p.c += 16 * VECTORS)
        product_add(&p, rows, VECTORS, begin, end);
    for (; lane < width; lane += 16, p.b += 16, p.c += 16) product_add(&p, rows, 1, begin, end);
}

/* The terms that each row of a product has: terms with factor 0 (invisible keys) are left out. Row r has the
   terms k in [begin + r * begin_step, end + r * end_step) that are in [0, depth). Steps are 0 or 1. */
typedef struct band {
    int64_t begin, begin_step, end, end_step, depth;
} band;

/* Rows are queries from query i on, terms are the keys of the tile whose first key is `tile`. */
SIMD band band_of_keys(const attention *s, int64_t i, int64_t tile) {
    int64_t begin = s->window > 0 ? i - s->window + 1 - tile : 0;
    return (band){
        .begin = begin, .begin_step = s->window > 0, .end = i + 1 - tile, .end_step = 1, .depth = TILE};
}

SIMD int64_t band_begin(const band *b, int64_t r) {
    return clamp(b->begin + r * b->begin_step, 0, b->depth);
}
SIMD int64_t band_end(const band *b, int64_t r) {
    return clamp(b->end + r * b->end_step, 0, b->depth);
}

/* For each row of c in [r, r + ROWS), adds its terms k (see `band`) that are in [begin, end). */
static void product_ragged(product p, int64_t r, int64_t width, const band *b, int64_t begin, int64_t end) {
    for (int i = 0; i < ROWS; i++, p.a += p.a_row, p.c += p.ldc) {
        int64_t first = clamp(band_begin(b, r + i), begin, b->depth),
                last = clamp(band_end(b, r + i), 0, end);
        if (first < last) product_add_wide(p, 1, width, first, last);
    }
}

/* Adds to each row of c the products of its terms k (see `band`), in ascending order. `rows` is a multiple of
   ROWS. Terms that ROWS consecutive rows have in common are added to these rows together. */
static void product_banded(product p, int64_t rows, int64_t width, const band *b) {
    for (int64_t r = 0; r < rows; r += ROWS, p.a += ROWS * p.a_row, p.c += ROWS * p.ldc) {
        int64_t begin = band_begin(b, r + ROWS - 1), end = clamp(band_end(b, r), begin, b->depth);
        if (band_begin(b, r) < begin) product_ragged(p, r, width, b, 0, begin);
        if (begin < end) product_add_wide(p, ROWS, width, begin, end);
        if (end < band_end(b, r + ROWS - 1)) product_ragged(p, r, width, b, end, b->depth);
    }
}

/* ---- packing ---- */

/* Packs rows [first, first + count), columns [column, column + head_dim) of t to packed[capacity][width]. */
SIMD void pack_rows_of(ott_dtype d, const tensor *t, int64_t first, int64_t count, int64_t column,
                       int64_t head_dim, int64_t width, int64_t capacity, float *packed) {
    int64_t at = first * t->ld + column;
    for (int64_t r = 0; r < count; r++, packed += width, at += t->ld)
        BY_16(c, lanes, head_dim, v16_store(packed + c, v16_get(t->data, d, at + c, lanes)););
    memset(packed, 0, (size_t)((capacity - count) * width) * sizeof(float));
}
static void pack_rows(const tensor *t, int64_t first, int64_t count, int64_t column, const attention *s,
                      int64_t capacity, float *packed) {
    WITH_DTYPE(t->dtype, D,
               pack_rows_of(D, t, first, count, column, s->head_dim, s->width, capacity, packed));
}

/* Packs rows of t for products over head_dim to packed[capacity][score_width]: as fp32, or as pairs of bf16
   numbers. Returns the smallest exponent in the pairs, or 0 without pairs. */
static int pack_operand(const tensor *t, int64_t first, int64_t count, int64_t column, const attention *s,
                        int64_t capacity, float *packed) {
#if SIMD_HAS_PAIRS
    if (s->in_pairs) {
        v16i least = v16i_set1(UINT32_MAX);
        for (int64_t r = 0; r < count; r++)
            for (int64_t c = 0; c < s->width; c += 32, packed += 16) {
                v16 pairs = v16_load_pairs(t->data, OTT_BF16, (first + r) * t->ld + column + c,
                                           s->head_dim - c, PAIR_CHAIN, false);
                v16_store(packed, pairs);
                least = v16_pair_smaller(least, pairs);
            }
        memset(packed, 0, (size_t)((capacity - count) * s->score_width) * sizeof(float));
        return v16_pair_least(least);
    }
#endif
    pack_rows(t, first, count, column, s, capacity, packed);
    return 0;
}

/* Chooses the arithmetic for products of two packed operands. least_a, least_b: results of pack_operand. */
static gemm_arithmetic operand_arithmetic(const attention *s, int least_a, int least_b) {
#if SIMD_HAS_PAIRS
    if (s->in_pairs) return least_a + least_b >= PAIR_LEAST ? GEMM_PAIRS : GEMM_PAIRS_APART;
#endif
    (void)s, (void)least_a, (void)least_b;
    return GEMM_FMA;
}

/* Transposes rows[QUERY_LANES][width] to lanes[width][QUERY_LANES]. */
static void pack_lanes(const float *rows, int64_t width, float *lanes) {
    for (int64_t c = 0; c < width; c += 16)
        for (int64_t r = 0; r < QUERY_LANES; r += 16) {
            v16 t[16];
            for (int i = 0; i < 16; i++) t[i] = v16_load(rows + (r + i) * width + c);
            v16_transpose(t);
            for (int i = 0; i < 16; i++) v16_store(lanes + (c + i) * QUERY_LANES + r, t[i]);
        }
}

/* scores[key][query] = scale * dot product over head_dim, for keys [begin, end) of a tile (multiples of
   ROWS). Shapes: keys [TILE][score_width]; queries [score_width][QUERY_LANES]; scores [TILE][ld]. */
SIMD void score_keys_by(const float *keys, const float *queries, int64_t begin, int64_t end,
                        const attention *s, float scale, float *scores, int64_t ld, gemm_arithmetic how) {
    product p = {.a_row = s->score_width, .a_depth = 1, .b = queries, .ldb = QUERY_LANES, .ldc = ld};
    for (int64_t j = begin; j < end; j += ROWS) {
        p.a = keys + j * s->score_width;
        p.c = scores + j * ld;
        product_scaled(&p, how == GEMM_FMA ? s->head_dim : s->head_dim / 2, scale, how);
    }
}
static void score_keys(const float *keys, const float *queries, int64_t begin, int64_t end,
                       const attention *s, float scale, float *scores, int64_t ld, gemm_arithmetic how) {
#if SIMD_HAS_PAIRS
    if (how == GEMM_PAIRS) {
        score_keys_by(keys, queries, begin, end, s, scale, scores, ld, GEMM_PAIRS);
        return;
    }
    if (how == GEMM_PAIRS_APART) {
        score_keys_by(keys, queries, begin, end, s, scale, scores, ld, GEMM_PAIRS_APART);
        return;
    }
#endif
    (void)how;
    score_keys_by(keys, queries, begin, end, s, scale, scores, ld, GEMM_FMA);
}

/* Applies the softcap, if it is above 0, to the scores of keys [begin, end) and QUERY_LANES queries. */
static void cap_scores(int64_t begin, int64_t end, const attention *s, float *scores, int64_t ld) {
    v16 cap = v16_set1(s->softcap);
    for (int64_t j = begin; j < end && s->softcap > 0; j++)
        for (int v = 0; v < QUERY_LANES; v += 16)
            v16_store(scores + j * ld + v, v16_softcap(v16_load(scores + j * ld + v), cap));
}

/* The keys of a tile that at least one of QUERY_LANES queries sees: [begin, end), counted from the tile's
   first key and extended to multiples of ROWS. No key if begin >= end. `all`: every query sees every key. */
typedef struct key_range {
    int64_t begin, end;
    bool all;
} key_range;

/* i: the first query; tile: the first key of the tile. */
SIMD key_range visible_keys(const attention *s, int64_t i, int64_t tile) {
    int64_t first = first_key(s->window, i) - tile, last = i + QUERY_LANES - 1 - tile;
    key_range k = {.begin = clamp(first, 0, TILE) / ROWS * ROWS};
    k.end = (clamp(last + 1, 0, TILE) + ROWS - 1) / ROWS * ROWS;
    k.all = i - tile >= TILE - 1 && first_key(s->window, i + QUERY_LANES - 1) <= tile;
    return k;
}

#endif
