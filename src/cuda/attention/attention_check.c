/* cuda/attention/attention_check: samples rows, each of a different head, and computes them on the host in
   double precision. Each result is a sum of terms. cuDNN rounds the terms' factors p and ds
   (tensor/rules/attention.h) to 16 bits. So results are compared by energies (sums of squares). The noise is
   the energy of the errors. The signal is the energy of the results plus the energy of their terms, because
   terms can cancel. Rounding errors are 50 dB below the signal. The errors of wrong results are about as
   large as the signal. */
#include "cuda/attention/attention_check.h"
#include "cuda/gemm/samples.h"
#include "fp8/cast.h"
#include <math.h>
#include <string.h>

enum { SAMPLES = 4, HEAD_MOST = 256, OUTPUTS = ATTENTION_GRAD_V + 1, LEAST_DB = 30 };
#define WEIGHT_LEAST_F16 0x1p-19 /* fp16 rounds smaller weights by as much as the allowed error */

/* ---- fetching ---- */

typedef struct workbench {
    exec *cx;
    const attention_call *call;
    ott_dtype dtype;
    int64_t tokens, documents, head_dim;
    int32_t *starts;         /* [documents + 1] first tokens, then the end */
    uint16_t *stored;        /* [tokens][head_dim] elements, as stored on the GPU */
    float *x, *y, *z;        /* [tokens][head_dim] rows of one head */
    float *lse;              /* [tokens] log-sum-exps of one head */
    float own[3][HEAD_MOST]; /* one token's rows of up to three tensors */
} workbench;

/* A range of rows: [begin, end). */
typedef struct span {
    int64_t begin, end;
} span;

static void place_arrays(workbench *w, float *memory) {
    int64_t size = w->tokens * w->head_dim;
    w->x = memory;
    w->y = w->x + size;
    w->z = w->y + size;
    w->lse = w->z + size;
    w->starts = (int32_t *)(void *)(w->lse + w->tokens);
    w->stored = (uint16_t *)(void *)(w->starts + w->documents + 1);
}

/* Fetches rows of one head and widens them to fp32. */
static ott_status fetch_rows(workbench *w, attention_name name, int64_t head, span rows, float *to) {
    const tensor *t = w->call->tensors[name];
    int64_t count = rows.end - rows.begin, step = t->ld * 2, width = w->head_dim * 2;
    const char *from = (const char *)t->data + rows.begin * step + head * width;
    TRY(samples_fetch(w->cx, w->stored, from, step, width, count));
    TRY(samples_finish(w->cx));
    for (int64_t i = 0; i < count * w->head_dim; i++) to[i] = cast_load(w->stored, w->dtype, i);
    return OTT_OK;
}

static ott_status fetch_lse(workbench *w, int64_t head, span rows) {
    const tensor *t = w->call->tensors[ATTENTION_LSE];
    int64_t width = (rows.end - rows.begin) * 4;
    const float *from = (const float *)t->data + head * t->ld + rows.begin;
    TRY(samples_fetch(w->cx, w->lse, from, width, width, 1));
    return samples_finish(w->cx);
}

/* ---- visible keys and queries ---- */

static span document_of(const workbench *w, int64_t token) {
    span d = {0, w->tokens};
    for (int64_t i = 0; i < w->documents; i++)
        if (w->starts[i] <= token) d = (span){w->starts[i], w->starts[i + 1]};
    return d;
}

static span keys_of(const workbench *w, int64_t token) {
    int64_t begin = document_of(w, token).begin, window = w->call->window;
    return (span){window > 0 && token - window + 1 > begin ? token - window + 1 : begin, token + 1};
}

static span queries_of(const workbench *w, int64_t token) {
    int64_t end = document_of(w, token).end, window = w->call->window;
    return (span){token, window > 0 && end - token > window ? token + window : end};
}

/* ---- sums ---- */

