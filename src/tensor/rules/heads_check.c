/* tensor/rules/heads_check: argument checks of ops on heads. */
#include "tensor/rules/heads_check.h"

ott_status heads_check_rope(const rope_args *a) {
    int64_t turn = 2 * a->cosine->columns;
    if (a->head_dim > 0 && a->x->columns % a->head_dim == 0 && a->first >= 0 &&
        turn <= a->head_dim - a->first)
        return OTT_OK;
    return status_fail(OTT_ERR_SHAPE,
                       "rope: head_dim %lld, %lld columns of x, %lld of cosine and sine, and first column "
                       "%lld do not fit together",
                       (long long)a->head_dim, (long long)a->x->columns, (long long)a->cosine->columns,
                       (long long)a->first);
}

ott_status heads_check_join(const join_heads_args *a) {
    int64_t heads = a->heads, x = a->x->columns, y = a->y->columns, tail = a->tail ? a->tail->columns : 0;
    bool fits = heads > 0 && x % heads == 0 && y % heads == 0;
    if (tail > 0) fits = fits && (a->tail_heads == 1 || (a->tail_heads == heads && tail % heads == 0));
    if (fits && a->first >= 0 && a->count >= 0 && a->count <= x / heads - a->first && a->count <= y / heads)
        return OTT_OK;
    return status_fail(
        OTT_ERR_SHAPE,
        "join_heads: count %lld, first %lld and heads %lld do not fit: x has %lld columns, tail %lld "
        "in %lld heads, y %lld",
        (long long)a->count, (long long)a->first, (long long)heads, (long long)x, (long long)tail,
        (long long)a->tail_heads, (long long)y);
}

ott_status heads_check_sum(const sum_heads_args *a) {
    int64_t heads = a->heads, x = a->x->columns, y = a->y->columns;
    if (heads > 0 && x % heads == 0 && a->first >= 0 && y <= x / heads - a->first) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE,
                       "sum_heads: cannot take %lld columns from %lld on of %lld heads: x has %lld",
                       (long long)y, (long long)a->first, (long long)heads, (long long)x);
}
