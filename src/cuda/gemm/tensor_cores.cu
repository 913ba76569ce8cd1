/*
 * cuda/gemm/tensor_cores: products of bf16 by bf16, fp16 by fp16 and FP8 by FP8 on the tensor cores, for shapes,
 * layouts and scales that cuBLASLt refuses, and of groups. A block of threads computes a tile of TILE x TILE
 * elements of c. While the tensor cores multiply two tiles of the operands in shared memory, the next ones are
 * loaded. All other formats are multiplied by the exact kernels (gemm.cu).
 */
#include "cuda/gemm/chunks.h"
#include "cuda/view.h"

/* Elements of c that a warp computes, and the small products of 16 x 8 elements in them. */
enum { WARP_ROWS = 64, WARP_COLUMNS = 32, PART_ROWS = WARP_ROWS / 16, PART_COLUMNS = WARP_COLUMNS / 8 };
/* The result is stored in pieces of PIECE rows of each row of warps, through shared memory. */
enum { PIECE = 32, PIECE_ROWS = PIECE * TILE / WARP_ROWS, PIECE_WIDTH = TILE + 8 };
/* Neighbouring blocks compute tiles in BAND rows of tiles, so that they share operands in the L2 cache. */
enum { BAND = 8 };
/* A row of ALIGNED elements of any format is a multiple of 16 bytes. */
enum { ALIGNED = 16 };

enum class grouping { none, rows, contraction };

struct tile_job {
    grouped_job groups; /* only `product` is used without groups */
    grouping by;
    view c, bias;
    unsigned row_tiles, column_tiles;
};

/* The product that a block computes a tile of: one group's product, or the only one. */
struct tile_place {
    gemm_side a, b;
    int64_t rows, k;     /* sizes of the product */
    int skip;            /* the first terms of k are not the product's: they begin at an aligned address */
    int64_t row, column; /* first element of the tile in the product */
    int64_t first;       /* row of c with the product's first row */
    int64_t group;
};

/* ---- which tile a block computes ---- */

/* Returns the number of a group's first tile. Like qtensor_group_block, the numbers do not depend on the sizes
   of earlier groups, and some are of no tile. */
__device__ __forceinline__ int64_t first_tile_of(const grouped_job &j, int64_t group) {
    return first_of(j, group) / TILE + group;
}

/* Returns the group of row tile number `tile`; j.groups: the rows in no group. */
__device__ __forceinline__ int64_t group_of_tile(const grouped_job &j, int64_t tile) {
    int64_t group = 0, after = j.groups + 1;
    while (group + 1 < after) {
        int64_t middle = (group + after) / 2;
        if (tile < first_tile_of(j, middle))
            after = middle;
        else
            group = middle;
    }
    return group;
}

/* Finds a tile of a group of rows. False if the tile has no rows, or rows in no group that do not change. */
__device__ __forceinline__ bool find_in_rows(const grouped_job &j, int64_t tile, tile_place &p) {
    p.group = group_of_tile(j, tile);
    p.first = first_of(j, p.group);
    p.row = (tile - first_tile_of(j, p.group)) * TILE;
    bool in_group = p.group < j.groups;
    p.rows = (in_group ? j.end[p.group] : j.product.c.rows) - p.first;
    if (p.row >= p.rows || (!in_group && j.product.c.accumulate)) return false;
    p.k = in_group ? j.product.k : 0;
    p.skip = 0;
    p.a = side_of_group(j.product.a, false, p.group, p.first);
    p.b = side_of_group(j.product.b, j.deep, p.group, p.group * j.each);
    if (!in_group) p.a.scale_inv = p.b.scale_inv = nullptr; /* 0 times any scale is 0 here */
    return true;
}

__device__ __forceinline__ const void *earlier(const gemm_side &s, int terms) {
    return (const char *)s.data - terms * s.k_stride * (s.format == OTT_BF16 || s.format == OTT_F16 ? 2 : 1);
}

/* Finds a tile of the product of one group's part of the contraction. False if the group is empty. A group begins
   anywhere in the operands' rows, so the tiles begin at a multiple of ALIGNED terms, except that tiles must begin
   with a scale block. */
__device__ __forceinline__ bool find_in_contraction(const grouped_job &j, unsigned tile, tile_place &p) {
    unsigned tiles = (unsigned)((j.each + TILE - 1) / TILE);
    p.group = tile / tiles;
    int64_t begin = first_of(j, p.group);
    p.row = (int64_t)(tile % tiles) * TILE;
    p.rows = j.each;
    p.skip = j.product.a.block_k == INT64_MAX ? (int)(begin % ALIGNED) : 0;
    p.k = j.end[p.group] - begin + p.skip;
    p.first = p.group * j.each;
    p.a = side_of_group(j.product.a, true, p.group, begin);
    p.b = side_of_group(j.product.b, true, p.group, begin);
    p.a.data = earlier(p.a, p.skip);
    p.b.data = earlier(p.b, p.skip);
    return p.k > p.skip;
}

