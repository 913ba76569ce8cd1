/* plan/page/page: writes a plan as text or JSON. */
#ifndef PLAN_PAGE_PAGE_H
#define PLAN_PAGE_PAGE_H

#include "base/text/str.h"
#include "plan/advice.h"
#include "plan/layers.h"
#include "plan/sweep.h"

/* Contents of a plan; all borrowed. */
typedef struct page {
    const config *cfg;
    const model_options *shape;
    const machine *machine;
    const char *precision; /* precision of the run, "fp8 tensorwise" */
    const mesh *mesh;
    const estimate *estimate;
    const char *other_precision; /* precision to compare with: bf16 for an FP8 run, else FP8 */
    const estimate *other;       /* estimate of the same run in other_precision; NULL: not possible */
    const advice *advice;
    const layer_rows *layers;
    int64_t largest_batch; /* largest train.batch_size that fits; 0: none */
    const sweep *sweep;    /* NULL: no sweep was requested */
} page;

/* Both functions append to `out`. */
ott_status page_write(const page *p, str *out);
ott_status page_write_json(const page *p, str *out);

#endif
