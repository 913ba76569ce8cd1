/* cuda/rules: updates eight consecutive elements of a parameter by an optimizer rule (tensor/rules/update.h).
   Each tensor of the update is fp32, or bf16 with stochastic rounding (tensor/rules/stochastic.h). A kernel
   is for tensors that are all fp32, for tensors that are all bf16 and aligned, or for any tensors: then it
   reads the formats at run time. */
#ifndef CUDA_RULES_H
#define CUDA_RULES_H

#include "cuda/list.h"
#include "tensor/rules/stochastic.h"
#include "tensor/rules/update.h"

/* Defines a rule with slot_count state tensors. Numbers of a draw (tensor/rules/stochastic.h) round the
   parameter and the slots: param_number; slot_number and the following. If param_number is STOCHASTIC_NONE,
   the parameter is not rounded but computed from the stored slots 0 and 1 (update_point). */
#define RULE(rule, slot_count, param_number, slot_number)                                                    \
    struct rule##_rule {                                                                                     \
        enum { slots = slot_count, tensors = 2 + slots };                                                    \
        static constexpr int of_param = param_number, of_slot = slot_number;                                 \
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

/* What all elements of an update share. */
struct update_shared {
    update_constants c;
    uint64_t seed, update;
};
template <class Rule> __device__ __forceinline__ update_shared shared_of(const update_job<Rule> &j) {
    return {update_constants_of(&j.o, j.state), j.seed, step_state_update(j.state)};
}

/* Returns the random words of element index + i, for i = 0 to 7 in turn. `blocks` keeps words for later. */
__device__ __forceinline__ stochastic_words next_words(stochastic_blocks &blocks, uint64_t seed,
                                                       uint64_t update, uint64_t index, int i) {
    index += i;
    if (i == 0 || index % 8 == 0) blocks = stochastic_blocks_of(seed, update, index & ~(uint64_t)7);
    return stochastic_words_in(&blocks, index);
}

/* Rounds the bf16 slots and the parameter of element `index` with its random words. narrow: the tensors that
   are bf16, as in update_job. */
template <class Rule>
__device__ __forceinline__ void round_element(const update_constants &c, unsigned narrow, stochastic_words w,
                                              uint64_t update, uint64_t index, update_element &e) {
#pragma unroll
    for (int k = 0; k < Rule::slots; k++)
        if (narrow >> (UPDATE_SLOT + k) & 1)
            e.slot[k] = stochastic_bf16(e.slot[k], stochastic_number(w, update, index, Rule::of_slot + k));
    if (Rule::of_param == STOCHASTIC_NONE)
        e.p = update_point(c.o, e.slot[0], e.slot[1]);
    else if (narrow >> UPDATE_PARAM & 1)
        e.p = stochastic_bf16(e.p, stochastic_number(w, update, index, Rule::of_param));
}

/* Updates eight elements and returns the parameter's new values as stored. narrow: update_job.narrow. If the
   caller passes a constant 0, the compiler removes the code for bf16. */
template <class Rule>
__device__ __forceinline__ eight update_eight(const update_job<Rule> &j, unsigned narrow,
                                              const row_place &at) {
    update_shared s = shared_of(j);
    uint64_t index = (uint64_t)(j.first + at.row * j.row_step + at.column);
    stochastic_blocks blocks = {};
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
        Rule::apply(s.c, e);
        if (narrow & ~(1u << UPDATE_GRAD))
            round_element<Rule>(s.c, narrow, next_words(blocks, s.seed, s.update, index, i), s.update,
                                index + i, e);
        made[UPDATE_PARAM].x[i] = e.p;
#pragma unroll
        for (int k = UPDATE_SLOT; k < Rule::tensors; k++) made[k].x[i] = e.slot[k - UPDATE_SLOT];
    }
#pragma unroll
    for (int k = UPDATE_SLOT; k < Rule::tensors; k++) store8_state(j.t[k], narrow >> k & 1, at, made[k]);
    store8_state(j.t[UPDATE_PARAM], narrow >> UPDATE_PARAM & 1, at, made[UPDATE_PARAM]);
    return made[UPDATE_PARAM];
}

/* ---- all tensors bf16 ---- */

