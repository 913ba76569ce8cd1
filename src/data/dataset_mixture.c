/*
 * data/dataset_mixture: rows of several datasets. Which part a row comes from is a table of SLOTS rows that
 * repeats: each part has its share of the slots, spread as evenly as whole slots allow. So the number of a
 * row also tells how many rows of its part came before.
 */
#include "data/dataset_internal.h"
#include <inttypes.h>
#include <math.h>

#define SLOTS     65536
#define MAX_PARTS 256

typedef struct slot {
    uint16_t part;
    uint16_t rank; /* how many slots of that part come before */
} slot;

typedef struct mixture {
    dataset *part[MAX_PARTS];
    int64_t share[MAX_PARTS]; /* slots; their sum is SLOTS */
    int64_t count;
    slot slots[SLOTS];
} mixture;

/* ---- the table ---- */

static ott_status check_weights(dataset **parts, const double *weights, int64_t count, double temperature) {
    if (count < 1 || count > MAX_PARTS)
        return status_fail(OTT_ERR_CONFIG, "data.datasets: %" PRId64 " datasets; 1 to %d can be mixed", count,
                           MAX_PARTS);
    for (int64_t i = 0; i < count; i++)
        if (!(weights[i] > 0) || !isfinite(weights[i]))
            return status_fail(OTT_ERR_CONFIG, "data.datasets: %s: a weight of %g is not above 0",
                               parts[i]->name, weights[i]);
    if (temperature > 0 && isfinite(temperature)) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "data.mix_temperature = %g is not above 0", temperature);
}

static int64_t largest(const mixture *m) {
    int64_t at = 0;
    for (int64_t i = 1; i < m->count; i++)
        if (m->share[i] > m->share[at]) at = i;
    return at;
}

/* Each part's share of the slots, rounded; the largest takes what rounding leaves. */
static void share_slots(mixture *m, const double *weights, double temperature) {
    double powers[MAX_PARTS], most = 0, total = 0;
    int64_t taken = 0;
    for (int64_t i = 0; i < m->count; i++)
        if (weights[i] > most) most = weights[i];
    for (int64_t i = 0; i < m->count; i++) total += powers[i] = pow(weights[i] / most, 1 / temperature);
    for (int64_t i = 0; i < m->count; i++) {
        m->share[i] = llround(powers[i] / total * SLOTS);
        if (m->share[i] < 1) m->share[i] = 1;
        taken += m->share[i];
    }
    m->share[largest(m)] += SLOTS - taken;
}

/* Each slot goes to the part that is furthest behind its share. */
static void fill_slots(mixture *m) {
    int64_t credit[MAX_PARTS] = {0}, given[MAX_PARTS] = {0};
    for (int64_t s = 0; s < SLOTS; s++) {
        int64_t next = 0;
        for (int64_t i = 0; i < m->count; i++) {
            credit[i] += m->share[i];
            if (credit[i] > credit[next]) next = i;
        }
        credit[next] -= SLOTS;
        m->slots[s] = (slot){.part = (uint16_t)next, .rank = (uint16_t)given[next]++};
    }
}

/* ---- rows ---- */

/* The part of row `number`, and that row's number in the part. */
static const dataset *find_part(const dataset *d, int64_t number, int64_t *in_part) {
    const mixture *m = d->state;
    const slot *s = &m->slots[number % SLOTS];
    *in_part = number / SLOTS * m->share[s->part] + s->rank;
    return m->part[s->part];
}

static ott_status draw_row(const dataset *d, uint64_t seed, int64_t number, dataset_row *row) {
    const dataset *part = find_part(d, number, &number);
    return dataset_load_row(part, seed, number, row);
}

static ott_status read_row(const dataset *d, int64_t index, dataset_row *row) {
    const dataset *part = find_part(d, index, &index);
    return dataset_read_row(part, index % part->rows, row);
}

static ott_status cut_parts(dataset *d) {
    const mixture *m = d->state;
    d->rows = d->samples = d->left_out = 0;
    for (int64_t i = 0; i < m->count; i++) TRY(dataset_cut_rows(m->part[i], &d->cut));
    for (int64_t i = 0; i < m->count; i++) {
        d->rows += m->part[i]->rows;
        d->samples += m->part[i]->samples;
        d->left_out += m->part[i]->left_out;
    }
    return OTT_OK;
}

static void close_parts(dataset *d) {
    const mixture *m = d->state;
    for (int64_t i = 0; m && i < m->count; i++) dataset_close(m->part[i]);
}

/* ---- opening ---- */

static ott_status open_mixture(mem *account, dataset **parts, int64_t count, dataset **out) {
    static const token_source no_tokens = {NULL, close_parts};
    static const row_source rows = {cut_parts, read_row, draw_row};
    void *memory;
    TRY(dataset_new(account, &no_tokens, &rows, out));
    dataset *d = *out;
    TRY(mem_alloc(account, MEM_DATA, sizeof(mixture), "a mixture of datasets", &memory));
    d->state = memory;
    TRY(mem_strdup(account, "the mixture of data.datasets", &d->name));
    for (int64_t i = 0; i < count; i++) {
        ((mixture *)d->state)->part[i] = parts[i];
        d->tokens += parts[i]->tokens;
        d->has_samples |= parts[i]->has_samples;
        if (parts[i]->longest > d->longest) d->longest = parts[i]->longest;
        if (parts[i]->vocab > d->vocab) d->vocab = parts[i]->vocab;
    }
    return OTT_OK;
}

ott_status dataset_open_mixture(mem *account, dataset **parts, const double *weights, int64_t count,
                                double temperature, dataset **out) {
    *out = NULL;
    ott_status status = check_weights(parts, weights, count, temperature);
    if (status == OTT_OK) status = open_mixture(account, parts, count, out);
    if (status != OTT_OK) {
        dataset_close(*out);
        *out = NULL;
        for (int64_t i = 0; i < count; i++) dataset_close(parts[i]);
        return status;
    }
    mixture *m = (*out)->state;
    m->count = count; /* from here on they are closed with it */
    share_slots(m, weights, temperature);
    fill_slots(m);
    return OTT_OK;
}