__device__ __forceinline__ bool find_tile(const tile_job &j, tile_place &p) {
    unsigned of_band = BAND * j.column_tiles, band = blockIdx.x / of_band, in_band = blockIdx.x % of_band;
    unsigned left = j.row_tiles - band * BAND, height = left < BAND ? left : (unsigned)BAND;
    unsigned tile = band * BAND + in_band % height;
    p.column = (int64_t)(in_band / height) * TILE;
    if (j.by == grouping::rows) return find_in_rows(j.groups, tile, p);
    if (j.by == grouping::contraction) return find_in_contraction(j.groups, tile, p);
    const gemm_job &w = j.groups.product;
    p = {w.a, w.b, w.c.rows, w.k, 0, (int64_t)tile * TILE, p.column, 0, 0};
    return true;
}

/* ---- feeds of tiles ---- */

struct tile_pair {
    operand_tile a, b;
};
struct scaled_pair : tile_pair {
    float scale[2 * TILE]; /* decode scales of the rows of a, then of b */
};
template <bool Blocks> struct pair_for { using type = tile_pair; };
template <> struct pair_for<true> { using type = scaled_pair; };

/* Copies tiles of 16-bit operands asynchronously, two tiles ahead. */
template <bool TA, bool TB> struct copied_feed {
    static constexpr int stages = 3;
    using pair = tile_pair;
    chunks<2, TA> a;
    chunks<2, TB> b;
    tile_pair *pairs;
    int tiles;
};

template <bool TA, bool TB>
__device__ __forceinline__ void fetch_tile(copied_feed<TA, TB> &f, int t, int skip) {
    if (t < f.tiles) {
        copy_chunks(f.pairs[t % f.stages].a, f.a, skip);
        copy_chunks(f.pairs[t % f.stages].b, f.b, skip);
    }
    copy_async_commit();
}

/* The padding of b is -0: a's 0 times -0 changes no sum, not even -0. */
template <bool TA, bool TB>
__device__ __forceinline__ void open_feed(copied_feed<TA, TB> &f, const tile_place &p, int64_t columns) {
    f.a = chunks_of<2, TA>(p.a, p.row, p.rows, p.k, 0);
    f.b = chunks_of<2, TB>(p.b, p.column, columns, p.k, 0x8000);
    fetch_tile(f, 0, p.skip);
    fetch_tile(f, 1, -DEPTH);
}

/* Returns tile t of both operands, when it is in shared memory, and begins to copy tile t + 2. All threads call
   this function in turn for each tile. */
template <bool TA, bool TB>
__device__ __forceinline__ const tile_pair &next_tile(copied_feed<TA, TB> &f, int t) {
    copy_async_wait<1>();
    __syncthreads();
    fetch_tile(f, t + 2, -DEPTH);
    return f.pairs[t % f.stages];
}

/* Converts tiles of FP8 operands to fp16. A thread keeps its codes of tile t + 2 in registers while the tensor
   cores multiply tile t. With block scales, it also keeps a decode scale: threads of the first half of the block
   that of a row of a, the others that of a row of b. */
template <bool TA, bool TB, bool Blocks> struct converted_feed {
    static constexpr int stages = 2;
    using pair = typename pair_for<Blocks>::type;
    chunks<1, TA> a;
    chunks<1, TB> b;
    pair *pairs;
    int tiles;
    bool a_e4m3, b_e4m3;
    uint4 a_codes, b_codes;
    gemm_side side; /* the operand with this thread's scale */
    int64_t block;  /* position of the scale along MN; -1: there is none */
    int shift;      /* 2^shift tiles have one scale */
    float scale;
};

template <bool TA, bool TB, bool Blocks>
__device__ __forceinline__ void load_tile(converted_feed<TA, TB, Blocks> &f, int t, int skip) {
    if (t >= f.tiles) return;
    f.a_codes = load_codes(f.a, skip);
    f.b_codes = load_codes(f.b, skip);
    if (!Blocks || f.block < 0) return;
    f.scale = f.side.scale_inv ? scale_inv_at(f.side.scale_inv, f.side.mn_step, f.side.k_step, f.side.tiles,
                                              f.block, t >> f.shift)
                               : 1.0f;
}

