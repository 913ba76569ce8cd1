/* data/dataset_mixture: mixes rows of several datasets, its parts. A table of SLOTS entries names the part
   from which each row of the mixture comes; after SLOTS rows it repeats. Each part has its share of the
   entries, spread as evenly as possible. So a row's number also determines how many earlier rows came from
   its part. Each phase of a run, which is a range of row numbers, has its own table. */
#include "data/dataset_internal.h"
#include <inttypes.h>
#include <math.h>

#define SLOTS     65536
#define MAX_PARTS 256

typedef struct slot {
    uint16_t part;
    uint16_t rank; /* number of earlier slots of this part */
} slot;

/* The table of a phase. */
typedef struct shares {
    int64_t first;             /* first row number of the phase */
    int64_t before[MAX_PARTS]; /* rows that each part had in earlier phases */
    int64_t share[MAX_PARTS];  /* slots of each part; their sum is SLOTS */
    slot slots[SLOTS];
    struct shares *earlier; /* previous phase; NULL: none */
} shares;

typedef struct mixture {
    dataset *part[MAX_PARTS];
    int64_t count;
    shares *last; /* last phase, linked to earlier ones */
} mixture;

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

/* Computes how many of the SLOTS entries each part gets. The largest part absorbs the rounding error. */
static void share_slots(shares *s, int64_t count, const double *weights, double temperature) {
    double unnormalized[MAX_PARTS], most = 0, total = 0;
    int64_t taken = 0, largest = 0;
    for (int64_t i = 0; i < count; i++)
        if (weights[i] > most) most = weights[i];
    for (int64_t i = 0; i < count; i++) total += unnormalized[i] = pow(weights[i] / most, 1 / temperature);
    for (int64_t i = 0; i < count; i++) {
        s->share[i] = llround(unnormalized[i] / total * SLOTS);
        if (s->share[i] < 1 && weights[i] > 0) s->share[i] = 1;
        if (s->share[i] > s->share[largest]) largest = i;
        taken += s->share[i];
    }
    s->share[largest] += SLOTS - taken;
}

/* Fills the table of SLOTS entries: each goes to the part with the fewest so far, relative to its share. */
static void fill_phase_slots(shares *s, int64_t count) {
    int64_t credit[MAX_PARTS] = {0}, given[MAX_PARTS] = {0};
    for (int64_t k = 0; k < SLOTS; k++) {
        int64_t next = 0;
        for (int64_t i = 0; i < count; i++) {
            credit[i] += s->share[i];
            if (credit[i] > credit[next]) next = i;
        }
        credit[next] -= SLOTS;
        s->slots[k] = (slot){.part = (uint16_t)next, .rank = (uint16_t)given[next]++};
    }
}

static ott_status add_shares(dataset *d, int64_t first, const double *weights, double temperature) {
    mixture *m = d->state;
    shares *s;
    TRY(mem_alloc(d->account, MEM_DATA, sizeof(shares), "the shares of a mixture", &s));
    s->first = first;
    s->earlier = m->last;
    if (s->earlier) { /* counts the rows of each part before row s->first, where this phase begins */
        const shares *e = s->earlier;
        int64_t rows = s->first - e->first;
        for (int64_t i = 0; i < m->count; i++) s->before[i] = e->before[i] + rows / SLOTS * e->share[i];
        for (int64_t k = 0; k < rows % SLOTS; k++) s->before[e->slots[k].part]++;
    }
    share_slots(s, m->count, weights, temperature);
    fill_phase_slots(s, m->count);
    m->last = s;
    return OTT_OK;
}

ott_status dataset_mixture_phase(dataset *d, int64_t first, const double *weights, double temperature) {
    mixture *m = d->state;
    double most = 0;
    STATUS_REQUIRE(first >= m->last->first);
    for (int64_t i = 0; i < m->count; i++)
        if (weights[i] > most) most = weights[i];
    if (!(most > 0))
        return status_fail(OTT_ERR_CONFIG,
                           "data.phases: no dataset has a weight above 0 from row %" PRId64 " on", first);
    return add_shares(d, first, weights, temperature);
}

/* Returns the dataset that has row `number` of the mixture. *in_part: number of the row in that dataset. */
static const dataset *find_mixture_part(const dataset *d, int64_t number, int64_t *in_part) {
    const mixture *m = d->state;
    const shares *p = m->last;
    while (number < p->first) p = p->earlier;
    int64_t own = number - p->first;
    const slot *s = &p->slots[own % SLOTS];
    *in_part = p->before[s->part] + own / SLOTS * p->share[s->part] + s->rank;
    return m->part[s->part];
}

static ott_status draw_row(const dataset *d, uint64_t seed, int64_t number, dataset_row *row) {
    const dataset *part = find_mixture_part(d, number, &number);
    return dataset_load_row(part, seed, number, row);
}

static ott_status read_mixture_row(const dataset *d, int64_t index, dataset_row *row) {
    const dataset *part = find_mixture_part(d, index, &index);
    return dataset_read_row(part, index % part->rows, row);
}

static ott_status make_part_rows(dataset *d) {
    const mixture *m = d->state;
    d->rows = d->samples = d->left_out = 0;
    for (int64_t i = 0; i < m->count; i++) TRY(dataset_make_rows(m->part[i], &d->row_options));
    for (int64_t i = 0; i < m->count; i++) {
        d->rows += m->part[i]->rows;
        d->samples += m->part[i]->samples;
        d->left_out += m->part[i]->left_out;
    }
    return OTT_OK;
}

static void close_parts(dataset *d) {
    mixture *m = d->state;
    for (int64_t i = 0; m && i < m->count; i++) dataset_close(m->part[i]);
    while (m && m->last) {
        shares *s = m->last;
        m->last = s->earlier;
        mem_free(d->account, s);
    }
}

static ott_status open_parts(mem *account, dataset **parts, int64_t count, dataset **out) {
    static const token_source no_tokens = {NULL, close_parts};
    static const row_source rows = {make_part_rows, read_mixture_row, draw_row};
    TRY(dataset_new(account, &no_tokens, &rows, out));
    dataset *d = *out;
    TRY(mem_alloc(account, MEM_DATA, sizeof(mixture), "a mixture of datasets", &d->state));
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
    if (status == OTT_OK) status = open_parts(account, parts, count, out);
    if (status == OTT_OK) {
        ((mixture *)(*out)->state)->count = count; /* from here on, dataset_close closes the parts */
        status = add_shares(*out, 0, weights, temperature);
    } else
        for (int64_t i = 0; i < count; i++) dataset_close(parts[i]);
    if (status != OTT_OK) dataset_close(*out), *out = NULL;
    return status;
}
