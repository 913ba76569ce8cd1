/* report/health: evaluates the FP8 health lines of a run: the worst tensors, and modules that left FP8. */
#include "report/internal.h"
#include "base/text/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

double report_format_sqnr(const char *format) {
    if (strcmp(format, "e4m3") == 0) return 31.5;
    return strcmp(format, "e5m2") == 0 ? 25.6 : 0;
}

/* Without SQNR in the metrics, returns +infinity (no error), or -infinity if amax is missing, too (NaNs). */
double report_use_rank(const metrics_use *use) {
    if (!isnan(use->sqnr_db)) return use->sqnr_db - report_format_sqnr(use->format);
    return isnan(use->amax) ? -INFINITY : INFINITY;
}

const char *report_sqnr_text(const metrics_use *use, char out[32]) {
    if (isinf(report_use_rank(use))) return strcpy(out, report_use_rank(use) < 0 ? "not finite" : "-");
    text_format(out, 32, fabs(use->sqnr_db) < 1e6 ? "%.1f dB" : "%.3g dB", use->sqnr_db);
    return out;
}

const char *report_sqnr_gap_text(const metrics_use *use, char out[32]) {
    double rank = report_use_rank(use), usual = report_format_sqnr(use->format);
    if (isinf(rank) || usual == 0) return strcpy(out, "");
    text_format(out, 32, fabs(rank) < 1e6 ? ", %+.1f from expected %.1f" : ", %+.3g from expected %.1f", rank,
                usual);
    return out;
}

/* Compares two uses by report_use_rank, the worst first. Of equal uses the first in the file comes first. */
static int compare_uses(const void *a, const void *b) {
    const metrics_use *x = *(const metrics_use *const *)a, *y = *(const metrics_use *const *)b;
    double rank_x = report_use_rank(x), rank_y = report_use_rank(y);
    if (rank_x != rank_y) return rank_x > rank_y ? 1 : -1;
    return (x > y) - (x < y);
}

ott_status report_worst_uses(mem *account, const metrics_health *h, const metrics_use ***out,
                             int64_t *count) {
    *count = h->count - h->last;
    TRY(mem_alloc_array(account, MEM_OTHER, *count, sizeof **out, "measured uses of tensors", out));
    for (int64_t i = 0; i < *count; i++) (*out)[i] = &h->uses[h->last + i];
    qsort(*out, (size_t)*count, sizeof **out, compare_uses);
    return OTT_OK;
}

int64_t report_next_left_fp8(const report_run_data *run, int64_t from) {
    const metrics_health *h = &run->health;
    if (!run->finished && !h->complete) return -1; /* a line of the last measurement may not be written yet */
    for (int64_t i = from; i < h->module_count; i++)
        if (h->modules[i].last_step != h->uses[h->last].step) return i;
    return -1;
}
