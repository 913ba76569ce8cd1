/* optimizer/optimizer: the table of rules, and one update of all parameters. */
#include "optimizer/rules.h"
#include <string.h>

/* ---- AdamW ---- */

enum { ADAMW_MOMENT1, ADAMW_MOMENT2 };

/* True if the moments of p are FP8. */
static bool has_groups(const parameter *p) {
    return p->shard.slot[ADAMW_MOMENT1].dtype == OTT_E4M3;
}

static bool can_quantize(const parameter *p) {
    return !has_groups(p);
}

static ott_status adamw_rows(exec *cx, const optimizer_options *o, const optimizer_rows *rows, int count,
                             const tensor *state) {
    adamw_args plain[OPTIMIZER_LIST];
    adamw_fp8_args grouped[OPTIMIZER_LIST];
    int plain_count = 0, grouped_count = 0;
    for (const optimizer_rows *r = rows; r < rows + count; r++) {
        const qtensor *quantized = &r->parameter->shard.quantized;
        if (has_groups(r->parameter))
            grouped[grouped_count++] = (adamw_fp8_args){OPTIMIZER_ROWS_ARGUMENTS(r, state),
                                                        .moment1 = &r->slot[ADAMW_MOMENT1],
                                                        .group_scales1 = &r->group_scales[ADAMW_MOMENT1],
                                                        .moment2 = &r->slot[ADAMW_MOMENT2],
                                                        .group_scales2 = &r->group_scales[ADAMW_MOMENT2],
                                                        .beta1 = o->beta1,
                                                        .beta2 = o->beta2,
                                                        .epsilon = o->epsilon};
        else
            plain[plain_count++] = (adamw_args){OPTIMIZER_ROWS_ARGUMENTS(r, state),
                                                .moment1 = &r->slot[ADAMW_MOMENT1],
                                                .moment2 = &r->slot[ADAMW_MOMENT2],
                                                .beta1 = o->beta1,
                                                .beta2 = o->beta2,
                                                .epsilon = o->epsilon,
                                                .q = quant_spec_is_fp8(&quantized->spec) ? quantized : NULL};
    }
    TRY(op_adamw_many(cx, plain, plain_count));
    return op_adamw_fp8_many(cx, grouped, grouped_count);
}

const optimizer_rule optimizer_adamw = {.name = "adamw",
                                        .slots = 2,
                                        .slot = {[ADAMW_MOMENT1] = "exp_avg", [ADAMW_MOMENT2] = "exp_avg_sq"},
                                        .can_quantize = can_quantize,
                                        .schedule = optimizer_schedule_moments,
                                        .update = adamw_rows};

#define X(name) &optimizer_##name,
static const optimizer_rule *const rows[] = {OPTIMIZER_RULES(X)};
#undef X

const optimizer_rule *optimizer_find(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
    return NULL;
}

int optimizer_slots(const optimizer_rule *rule, const parameter *p) {
    return rule->applied_slots && rule->applies_to(p) ? rule->applied_slots : rule->slots;
}

/* ---- an update ---- */

void optimizer_schedule(const optimizer_rule *rule, const optimizer_options *o, double learning_rate,
                        int64_t update, float *host_state) {
    host_state[STEP_LEARNING_RATE] = (float)learning_rate;
    step_state_set_update(host_state, (uint64_t)update);
    rule->schedule(o, update, host_state);
}

/* True if this rank adds p's gradient to the gradient norm. */
static bool is_measured(const parameter *p) {
    return !p->frozen && !p->is_frozen_now && !p->repeated;
}

/* Returns the ranks that have the other parts of p (tensor or expert parallelism); NULL: p is not split. */
static const group *ranks_of_parts(const parameter *p, const optimizer_ranks *ranks) {
    if (!parameter_is_split(p)) return NULL;
    return p->of_experts ? ranks->experts : ranks->tensor;
}

/* Returns p's number of blocks of REDUCE_BLOCK elements, over all ranks. *first: index of the first block of
   this rank's shard. Each part of a tensor- or expert-parallel p begins a new block. */