/* Returns bits whose upper half is the bf16 number that x is rounded to. x is not NaN. */
__device__ __forceinline__ uint32_t rounded_up_bits(float x, stochastic_words w, uint64_t update, int i,
                                                    int which) {
    return fmath_bits(x) + stochastic_number(w, update, i, which);
}

/* Stores the updated tensors of an element in the upper halves of `bits`. i: its index modulo 8. */
template <class Rule>
__device__ __forceinline__ void narrow_element(const update_constants &c, stochastic_words w, uint64_t update,
                                               int i, update_element &e, uint32_t (&bits)[Rule::tensors]) {
#pragma unroll
    for (int k = 0; k < Rule::slots; k++) {
        bits[UPDATE_SLOT + k] = rounded_up_bits(e.slot[k], w, update, i, Rule::of_slot + k);
        e.slot[k] = fmath_from_bits(bits[UPDATE_SLOT + k] & 0xffff0000u);
    }
    bits[UPDATE_PARAM] = Rule::of_param == STOCHASTIC_NONE
                             ? (uint32_t)rounded<OTT_BF16>(update_point(c.o, e.slot[0], e.slot[1])) << 16
                             : rounded_up_bits(e.p, w, update, i, Rule::of_param);
}

/* An element of each bf16 tensor of an update, and its index in the parameter. */
template <class Rule> struct bf16_place {
    uint16_t *at[Rule::tensors];
    uint64_t index;
};
template <class Rule>
__device__ __forceinline__ bf16_place<Rule> bf16_place_of(const update_job<Rule> &j, int64_t row,
                                                          int64_t column) {
    bf16_place<Rule> p;
#pragma unroll
    for (int k = 0; k < Rule::tensors; k++) p.at[k] = number_at<OTT_BF16>(j.t[k], row, column);
    p.index = (uint64_t)(j.first + row * j.row_step + column);
    return p;
}

/* Updates eight elements. Returns false and stores nothing if a result is NaN. */
template <class Rule>
__device__ __forceinline__ bool update_eight_bf16(const update_shared &s, const bf16_place<Rule> &p) {
    update_constants c = s.c;
    held<OTT_BF16> t[Rule::tensors];
    uint32_t before[Rule::tensors] = {}; /* bits of the element before */
    bool is_nan = false;
    c.inverse2 = 1.0f / c.sqrt_correction2;
    c.has_inverse = true;
#pragma unroll
    for (int k = 0; k < Rule::tensors; k++) t[k] = hold8_aligned<OTT_BF16>(p.at[k]);
    stochastic_blocks blocks = stochastic_blocks_of(s.seed, s.update, p.index);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        update_element e = {number(t[UPDATE_PARAM], i), number(t[UPDATE_GRAD], i), {}};
        uint32_t bits[Rule::tensors];
#pragma unroll
        for (int k = 0; k < Rule::slots; k++) e.slot[k] = number(t[UPDATE_SLOT + k], i);
        Rule::apply(c, e);
        float other = Rule::slots > 0 ? e.slot[0] : e.p; /* a NaN in slot 1 or 2 makes the parameter NaN */
        is_nan = is_nan || !(e.p <= other || e.p > other);
        narrow_element<Rule>(c, stochastic_words_in(&blocks, i), s.update, i, e, bits);
#pragma unroll
        for (int k = 0; k < Rule::tensors; k++) {
            if (k != UPDATE_GRAD && i % 2) t[k].word[i / 2] = __byte_perm(before[k], bits[k], 0x7632);
            before[k] = bits[k];
        }
    }
    if (is_nan) return false;
#pragma unroll
    for (int k = 0; k < Rule::tensors; k++)
        if (k != UPDATE_GRAD) store8_aligned<OTT_BF16>(p.at[k], t[k]);
    return true;
}

/* Updates element i of the elements from p on, with the same result. */
template <class Rule>
__device__ __forceinline__ void update_one_bf16(const update_shared &s, const bf16_place<Rule> &p, int i) {
    uint64_t index = p.index + i;
    update_element e = {
        widened<OTT_BF16>(p.at[UPDATE_PARAM][i]), widened<OTT_BF16>(p.at[UPDATE_GRAD][i]), {}};
#pragma unroll
    for (int k = 0; k < Rule::slots; k++) e.slot[k] = widened<OTT_BF16>(p.at[UPDATE_SLOT + k][i]);
    Rule::apply(s.c, e);
    round_element<Rule>(s.c, ~0u, stochastic_words_of(s.seed, s.update, index), s.update, index, e);
#pragma unroll
    for (int k = 0; k < Rule::slots; k++) p.at[UPDATE_SLOT + k][i] = rounded<OTT_BF16>(e.slot[k]);
    p.at[UPDATE_PARAM][i] = rounded<OTT_BF16>(e.p);
}

