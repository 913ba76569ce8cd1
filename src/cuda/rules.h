/* cuda/rules: updates eight consecutive elements of a parameter by an optimizer rule (tensor/rules/update.h).
   Each tensor of the update is fp32, or bf16 with stochastic rounding (tensor/rules/stochastic.h). The kernel
   reads the formats at run time, unless all tensors are fp32. */
#ifndef CUDA_RULES_H
#define CUDA_RULES_H

#include "cuda/list.h"
#include "tensor/rules/stochastic.h"
#include "tensor/rules/update.h"

/* Defines a rule with slot_count state tensors. sum_numbers: mask STOCHASTIC_SUM_* (rules/stochastic.h). */
#define RULE(rule, slot_count, sum_numbers)                                                                  \
    struct rule##_rule {                                                                                     \
        enum { slots = slot_count, tensors = 2 + slots };                                                    \
        static constexpr uint64_t sums = sum_numbers;                                                        \
        ANYWHERE void apply(const update_constants &c, update_element &e) { update_##rule(&c, &e); }         \
    }

enum { UPDATE_PARAM, UPDATE_GRAD, UPDATE_SLOT /* index of the first slot */ };

/* The update of one parameter tensor. */
template <class Rule> struct update_job {
    view t[Rule::tensors];
    unsigned narrow; /* bit k is set if t[k] is bf16 */
    const float *state;
    update_options o;
    uint64_t seed;
    int64_t first, row_step;
};

/* Describes the update of one parameter. t: the parameter, the gradient, and the rule's state tensors. */
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

/* Returns the random bits of element first + i. `block` has the bits of two neighbouring elements. */
__device__ __forceinline__ uint64_t next_draw(rng_block &block, uint64_t seed, uint64_t update,
                                              uint64_t first, int i, uint64_t sums) {
    uint64_t index = first + i;
    if (i == 0 || index % 2 == 0) block = stochastic_block(seed, index);
    return stochastic_draw(block, update, index, sums);
}

/* Rounds the new parameter if it is bf16. Some rules overload this function. */
template <class Rule>
__device__ __forceinline__ void round_param(Rule, const update_constants &c, bool narrow, uint64_t draw,
                                            update_element &e) {
    (void)c;
    if (narrow) e.p = stochastic_bf16(e.p, draw, STOCHASTIC_PARAM);
}

/* Rounds the bf16 slots and the parameter of one element with its random numbers. */
template <class Rule>
__device__ __forceinline__ void round_element(const update_constants &c, unsigned narrow, uint64_t draw,
                                              update_element &e) {
#pragma unroll
    for (int k = 0; k < Rule::slots; k++)
        if (narrow >> (UPDATE_SLOT + k) & 1)
            e.slot[k] = stochastic_bf16(e.slot[k], draw, STOCHASTIC_SLOT + k);
    round_param(Rule(), c, narrow >> UPDATE_PARAM & 1, draw, e);
}

/* Updates eight elements and returns the parameter's new values as stored. narrow: update_job.narrow. If the
   caller passes a constant 0, the compiler removes the code for bf16. */
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

/* Reads each tensor once and writes the changed tensors once. Mixed: some tensors are bf16. */
template <class Rule, bool Mixed>
__global__ void __launch_bounds__(ROW_THREADS, Mixed ? 2 : 4)
    rule_kernel(GRID_CONSTANT(job_list<update_job<Rule>>) list) {
    list_place place = list_place_of(list);
    const update_job<Rule> &j = list.job[place.job];
    row_place at = row_place_of(place.block, j.t[UPDATE_PARAM].columns);
    if (at.column >= j.t[UPDATE_PARAM].columns || j.state[STEP_SKIP] != 0.0f) return;
    update_eight<Rule>(j, Mixed ? j.narrow : 0, at);
}

/* Fills the job of a call. Returns its blocks; 0 if Mixed is true without bf16 tensors, or the reverse. */
template <class Rule, bool Mixed, class Args> static int64_t fill_rule(const Args &a, update_job<Rule> &j) {
    j = job_of(a);
    const view &p = j.t[UPDATE_PARAM];
    if ((j.narrow != 0) != Mixed) return 0;
    if (j.row_step == p.columns) view_flatten(j.t);
    return p.rows * view_row_pieces(p.columns);
}

#endif