template <bool TA, bool TB, bool Blocks>
__device__ __forceinline__ void store_tile(converted_feed<TA, TB, Blocks> &f, int t) {
    if (t >= f.tiles) return;
    store_codes(f.pairs[t % f.stages].a, f.a, f.a_codes, f.a_e4m3);
    store_codes(f.pairs[t % f.stages].b, f.b, f.b_codes, f.b_e4m3);
    if constexpr (Blocks) f.pairs[t % f.stages].scale[threadIdx.x] = f.scale;
}

template <bool TA, bool TB, bool Blocks>
__device__ __forceinline__ void open_feed(converted_feed<TA, TB, Blocks> &f, const tile_place &p,
                                          int64_t columns) {
    f.a = chunks_of<1, TA>(p.a, p.row, p.rows, p.k, 0);
    f.b = chunks_of<1, TB>(p.b, p.column, columns, p.k, 0x80);
    f.a_e4m3 = p.a.format == OTT_E4M3;
    f.b_e4m3 = p.b.format == OTT_E4M3;
    if (Blocks) {
        bool of_a = threadIdx.x < TILE;
        int64_t mn = (of_a ? p.row : p.column) + threadIdx.x % TILE;
        f.side = of_a ? p.a : p.b;
        f.block = mn < (of_a ? p.rows : columns) ? mn / f.side.block_mn : -1;
        f.shift = __ffs((int)(f.side.block_k / DEPTH)) - 1;
        f.scale = 0;
    }
    load_tile(f, 0, p.skip);
    store_tile(f, 0);
    load_tile(f, 1, -DEPTH);
}

template <bool TA, bool TB, bool Blocks>
__device__ __forceinline__ const typename pair_for<Blocks>::type &next_tile(converted_feed<TA, TB, Blocks> &f,
                                                                            int t) {
    __syncthreads();
    store_tile(f, t + 1);
    load_tile(f, t + 2, -DEPTH);
    return f.pairs[t % f.stages];
}

/* ---- a warp's part of the tile ---- */

struct warp_sums {
    mma_sums of[PART_ROWS][PART_COLUMNS];
};

__device__ __forceinline__ int warp_row() {
    return threadIdx.x / 32 / (TILE / WARP_COLUMNS) * WARP_ROWS;
}
__device__ __forceinline__ int warp_column() {
    return threadIdx.x / 32 % (TILE / WARP_COLUMNS) * WARP_COLUMNS;
}

/* Adds the products of the operands' tiles. */
template <ott_dtype D, bool TA, bool TB>
__device__ __forceinline__ void multiply_tiles(warp_sums &sums, const tile_pair &t) {
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
        uint32_t b[PART_COLUMNS / 2][4];
#pragma unroll
        for (int n = 0; n < PART_COLUMNS / 2; n++) load_right<TB>(b[n], t.b, warp_column() + n * 16, k);
#pragma unroll
        for (int m = 0; m < PART_ROWS; m++) {
            mma_left a;
            load_left<TA>(a.at, t.a, warp_row() + m * 16, k);
#pragma unroll
            for (int n = 0; n < PART_COLUMNS; n++)
                mma_add<D>(sums.of[m][n], a, {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]});
        }
    }
}

/* Adds the sums of a scale block, scaled, to the result, and sets them to 0. scales: of the tile's rows, then
   of its columns. */
template <bool Product>
__device__ __forceinline__ void add_scaled(warp_sums &result, warp_sums &sums, const float *scales) {
    int row = warp_row() + threadIdx.x % 32 / 4, column = TILE + warp_column() + threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < PART_ROWS; m++)
#pragma unroll
        for (int n = 0; n < PART_COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float x = scales[row + m * 16 + i / 2 * 8], y = scales[column + n * 8 + i % 2];
                float &p = sums.of[m][n].at[i], &s = result.of[m][n].at[i];
                s = Product ? fmaf(p, x * y, s) : fmaf(p * x, y, s);
                p = 0;
            }
}

/* ---- the result ---- */

typedef float piece[PIECE_ROWS][PIECE_WIDTH];

/* Stores rows [first, first + PIECE) of each warp's part in shared memory. */
__device__ __forceinline__ void store_piece(piece &to, const warp_sums &sums, int first) {
    int row = warp_row() / WARP_ROWS * PIECE + threadIdx.x % 32 / 4;
    int column = warp_column() + threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < PIECE / 16; m++)
#pragma unroll
        for (int n = 0; n < PART_COLUMNS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[row + m * 16 + i / 2 * 8][column + n * 8 + i % 2] =
                    first ? sums.of[m + PIECE / 16][n].at[i] : sums.of[m][n].at[i];
}