/* Updates `times` groups of eight elements. Passes p to step(p) to move it to the next group. `left` elements
   from p on are in the row; this number falls by `less` with each group. If a result is NaN or a group is
   incomplete, the thread updates the remaining elements one by one. */
template <class Rule, class Step>
__device__ __forceinline__ void update_groups_bf16(const update_shared &s, bf16_place<Rule> p, int times,
                                                   int left, int less, Step step) {
    int i = 0;
#pragma unroll 1
    for (; i < times && left >= 8 && update_eight_bf16(s, p); i++, left -= less) step(p);
#pragma unroll 1
    for (; i < times && left > 0; i++, left -= less, step(p))
#pragma unroll 1
        for (int k = 0; k < 8 && k < left; k++) update_one_bf16(s, p, k);
}

/* ---- kernels ---- */

/* The formats of a job's tensors. ALL_BF16: also, eight elements that a thread updates are aligned, and the
   index of their first in the parameter is a multiple of 8. */
enum update_formats { ALL_F32, ALL_BF16, ANY_FORMATS };

template <class Rule> static update_formats formats_of(const update_job<Rule> &j) {
    bool aligned = j.first % 8 == 0 && (j.t[UPDATE_PARAM].rows == 1 || j.row_step % 8 == 0);
    for (int k = 0; k < Rule::tensors; k++) aligned = aligned && j.t[k].vectors;
    if (j.narrow == 0) return ALL_F32;
    return aligned && j.narrow == (1u << Rule::tensors) - 1 ? ALL_BF16 : ANY_FORMATS;
}

/* Pieces of a row that a block updates in turn. So few threads search in the list. */
template <update_formats F> constexpr int update_pieces = F == ALL_BF16 ? 16 : 1;

/* Blocks that must fit on a multiprocessor: more would spill registers. */
template <class Rule, update_formats F>
constexpr int update_blocks = F == ALL_F32                      ? 4
                              : F == ALL_BF16 &&Rule::slots < 3 ? 3
                                                                : 2;

/* Reads each tensor once and writes the changed tensors once. */
template <class Rule, update_formats F>
__global__ void __launch_bounds__(ROW_THREADS, update_blocks<Rule, F>)
    rule_kernel(GRID_CONSTANT(job_list<update_job<Rule>>) list) {
    list_place place = list_place_of(list);
    const update_job<Rule> &j = list.job[place.job];
    int64_t columns = j.t[UPDATE_PARAM].columns;
    row_place at = row_place_of<update_pieces<F>>(place.block, columns);
    if (at.column >= columns || j.state[STEP_SKIP] != 0.0f) return;
    if constexpr (F == ALL_BF16) {
        int64_t left = columns - at.column;
        int most = update_pieces<F> * ROW_PIECE;
        update_groups_bf16(shared_of(j), bf16_place_of(j, at.row, at.column), update_pieces<F>,
                           left < most ? (int)left : most, ROW_PIECE, [](bf16_place<Rule> &p) {
                               p.index += ROW_PIECE;
#pragma unroll
                               for (int k = 0; k < Rule::tensors; k++) p.at[k] += ROW_PIECE;
                           });
    } else {
        update_eight<Rule>(j, F == ALL_F32 ? 0 : j.narrow, at);
    }
}

/* Fills the job of a call. Returns its blocks; 0 if its formats are not F. */
template <class Rule, update_formats F, class Args>
static int64_t fill_rule(const Args &a, update_job<Rule> &j) {
    j = job_of(a);
    if (j.row_step == j.t[UPDATE_PARAM].columns) view_flatten(j.t);
    const view &p = j.t[UPDATE_PARAM];
    return formats_of(j) == F ? p.rows * view_row_pieces<update_pieces<F>>(p.columns) : 0;
}

#endif
