/* optimizer/rows: calls element-wise update rules with lists of contiguous rows. */
#include "base/rng.h"
#include "optimizer/rules.h"

/* Seed of p's stochastic rounding, which only bf16 tensors need; 0 if p has no bf16 tensor. */
static uint64_t draw_seed(const optimizer_options *o, const parameter *p) {
    const parameter_shard *s = &p->shard;
    bool rounds = s->value.dtype == OTT_BF16;
    for (int k = 0; k < PARAMETER_SLOTS; k++) rounds = rounds || s->slot[k].dtype == OTT_BF16;
    if (!rounds) return 0;
    rng_block b = rng_philox(o->seed, rng_stream(p->name), 0);
    return b.word[0] | (uint64_t)b.word[1] << 32;
}

/* Returns `count` rows of the state tensor t, from `row` on; t itself if it has no data. */
static tensor row_view(const tensor *t, int64_t row, int64_t count) {
    return t->data ? tensor_rows(*t, row, count) : *t;
}

int64_t optimizer_rows_at(const optimizer_options *o, const parameter *p, int64_t row, optimizer_rows *out) {
    const parameter_shard *s = &p->shard;
    const parameter_part part = parameter_shard_part(p);
    parameter_run run = {0, 1};
    if (p->rank > 1) run = parameter_rows_at(&part, row, s->value.rows - row);
    *out = (optimizer_rows){.parameter = p,
                            .param = tensor_rows(s->value, row, run.count),
                            .grad = tensor_rows(s->grad, row, run.count),
                            .weight_decay = p->decay ? o->weight_decay : 0.0f,
                            .seed = draw_seed(o, p),
                            .first = (part.row + run.first) * p->columns + part.column,
                            .row_step = p->columns};
    for (int k = 0; k < PARAMETER_SLOTS; k++) {
        out->slot[k] = row_view(&s->slot[k], row, run.count);
        out->group_scales[k] = row_view(&s->group_scales[k], row, run.count);
    }
    return run.count;
}

ott_status optimizer_rows_update(exec *cx, const optimizer_rule *rule, const optimizer_options *o,
                                 const parameter *const *trained, int count, const tensor *state) {
    optimizer_rows rows[OPTIMIZER_LIST];
    int filled = 0;
    for (int i = 0; i < count; i++)
        for (int64_t row = 0; row < trained[i]->shard.value.rows;) {
            row += optimizer_rows_at(o, trained[i], row, &rows[filled]);
            if (++filled < OPTIMIZER_LIST) continue;
            TRY(rule->update(cx, o, rows, filled, state));
            filled = 0;
        }
    return filled > 0 ? rule->update(cx, o, rows, filled, state) : OTT_OK;
}
