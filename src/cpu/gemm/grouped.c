/* cpu/gemm/grouped: grouped GEMMs, computed one after the other as plain GEMMs. */
#include "cpu/gemm/gemm.h"
#include "cpu/rows.h"
#include "tensor/rules/route_check.h"

static ott_status multiply(exec *cx, const operand *a, const operand *b, const tensor *c, bool accumulate,
                           const gemm_spec *spec, float factor) {
    const gemm_args args = {.a = a, .b = b, .c = c, .accumulate = accumulate, .spec = *spec};
    return ISA(gemm_times)(cx, &args, factor);
}

ott_status ISA(grouped_gemm)(exec *cx, const grouped_gemm_args *a) {
    const int32_t *end = a->end->data;
    bool deep = route_experts_along_k(a);
    int64_t each = deep ? operand_k(a->a) : a->c->columns, first = 0;
    TRY(route_check_product(a));
    TRY(row_check_ends("grouped_gemm", a->end, a->c->rows));
    for (int64_t e = 0; e < a->end->columns; first = end[e++]) {
        int64_t count = end[e] - first;
        operand rows = operand_group(a->a, false, e, first, count);
        operand matrix = operand_group(a->b, deep, e, e * each, each);
        tensor c = tensor_rows(*a->c, first, count);
        if (count > 0) TRY(multiply(cx, &rows, &matrix, &c, a->accumulate, &a->spec, 1.0f));
    }
    for (int64_t r = first; !a->accumulate && r < a->c->rows; r++)
        memset(row_of(a->c, r), 0, (size_t)(a->c->columns * dtype_bytes(a->c->dtype)));
    return OTT_OK;
}

static float factor_of(const grouped_gemm_weight_args *a, int64_t e) {
    const tensor *all = a->all;
    return all ? route_balance_factor(all->data, all->ld, all->rows, all->columns, a->first + e) : 1.0f;
}

ott_status ISA(grouped_gemm_weight)(exec *cx, const grouped_gemm_weight_args *a) {
    const int32_t *end = a->end->data;
    int64_t each = operand_mn(a->a), first = 0;
    TRY(route_check_weight(a));
    TRY(row_check_ends("grouped_gemm_weight", a->end, operand_k(a->a)));
    for (int64_t e = 0; e < a->end->columns; first = end[e++]) {
        int64_t count = end[e] - first;
        operand x = operand_group(a->a, true, e, first, count),
                y = operand_group(a->b, true, e, first, count);
        tensor c = tensor_rows(*a->c, e * each, each);
        if (count > 0) TRY(multiply(cx, &x, &y, &c, true, &a->spec, factor_of(a, e)));
    }
    return OTT_OK;
}
