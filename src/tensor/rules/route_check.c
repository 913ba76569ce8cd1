/* tensor/rules/route_check: argument checks of mixture-of-experts ops. */
#include "tensor/rules/route_check.h"

ott_status route_check_choice(const route_args *a) {
    const route_rule *r = &a->rule;
    int64_t experts = a->logits->columns, choices = a->expert->columns, open = experts;
    bool fits = r->groups >= 0 && r->groups <= ROUTE_GROUPS_MAX;
    if (fits && r->groups > 0) {
        fits = experts % r->groups == 0 && r->chosen_groups > 0 && r->chosen_groups <= r->groups;
        open = experts / r->groups * r->chosen_groups;
    }
    if (fits && choices <= open) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT,
                       "route: cannot choose %lld of %lld experts from %d of %d groups (at most %d)",
                       (long long)choices, (long long)experts, r->chosen_groups, r->groups, ROUTE_GROUPS_MAX);
}

ott_status route_check_sort(const route_sort_args *a) {
    int64_t assignments = tensor_count(*a->row), tokens = a->row->rows;
    if (a->first < 0 || a->first > a->expert->rows - tokens)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "route_sort: row has %lld tokens from token %lld on, but there are only %lld tokens",
            (long long)tokens, (long long)a->first, (long long)a->expert->rows);
    if (a->source->columns == assignments && assignments <= INT32_MAX) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "route_sort: source has %lld elements, but row has %lld (at most 2^31)",
                       (long long)a->source->columns, (long long)assignments);
}

ott_status route_check_bias(const balance_bias_args *a) {
    if (a->first >= 0 && a->first <= a->count->columns - a->bias->columns) return OTT_OK;
    return status_fail(
        OTT_ERR_ARGUMENT,
        "balance_bias: bias has %lld experts from expert %lld on, but there are only %lld experts",
        (long long)a->bias->columns, (long long)a->first, (long long)a->count->columns);
}

static ott_status check_scales(const cast_spec *s) {
    if (!cast_spec_is_fp8(s) || s->policy == AMAX_CURRENT) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "grouped_quantize: groups cannot have delayed scaling, because their numbers of rows change");
}

ott_status route_check_quantize(const grouped_quantize_args *a) {
    int64_t groups = a->q->groups;
    TRY(check_scales(&a->q->spec.rowwise));
    TRY(check_scales(&a->q->spec.columnwise));
    if (groups > 0 && (a->end ? a->end->columns == groups : a->q->rows % groups == 0)) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "grouped_quantize: %lld rows %s cannot be split into %lld groups",
                       (long long)a->q->rows, a->end ? "with these ends" : "without ends", (long long)groups);
}

bool route_experts_along_k(const grouped_gemm_args *a) {
    return operand_k(a->b) != operand_k(a->a);
}

ott_status route_check_product(const grouped_gemm_args *a) {
    int64_t groups = a->end->columns, n = a->c->columns, k = operand_k(a->a);
    bool deep = route_experts_along_k(a);
    if (!a->b->packed && operand_mn(a->b) == (deep ? n : groups * n) &&
        operand_k(a->b) == (deep ? groups * k : k))
        return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "grouped_gemm: b is %lld x %lld%s, not %lld matrices of %lld x %lld",
                       (long long)operand_mn(a->b), (long long)operand_k(a->b),
                       a->b->packed ? ", packed," : "", (long long)groups, (long long)n, (long long)k);
}

ott_status route_check_weight(const grouped_gemm_weight_args *a) {
    int64_t groups = a->end->columns, m = operand_mn(a->a);
    if (a->all && (a->first < 0 || a->first > a->all->columns - groups))
        return status_fail(
            OTT_ERR_ARGUMENT,
            "grouped_gemm_weight: end has %lld groups from group %lld on, but there are only %lld groups",
            (long long)groups, (long long)a->first, (long long)a->all->columns);
    if (a->c->rows == groups * m && !a->b->packed) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE,
                       "grouped_gemm_weight: c has %lld rows, not %lld matrices of %lld rows, or b is packed",
                       (long long)a->c->rows, (long long)groups, (long long)m);
}
