/*
 * cpu/attention/attention: functions that attention.c and backward.c share. Keys are processed in tiles of
 * TILE keys. Scores are transposed, [key][query]: a lane is a query, so the softmax of a query needs no
 * operation across lanes.
 *
 * Positions count from the start of the document. Packed arrays are fp32. Their rows have `width` elements:
 * head_dim rounded up to a multiple of 16 and padded with 0. Operands of products over head_dim may be pairs
 * instead, in rows of `score_width` elements. Rows beyond the document are 0.
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
#define UNROLL _Pragma("GCC unroll 16")
#endif
enum {
    TILE = ATTENTION_TILE,
    BLOCK_MAX = 512,           /* the largest attention.block */
    QUERIES = 64,              /* queries in a score tile of backward; divides attention.block */
    QUERY_LANES = 16 * VECTORS /* queries in a row of scores, one in each lane of VECTORS vectors */
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
    bool fresh; /* true: the sums start from 0, and c is not read */
} product;

/* Loops over rows [begin, end) or over the vectors of a tile of sums, unrolled: the bounds are constants, at
   most ROWS and VECTORS. */
#define EACH_ROW(r, begin, end) UNROLL for (int r = 0; r < ROWS; r++) if (r >= (begin) && r < (end))
#define EACH_VECTOR(v, vectors) UNROLL for (int v = 0; v < VECTORS; v++) if (v < (vectors))

/* Adds a(row, k) * b[k][lane] to sum[row][lane] by fmaf, for rows [begin, end). If operands are packed in
   pairs, k counts pairs. */
SIMD void product_term(const product *p, int begin, int end, int vectors, int64_t k, gemm_arithmetic how,
                       v16 sum[ROWS][VECTORS]) {
    v16 right[VECTORS];
    EACH_VECTOR(v, vectors) right[v] = v16_load(p->b + k * p->ldb + 16 * v);
    EACH_ROW(r, begin, end) {
        v16 left = v16_set1(p->a[r * p->a_row + k * p->a_depth]);
        EACH_VECTOR(v, vectors) sum[r][v] = gemm_extended(left, right[v], sum[r][v], how);
    }
}

/* Sets c to scale * (sum of `depth` products a * b, added from 0), for ROWS rows. */
SIMD void product_scaled(const product *p, int vectors, int64_t depth, float scale, gemm_arithmetic how) {
    v16 sum[ROWS][VECTORS], factor = v16_set1(scale);
    EACH_ROW(r, 0, ROWS) EACH_VECTOR(v, vectors) sum[r][v] = v16_zero();
    for (int64_t k = 0; k < depth; k++) product_term(p, 0, ROWS, vectors, k, how, sum);
    EACH_ROW(r, 0, ROWS)
    EACH_VECTOR(v, vectors) v16_store(p->c + r * p->ldc + 16 * v, v16_mul(factor, sum[r][v]));
}

/* The terms of ROWS rows of a product: all rows have the terms [begin, end). If `opens`, row r also has the
   ROWS - 1 - r terms before them; if `closes`, the r terms after them. */
typedef struct terms {
    int64_t begin, end;
    bool opens, closes;
} terms;

/* Adds the products of terms t to the sums in c, in ascending order. `rows` and `vectors` are constants.
   With one row, t neither opens nor closes. */
SIMD void product_add(const product *p, int rows, int vectors, terms t) {
    v16 sum[ROWS][VECTORS];
    EACH_ROW(r, 0, rows)
    EACH_VECTOR(v, vectors) sum[r][v] = p->fresh ? v16_zero() : v16_load(p->c + r * p->ldc + 16 * v);
    if (rows == ROWS && t.opens)
        UNROLL for (int n = 1; n < ROWS; n++)
            product_term(p, 0, n, vectors, t.begin - ROWS + n, GEMM_FMA, sum);
    for (int64_t k = t.begin; k < t.end; k++) product_term(p, 0, rows, vectors, k, GEMM_FMA, sum);
    if (rows == ROWS && t.closes)
        UNROLL for (int n = 1; n < ROWS; n++) product_term(p, n, ROWS, vectors, t.end - 1 + n, GEMM_FMA, sum);
    EACH_ROW(r, 0, rows) EACH_VECTOR(v, vectors) v16_store(p->c + r * p->ldc + 16 * v, sum[r][v]);
}

