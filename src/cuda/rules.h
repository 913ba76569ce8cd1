/*
 * cuda/rules: eight neighbours of a parameter by an update rule (tensor/update.h), each of the update's tensors in fp32, or in
 * bf16 rounded stochastically (tensor/stochastic.h). Which format a tensor has a kernel learns at run time, unless all are fp32.
 */
#ifndef CUDA_RULES_H
#define CUDA_RULES_H

#include "cuda/list.h"
#include "tensor/stochastic.h"
#include "tensor/update.h"

/* A rule with so many slots; sum_numbers: STOCHASTIC_SUM_*. */
#define RULE(rule, slot_count, sum_numbers)                                                                  \
    struct rule##_rule {                                                                                     \
        enum { slots = slot_count, tensors = 2 + slots };                                                    \
        static constexpr uint64_t sums = sum_numbers;                                                        \
        ANYWHERE void apply(const update_constants &c, update_element &e) { update_##rule(&c, &e); }         \
    }

enum { UPDATE_PARAM, UPDATE_GRAD, UPDATE_SLOT /* the first */ };

/* A parameter's update. */
template <class Rule> struct update_job {
    view t[Rule::tensors];
    unsigned narrow; /* bit k: t[k] is bf16 */
    const float *state;
    update_options o;
    uint64_t seed;
    int64_t first, row_step;
};

/* Of the arguments of a call: the tensors in the rule's order. */
template <class Rule, class Args>
static update_job<Rule> update_job_of(const Args &a, const tensor *const (&t)[Rule::tensors],
                                      const update_options &o) {
    update_job<Rule> j = {};
    for (int k = 0; k < Rule::tensors; k++) {
        j.t[k] = view_of(t[k]);
        j.narrow |= (unsigned)(t[k]->dtype == OTT_BF16) << k;
    }
    j.state = (const float *)a.state->data;
    j.o = o;
    j.seed = a.seed;
    j.first = a.first;
    j.row_step = a.row_step;
    return j;
}

/* The draw of neighbour i of those from `first` on; block: that of the one before it. */
__device__ __forceinline__ uint64_t next_draw(rng_block &block, uint64_t seed, uint64_t update,
                                              uint64_t first, int i, uint64_t sums) {
    uint64_t index = first + i;
    if (i == 0 || index % 2 == 0) block = stochastic_block(seed, index);
    return stochastic_draw(block, update, index, sums);
}

/* The parameter's element, of a state that is rounded; a rule may have an overload of its own. */
template <class Rule>
__device__ __forceinline__ void round_param(Rule, const update_constants &c, bool narrow, uint64_t draw,
                                            update_element &e) {
    (void)c;
    if (narrow) e.p = stochastic_bf16(e.p, draw, STOCHASTIC_PARAM);
}

/* What is rounded of an element, whose draw this is. */
template <class Rule>
__device__ __forceinline__ void round_element(const update_constants &c, unsigned narrow, uint64_t draw,
                                              update_element &e) {
#pragma unroll
    for (int k = 0; k < Rule::slots; k++)
        if (narrow >> (UPDATE_SLOT + k) & 1)
            e.slot[k] = stochastic_bf16(e.slot[k], draw, STOCHASTIC_SLOT + k);
    round_param(Rule(), c, narrow >> UPDATE_PARAM & 1, draw, e);
}

/* Eight neighbours, in the formats that `narrow` says, for what is no constant in it; the parameter's new values, as they are
   stored. */
template <class Rule>
__device__ __forceinline__ eight update_eight(const update_job<Rule> &j, unsigned narrow,
                                              const row_place &at) {
    update_constants c = update_constants_of(&j.o, j.state);
    uint64_t update = step_state_update(j.state);
    uint64_t first = (uint64_t)(j.first + at.row * j.row_step + at.column);
    rng_block block = {};
    held<OTT_F32> old[Rule::tensors];
    eight made[Rule::tensors];
#pragma unroll
    for (int k = 0; k < Rule::tensors; k++) old[k] = hold8_state(j.t[k], narrow >> k & 1, at);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        update_element e = {state_number(old[UPDATE_PARAM], narrow >> UPDATE_PARAM & 1, i),
                            state_number(old[UPDATE_GRAD], narrow >> UPDATE_GRAD & 1, i),
                            {}};
#pragma unroll
        for (int k = UPDATE_SLOT; k < Rule::tensors; k++)
            e.slot[k - UPDATE_SLOT] = state_number(old[k], narrow >> k & 1, i);
        Rule::apply(c, e);
        if (narrow & ~(1u << UPDATE_GRAD))
            round_element<Rule>(c, narrow, next_draw(block, j.seed, update, first, i, Rule::sums), e);
        made[UPDATE_PARAM].x[i] = e.p;
#pragma unroll
        for (int k = UPDATE_SLOT; k < Rule::tensors; k++) made[k].x[i] = e.slot[k - UPDATE_SLOT];
    }
#pragma unroll
    for (int k = UPDATE_SLOT; k < Rule::tensors; k++) store8_state(j.t[k], narrow >> k & 1, at, made[k]);
    store8_state(j.t[UPDATE_PARAM], narrow >> UPDATE_PARAM & 1, at, made[UPDATE_PARAM]);
    return made[UPDATE_PARAM];
}

/* Bytes moved: each tensor read, and what changes written, once. Mixed: not all are fp32. */
template <class Rule, bool Mixed>
__global__ void __launch_bounds__(ROW_THREADS, Mixed ? 2 : 4)
    rule_kernel(GRID_CONSTANT(job_list<update_job<Rule>>) list) {
    list_place place = list_place_of(list);
    const update_job<Rule> &j = list.job[place.job];
    row_place at = row_place_of(place.block, j.t[UPDATE_PARAM].columns);
    if (at.column >= j.t[UPDATE_PARAM].columns || j.state[STEP_SKIP] != 0.0f) return;
    update_eight<Rule>(j, Mixed ? j.narrow : 0, at);
}

/* The job that job_of makes of a call. No blocks for a call that the other kernel is for. */
template <class Rule, bool Mixed, class Args> static int64_t fill_rule(const Args &a, update_job<Rule> &j) {
    j = job_of(a);
    const view &p = j.t[UPDATE_PARAM];
    if ((j.narrow != 0) != Mixed) return 0;
    if (j.row_step == p.columns) view_flatten(j.t);
    return p.rows * view_row_pieces(p.columns);
}

#endif
