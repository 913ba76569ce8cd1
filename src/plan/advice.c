/* plan/advice: gets suggestions from the memory check of the pipeline stage that needs most memory. */
#include "plan/advice.h"

typedef struct advice_request {
    const estimate *e;
    advice *out;
} advice_request;

static ott_status fill_advice(void *user, const memory_check *a) {
    const advice_request *request = user;
    const estimate *e = request->e;
    TRY(memory_check_compare_fp8(a, e->need.total, &request->out->fp8));
    if (e->shortfall <= 0) return OTT_OK;
    return memory_check_suggest(a, e->need.total, e->need.total - e->shortfall, &request->out->suggestions);
}

ott_status advice_find(const count_request *r, const estimate *e, advice *out) {
    advice_request request = {e, out};
    return count_with_memory_check(r, e->fullest, fill_advice, &request);
}
