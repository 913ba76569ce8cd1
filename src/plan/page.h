/* plan/page: a plan as a person reads it, and as JSON. */
#ifndef PLAN_PAGE_H
#define PLAN_PAGE_H

#include "base/str.h"
#include "plan/advice.h"
#include "plan/layers.h"
#include "plan/sweep.h"

/* All that is told; borrowed. */
typedef struct page {
    const config *cfg;
    const model_options *shape;
    const machine *machine;
    const char *precision; /* "fp8 tensorwise" */
    const mesh *mesh;
    const estimate *estimate;
    const char *other_precision; /* the same run in bf16, or in FP8 */
    const estimate *other;       /* NULL: it cannot be */
    const advice *advice;
    const layer_rows *layers;
    int64_t largest_batch; /* that fits; 0: none does */
    const sweep *sweep;    /* NULL: not asked for */
} page;

ott_status page_write(const page *p, str *out);
ott_status page_write_json(const page *p, str *out);

#endif