/* Like product_add, for all `width` lanes of c. `rows` is a constant. */
SIMD void product_add_wide(product p, int rows, int64_t width, terms t) {
    int64_t lane = 0;
    for (; lane + 16 * VECTORS <= width; lane += 16 * VECTORS, p.b += 16 * VECTORS, p.c += 16 * VECTORS)
        product_add(&p, rows, VECTORS, t);
    for (; lane < width; lane += 16, p.b += 16, p.c += 16) product_add(&p, rows, 1, t);
}

/* The terms that each row of a product has: terms with factor 0 (invisible keys) are left out. Row r has the
   terms k in [begin + r * begin_step, end + r * end_step) that are in [0, depth). Steps are 0 or 1. */
typedef struct band {
    int64_t begin, begin_step, end, end_step, depth;
} band;

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
        if (first < last) product_add_wide(p, 1, width, (terms){.begin = first, .end = last});
    }
}

/* Adds to each row of c the products of its terms k (see `band`), in ascending order. `rows` is a multiple of
   ROWS. Terms that ROWS consecutive rows have in common, and full triangles of terms before and after them,
   are added to these rows together. */
static void product_banded(product p, int64_t rows, int64_t width, const band *b) {
    bool fresh = p.fresh;
    for (int64_t r = 0; r < rows; r += ROWS, p.a += ROWS * p.a_row, p.c += ROWS * p.ldc) {
        int64_t first = band_begin(b, r), begin = band_begin(b, r + ROWS - 1);
        int64_t end = band_end(b, r), last = band_end(b, r + ROWS - 1);
        bool common = begin <= end;
        terms t = {.begin = begin,
                   .end = common ? end : begin,
                   .opens = common && begin - first == ROWS - 1,
                   .closes = common && last - end == ROWS - 1};
        bool together = begin < end || t.opens || t.closes, ragged = first < begin && !t.opens;
        p.fresh = fresh && together && !ragged;
        if (fresh && !p.fresh) memset(p.c, 0, (size_t)(ROWS * p.ldc) * sizeof(float));
        if (ragged) product_ragged(p, r, width, b, 0, begin);
        if (together) product_add_wide(p, ROWS, width, t);
        p.fresh = false;
        if (t.end < last && !t.closes) product_ragged(p, r, width, b, t.end, b->depth);
    }
}

/* ---- packing ---- */

/* Prefetches the element that is TILE rows after element `at`: the next tile or the next document. */
SIMD void prefetch_row(ott_dtype d, const tensor *t, int64_t at) {
    __builtin_prefetch((const char *)t->data + (at + TILE * t->ld) * (d == OTT_F32 ? 4 : 2), 0, 2);
}

/* Packs rows [first, first + count), columns [column, column + head_dim) of t to packed[capacity][width]. */
SIMD void pack_rows_of(ott_dtype d, const tensor *t, int64_t first, int64_t count, int64_t column,
                       int64_t head_dim, int64_t width, int64_t capacity, float *packed) {
    int64_t at = first * t->ld + column;
    for (int64_t r = 0; r < count; r++, packed += width, at += t->ld)
        BY_16(c, lanes, head_dim, {
            prefetch_row(d, t, at + c);
            v16_store(packed + c, v16_get(t->data, d, at + c, lanes));
        });
    memset(packed, 0, (size_t)((capacity - count) * width) * sizeof(float));
}
static void pack_rows(const tensor *t, int64_t first, int64_t count, int64_t column, const attention *s,
                      int64_t capacity, float *packed) {
    WITH_DTYPE(t->dtype, D,
               pack_rows_of(D, t, first, count, column, s->head_dim, s->width, capacity, packed));
}

/* ---- packing for products over head_dim: elements are fp32 numbers or, if `pairs`, pairs of bf16 ---- */