static int64_t count_blocks(const parameter *p, const optimizer_ranks *ranks, int64_t *first) {
    const parameter_part *local = &p->local;
    int64_t before = p->shard.first * (p->rank > 1 ? local->columns : 1);
    int64_t blocks = op_reduce_blocks(local->rows * local->columns);
    *first = before / REDUCE_BLOCK;
    const group *split_ranks = ranks_of_parts(p, ranks);
    if (!split_ranks) return blocks;
    *first += split_ranks->rank * blocks;
    return split_ranks->size * blocks;
}

/* Computes the sums of squares of this rank's blocks. All tensor-parallel ranks have the same copy of a
   parameter that is not split between them. So only tensor-parallel rank 0 computes this parameter's sums. */
static ott_status square_blocks(exec *cx, const parameter *parameters, int count,
                                const optimizer_ranks *ranks, const tensor *blocks) {
    bool counts_all = !ranks->tensor || ranks->tensor->rank == 0;
    block_squares_args items[OPTIMIZER_LIST];
    tensor sums[OPTIMIZER_LIST];
    int64_t at = 0, first, filled = 0;
    for (const parameter *p = parameters; p < parameters + count; p++) {
        if (!is_measured(p)) continue;
        int64_t all = count_blocks(p, ranks, &first), own = op_reduce_blocks(tensor_count(p->shard.grad));
        if (own > 0 && (counts_all || ranks_of_parts(p, ranks) == ranks->tensor)) {
            sums[filled] = tensor_columns(*blocks, at + first, own);
            items[filled] = (block_squares_args){.x = &p->shard.grad, .sums = &sums[filled]};
            filled++;
        }
        at += all;
        if (filled < OPTIMIZER_LIST) continue;
        TRY(op_block_squares_many(cx, items, filled));
        filled = 0;
    }
    return op_block_squares_many(cx, items, filled);
}

/* Adds up the block sums of each measured parameter, in order. With pipeline stages, the sum is stored in
   squares[p->number], else in the next element. *measured: the number of measured parameters. */
static ott_status sum_parameters(exec *cx, const parameter *parameters, int count,
                                 const optimizer_ranks *ranks, const tensor *blocks, const tensor *squares,
                                 int *measured) {
    sum_blocks_args items[OPTIMIZER_LIST];
    tensor sums[OPTIMIZER_LIST], sum[OPTIMIZER_LIST];
    int64_t at = 0, first, filled = 0;
    *measured = 0;
    for (const parameter *p = parameters; p < parameters + count; p++) {
        if (!is_measured(p)) continue;
        int64_t all = count_blocks(p, ranks, &first);
        sums[filled] = tensor_columns(*blocks, at, all);
        sum[filled] = tensor_columns(*squares, ranks->stages ? p->number : *measured, 1);
        items[filled] = (sum_blocks_args){.sums = &sums[filled], .sum = &sum[filled]};
        filled++;
        ++*measured;
        at += all;
        if (filled < OPTIMIZER_LIST) continue;
        TRY(op_sum_blocks_many(cx, items, filled));
        filled = 0;
    }
    return op_sum_blocks_many(cx, items, filled);
}

/* Gathers the block sums of all ranks, and adds them in an order that does not depend on the rank count. */
static ott_status measure_norm(exec *cx, const optimizer_options *o, const parameter *parameters, int count,
                               const optimizer_ranks *ranks, const tensor *squares, const tensor *state) {
    int trained;
    bool is_stage = ranks->stages != NULL;
    tensor blocks;
    plan_buffer buffer;
    int64_t all = 0, first;
    if (is_stage && !plan_recording(cx->plan))
        TRY(device_zero(cx->device, squares->data, tensor_bytes(*squares)));
    for (int i = 0; i < count; i++)
        if (is_measured(&parameters[i])) all += count_blocks(&parameters[i], ranks, &first);
    TRY(exec_open(cx, "squares of gradients", OTT_F32, 1, all, &blocks, &buffer));
    if ((ranks->shard || ranks->tensor) && !plan_recording(cx->plan))
        TRY(device_zero(cx->device, blocks.data, tensor_bytes(blocks)));
    TRY(square_blocks(cx, parameters, count, ranks, &blocks));
    if (ranks->shard) TRY(group_all_reduce(ranks->shard, cx, &blocks, REDUCE_SUM));
    if (ranks->tensor) TRY(group_all_reduce(ranks->tensor, cx, &blocks, REDUCE_SUM));
    TRY(sum_parameters(cx, parameters, count, ranks, &blocks, squares, &trained));
    TRY(plan_close(cx->plan, &buffer));
    tensor sums = tensor_columns(*squares, 0, is_stage ? ranks->trained : trained);
    if (is_stage) TRY(group_all_reduce(ranks->stages, cx, &sums, REDUCE_SUM));
    return op_grad_norm(cx, &(grad_norm_args){.sum_squares = &sums, .state = state, .max_norm = o->max_norm});
}

