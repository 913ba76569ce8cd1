/* cpu/gemm/grouped: products of groups of rows, each with its matrix of a stack: one product after the other. */
#include "cpu/gemm/gemm.h"
#include "cpu/rows.h"
#include "tensor/route_check.h"

/* Rows [first, first + count) of t. */
static tensor rows_of(const tensor *t, int64_t first, int64_t count) {
    tensor part = *t;
    part.data = (char *)t->data + first * t->ld * dtype_bytes(t->dtype);
    part.rows = count;
    return part;
}

static ott_status check_ends(const char *op, const tensor *end, int64_t rows) {
    int64_t last = 0;
    for (int64_t e = 0; e < end->columns; e++) {
        int32_t here = ((const int32_t *)end->data)[e];
        if (here < last || here > rows)
            return status_fail(OTT_ERR_INTERNAL, "%s: group %lld ends at row %d, after %lld, of %lld", op,
                               (long long)e, here, (long long)last, (long long)rows);
        last = here;
    }
    return OTT_OK;
}

static const gemm_spec plain = {.accumulate = ACCUMULATE_FP32, .order = SCALE_A_THEN_B};

ott_status ISA(grouped_gemm)(exec *cx, const grouped_gemm_args *a) {
    const int32_t *end = a->end->data;
    int64_t each = a->transposed ? a->a->columns : a->c->columns, first = 0;
    TRY(route_check_product(a));
    TRY(check_ends("grouped_gemm", a->end, a->a->rows));
    for (int64_t e = 0; e < a->end->columns; first = end[e++]) {
        operand rows = {.t = rows_of(a->a, first, end[e] - first)};
        operand matrix = {.t = rows_of(a->b, e * each, each), .transposed = a->transposed};
        tensor c = rows_of(a->c, first, end[e] - first);
        if (c.rows > 0)
            TRY(ISA(gemm)(
                cx,
                &(gemm_args){.a = &rows, .b = &matrix, .c = &c, .accumulate = a->accumulate, .spec = plain}));
    }
    for (int64_t r = first; !a->accumulate && r < a->c->rows; r++)
        memset(row_of(a->c, r), 0, (size_t)(a->c->columns * dtype_bytes(a->c->dtype)));
    return OTT_OK;
}

ott_status ISA(grouped_gemm_weight)(exec *cx, const grouped_gemm_weight_args *a) {
    const int32_t *end = a->end->data;
    int64_t each = a->a->columns, experts = a->end->columns, first = 0;
    TRY(route_check_weight(a));
    TRY(check_ends("grouped_gemm_weight", a->end, a->a->rows));
    for (int64_t e = 0; e < experts; first = end[e++]) {
        int64_t count = end[e] - first;
        float factor = ((float)end[experts - 1] / (float)experts) / (float)count;
        operand x = {.t = rows_of(a->a, first, count), .transposed = true};
        operand y = {.t = rows_of(a->b, first, count), .transposed = true};
        tensor c = rows_of(a->c, e * each, each);
        if (a->balanced) x.scale_inv = &factor;
        if (count > 0)
            TRY(ISA(gemm)(cx, &(gemm_args){.a = &x, .b = &y, .c = &c, .accumulate = true, .spec = plain}));
    }
    return OTT_OK;
}