/* Returns packed elements [e, e + 16) of the row of t whose head starts at element `at`. */
SIMD v16 operand_elements(ott_dtype d, bool pairs, const tensor *t, int64_t at, int64_t e, int64_t head_dim) {
    prefetch_row(d, t, at + (pairs ? 2 * e : e));
#if SIMD_HAS_PAIRS
    if (pairs) return v16_load_pairs(t->data, d, at + 2 * e, head_dim - 2 * e, PAIR_CHAIN, false);
#endif
    (void)pairs;
    return v16_get(t->data, d, at + e, head_dim - e);
}
/* Return the running minimum of the pairs' magnitudes, and the smallest exponent in them (0 without
   pairs). */
SIMD v16i operand_smaller(bool pairs, v16i least, v16 elements) {
#if SIMD_HAS_PAIRS
    if (pairs) return v16_pair_smaller(least, elements);
#endif
    (void)pairs, (void)elements;
    return least;
}
SIMD int operand_least(bool pairs, v16i least) {
#if SIMD_HAS_PAIRS
    if (pairs) return v16_pair_least(least);
#endif
    (void)pairs, (void)least;
    return 0;
}

SIMD int pack_operand_of(ott_dtype d, bool pairs, const tensor *t, int64_t first, int64_t count,
                         int64_t column, const attention *s, float *packed) {
    v16i least = v16i_set1(UINT32_MAX);
    for (int64_t r = 0; r < count; r++)
        for (int64_t e = 0; e < s->score_width; e += 16, packed += 16) {
            v16 x = operand_elements(d, pairs, t, (first + r) * t->ld + column, e, s->head_dim);
            least = operand_smaller(pairs, least, x);
            v16_store(packed, x);
        }
    memset(packed, 0, (size_t)((TILE - count) * s->score_width) * sizeof(float));
    return operand_least(pairs, least);
}

SIMD int pack_lanes_of(ott_dtype d, bool pairs, const tensor *t, int64_t first, int64_t count, int64_t column,
                       const attention *s, float *lanes) {
    v16i least = v16i_set1(UINT32_MAX);
    for (int64_t r = 0; r < padded_lanes(count); r += 16) {
        float *to = lanes + r / QUERY_LANES * QUERY_LANES * s->score_width + r % QUERY_LANES;
        for (int64_t e = 0; e < s->score_width; e += 16, to += 16 * QUERY_LANES) {
            v16 x[16];
            for (int64_t i = 0; i < 16; i++) {
                int64_t at = (first + r + i) * t->ld + column;
                x[i] = r + i < count ? operand_elements(d, pairs, t, at, e, s->head_dim) : v16_zero();
                least = operand_smaller(pairs, least, x[i]);
            }
            v16_transpose(x);
            for (int64_t i = 0; i < 16; i++) v16_store(to + i * QUERY_LANES, x[i]);
        }
    }
    return operand_least(pairs, least);
}

/* Pack rows [first, first + count), columns [column, column + head_dim) of t: pack_operand at most TILE rows
   to packed[TILE][score_width], pack_lanes to lanes[count / QUERY_LANES, rounded up][score_width]
   [QUERY_LANES]. Return the smallest exponent in the pairs, or 0 without pairs. */
#define PACK_BY_FORMAT(function, t, s, ...)                                                                  \
    do {                                                                                                     \
        if (SIMD_HAS_PAIRS && (s)->in_pairs) return function(OTT_BF16, true, t, __VA_ARGS__);                \
        WITH_DTYPE((t)->dtype, D, return function(D, false, t, __VA_ARGS__));                                \
    } while (0)
static int pack_operand(const tensor *t, int64_t first, int64_t count, int64_t column, const attention *s,
                        float *packed) {
    PACK_BY_FORMAT(pack_operand_of, t, s, first, count, column, s, packed);
}
static int pack_lanes(const tensor *t, int64_t first, int64_t count, int64_t column, const attention *s,
                      float *lanes) {
    PACK_BY_FORMAT(pack_lanes_of, t, s, first, count, column, s, lanes);
}

