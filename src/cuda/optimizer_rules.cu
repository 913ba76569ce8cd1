/* cuda/optimizer_rules: the update rules beside AdamW, each element as tensor/update.h states it, and what Muon does around
   its matrix products. Bytes moved: each tensor read, and what changes written, once. */
#include "cuda/kernels.h"
#include "cuda/list.h"
#include "tensor/update.h"

struct rule_job {
    view p, g, slot[3];
    const float *state;
    update_options o;
};

/* A rule with so many slots. */
#define RULE(rule, slot_count)                                                                               \
    struct rule##_rule {                                                                                     \
        enum { slots = slot_count };                                                                         \
        ANYWHERE void apply(const update_constants &c, update_element &e) { update_##rule(&c, &e); }         \
    }
RULE(lion, 1);
RULE(sgd, 1);
RULE(adam, 2);
RULE(schedule_free, 3);
RULE(muon_momentum, 0);

template <class Rule>
__global__ void __launch_bounds__(ROW_THREADS) rule_kernel(GRID_CONSTANT(job_list<rule_job>) list) {
    list_place place = list_place_of(list);
    const rule_job &j = list.job[place.job];
    row_place at = row_place_of(place.block, j.p.columns);
    if (at.column >= j.p.columns || j.state[STEP_SKIP] != 0.0f) return;
    update_constants c = update_constants_of(&j.o, j.state);
    eight p = load8<OTT_F32>(j.p, at.row, at.column), g = load8<OTT_F32>(j.g, at.row, at.column), slot[3];
#pragma unroll
    for (int k = 0; k < Rule::slots; k++) slot[k] = load8<OTT_F32>(j.slot[k], at.row, at.column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        update_element e = {p.x[i], g.x[i], {}};
#pragma unroll
        for (int k = 0; k < Rule::slots; k++) e.slot[k] = slot[k].x[i];
        Rule::apply(c, e);
        p.x[i] = e.p;
#pragma unroll
        for (int k = 0; k < Rule::slots; k++) slot[k].x[i] = e.slot[k];
    }
    store8<OTT_F32>(j.p, at.row, at.column, p);
#pragma unroll
    for (int k = 0; k < Rule::slots; k++) store8<OTT_F32>(j.slot[k], at.row, at.column, slot[k]);
}

/* One row, where all that are there lie dense; returns the job's blocks. */
static int64_t finish_job(rule_job &j) {
    view_flatten(j.p, j.g, j.slot[0], j.slot[1], j.slot[2]);
    return j.p.rows * view_row_pieces(j.p.columns);
}

static int64_t fill_lion(const lion_args &a, rule_job &j) {
    j = {view_of(a.param),
         view_of(a.grad),
         {view_of(a.momentum)},
         (const float *)a.state->data,
         {a.beta1, a.beta2, 0.0f, a.weight_decay, 0.0f, false}};
    return finish_job(j);
}

static int64_t fill_sgd(const sgd_args &a, rule_job &j) {
    j = {view_of(a.param),
         view_of(a.grad),
         {view_of(a.momentum)},
         (const float *)a.state->data,
         {0.0f, 0.0f, 0.0f, a.weight_decay, a.factor, a.nesterov}};
    return finish_job(j);
}

static int64_t fill_adam(const adam_args &a, rule_job &j) {
    j = {view_of(a.param),
         view_of(a.grad),
         {view_of(a.moment1), view_of(a.moment2)},
         (const float *)a.state->data,
         {a.beta1, a.beta2, a.epsilon, a.weight_decay, 0.0f, false}};
    return finish_job(j);
}

static int64_t fill_schedule_free(const schedule_free_args &a, rule_job &j) {
    j = {view_of(a.param),
         view_of(a.grad),
         {view_of(a.z), view_of(a.x), view_of(a.moment2)},
         (const float *)a.state->data,
         {a.beta1, a.beta2, a.epsilon, a.weight_decay, 0.0f, false}};
    return finish_job(j);
}

static int64_t fill_muon_momentum(const muon_momentum_args &a, rule_job &j) {
    j = {view_of(a.momentum),
         view_of(a.grad),
         {},
         (const float *)a.state->data,
         {0.0f, 0.0f, 0.0f, 0.0f, a.factor, false}};
    return finish_job(j);
}