/* The scales of full rows and tensors. */
__device__ __forceinline__ float full_scale(const gemm_side &s, int64_t mn) {
    if (!s.scale_inv) return 1.0f;
    return scale_inv_at(s.scale_inv, s.mn_step, s.k_step, s.tiles, s.block_mn == 1 ? mn : 0, 0);
}

__device__ __forceinline__ void scale_eight(eight &e, const gemm_job &w, const tile_place &p, int64_t row,
                                            int64_t column) {
    float x = full_scale(p.a, row);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (column + i >= w.c.columns) continue;
        float y = full_scale(p.b, column + i);
        e.x[i] = w.order == SCALE_PRODUCT ? e.x[i] * (x * y) : (e.x[i] * x) * y;
    }
}

/* Stores eight elements of c in format C: their sums plus the bias and the old c if used. */
template <ott_dtype C>
__device__ __forceinline__ void store_eight(const tile_job &j, int64_t row, int64_t column, eight &e) {
    eight old = {};
    if (j.bias.data) {
        eight bias = load8<OTT_F32>(j.bias, 0, column);
#pragma unroll
        for (int i = 0; i < 8; i++) e.x[i] += bias.x[i];
    }
    if (j.groups.product.c.accumulate) {
        old = load8<C>(j.c, row, column);
#pragma unroll
        for (int i = 0; i < 8; i++) e.x[i] += old.x[i];
    }
    store8<C>(j.c, row, column, e);
}

/* Stores the tile's rows that are in a piece. Scaled: the scales of full rows and tensors are applied. */
template <bool Scaled>
__device__ __forceinline__ void finish_piece(const tile_job &j, const tile_place &p, const piece &from,
                                             int first, float factor) {
    const gemm_job &w = j.groups.product;
#pragma unroll 1
    for (int at = threadIdx.x; at < PIECE_ROWS * TILE / 8; at += TILE_THREADS) {
        int in_piece = at / (TILE / 8), in_tile = in_piece / PIECE * WARP_ROWS + first + in_piece % PIECE;
        int64_t row = p.row + in_tile, column = p.column + at % (TILE / 8) * 8;
        if (row >= p.rows || column >= w.c.columns) continue;
        eight e;
#pragma unroll
        for (int i = 0; i < 8; i++) e.x[i] = from[in_piece][at % (TILE / 8) * 8 + i];
        if (Scaled) scale_eight(e, w, p, row, column);
        if (j.groups.all)
#pragma unroll
            for (int i = 0; i < 8; i++) e.x[i] *= factor;
        WITH_DTYPE(w.c.format, C, store_eight<C>(j, p.first + row, column, e));
    }
}

/* ---- the kernel ---- */

template <bool Fp8, bool TA, bool TB, bool Blocks> struct feed_for {
    using type = converted_feed<TA, TB, Blocks>;
};
template <bool TA, bool TB, bool Blocks> struct feed_for<false, TA, TB, Blocks> {
    using type = copied_feed<TA, TB>;
};

template <class Feed> union tile_memory {
    typename Feed::pair pairs[Feed::stages];
    piece sums;
};

/* D: format that the tensor cores multiply. Blocks: scale blocks divide the contraction. */
template <ott_dtype D, bool Fp8, bool TA, bool TB, bool Blocks>
__global__ void __launch_bounds__(TILE_THREADS, Blocks ? 1 : 2)
    tensor_core_kernel(GRID_CONSTANT(tile_job) j) {
    using Feed = typename feed_for<Fp8, TA, TB, Blocks>::type;
    SHARED(memory, tile_memory<Feed>);
    const gemm_job &w = j.groups.product;
    tile_place p;
    if (!find_tile(j, p)) return;
    bool works = p.row + warp_row() < p.rows && p.column + warp_column() < w.c.columns;
    Feed feed;
    feed.pairs = memory.pairs;
    feed.tiles = (int)((p.k + DEPTH - 1) / DEPTH);
    open_feed(feed, p, w.c.columns);
    warp_sums sums = {}, result = {};
#pragma unroll 1
    for (int t = 0; t < feed.tiles; t++) {
        const typename Feed::pair &pair = next_tile(feed, t);
        if (!works) continue;
        multiply_tiles<D, TA, TB>(sums, pair);
        if constexpr (Blocks)
            if ((t + 1) >> feed.shift != t >> feed.shift || t + 1 == feed.tiles) {
                if (w.order == SCALE_PRODUCT)
                    add_scaled<true>(result, sums, pair.scale);
                else
                    add_scaled<false>(result, sums, pair.scale);
            }
    }
    float factor = j.groups.all ? balance_of(j.groups, p.group) : 1.0f;
#pragma unroll 1
    for (int first = 0; first < WARP_ROWS; first += PIECE) {
        __syncthreads();
        store_piece(memory.sums, Blocks ? result : sums, first);
        __syncthreads();
        finish_piece<Fp8 && !Blocks>(j, p, memory.sums, first, factor);
    }
}

