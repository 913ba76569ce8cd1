/* mesh_way: computes a mesh's sizes. Decides which sums are added in the same order as on one rank, and
   bounds the differences of all other sums. */
#include "train/mesh_way.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

int64_t way_size(const mesh_way *w, mesh_dimension d) {
    return w->layout.size[d] ? w->layout.size[d] : 1;
}

int64_t way_data_ranks(const mesh_way *w) {
    return way_size(w, MESH_DP_REPLICATE) * way_size(w, MESH_DP_SHARD) * way_size(w, MESH_EP);
}

int64_t way_ranks(const mesh_way *w) {
    int64_t count = 1;
    for (int d = 0; d < MESH_DIMENSIONS; d++) count *= way_size(w, (mesh_dimension)d);
    return count;
}

mesh_way way_without(const mesh_way *w, unsigned kinds) {
    static const unsigned kind_of[MESH_DIMENSIONS] = {
        [MESH_PP] = WAY_PIPELINE, [MESH_DP_REPLICATE] = WAY_DATA, [MESH_DP_SHARD] = WAY_DATA,
        [MESH_CP] = WAY_CONTEXT,  [MESH_EP] = WAY_DATA,           [MESH_TP] = WAY_TENSOR};
    mesh_way less = *w;
    less.kinds &= ~kinds;
    if (kinds & WAY_DATA) less.micro_batches *= (int)way_data_ranks(w);
    for (int d = 0; d < MESH_DIMENSIONS; d++)
        if (kind_of[d] & kinds) less.layout.size[d] = 0;
    if (kinds & WAY_DATA) less.gather_masters = false;
    if (kinds & WAY_PIPELINE) less.layout.schedule = 0;
    if (kinds & WAY_TENSOR) less.layout.sequence_parallel = false;
    return less;
}

/* True if data-parallel ranks add gradients in the same order as one rank does. */
static bool adds_in_order(const mesh_way *w) {
    int ways = 0;
    for (int d = MESH_DP_REPLICATE; d < MESH_DIMENSIONS; d++)
        ways += (MESH_DATA >> d & 1) && way_size(w, (mesh_dimension)d) > 1;
    return way_data_ranks(w) == 1 || (w->micro_batches == 1 && ways == 1);
}

unsigned way_bits(const mesh_way *w) {
    return WAY_PIPELINE | (adds_in_order(w) ? WAY_DATA : 0);
}

/* ---- bounds ---- */

#define NOISE_E4M3 0x1p-4 /* relative error if an E4M3 value gets a neighboring code */
#define NOISE_E5M2 0x1p-3
#define SUM_FP32   6.1e-5 /* relative difference of sums of 512 products in two orders (test_layer_ranks.c) */

static bool has_e5m2(int format) {
    return format == TENSORWISE || format == DELAYED || format == CURRENT;
}

double way_gradient_bound(const mesh_way *w, int format, int64_t layers, int64_t tokens) {
    double terms = (double)(w->micro_batches * way_data_ranks(w)), sums = 4 * (double)layers + 2;
    if (w->kinds & WAY_CONTEXT) terms *= (double)tokens;
    if (!(w->kinds & WAY_TENSOR)) return 2 * (terms - 1) * sqrt(terms) * 0x1p-24;
    if (format == FP32) return sums * SUM_FP32;
    if (format == BF16) return sums * 0x1p-8;
    return NOISE_E4M3 + (has_e5m2(format) ? NOISE_E5M2 : NOISE_E4M3);
}

/* With delayed scaling all scales are 1 in the first step, and most gradients are rounded to 0. So for tensor
   parallelism, which changes gradients, the last step's gradients are compared. */
outcome_kind way_gradient_kind(const mesh_way *w, int format) {
    return format == DELAYED && w->kinds & WAY_TENSOR ? OUTCOME_LAST_GRADIENT : OUTCOME_GRADIENT;
}

void way_expect_within(const char *what, const char *subject, double apart, double bound) {
    if (!(apart <= bound)) fail_msg("%s: %s %.3g apart, more than %.3g", what, subject, apart, bound);
}

/* After an update, sums in another order can change FP8 codes, and so all later tensors. Therefore gradient
   norms and values may differ by the relative distance of neighboring E4M3 codes. */
void way_expect_near(const outcome *one, const outcome *ranks, double gradient, const char *what) {
    double noise = fmax(gradient, NOISE_E4M3);
    for (int i = 0; i < MESH_RUN_STEPS; i++) {
        const step_result *a = &one->step[i], *b = &ranks->step[i];
        assert_int_equal(a->labels, b->labels);
        assert_int_equal(a->tokens, b->tokens);
        way_expect_within(what, "losses", fabs(a->loss - b->loss) / a->loss, 0x1p-8);
        way_expect_within(what, "gradient norms", fabs(a->grad_norm - b->grad_norm) / a->grad_norm, noise);
    }
    way_expect_within(what, "evaluations",
                      fabs(one->evaluated.loss - ranks->evaluated.loss) / one->evaluated.loss, 0x1p-8);
    way_expect_within(what, "values", outcome_distance(one, ranks, OUTCOME_VALUE), noise);
    way_expect_within(what, "first moments", outcome_distance(one, ranks, OUTCOME_MOMENT1), noise);
    way_expect_within(what, "second moments", outcome_distance(one, ranks, OUTCOME_MOMENT2), 2 * noise);
    way_expect_within(what, "scales", outcome_distance(one, ranks, OUTCOME_SCALE), noise);
    way_expect_within(what, "amax histories", outcome_distance(one, ranks, OUTCOME_HISTORY), noise);
}
