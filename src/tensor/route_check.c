/* tensor/route_check: arguments of the ops of a mixture of experts. */
#include "tensor/route_check.h"

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
                       "route: %lld of %lld experts cannot be chosen in %d of %d groups (at most %d)",
                       (long long)choices, (long long)experts, r->chosen_groups, r->groups, ROUTE_GROUPS_MAX);
}

ott_status route_check_sort(const route_sort_args *a) {
    int64_t assignments = tensor_count(*a->expert);
    if (a->source->columns == assignments && assignments <= INT32_MAX) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE,
                       "route_sort: source has %lld elements, not expert's %lld (at most 2^31)",
                       (long long)a->source->columns, (long long)assignments);
}

ott_status route_check_bias(const balance_bias_args *a) {
    if (a->first >= 0 && a->first <= a->count->columns - a->bias->columns) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "balance_bias: %lld biases from expert %lld on, of %lld",
                       (long long)a->bias->columns, (long long)a->first, (long long)a->count->columns);
}

static ott_status check_stack(const char *op, const tensor *stack, int64_t matrices, int64_t rows,
                              int64_t columns) {
    if (stack->rows == matrices * rows && stack->columns == columns) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "%s: [%lld, %lld] is no stack of %lld matrices of [%lld, %lld]", op,
                       (long long)stack->rows, (long long)stack->columns, (long long)matrices,
                       (long long)rows, (long long)columns);
}

ott_status route_check_product(const grouped_gemm_args *a) {
    int64_t inner = a->a->columns, outer = a->c->columns;
    return check_stack("grouped_gemm", a->b, a->end->columns, a->transposed ? inner : outer,
                       a->transposed ? outer : inner);
}

ott_status route_check_weight(const grouped_gemm_weight_args *a) {
    return check_stack("grouped_gemm_weight", a->c, a->end->columns, a->a->columns, a->b->columns);
}