extern "C" cudaError_t lion_launch(const lion_args *items, int64_t count, cudaStream_t stream) {
    return list_launch<rule_kernel<lion_rule>>(ROW_THREADS, fill_lion, items, count, stream);
}
extern "C" cudaError_t sgd_launch(const sgd_args *items, int64_t count, cudaStream_t stream) {
    return list_launch<rule_kernel<sgd_rule>>(ROW_THREADS, fill_sgd, items, count, stream);
}
extern "C" cudaError_t adam_launch(const adam_args *items, int64_t count, cudaStream_t stream) {
    return list_launch<rule_kernel<adam_rule>>(ROW_THREADS, fill_adam, items, count, stream);
}
extern "C" cudaError_t schedule_free_launch(const schedule_free_args *items, int64_t count,
                                            cudaStream_t stream) {
    return list_launch<rule_kernel<schedule_free_rule>>(ROW_THREADS, fill_schedule_free, items, count,
                                                        stream);
}
extern "C" cudaError_t muon_momentum_launch(const muon_momentum_args *a, cudaStream_t stream) {
    return list_launch<rule_kernel<muon_momentum_rule>>(ROW_THREADS, fill_muon_momentum, a, 1, stream);
}

/* ---- between two points ---- */

__global__ void __launch_bounds__(ROW_THREADS) lerp_kernel(view from, view to, view y, float weight) {
    row_place p = row_place_of(y.columns);
    if (p.column >= y.columns) return;
    eight a = load8<OTT_F32>(from, p.row, p.column), b = load8<OTT_F32>(to, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) a.x[i] = fmaf(b.x[i] - a.x[i], weight, a.x[i]);
    store8<OTT_F32>(y, p.row, p.column, a);
}

extern "C" cudaError_t lerp_launch(const lerp_args *a, cudaStream_t stream) {
    view from = view_of(a->from), to = view_of(a->to), y = view_of(a->y);
    view_flatten(from, to, y);
    LAUNCH_ROWS(lerp_kernel, y.rows, y.columns, stream, from, to, y, a->weight);
    return cudaGetLastError();
}

/* ---- Muon ---- */

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS)
    muon_normalize_kernel(view x, const float *sum_squares, view y) {
    row_place p = row_place_of(x.columns);
    if (p.column >= x.columns) return;
    float norm = sqrtf(*sum_squares) + 1e-7f;
    eight a = load8<OTT_F32>(x, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) a.x[i] = a.x[i] / norm;
    store8<D>(y, p.row, p.column, a);
}

extern "C" cudaError_t muon_normalize_launch(const muon_normalize_args *a, cudaStream_t stream) {
    view x = view_of(a->x), y = view_of(a->y);
    const float *sum_squares = (const float *)a->sum_squares->data;
    view_flatten(x, y);
    WITH_DTYPE(a->y->dtype, D,
               LAUNCH_ROWS(muon_normalize_kernel<D>, x.rows, x.columns, stream, x, sum_squares, y));
    return cudaGetLastError();
}

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS)
    muon_kernel(view param, view update, const float *state, float scale, float weight_decay) {
    row_place at = row_place_of(param.columns);
    if (at.column >= param.columns || state[STEP_SKIP] != 0.0f) return;
    float lr = state[STEP_LEARNING_RATE], decay = lr * weight_decay, size = lr * scale;
    eight p = load8<OTT_F32>(param, at.row, at.column), u = load8<D>(update, at.row, at.column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        p.x[i] = p.x[i] - decay * p.x[i];
        p.x[i] = p.x[i] - size * u.x[i];
    }
    store8<OTT_F32>(param, at.row, at.column, p);
}

extern "C" cudaError_t muon_launch(const muon_args *a, cudaStream_t stream) {
    view param = view_of(a->param), update = view_of(a->update);
    const float *state = (const float *)a->state->data;
    view_flatten(param, update);
    WITH_DTYPE(a->update->dtype, D,
               LAUNCH_ROWS(muon_kernel<D>, param.rows, param.columns, stream, param, update, state, a->scale,
                           a->weight_decay));
    return cudaGetLastError();
}
