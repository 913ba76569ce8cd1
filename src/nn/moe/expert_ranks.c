/* nn/moe/expert_ranks: row counts and the two all-to-alls. */
#include "nn/moe/expert_ranks.h"

ott_status expert_ranks_open(expert_ranks *r, arena *memory, group *g, int64_t experts) {
    int64_t ranks = g->size;
    *r = (expert_ranks){.group = g, .experts = experts};
    TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &r->sent));
    TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &r->received));
    TRY(arena_alloc(memory, ranks * experts * (int64_t)sizeof(int32_t), &r->end));
    return arena_alloc(memory, experts * (int64_t)sizeof(int32_t), &r->own_end);
}

int64_t expert_ranks_max_rows(const expert_ranks *r, int64_t tokens, int64_t choices, int64_t capacity) {
    int64_t own = expert_ranks_own(r), most = tokens * (choices < own ? choices : own);
    if (capacity > 0 && own * choices * capacity < most) most = own * choices * capacity;
    return r->group->size * most;
}

static int64_t sum_of(const int64_t *rows, int ranks) {
    return group_part_first(rows, 0, ranks, ranks);
}

int64_t expert_ranks_received_rows(const expert_ranks *r) {
    return sum_of(r->received, r->group->size);
}

/* Rows from rank `from` to rank `receiver` begin at this index. receiver = group size: the number of rows. */
static int64_t begin_of(const expert_ranks *r, int from, int receiver) {
    int64_t expert = receiver * expert_ranks_own(r);
    return expert > 0 ? r->end[from * r->experts + expert - 1] : 0;
}

/* While the plan is recorded, the counts are not known: assumes that `rows` rows are divided equally. */
static void assume_mean(expert_ranks *r, int64_t rows) {
    for (int k = 0; k < r->group->size; k++)
        r->sent[k] = r->received[k] = rows * (k + 1) / r->group->size - rows * k / r->group->size;
}

static ott_status read_ends(exec *cx, expert_ranks *r, const tensor *all) {
    TRY(device_copy_out(cx->device, r->end, all->data, tensor_bytes(*all)));
    int own = r->group->rank;
    for (int k = 0; k < r->group->size; k++) {
        r->sent[k] = begin_of(r, own, k + 1) - begin_of(r, own, k);
        r->received[k] = begin_of(r, k, own + 1) - begin_of(r, k, own);
    }
    int64_t each = expert_ranks_own(r), first = r->group->rank * each;
    for (int k = 0; k < r->group->size; k++)
        for (int64_t e = 0; e < each; e++)
            r->own_end[k * each + e] =
                r->end[k * r->experts + first + e] - (int32_t)begin_of(r, k, r->group->rank);
    return OTT_OK;
}

ott_status expert_ranks_exchange_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *end,
                                        const tensor *all, const tensor *own) {
    TRY(group_run(r->group, cx, &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = *end, .output = *all}));
    if (plan_recording(cx->plan)) return assume_mean(r, rows), OTT_OK;
    TRY(read_ends(cx, r, all));
    return device_copy_in(cx->device, own->data, r->own_end, tensor_bytes(*own));
}

ott_status expert_ranks_reload_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *all) {
    if (!plan_recording(cx->plan)) return read_ends(cx, r, all);
    assume_mean(r, rows);
    return OTT_OK;
}

static ott_status exchange_rows(exec *cx, const expert_ranks *r, const tensor *from, const int64_t *from_rows,
                                const tensor *to, const int64_t *to_rows) {
    int ranks = r->group->size;
    return group_run(r->group, cx,
                     &(collective){.kind = COLLECTIVE_ALL_TO_ALL,
                                   .input = tensor_rows(*from, 0, sum_of(from_rows, ranks)),
                                   .output = tensor_rows(*to, 0, sum_of(to_rows, ranks)),
                                   .input_rows = from_rows,
                                   .output_rows = to_rows});
}

ott_status expert_ranks_dispatch(exec *cx, const expert_ranks *r, const tensor *x, const tensor *y) {
    return exchange_rows(cx, r, x, r->sent, y, r->received);
}

ott_status expert_ranks_combine(exec *cx, const expert_ranks *r, const tensor *y, const tensor *x) {
    return exchange_rows(cx, r, y, r->received, x, r->sent);
}
