/* nn/loss: the output head, and cross-entropy in chunks. */
#include "nn/loss.h"

ott_status loss_connect(loss_head *h, activation_specs *input) {
    h->input_specs = h->grad_specs = (activation_specs){0};
    TRY(linear_connect(&h->head, &h->input_specs, &h->grad_specs));
    *input = tensor_ranks_own_specs(&h->head.ranks, &h->input_specs);
    return OTT_OK;
}

static bool is_multiplied(const loss_head *h) {
    return h->multiplier != 0 && h->multiplier != 1;
}

static ott_status multiply_logits(exec *cx, const loss_head *h, const tensor *t) {
    return is_multiplied(h) ? op_multiply(cx, &(multiply_args){.x = t, .y = t, .factor = h->multiplier})
                            : OTT_OK;
}

ott_status loss_logits(exec *cx, loss_head *h, const activation *x, const tensor *logits) {
    TRY(linear_forward(cx, &h->head, x, logits));
    TRY(multiply_logits(cx, h, logits));
    if (h->softcap == 0) return OTT_OK;
    return op_softcap_forward(cx, &(softcap_forward_args){.x = logits, .y = logits, .cap = h->softcap});
}

static ott_status backward_head(exec *cx, loss_head *h, const activation *x, const activation *g,
                                const tensor *dx) {
    cx->part = PART_BACKWARD;
    TRY(linear_grad_input(cx, &h->head, g, dx, false));
    return linear_grad_weight(cx, &h->head, x, g);
}

ott_status loss_backward(exec *cx, loss_head *h, const activation *x, const tensor *logits,
                         const activation *g, const tensor *dx) {
    if (h->softcap != 0)
        TRY(op_softcap_backward(
            cx, &(softcap_backward_args){.dy = &g->t, .y = logits, .dx = &g->t, .cap = h->softcap}));
    TRY(multiply_logits(cx, h, &g->t));
    TRY(activation_quantize(cx, g));
    return backward_head(cx, h, x, g, dx);
}

/* ---- kinds of loss ---- */

static ott_status run_cross_entropy(exec *cx, loss_head *h, const loss_input *in,
                                    const cross_entropy_args *a) {
    (void)h, (void)in;
    return op_cross_entropy(cx, a);
}

/* Cross-entropy with tensor parallelism: each rank has the logits of a part of the vocabulary. */
static ott_status run_parts(exec *cx, loss_head *h, const loss_input *in, const cross_entropy_args *a) {
    (void)in;
    const parameter *weight = h->head.weight;
    group *ranks = h->head.ranks.group;
    int64_t before = weight->local.row, after = weight->rows - before - weight->local.rows;
    tensor parts;
    plan_buffer buffer;
    TRY(exec_open(cx, "loss terms of ranks", OTT_F32, (int64_t)3 * ranks->size, a->logits->rows, &parts,
                  &buffer));
    tensor own = tensor_rows(parts, (int64_t)3 * ranks->rank, 3);
    TRY(op_cross_entropy_part(
        cx, &(cross_entropy_part_args){
                .logits = a->logits, .target = a->target, .part = &own, .before = before, .after = after}));
    TRY(group_run(ranks, cx, &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = own, .output = parts}));
    TRY(op_cross_entropy_finish(cx, &(cross_entropy_finish_args){.logits = a->logits,
                                                                 .target = a->target,
                                                                 .parts = &parts,
                                                                 .grad_scale = a->grad_scale,
                                                                 .loss = a->loss,
                                                                 .z = a->z,
                                                                 .q = a->q,
                                                                 .z_weight = a->z_weight,
                                                                 .before = before,
                                                                 .after = after}));
    return plan_close(cx->plan, &buffer);
}

static const loss_kind cross_entropy = {.run = run_cross_entropy, .quantizes = true},
                       cross_entropy_of_parts = {.run = run_parts, .quantizes = true};

static const loss_kind *kind_of(const loss_head *h) {
    if (h->caller.function) return &loss_of_caller;
    return h->head.ranks.group ? &cross_entropy_of_parts : &cross_entropy;
}

/* ---- chunks ---- */

/* Copies the logits if there is a softcap: its backward reads them, but cross-entropy overwrites them. */
static ott_status copy_logits(exec *cx, const loss_head *h, const tensor *logits, tensor *copy,
                              plan_buffer *buffer) {
    *buffer = PLAN_NONE;
    if (h->softcap == 0) return OTT_OK;
    TRY(exec_open(cx, "copy of logits", logits->dtype, logits->rows, logits->columns, copy, buffer));
    return op_convert(cx, &(convert_args){.x = logits, .y = copy});
}