ott_status optimizer_step(exec *cx, const optimizer_rule *rule, const optimizer_options *o,
                          const parameter *const *trained, int count, const optimizer_ranks *ranks,
                          const tensor *state) {
    return rule->update ? optimizer_rows_update(cx, rule, o, trained, count, state)
                        : rule->step(cx, o, trained, count, ranks, state);
}

/* Arguments of optimizer_update. */
typedef struct update_parts {
    const optimizer_rule *rule;
    const optimizer_options *o;
    const parameter *parameters;
    int count;
    const optimizer_ranks *ranks;
} update_parts;

/* Runs rule `by` on the trained parameters for which u->rule->applies_to (if not NULL) returns `taken`. */
static ott_status step_matching(exec *cx, const update_parts *u, const optimizer_rule *by, bool taken,
                                const tensor *state) {
    const parameter *trained[OPTIMIZER_LIST];
    int filled = 0;
    for (const parameter *p = u->parameters; p < u->parameters + u->count; p++) {
        bool steps =
            !p->frozen && !p->is_frozen_now && (!u->rule->applies_to || u->rule->applies_to(p)) == taken;
        if (steps) trained[filled++] = p;
        if (filled < OPTIMIZER_LIST) continue;
        TRY(optimizer_step(cx, by, u->o, trained, filled, u->ranks, state));
        filled = 0;
    }
    return filled > 0 ? optimizer_step(cx, by, u->o, trained, filled, u->ranks, state) : OTT_OK;
}

/* Runs AdamW on the parameters that u->rule does not apply to, at adam_rate times the learning rate. */
static ott_status step_with_adamw(exec *cx, const update_parts *u, const tensor *state) {
    tensor own;
    plan_buffer buffer;
    TRY(exec_open(cx, "step state for AdamW", OTT_F32, 1, state->columns, &own, &buffer));
    TRY(op_convert(cx, &(convert_args){.x = state, .y = &own}));
    tensor rate = tensor_columns(own, STEP_LEARNING_RATE, 1);
    TRY(op_multiply(cx, &(multiply_args){.x = &rate, .y = &rate, .factor = u->o->adam_rate}));
    TRY(step_matching(cx, u, &optimizer_adamw, false, &own));
    return plan_close(cx->plan, &buffer);
}

ott_status optimizer_update(exec *cx, const optimizer_rule *rule, const optimizer_options *o,
                            const parameter *parameters, int count, const optimizer_ranks *ranks,
                            const tensor *state) {
    static const optimizer_ranks none = {0};
    tensor squares;
    plan_buffer buffer;
    cx->part = PART_OPTIMIZER;
    TRY(exec_open(cx, "squared gradient norms", OTT_F32, 1, ranks && ranks->stages ? ranks->trained : count,
                  &squares, &buffer));
    if (!ranks) ranks = &none;
    TRY(measure_norm(cx, o, parameters, count, ranks, &squares, state));
    const update_parts parts = {rule, o, parameters, count, ranks};
    TRY(step_matching(cx, &parts, rule, true, state));
    if (rule->applies_to) TRY(step_with_adamw(cx, &parts, state));
    return plan_close(cx->plan, &buffer);
}