/* Chooses the arithmetic for products of two packed operands. least_a, least_b: results of pack_operand. */
static gemm_arithmetic operand_arithmetic(const attention *s, int least_a, int least_b) {
#if SIMD_HAS_PAIRS
    if (s->in_pairs) return least_a + least_b >= PAIR_LEAST ? GEMM_PAIRS : GEMM_PAIRS_APART;
#endif
    (void)s, (void)least_a, (void)least_b;
    return GEMM_FMA;
}

/* The keys of a tile that at least one of 16 queries sees: [begin, end), counted from the tile's first key
   and extended to multiples of 16. No key if begin >= end. `all`: every query sees every key. */
typedef struct key_range {
    int64_t begin, end;
    bool all;
} key_range;

/* i: the first query; tile: the first key of the tile. */
SIMD key_range visible_keys(const attention *s, int64_t i, int64_t tile) {
    key_range k = {.begin = clamp(first_key(s->window, i) - tile, 0, TILE) / 16 * 16};
    k.end = (clamp(i + 16 - tile, 0, TILE) + 15) / 16 * 16;
    k.all = i - tile >= TILE - 1 && first_key(s->window, i + 15) <= tile;
    return k;
}

/* Sets k[v] to the keys of a tile that the queries [i + 16 v, i + 16 v + 16) see. Returns false if there are
   none. */
SIMD bool visible_to_lanes(const attention *s, int64_t i, int64_t tile, key_range k[VECTORS]) {
    bool any = false;
    for (int v = 0; v < VECTORS; v++) {
        k[v] = visible_keys(s, i + 16 * v, tile);
        any |= k[v].begin < k[v].end;
    }
    return any;
}

/* A product over head_dim of the keys of a tile and QUERY_LANES queries, which are the lanes of several
   vectors. For vector v, only products with the range k[v] of keys are computed. Packed operands: keys
   [TILE][score_width], queries [score_width][QUERY_LANES]. */
typedef struct key_product {
    const float *keys, *queries;
    const key_range *k;
    float scale;
    float *scores; /* scale * dot product [TILE][ld] */
    int64_t ld;
} key_product;

/* Computes scores of keys [begin, end) and `vectors` vectors of queries from vector v on. */
SIMD void score_range(const key_product *x, const attention *s, int v, int vectors, int64_t begin,
                      int64_t end, gemm_arithmetic how) {
    product p = {
        .a_row = s->score_width, .a_depth = 1, .b = x->queries + 16 * v, .ldb = QUERY_LANES, .ldc = x->ld};
    for (int64_t j = begin; j < end; j += ROWS) {
        p.a = x->keys + j * s->score_width;
        p.c = x->scores + j * x->ld + 16 * v;
        product_scaled(&p, vectors, how == GEMM_FMA ? s->head_dim : s->head_dim / 2, x->scale, how);
    }
}
/* The first vector's keys begin and end no later than the last vector's. Keys of both vectors are computed
   together. */
SIMD void score_keys_by(const key_product *x, const attention *s, gemm_arithmetic how) {
    key_range first = x->k[0], last = x->k[VECTORS - 1];
    int64_t both = clamp(last.begin, 0, first.end);
    if (VECTORS > 1) score_range(x, s, 0, 1, first.begin, both, how);
    score_range(x, s, 0, VECTORS, both, first.end, how);
    if (VECTORS > 1) score_range(x, s, VECTORS - 1, 1, clamp(first.end, last.begin, last.end), last.end, how);
}
static void score_keys(key_product x, const attention *s, gemm_arithmetic how) {
#if SIMD_HAS_PAIRS
    if (how == GEMM_PAIRS) {
        score_keys_by(&x, s, GEMM_PAIRS);
        return;
    }
    if (how == GEMM_PAIRS_APART) {
        score_keys_by(&x, s, GEMM_PAIRS_APART);
        return;
    }
#endif
    (void)how;
    score_keys_by(&x, s, GEMM_FMA);
}

/* Applies the softcap, if it is above 0, to the scores of keys k and 16 queries. */
static void cap_scores(const key_range *k, const attention *s, float *scores, int64_t ld) {
    v16 cap = v16_set1(s->softcap);
    for (int64_t j = k->begin; j < k->end && s->softcap > 0; j++)
        v16_store(scores + j * ld, v16_softcap(v16_load(scores + j * ld), cap));
}

#endif