/* Vectors with one element per token, for all tokens of a pass or for one chunk. */
typedef struct token_values {
    loss_input in;
    tensor losses, z; /* z: logsumexp(logits)^2 of each token; data NULL: not recorded */
} token_values;

/* The range of a chunk of cross-entropy, or all tokens. */
static token_values token_range(const token_values *all, int64_t first, int64_t count) {
    loss_input in = all->in;
    in.target = tensor_columns(in.target, first, count);
    return (token_values){.in = in,
                          .losses = tensor_columns(all->losses, first, count),
                          .z = all->z.data ? tensor_columns(all->z, first, count) : (tensor){0}};
}

static ott_status chunk_forward(exec *cx, loss_head *h, const activation *x, const token_values *values,
                                const tensor *grad_scale, const tensor *dx) {
    activation logits;
    tensor copy;
    plan_buffer copy_buffer = PLAN_NONE;
    const loss_kind *kind = kind_of(h);
    /* true: there is no multiplier and no softcap between head and loss */
    bool is_direct = !is_multiplied(h) && h->softcap == 0;
    TRY(activation_open(cx, "logits", x->t.dtype, x->t.rows, h->head.out, grad_scale ? &h->grad_specs : NULL,
                        &logits));
    TRY(loss_logits(cx, h, x, &logits.t));
    TRY(exec_hook(cx, h->head.name, "logits", &logits.t));
    if (grad_scale) TRY(copy_logits(cx, h, &logits.t, &copy, &copy_buffer));
    const cross_entropy_args loss = {.logits = &logits.t,
                                     .target = &values->in.target,
                                     .grad_scale = grad_scale,
                                     .loss = &values->losses,
                                     .z = values->z.data ? &values->z : NULL,
                                     .q = is_direct && kind->quantizes ? activation_fused(&logits) : NULL,
                                     .z_weight = h->z_weight};
    TRY(kind->run(cx, h, &values->in, &loss));
    if (grad_scale && loss.q)
        TRY(backward_head(cx, h, x, &logits, dx));
    else if (grad_scale)
        TRY(loss_backward(cx, h, x, &copy, &logits, dx));
    TRY(plan_close(cx->plan, &copy_buffer));
    return activation_close(cx, &logits);
}

static ott_status run_chunks(exec *cx, loss_head *h, const activation *x, const token_values *values,
                             const tensor *grad_scale, const tensor *dx) {
    int64_t chunk = kind_of(h)->takes_all ? x->t.rows : h->chunk;
    for (int64_t first = 0; first < x->t.rows; first += chunk) {
        int64_t count = x->t.rows - first < chunk ? x->t.rows - first : chunk;
        activation part;
        TRY(activation_rows(x, first, count, &part));
        token_values part_values = token_range(values, first, count);
        tensor part_dx = dx ? tensor_rows(*dx, first, count) : (tensor){0};
        TRY(chunk_forward(cx, h, &part, &part_values, grad_scale, dx ? &part_dx : NULL));
    }
    return OTT_OK;
}

ott_status loss_forward(exec *cx, loss_head *h, const activation *x, const loss_input *in,
                        const tensor *grad_scale, const tensor *losses, const tensor *dx) {
    const tensor_ranks *ranks = &h->head.ranks;
    activation all;
    partial_sum sum = {0};
    token_values values = {.in = *in, .losses = *losses};
    plan_buffer z_buffer = PLAN_NONE;
    bool adds_z = h->z.data && grad_scale;
    TRY(tensor_ranks_gather(cx, ranks, "gathered head input", &h->input_specs, x, &all));
    if (dx) TRY(tensor_partial_open(cx, ranks, OTT_F32, dx, &sum));
    if (adds_z)
        TRY(exec_open(cx, "squared log-partitions", OTT_F32, 1, losses->columns, &values.z, &z_buffer));
    TRY(run_chunks(cx, h, &all, &values, grad_scale, dx ? &sum.t : NULL));
    if (adds_z) TRY(op_sum(cx, &(sum_args){.x = &values.z, .sum = &h->z}));
    TRY(plan_close(cx->plan, &z_buffer));
    TRY(activation_close(cx, &all));
    return dx ? tensor_partial_close(cx, ranks, dx, &sum) : OTT_OK;
}
