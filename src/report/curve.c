/* report/curve: computes curves. */
#include "report/curve.h"
#include <math.h>
#include <string.h>

static ott_status curve_allocate(mem *account, int64_t capacity, curve *out) {
    *out = (curve){.account = account};
    TRY(mem_alloc_array(account, MEM_OTHER, 2 * capacity, sizeof(double), "a curve",
                        &out->x)); /* x and y are in one block */
    out->y = out->x + capacity;
    return OTT_OK;
}

void curve_free(curve *c) {
    mem_free(c->account, c->x);
    *c = (curve){.account = c->account};
}

ott_status curve_from_series(mem *account, const metrics_series *s, curve *out) {
    TRY(curve_allocate(account, s->count, out));
    for (int64_t i = 0; i < s->count; i++) {
        if (!isfinite(s->value[i])) continue;
        out->x[out->count] = (double)s->step[i];
        out->y[out->count++] = s->value[i];
    }
    return OTT_OK;
}

/* Adds the values of `other` to the values of c. Drops points that only one of the two curves has. */
static void add_common(curve *c, const curve *other) {
    int64_t kept = 0, j = 0;
    for (int64_t i = 0; i < c->count; i++) {
        while (j < other->count && other->x[j] < c->x[i]) j++;
        if (j == other->count) break;
        if (other->x[j] != c->x[i]) continue;
        c->x[kept] = c->x[i];
        c->y[kept++] = c->y[i] + other->y[j];
    }
    c->count = kept;
}

ott_status curve_row_mean(const report *r, int row, report_key key, curve *out) {
    int members = r->rows[row].count;
    TRY(curve_from_series(r->account, &report_row_run(r, row, 0)->series[key], out));
    for (int i = 1; i < members; i++) {
        curve other;
        TRY(curve_from_series(r->account, &report_row_run(r, row, i)->series[key], &other));
        add_common(out, &other);
        curve_free(&other);
    }
    for (int64_t i = 0; i < out->count && members > 1; i++) out->y[i] /= members;
    return OTT_OK;
}

int64_t curve_half_window(int64_t count) {
    return count < 60 ? 0 : count / 60 < 500 ? count / 60 : 500;
}

ott_status curve_smooth(curve *c, int64_t half) {
    double *mean;
    if (half < 1 || c->count < 3) return OTT_OK;
    TRY(mem_alloc_array(c->account, MEM_OTHER, c->count, sizeof(double), "a moving average", &mean));
    for (int64_t i = 0; i < c->count; i++) {
        int64_t reach = half < i ? half : i, last = i + reach < c->count ? i + reach : c->count - 1;
        double sum = 0;
        for (int64_t j = i - reach; j <= last; j++) sum += c->y[j];
        mean[i] = sum / (double)(last - i + reach + 1);
    }
    memcpy(c->y, mean, (size_t)c->count * sizeof *mean);
    mem_free(c->account, mean);
    return OTT_OK;
}

ott_status curve_gap(mem *account, const curve *run, const curve *reference, curve *out) {
    int64_t j = 0;
    TRY(curve_allocate(account, run->count, out));
    for (int64_t i = 0; i < run->count; i++) {
        while (j < reference->count && reference->x[j] < run->x[i]) j++;
        if (j == reference->count) break;
        if (reference->x[j] != run->x[i] || !(reference->y[j] > 0)) continue;
        out->x[out->count] = run->x[i];
        out->y[out->count++] = 100 * (run->y[i] / reference->y[j] - 1);
    }
    return OTT_OK;
}
