/* plan/advice: asking the dry run of the fullest stage. */
#include "plan/advice.h"

typedef struct question {
    const estimate *e;
    advice *out;
} question;

static ott_status ask(void *user, const memory_check *a) {
    const question *q = user;
    const estimate *e = q->e;
    TRY(memory_check_compare_fp8(a, e->need.total, &q->out->fp8));
    if (e->shortfall <= 0) return OTT_OK;
    return memory_check_suggest(a, e->need.total, e->need.total - e->shortfall, &q->out->suggestions);
}

ott_status advice_find(const count_request *r, const estimate *e, advice *out) {
    question q = {e, out};
    return count_with_memory_check(r, e->fullest, ask, &q);
}
