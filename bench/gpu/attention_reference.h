/*
 * bench/gpu/attention_reference: attention and its gradients by plain loops in double, that others are
 * compared with.
 */
#ifndef ATTENTION_REFERENCE_H
#define ATTENTION_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

/* Documents one after the other: document i has the rows starts[i] to starts[i + 1] (none when they are
   equal), and attention stays within it. Query head h reads key head h / (heads / kv_heads). */
typedef struct attention_reference {
    int64_t documents, heads, kv_heads, head_dim;
    const int64_t *starts;           /* [documents + 1] */
    bool causal;                     /* a query sees the keys up to its own position */
    double scale;                    /* of the scores */
    const float *q, *k, *v, *grad_o; /* [rows, heads * head_dim], k and v [rows, kv_heads * head_dim] */
    double *o, *lse;                 /* as q; [rows, heads], log of the sum of the exponential scores */
    double *grad_q, *grad_k, *grad_v;
} attention_reference;

/* Writes o and lse. */
void attention_reference_forward(const attention_reference *r);
/* Writes grad_q, grad_k and grad_v from what forward wrote. */
void attention_reference_backward(const attention_reference *r);

#endif