/* ---- launches ---- */

template <ott_dtype D, bool Fp8, bool Blocks>
static cudaError_t launch_tiles(const tile_job &j, bool ta, bool tb, cudaStream_t stream) {
    int64_t blocks = (int64_t)j.row_tiles * j.column_tiles;
    if (ta && tb)
        LAUNCH_BLOCKS((tensor_core_kernel<D, Fp8, true, true, Blocks>), blocks, TILE_THREADS, stream, j);
    else if (ta)
        LAUNCH_BLOCKS((tensor_core_kernel<D, Fp8, true, false, Blocks>), blocks, TILE_THREADS, stream, j);
    else if (tb)
        LAUNCH_BLOCKS((tensor_core_kernel<D, Fp8, false, true, Blocks>), blocks, TILE_THREADS, stream, j);
    else
        LAUNCH_BLOCKS((tensor_core_kernel<D, Fp8, false, false, Blocks>), blocks, TILE_THREADS, stream, j);
    return cudaGetLastError();
}

extern "C" bool gemm_is_for_tensor_cores(const operand *a, const operand *b) {
    ott_dtype d = a->t.dtype, of_b = b->t.dtype;
    if (operand_k(a) > INT32_MAX - 4 * DEPTH) return false;
    if (d == OTT_BF16 || d == OTT_F16) return of_b == d && !a->scale_inv && !b->scale_inv;
    return (d == OTT_E4M3 || d == OTT_E5M2) && (of_b == OTT_E4M3 || of_b == OTT_E5M2);
}

static unsigned tiles_of(int64_t count) {
    return (unsigned)((count + TILE - 1) / TILE);
}

/* row_tiles: tiles along c's rows. */
static cudaError_t launch(const grouped_job &groups, grouping by, const operand *a, const operand *b,
                          const tensor *c, const tensor *bias, unsigned row_tiles, cudaStream_t stream) {
    tile_job j = {groups, by, view_of(c), view_of(bias), row_tiles, tiles_of(c->columns)};
    bool blocks = groups.product.a.block_k != INT64_MAX;
    if (a->t.dtype == OTT_BF16)
        return launch_tiles<OTT_BF16, false, false>(j, a->transposed, b->transposed, stream);
    if (a->t.dtype == OTT_F16)
        return launch_tiles<OTT_F16, false, false>(j, a->transposed, b->transposed, stream);
    if (blocks) return launch_tiles<OTT_F16, true, true>(j, a->transposed, b->transposed, stream);
    return launch_tiles<OTT_F16, true, false>(j, a->transposed, b->transposed, stream);
}

extern "C" cudaError_t gemm_launch(const operand *a, const operand *b, const tensor *bias, const tensor *c,
                                   bool accumulate, scale_order order, cudaStream_t stream) {
    if (!gemm_is_for_tensor_cores(a, b)) return gemm_exact_launch(a, b, bias, c, accumulate, order, stream);
    grouped_job j = {};
    j.product = {side_of(a), side_of(b), result_of(c, bias, accumulate), operand_k(a), order};
    return launch(j, grouping::none, a, b, c, bias, tiles_of(c->rows), stream);
}

extern "C" cudaError_t gemm_grouped_launch(const grouped_gemm_args *a, bool deep, cudaStream_t stream) {
    if (!gemm_is_for_tensor_cores(a->a, a->b)) return gemm_exact_grouped_launch(a, deep, stream);
    unsigned row_tiles = (unsigned)(a->c->rows / TILE + a->end->columns + 1); /* at most: see first_tile_of */
    return launch(grouped_job_of(a, deep), grouping::rows, a->a, a->b, a->c, nullptr, row_tiles, stream);
}

extern "C" cudaError_t gemm_grouped_weight_launch(const grouped_gemm_weight_args *a, cudaStream_t stream) {
    if (!gemm_is_for_tensor_cores(a->a, a->b)) return gemm_exact_weight_launch(a, stream);
    unsigned row_tiles = (unsigned)a->end->columns * tiles_of(operand_mn(a->a));
    return launch(weight_job_of(a), grouping::contraction, a->a, a->b, a->c, nullptr, row_tiles, stream);
}