static double dot_products(const float *x, const float *y, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

/* The score of a query and a key. */
static double score_of(const workbench *w, const float *q, const float *k) {
    double s = (double)w->call->scale * dot_products(q, k, w->head_dim), cap = (double)w->call->softcap;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

/* A row of an output, computed on the host. value[c]: a sum of terms; energy[c]: the sum of their squares. */
typedef struct row_sum {
    double value[HEAD_MOST], energy[HEAD_MOST];
} row_sum;

static void add_weighted_row(row_sum *sum, const workbench *w, double weight, const float *row) {
    double least = w->dtype == OTT_F16 ? WEIGHT_LEAST_F16 : 0, size = fmax(fabs(weight), least);
    for (int64_t c = 0; c < w->head_dim; c++) {
        double x = (double)row[c];
        sum->value[c] += weight * x;
        sum->energy[c] += size * x * size * x;
    }
}

typedef struct energy {
    double signal, noise;
    bool overflows;
} energy;

/* Adds the energy of an output element to the signal, and the energy of its error beyond one ulp to the
   noise. In fp16 a gradient may overflow: then the function sets `overflows` and adds nothing. */
static void add_error(energy *e, ott_dtype format, double expected, double terms, float got) {
    uint16_t stored;
    cast_store(&stored, format, 0, (float)expected);
    float rounded = cast_load(&stored, format, 0);
    if (!isfinite(rounded) || !isfinite(got)) {
        bool conclusive = format != OTT_F16 && (isfinite(rounded) || isfinite(got));
        e->overflows = e->overflows || !conclusive;
        if (conclusive) e->noise = INFINITY;
        return;
    }
    double error = fabs((double)got - (double)rounded);
    error -= format == OTT_F16 ? fmax(fabs(expected) / 1024, 0x1p-24) : fabs(expected) / 128;
    e->signal += expected * expected + terms;
    e->noise += error > 0 ? error * error : 0;
}

/* Compares row `row` of one head of an output with `sum`. */
static ott_status compare_row(workbench *w, energy errors[OUTPUTS], attention_name name, int64_t head,
                              int64_t row, const row_sum *sum) {
    float got[HEAD_MOST];
    TRY(fetch_rows(w, name, head, (span){row, row + 1}, got));
    for (int64_t c = 0; c < w->head_dim; c++)
        add_error(&errors[name], w->dtype, sum->value[c], sum->energy[c], got[c]);
    return OTT_OK;
}

/* Compares lse's absolute error with 1, because it is the relative error of the row's softmax weights. */
static ott_status compare_lse(workbench *w, energy *e, int64_t head, int64_t row, double expected) {
    TRY(fetch_lse(w, head, (span){row, row + 1}));
    double error = (double)w->lse[0] - expected;
    e->signal += 1;
    e->noise += isnan(error) && isnan(expected) ? 0 : isnan(error) ? INFINITY : error * error;
    return OTT_OK;
}

/* ---- forward ---- */

static ott_status check_output(workbench *w, energy errors[OUTPUTS], int64_t head, int64_t kv_head,
                               int64_t row) {
    span keys = keys_of(w, row);
    int64_t count = keys.end - keys.begin, n = w->head_dim;
    row_sum o = {0};
    double most = -INFINITY, sum = 0;
    TRY(fetch_rows(w, ATTENTION_Q, head, (span){row, row + 1}, w->own[0]));
    TRY(fetch_rows(w, ATTENTION_K, kv_head, keys, w->x));
    TRY(fetch_rows(w, ATTENTION_V, kv_head, keys, w->y));
    for (int64_t j = 0; j < count; j++) most = fmax(most, score_of(w, w->own[0], w->x + j * n));
    for (int64_t j = 0; j < count; j++) {
        double p = exp(score_of(w, w->own[0], w->x + j * n) - most);
        sum += p;
        add_weighted_row(&o, w, p, w->y + j * n);
    }
    for (int64_t c = 0; c < n; c++) o.value[c] /= sum, o.energy[c] /= sum * sum;
    TRY(compare_row(w, errors, ATTENTION_O, head, row, &o));
    return compare_lse(w, &errors[ATTENTION_LSE], head, row, most + log(sum));
}

/* ---- backward ---- */

/* p and ds (tensor/rules/attention.h) of one query and key. */
typedef struct slope {
    double p, ds;
} slope;

static slope slope_of(const workbench *w, const float *q, const float *k, const float *v, const float *dout,
                      const float *o, float lse) {
    int64_t n = w->head_dim;
    double s = score_of(w, q, k), p = exp(s - (double)lse), scale = (double)w->call->scale;
    if (w->call->softcap > 0) scale *= 1 - pow(s / (double)w->call->softcap, 2);
    return (slope){p, p * (dot_products(dout, v, n) - dot_products(dout, o, n)) * scale};
}

static ott_status check_query(workbench *w, energy errors[OUTPUTS], int64_t head, int64_t kv_head,
                              int64_t row) {
    static const attention_name own[] = {ATTENTION_Q, ATTENTION_GRAD_O, ATTENTION_O};
    span keys = keys_of(w, row), here = {row, row + 1};
    int64_t n = w->head_dim;
    row_sum dq = {0};
    for (int i = 0; i < 3; i++) TRY(fetch_rows(w, own[i], head, here, w->own[i]));
    TRY(fetch_lse(w, head, here));
    TRY(fetch_rows(w, ATTENTION_K, kv_head, keys, w->x));
    TRY(fetch_rows(w, ATTENTION_V, kv_head, keys, w->y));
    for (int64_t j = 0; j < keys.end - keys.begin; j++) {
        const float *k = w->x + j * n;
        slope s = slope_of(w, w->own[0], k, w->y + j * n, w->own[1], w->own[2], w->lse[0]);
        add_weighted_row(&dq, w, s.ds, k);
    }
    return compare_row(w, errors, ATTENTION_GRAD_Q, head, row, &dq);
}

static ott_status check_key_gradient(workbench *w, energy errors[OUTPUTS], int64_t kv_head, int64_t sharing,
                                     int64_t row) {
    span queries = queries_of(w, row), here = {row, row + 1};
    int64_t n = w->head_dim;
    row_sum dk = {0}, dv = {0};
    TRY(fetch_rows(w, ATTENTION_K, kv_head, here, w->own[0]));
    TRY(fetch_rows(w, ATTENTION_V, kv_head, here, w->own[1]));
    for (int64_t head = kv_head * sharing; head < (kv_head + 1) * sharing; head++) {
        TRY(fetch_rows(w, ATTENTION_Q, head, queries, w->x));
        TRY(fetch_rows(w, ATTENTION_GRAD_O, head, queries, w->y));
        TRY(fetch_rows(w, ATTENTION_O, head, queries, w->z));
        TRY(fetch_lse(w, head, queries));
        for (int64_t i = 0; i < queries.end - queries.begin; i++) {
            const float *q = w->x + i * n, *dout = w->y + i * n;
            slope s = slope_of(w, q, w->own[0], w->own[1], dout, w->z + i * n, w->lse[i]);
            add_weighted_row(&dk, w, s.ds, q);
            add_weighted_row(&dv, w, s.p, dout);
        }
    }
    TRY(compare_row(w, errors, ATTENTION_GRAD_K, kv_head, row, &dk));
    return compare_row(w, errors, ATTENTION_GRAD_V, kv_head, row, &dv);
}

/* ---- result ---- */

static ott_status fail_attention(const workbench *w, const char *by, const char *output, double decibels) {
    const attention_call *call = w->call;
    int64_t heads = call->tensors[ATTENTION_LSE]->rows;
    return status_fail(
        OTT_ERR_DEVICE,
        "%s's attention %s of %lld tokens in %lld documents (%s, %lld heads of %lld elements, "
        "%lld key heads, window %lld) is wrong on this GPU: %s has a signal-to-noise ratio of %.1f dB, at "
        "least %d required; "
        "OTTAVA_CUDA_ATTENTION=own computes attention by Ottava's slow kernels",
        by, call->backward ? "backward" : "forward", (long long)w->tokens, (long long)w->documents,
        dtype_name(w->dtype), (long long)heads, (long long)w->head_dim,
        (long long)(call->tensors[ATTENTION_K]->columns / w->head_dim), (long long)call->window, output,
        decibels, LEAST_DB);
}

static ott_status check_errors(const workbench *w, const char *by, const energy errors[OUTPUTS],
                               bool *conclusive) {
    static const char *const names[OUTPUTS] = {[ATTENTION_O] = "the output",
                                               [ATTENTION_LSE] = "the log-sum-exp",
                                               [ATTENTION_GRAD_Q] = "grad_q",
                                               [ATTENTION_GRAD_K] = "grad_k",
                                               [ATTENTION_GRAD_V] = "grad_v"};
    *conclusive = true;
    for (int i = 0; i < OUTPUTS; i++) {
        bool is_output = names[i] && (i >= ATTENTION_GRAD_Q) == w->call->backward;
        if (!is_output) continue;
        double decibels = 10 * log10(errors[i].signal / errors[i].noise); /* NaN if both energies are 0 */
        if (decibels < LEAST_DB) return fail_attention(w, by, names[i], decibels);
        *conclusive = *conclusive && errors[i].signal > 0 && !errors[i].overflows;
    }
    return OTT_OK;
}

static ott_status check_in_memory(workbench *w, const char *by, bool *conclusive) {
    energy errors[OUTPUTS] = {0};
    const attention_call *call = w->call;
    int64_t heads = call->tensors[ATTENTION_LSE]->rows,
            kv_heads = call->tensors[ATTENTION_K]->columns / w->head_dim, sharing = heads / kv_heads;
    TRY(samples_fetch(w->cx, w->starts, call->cu_seqlens->data, 0, (w->documents + 1) * 4, 1));
    TRY(samples_finish(w->cx));
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t row = samples_at(w->tokens, SAMPLES, i);
        int64_t head = (i * heads / SAMPLES + i) % heads, kv_head = (i * kv_heads / SAMPLES + i) % kv_heads;
        if (call->backward) {
            TRY(check_query(w, errors, head, head / sharing, row));
            TRY(check_key_gradient(w, errors, kv_head, sharing, row));
        } else
            TRY(check_output(w, errors, head, head / sharing, row));
    }
    return check_errors(w, by, errors, conclusive);
}

ott_status attention_check(exec *cx, const attention_call *call, const char *by, bool *conclusive) {
    const tensor *q = call->tensors[ATTENTION_Q];
    workbench w = {.cx = cx,
                   .call = call,
                   .dtype = q->dtype,
                   .tokens = q->rows,
                   .documents = call->cu_seqlens->columns - 1,
                   .head_dim = call->head_dim};
    mem *account = cuda_device_of(cx->device)->base.account;
    void *memory;
    TRY(mem_alloc(account, MEM_OTHER,
                  w.tokens * w.head_dim * (3 * 4 + 2) + w.tokens * 4 + (w.documents + 1) * 4,
                  "samples of attention", &memory));
    place_arrays(&w, memory);
    ott_status status = check_in_memory(&w, by, conclusive);
    mem_free(account, memory);
    return status;
}
