/*
 * nn/moe: a mixture of experts: a router gives each token to some of many SwiGLU MLPs, and the token gets the sum of what
 * they make of it, weighted by its scores; experts that are shared, one MLP, have every token. Rows are sorted by expert and
 * multiplied in groups (tensor/ops.def); none is dropped, unless experts have a capacity. Weights meet the rows before the
 * last product, so that what backward keeps is gate and up alone.
 *
 * Losses of the router's own (Fedus et al. 2021; DeepSeek-V3, arXiv:2412.19437; Zoph et al. 2022), each a mean over a
 * micro-batch times its weight, f being an expert's part of the choices and P its mean score, E experts:
 *     balance    E sum f P       over the micro-batch, or over each sequence and then the mean of those
 *     z          the mean square of the logarithm of the sum of the logits' exponentials
 *
 * Ranks that have other tokens of a micro-batch (nn/context_ranks.h) route their own, and tell each other what was chosen: the
 * losses, what is dropped and what an expert's gradient is balanced by are those of the micro-batch, and each rank adds its part.
 * Ranks that have other rows between the layers (nn/tensor_ranks.h) gather them, and each computes all.
 */
#ifndef NN_MOE_H
#define NN_MOE_H

#include "nn/expert_ranks.h"
#include "nn/mlp.h"

typedef struct moe_options {
    int64_t experts, choices;      /* of them for a token; experts 0: no mixture */
    int64_t hidden, shared_hidden; /* widths of an expert, and of the shared ones together; 0: none */
    route_rule rule;
    bool biased;       /* a bias takes part in the choice, */
    double bias_rate;  /* and moves by so much a step, */
    bool bias_by_sign; /* whatever its distance; false: times its distance from an equal share */
    double balance, sequence_balance, z; /* weights of the losses */
    int64_t sequence;                    /* tokens of one */
    double capacity;                     /* of the mean number of tokens; 0: all they get */
    bool balances_gradients; /* the weight gradient of an expert counts as if it had had the mean number */
} moe_options;

typedef struct moe {
    const moe_options *options;
    linear router;       /* [E,D], in fp32 */
    parameter *bias;     /* [E]; NULL: none */
    expert_ranks *ranks; /* among which the experts are divided; borrowed; NULL: all are here */
    group *token_ranks;  /* have other tokens of the micro-batch; borrowed; NULL: all are here */
    tensor_ranks
        sequence_ranks; /* with sequence parallelism have other rows of x, the output and their gradients */
    linear gate, up, down; /* stacks [E][F,D], [E][D,F] of the experts of this rank */
    mlp shared;            /* down.weight NULL: none */
    tensor count;          /* fp32[E]: adds up the choices of training passes; data NULL: nobody asks */
    tensor losses; /* fp32[2]: adds up the losses of training passes: balance, z; data NULL: nobody asks */
} moe;

typedef struct moe_saved {
    tensor logits, score, lse, total, expert, weight, row, source, end;
    tensor batch_count, sequence_count; /* data NULL: no such loss */
    plan_buffer routing_buffer;         /* of all these */
    /* Where experts are divided: every rank's end, and of the rows that are here where those of each rank's end, their weights
       and their numbers from 0 on. */
    tensor all_end, own_end, row_weight, row_number;
    /* Where gradients are balanced: all_end, or end, of each rank that has tokens of the micro-batch. */
    tensor every_end;
    int64_t max_rows; /* rows that may be here */
    tensor gate, up;  /* [T choices, F], by expert; or the rows that are here */
    plan_buffer gate_buffer, up_buffer;
    mlp_saved shared;
} moe_saved;

/* As nn/mlp's functions. x and the gradient are read in high precision too. */
ott_status moe_connect(moe *m, activation_specs *input, activation_specs *grad_output);
ott_status moe_forward(exec *cx, moe *m, const activation *x, moe_saved *s);
ott_status moe_activate(exec *cx, moe *m, moe_saved *s);
ott_status moe_project(exec *cx, moe *m, const moe_saved *s, const tensor *out);
ott_status moe_keep(exec *cx, moe *m, moe_saved *s);
ott_status moe_keep_products(exec *cx, moe_saved *s);
ott_status moe_discard(exec *cx, moe_saved *s);
ott_status moe_backward(exec *cx, moe *m, moe_saved *s, const activation *x, const activation *g,
                        const tensor *dx);

#endif
