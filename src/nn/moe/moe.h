/*
 * nn/moe/moe: mixture of experts. A router assigns each token to some of many SwiGLU MLPs, the experts. The
 * output is the sum of the experts' outputs, each times its routing weight. Shared experts, fused into one
 * MLP, process every token. Rows are sorted by expert and multiplied in grouped GEMMs. No token is dropped
 * unless experts have a capacity. Routing weights multiply the down projection's input, not its output, so
 * that backward need not recompute the output.
 *
 * Router losses (Fedus et al. 2021; DeepSeek-V3, arXiv:2412.19437; Zoph et al. 2022) are means over a
 * micro-batch, times a weight. E experts; f: an expert's fraction of the choices; P: the expert's mean score.
 *     balance    E times the sum of f P over the experts: for the micro-batch, or the mean over its sequences
 *     z          mean of logsumexp(router logits)^2
 *
 * Context-parallel ranks route their own tokens and exchange counts. Losses, capacity and gradient balancing
 * refer to the full micro-batch. Sequence-parallel ranks gather all tokens and compute the same results.
 */
#ifndef NN_MOE_MOE_H
#define NN_MOE_MOE_H

#include "nn/moe/expert_ranks.h"
#include "nn/mlp.h"

typedef struct moe_options {
    int64_t experts, choices;      /* number of experts (0: no mixture) and of experts per token (top-k) */
    int64_t hidden, shared_hidden; /* hidden size of one expert, and of all shared experts (0: none) */
    route_rule rule;
    bool biased;       /* each expert's bias is added to the scores, only to choose experts */
    double bias_rate;  /* step size of the bias update after each training step */
    bool bias_by_sign; /* true: adds +-bias_rate; false: adds bias_rate x distance from an equal load */
    double balance, sequence_balance, z; /* weights of the router losses; 0: none */
    int64_t sequence;                    /* tokens per sequence, for sequence_balance */
    double capacity;         /* maximum tokens per expert, in multiples of the mean; 0: no limit */
    bool balances_gradients; /* scales each expert's weight gradient by mean tokens / the expert's tokens */
} moe_options;

typedef struct moe {
    const moe_options *options;
    linear router;               /* router weight [E,D], in fp32 */
    parameter *bias;             /* balancing bias [E], not trained by gradients; NULL: none */
    expert_ranks *ranks;         /* expert-parallel ranks; borrowed; NULL: this rank has all experts */
    group *token_ranks;          /* context-parallel ranks; borrowed; NULL: none */
    tensor_ranks sequence_ranks; /* sequence-parallel ranks: each holds a slice of the tokens */
    linear gate, up, down;       /* expert weights of this rank: gate and up [E][F,D], down [E][D,F] */
    mlp shared;                  /* the shared experts as one MLP; down.weight NULL: no shared experts */
    tensor count;                /* fp32[E]: accumulates choices of each expert; data NULL: not counted */
    tensor losses;               /* fp32[2]: accumulates the balance and z losses; data NULL: not recorded */
} moe;

/* What forward saves for backward. tensor/ops.def (route, route_sort) describes the routing tensors. */
typedef struct moe_saved {
    tensor logits, score, lse, total, expert, weight, row, source, end;
    tensor batch_count, sequence_count; /* [1, E] and [sequences, E] choices of experts; data NULL: unused */
    plan_buffer routing_buffer;         /* holds all tensors from logits to every_end */
    /* With expert parallelism: outputs all_end and own_end of expert_ranks_exchange_counts. For each received
       row: its routing weight (row_weight) and its index 0, 1, 2, ... (row_number). */
    tensor all_end, own_end, row_weight, row_number;
    tensor every_end; /* for balanced gradients: each context-parallel rank's all_end (or end) */
    int64_t max_rows; /* maximum number of rows of this rank's experts */
    tensor gate, up; /* outputs of gate and up, [rows, F]: T * choices rows by expert, or the received rows */
    plan_buffer gate_buffer, up_buffer;
    mlp_saved shared;
} moe_saved;

/* Like nn/mlp.h's functions. moe_keep_products closes s->shared.y. x and g need high-precision tensors. */
ott_status moe_connect(moe *m, activation_specs *input, activation_specs *grad_output);
ott_status moe_forward(exec *cx, moe *m, const activation *x, moe_saved *s);
ott_status moe_activate(exec *cx, moe *m, moe_saved *s);
ott_status moe_project(exec *cx, moe *m, moe_saved *s, const tensor *out);
ott_status moe_keep(exec *cx, moe *m, moe_saved *s);
ott_status moe_keep_products(exec *cx, moe_saved *s);
ott_status moe_discard(exec *cx, moe_saved *s);
ott_status moe_backward(exec *cx, moe *m, moe_saved *s, const activation *x, const activation *g,
                        const tensor *dx);

#endif
