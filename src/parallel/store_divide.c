/* parallel/store: assigns the rows of parameters to ranks. */
#include "base/text/size.h"
#include "parallel/store.h"

static int64_t elements_per_row(const parameter *p) {
    return p->rank > 1 ? p->local.columns : 1;
}

/* ---- a heap of ranks, to find the rank with the smallest shards fast even with thousands of ranks ---- */

static bool holds_less(const parameter_store *s, int a, int b) {
    return s->shard_elements[a] < s->shard_elements[b] ||
           (s->shard_elements[a] == s->shard_elements[b] && a < b);
}

static void swap_ranks(int *a, int *b) {
    int c = *a;
    *a = *b;
    *b = c;
}

static void sift_down(const parameter_store *s, int at) {
    for (int least = at;; at = least) {
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < s->ranks->size; child++)
            if (holds_less(s, s->rank_heap[child], s->rank_heap[least])) least = child;
        if (least == at) return;
        swap_ranks(&s->rank_heap[at], &s->rank_heap[least]);
    }
}

/* Opens the heap. At first all ranks have 0 elements, so ranks in ascending order are a heap. */
static ott_status open_held(parameter_store *s, arena *memory) {
    int ranks = s->ranks->size;
    if (s->shard_elements) return OTT_OK;
    TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &s->shard_elements));
    TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int), &s->rank_heap));
    for (int r = 0; r < ranks; r++) s->rank_heap[r] = r;
    return OTT_OK;
}

/* Shards are made of pieces, and pieces of full reduction blocks. Every rank gets equally many pieces. The
   rest goes to the ranks with the fewest elements. */
static void divide_parameter_rows(parameter_store *s, const parameter *p, int64_t rows, int64_t *counts) {
    int ranks = s->ranks->size;
    int64_t unit =
        REDUCE_BLOCK / size_common_divisor(REDUCE_BLOCK, elements_per_row(p)); /* rows in a piece */
    int64_t units = (rows + unit - 1) / unit, elements = unit * elements_per_row(p);
    for (int r = 0; r < ranks; r++) {
        counts[r] = units / ranks * unit;
        s->shard_elements[r] += units / ranks * elements;
    }
    for (int64_t i = 0; i < units % ranks; i++) {
        int r = s->rank_heap[0];
        counts[r] += unit;
        s->shard_elements[r] += elements;
        sift_down(s, 0);
    }
    int last = ranks - 1, at = 0;
    while (last > 0 && counts[last] == 0) last--;
    counts[last] -= units * unit - rows; /* the last piece may be incomplete */
    s->shard_elements[last] -= (units * unit - rows) * elements_per_row(p);
    while (s->rank_heap[at] != last) at++;
    for (; at > 0 && holds_less(s, s->rank_heap[at], s->rank_heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap_ranks(&s->rank_heap[at], &s->rank_heap[(at - 1) / 2]);
}

ott_status store_divide(parameter_store *s, arena *memory, parameter *p) {
    int ranks = store_ranks(s);
    int64_t rows = parameter_local_rows(p), count = rows;
    ott_dtype master = p->shard.value.dtype;
    p->shard = (parameter_shard){0};
    if (ranks > 1) {
        TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &p->shard.rows_per_rank));
        TRY(open_held(s, memory));
        divide_parameter_rows(s, p, rows, p->shard.rows_per_rank);
        p->shard.first = group_part_first(p->shard.rows_per_rank, rows, ranks, s->ranks->rank);
        count = p->shard.rows_per_rank[s->ranks->rank];
    }
    p->shard.value = p->rank > 1 ? tensor_matrix(NULL, master, count, p->local.columns)
                                 : tensor_vector(NULL, master, count);
    return OTT_OK;
}

int64_t store_count_at(const parameter *p, int rank) {
    return p->shard.rows_per_rank[rank] * elements_per_row(p);
}

int64_t store_first_at(const parameter *p, int rank) {
    return group_part_first(p->shard.rows_per_rank, 0, rank, rank) * elements_per_row(p);
}
