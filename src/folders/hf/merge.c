/* folders/hf/merge: copies an adapter to the host and computes the product of its matrices. */
#include "folders/hf/merge.h"
#include "fp8/cast.h"
#include "model/adapters.h"

static ott_status read_factor(device *d, const parameter *p, float *out) {
    const tensor *t = &p->shard.value;
    STATUS_REQUIRE(tensor_count(*t) == parameter_count(p));
    TRY(device_copy_out(d, out, t->data, tensor_bytes(*t)));
    cast_in_place(out, t->dtype, OTT_F32, tensor_count(*t));
    return OTT_OK;
}

/* DoRA: factor = m / |W + scale B A| for each row. norms[rows] is scratch. */
static ott_status read_factors_of_rows(device *d, const model_module *e, float *factor, float *norms) {
    TRY(read_factor(d, e->lora_m, factor));
    exec cx = {.device = d};
    TRY(plan_create(d, &cx.plan));
    plan_immediate(cx.plan);
    ott_status status = adapters_norms(&cx, e->linear, norms);
    plan_destroy(cx.plan);
    TRY(status);
    for (int64_t i = 0; i < e->linear->out; i++) factor[i] /= norms[i];
    return OTT_OK;
}

ott_status hf_merge_open(device *d, const model_module *e, hf_merge *out) {
    const parameter *a = e->lora_a, *b = e->lora_b;
    *out = (hf_merge){.account = d->account};
    STATUS_REQUIRE(e->linear);
    int64_t inputs = parameter_count(a), outputs = parameter_count(b), rows = e->lora_m ? 2 * b->rows : 0;
    TRY(mem_alloc_array(out->account, MEM_OTHER, inputs + outputs + rows, sizeof(float), "an adapter",
                        &out->a));
    out->b = out->a + inputs;
    out->rank = a->rows;
    out->columns = a->columns;
    TRY(read_factor(d, a, out->a));
    TRY(read_factor(d, b, out->b));
    for (int64_t i = 0; i < outputs; i++) out->b[i] *= e->linear->lora->scale;
    if (!e->lora_m) return OTT_OK;
    out->factor = out->b + outputs;
    return read_factors_of_rows(d, e, out->factor, out->factor + b->rows);
}

void hf_merge_close(hf_merge *m) {
    mem_free(m->account, m->a);
    *m = (hf_merge){0};
}

/* Sets columns [column, column + count) of a row to factor * (W + scale B A); factor is 1 without DoRA. */
static void add_adapter_row(const hf_merge *m, int64_t row, int64_t column, int64_t count, float *values) {
    enum { STRIP = 256 };
    const float *b = m->b + row * m->rank, factor = m->factor ? m->factor[row] : 1.0f;
    for (int64_t at = 0; at < count; at += STRIP) {
        int64_t strip = count - at < STRIP ? count - at : STRIP;
        float sum[STRIP] = {0};
        for (int64_t k = 0; k < m->rank; k++) {
            const float *a = m->a + k * m->columns + column + at;
            for (int64_t i = 0; i < strip; i++) sum[i] += b[k] * a[i];
        }
        for (int64_t i = 0; i < strip; i++) values[at + i] = (values[at + i] + sum[i]) * factor;
    }
}

void hf_merge_add(const hf_merge *m, int64_t first, int64_t count, float *values) {
    for (int64_t done = 0, some; m->a && done < count; done += some) {
        int64_t row = (first + done) / m->columns, column = (first + done) % m->columns;
        some = m->columns - column < count - done ? m->columns - column : count - done;
        add_adapter_row(m, row, column, some, values + done);
    }
}
