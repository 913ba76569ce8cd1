/* parallel/store: which rank keeps which lines of a parameter. */
#include "base/size.h"
#include "parallel/store.h"

static int64_t line_elements(const parameter *p) {
    return p->rank > 1 ? p->local.columns : 1;
}

/* Lines that stay together: of whole blocks of a reduction, so that a shard's sums are among those of the whole. */
static int64_t unit_lines(const parameter *p) {
    return REDUCE_BLOCK / size_common_divisor(REDUCE_BLOCK, line_elements(p));
}

/* ---- the rank that holds the least: a heap, for on thousands of ranks each unit would ask all of them ---- */

static bool holds_less(const parameter_store *s, int a, int b) {
    return s->shard_elements[a] < s->shard_elements[b] ||
           (s->shard_elements[a] == s->shard_elements[b] && a < b);
}

static void swap(int *a, int *b) {
    int c = *a;
    *a = *b;
    *b = c;
}

static void sift_down(const parameter_store *s, int at) {
    for (int least = at;; at = least) {
        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < s->ranks->size; child++)
            if (holds_less(s, s->rank_heap[child], s->rank_heap[least])) least = child;
        if (least == at) return;
        swap(&s->rank_heap[at], &s->rank_heap[least]);
    }
}

static void sift_up(const parameter_store *s, int at) {
    for (; at > 0 && holds_less(s, s->rank_heap[at], s->rank_heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&s->rank_heap[at], &s->rank_heap[(at - 1) / 2]);
}

static int place_of(const parameter_store *s, int rank) {
    int at = 0;
    while (s->rank_heap[at] != rank) at++;
    return at;
}

/* All ranks hold nothing yet, so their own order is a heap. */
static ott_status open_held(parameter_store *s, arena *memory) {
    void *held, *order;
    int ranks = s->ranks->size;
    if (s->shard_elements) return OTT_OK;
    TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &held));
    TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int), &order));
    s->shard_elements = held;
    s->rank_heap = order;
    for (int r = 0; r < ranks; r++) s->rank_heap[r] = r;
    return OTT_OK;
}

/* ---- shards ---- */

/* Each rank gets as many units, and the ranks that hold the least one more while any are left. */
static void cut_lines(parameter_store *s, const parameter *p, int64_t lines, int64_t *cut) {
    int ranks = s->ranks->size;
    int64_t unit = unit_lines(p), units = (lines + unit - 1) / unit, elements = unit * line_elements(p);
    for (int r = 0; r < ranks; r++) {
        cut[r] = units / ranks * unit;
        s->shard_elements[r] += units / ranks * elements;
    }
    for (int64_t i = 0; i < units % ranks; i++) {
        int r = s->rank_heap[0];
        cut[r] += unit;
        s->shard_elements[r] += elements;
        sift_down(s, 0);
    }
    int last = ranks - 1;
    while (last > 0 && cut[last] == 0) last--;
    cut[last] -= units * unit - lines; /* the last unit need not be whole */
    s->shard_elements[last] -= (units * unit - lines) * line_elements(p);
    sift_up(s, place_of(s, last));
}

ott_status store_divide(parameter_store *s, arena *memory, parameter *p) {
    int ranks = store_ranks(s);
    int64_t lines = parameter_local_rows(p), count = lines;
    ott_dtype master = p->shard.value.dtype;
    p->shard = (parameter_shard){0};
    if (ranks > 1) {
        void *cut;
        TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &cut));
        p->shard.rows_per_rank = cut;
        TRY(open_held(s, memory));
        cut_lines(s, p, lines, cut);
        p->shard.first = group_part_first(p->shard.rows_per_rank, lines, ranks, s->ranks->rank);
        count = p->shard.rows_per_rank[s->ranks->rank];
    }
    p->shard.value = p->rank > 1 ? tensor_matrix(NULL, master, count, p->local.columns)
                                 : tensor_vector(NULL, master, count);
    return OTT_OK;
}

int64_t store_count_at(const parameter *p, int rank) {
    return p->shard.rows_per_rank[rank] * line_elements(p);
}

int64_t store_first_at(const parameter *p, int rank) {
    return group_part_first(p->shard.rows_per_rank, 0, rank, rank) * line_elements(p);
}
