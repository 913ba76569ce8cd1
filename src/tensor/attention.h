/*
 * tensor/attention: the exact order of operations of attention, which every backend on the CPU follows.
 *
 * Keys are visited in tiles of ATTENTION_TILE, counted from the start of the document, in ascending
 * order; tiles that a query sees nothing of are skipped. Everything is fp32 after loading; exp and log are base/fmath's.
 *
 * forward, for one query row, m = -inf, l = 0, o[d] = 0:
 *   for each tile:  s[j]  = softmax_scale * CHAIN_d fmaf(q[d], k[j,d], s) for visible j, -inf for the others
 *                   n     = max(m, max_j s[j])
 *                   f     = exp(m - n)                      (0 for the first tile)
 *                   p[j]  = exp(s[j] - n)                   (0 for the hidden ones)
 *                   l     = l * f + SUM16_j p[j]            (one multiply, one add; SUM16 over the tile)
 *                   o[d]  = o[d] * f, then o[d] = fmaf(p[j], v[j,d], o[d]) for j ascending over the visible keys
 *                   m     = n
 *   o[d] = o[d] * (1 / l); lse = m + log(l)
 *
 * backward, delta[i] = SUM16_d fmaf(dout[i,d], o[i,d], lane) (o as stored). For each key head, its query heads
 * in ascending order, each query row i ascending, each tile ascending, each visible j ascending:
 *   p     = exp(softmax_scale * CHAIN_d fmaf(q[i,d], k[j,d], s) - lse[i])
 *   dp    = CHAIN_d fmaf(dout[i,d], v[j,d], s)
 *   ds    = p * (dp - delta[i]) * softmax_scale            (left to right)
 *   dv_sum[j,d] = fmaf(p, dout[i,d], dv_sum[j,d]);  dk_sum[j,d] = fmaf(ds, q[i,d], dk_sum[j,d])
 *   dq[i,d]     = fmaf(ds, k[j,d], dq[i,d])
 * so each of dq[i,d], dk_sum[j,d], dv_sum[j,d] is one chain from 0 over (head, i) or j ascending, and a
 * backend may block the loops as it likes. dq, dk, dv are rounded once at the end.
 */
#ifndef TENSOR_ATTENTION_H
#define TENSOR_ATTENTION_H

#define ATTENTION_TILE 64

#endif
