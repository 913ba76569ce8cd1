/*
 * tensor/rules/attention: the exact order of operations of attention on the CPU, for every instruction set. i
 * is a query row, j a key row, d a column of a head. tensor/ops.def defines CHAIN and SUM16.
 *
 * Keys are visited in ascending tiles of ATTENTION_TILE, counted from the start of the document. Tiles
 * without a visible key are skipped. All values are fp32 after loading; exp and log are of base/fmath.
 *
 * forward, for one query row, m = -inf, l = 0, o[d] = 0:
 *   for each tile:  s[j]  = softmax_scale * CHAIN_d fmaf(q[d], k[j,d], s) for visible j, else -inf
 *                   with softcap > 0, s[j] = softcap * tanh(s[j] / softcap)     (tanh as in softcap_forward)
 *                   n     = max(m, max_j s[j])
 *                   f     = exp(m - n)                      (0 for the first tile)
 *                   p[j]  = exp(s[j] - n)                   (0 for a hidden j)
 *                   l     = l * f + SUM16_j p[j]            (one multiply, one add; SUM16 over the tile)
 *                   o[d]  = o[d] * f, then o[d] = fmaf(p[j], v[j,d], o[d]) for visible j ascending
 *                   m     = n
 *   o[d] = o[d] * (1 / l); lse = m + log(l)
 *
 * backward, delta[i] = SUM16_d fmaf(dout[i,d], o[i,d], lane) (o as stored). For each key head, its query
 * heads in ascending order, each query row i ascending, each tile ascending, each visible j ascending:
 *   s     = softmax_scale * CHAIN_d fmaf(q[i,d], k[j,d], s), capped as forward
 *   p     = exp(s - lse[i])
 *   dp    = CHAIN_d fmaf(dout[i,d], v[j,d], s)
 *   ds    = p * (dp - delta[i]) * softmax_scale                            if softcap = 0, else
 *   ds    = p * (dp - delta[i]) * fmaf(-r, r, 1) * softmax_scale, r = s / softcap   (left to right)
 *   dv_sum[j,d] = fmaf(p, dout[i,d], dv_sum[j,d]);  dk_sum[j,d] = fmaf(ds, q[i,d], dk_sum[j,d])
 *   dq[i,d]     = fmaf(ds, k[j,d], dq[i,d])
 * So dq[i,d] is one chain from 0 over ascending j; dk_sum[j,d] and dv_sum[j,d] are one over ascending
 * (head, i), however a backend blocks the loops. dq, dk, dv are rounded once at the end.
 */
#ifndef TENSOR_RULES_ATTENTION_H
#define TENSOR_RULES_ATTENTION_H

#include "base/status.h"
#include "tensor/tensor.h"

#define ATTENTION_TILE 64

/* A GPU library may compute a backward in runs for some of the key heads, because it stores the gradients of
   all scores of a run: one 16-bit number for each query head, query and key. */
#define ATTENTION_SQUARES_MOST ((int64_t)1 << 29) /* bytes of a run */

/* Bytes of one key head, for `documents` documents of `length` tokens. */
static inline int64_t attention_square_bytes(int64_t documents, int64_t heads, int64_t kv_heads,
                                             int64_t length) {
    int64_t padded = (length + 127) / 128 * 128;
    return documents * (heads / kv_heads) * padded * padded * 2;
}
/* Key heads of one run: a divisor of kv_heads. 0: one head needs more than `most` bytes. */
static inline int64_t attention_square_heads(int64_t documents, int64_t heads, int64_t kv_heads,
                                             int64_t length, int64_t most) {
    int64_t count = most / attention_square_bytes(documents, heads, kv_heads, length);
    if (count > kv_heads) count = kv_heads;
    while (count > 1 && kv_heads % count != 0) count--;
    return count;
}

/* OTT_ERR_SHAPE if q, k and lse cannot be split into heads of head_dim, or k does not have past + T rows. */
static inline ott_status attention_check_heads(const char *op, const tensor *q, const tensor *k,
                                               const tensor *cu_seqlens, const tensor *lse, int64_t head_dim,
                                               int64_t past) {
    if (head_dim <= 0 || q->columns % head_dim != 0 || k->columns == 0 || k->columns % head_dim != 0 ||
        q->columns % k->columns != 0 || lse->rows != q->columns / head_dim || cu_seqlens->columns < 1)
        return status_fail(OTT_ERR_SHAPE,
                           "%s: %lld columns of q, %lld of k and %lld rows of lse cannot be split into heads "
                           "of head_dim %lld",
                           op, (long long)q->columns, (long long)k->columns, (long long)lse->rows,
                           (long long)head_dim);
    if (past < 0 || k->rows != past + q->rows)
        return status_fail(OTT_ERR_SHAPE,
                           "%s: k has %lld rows, not the sum of past (%lld) and the rows of q (%lld)", op,
                           (long long)k->rows, (long long)past, (long long)q->rows);
    return OTT_OK;
}

#endif
