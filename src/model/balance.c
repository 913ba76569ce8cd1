/* model/balance: counts of the tokens of each expert, sums of router losses, and balancing biases. */
#include "model/balance.h"
#include "model/model.h"

/* True if the layer has experts. Also works for layers of other pipeline stages. */
static bool is_mixture(const model *m, int64_t layer) {
    return modules_ffn(&m->options, layer) == &ffn_moe;
}

static tensor count_of(const balance *b, int number) {
    return tensor_columns(tensor_rows(b->sums, number, 1), BALANCE_LOSSES, b->experts);
}

static void connect_layers(model *m) {
    const balance *b = &m->balance;
    int number = 0;
    for (int64_t i = 0; i < m->options.layers; i++) {
        if (!is_mixture(m, i)) continue;
        m->blocks[i].moe.losses = tensor_columns(tensor_rows(b->sums, number, 1), 0, BALANCE_LOSSES);
        m->blocks[i].moe.count = count_of(b, number++);
    }
}

/* At first all experts have the same load. */
static ott_status fill_loads(const model *m) {
    const balance *b = &m->balance;
    int64_t count = tensor_count(b->loads);
    for (int64_t i = 0; i < count; i++) b->host[i] = 1.0f / (float)b->experts;
    return device_copy_in(m->device, b->loads.data, b->host, count * (int64_t)sizeof(float));
}

ott_status balance_open(model *m) {
    balance *b = &m->balance;
    for (int64_t i = 0; i < m->options.layers; i++) b->layers += is_mixture(m, i);
    if (b->layers == 0) return OTT_OK;
    b->experts = m->options.moe.experts;
    int64_t width = BALANCE_LOSSES + b->experts, sums = b->layers * width;
    int64_t bytes = backend_align(m->device->can, sums * (int64_t)sizeof(float)),
            loads = m->options.moe.biased ? b->layers : 0;
    TRY(mem_alloc_array(m->device->account, MEM_OTHER, sums, sizeof *b->host, "experts' counts", &b->host));
    TRY(device_allocate(m->device, MEM_OTHER, bytes + loads * b->experts * (int64_t)sizeof(float),
                        "experts' counts", &b->block));
    b->sums = tensor_matrix(b->block, OTT_F32, b->layers, width);
    b->loads = tensor_matrix((char *)b->block + bytes, OTT_F32, loads, b->experts);
    connect_layers(m);
    TRY(fill_loads(m));
    return balance_begin(m);
}

void balance_close(model *m) {
    device_release(m->device, m->balance.block);
    mem_free(m->device->account, m->balance.host);
}

ott_status balance_begin(const model *m) {
    const balance *b = &m->balance;
    return b->block ? device_zero(m->device, b->sums.data, tensor_bytes(b->sums)) : OTT_OK;
}

/* Adds up m->balance.sums over ranks with other micro-batches, other tokens (context parallelism) and other
   pipeline stages. This rank has 0 for layers of other stages. */
ott_status balance_reduce(exec *cx, const model *m, group *data_ranks) {
    const tensor *sums = &m->balance.sums;
    group *others[] = {m->options.context_ranks, m->options.stage_ranks};
    if (!m->balance.block) return OTT_OK;
    TRY(group_all_reduce(data_ranks, cx, sums, REDUCE_SUM));
    for (int i = 0; i < 2; i++)
        if (others[i]) TRY(group_all_reduce(others[i], cx, sums, REDUCE_SUM));
    return OTT_OK;
}

/* Updates the moving average of one layer's loads, and the bias of its router if this stage has the layer. */
static ott_status move_bias(exec *cx, const model *m, const model_module *router, int number,
                            const tensor *state) {
    const balance *b = &m->balance;
    const parameter *p = router->bias;
    tensor load = tensor_rows(b->loads, number, 1), count = count_of(b, number),
           none = tensor_vector(NULL, OTT_F32, 0);
    bool is_here = router->linear != NULL;
    return op_balance_bias(cx, &(balance_bias_args){.bias = is_here ? &p->shard.value : &none,
                                                    .load = &load,
                                                    .count = &count,
                                                    .state = state,
                                                    .rate = (float)m->options.moe.bias_rate,
                                                    .by_sign = m->options.moe.bias_by_sign,
                                                    .first = is_here ? parameter_shard_part(p).column : 0});
}

ott_status balance_update(exec *cx, const model *m, const tensor *state) {
    const model_module *e = m->all_modules.items;
    for (int number = 0; number < m->balance.loads.rows; e++)
        if (e->balances) TRY(move_bias(cx, m, e, number++, state));
    return OTT_OK;
}

/* count[experts]: choices of each expert. Returns the largest count divided by the mean; 0 if all are 0. */
static double unevenness_of(const float *count, int64_t experts) {
    double most = 0, sum = 0;
    for (int64_t e = 0; e < experts; e++) {
        most = (double)count[e] > most ? (double)count[e] : most;
        sum += (double)count[e];
    }
    return sum > 0 ? most * (double)experts / sum : 0;
}

ott_status balance_read(const model *m, int64_t micro_batches, balance_figures *out) {
    const balance *b = &m->balance;
    *out = (balance_figures){0};
    if (!b->block) return OTT_OK;
    TRY(device_copy_out(m->device, b->host, b->sums.data, tensor_bytes(b->sums)));
    for (int i = 0; i < b->layers; i++) {
        const float *sums = b->host + i * b->sums.columns;
        out->loss += (double)sums[BALANCE_LOSS] / (double)micro_batches;
        out->z_loss += (double)sums[BALANCE_Z_LOSS] / (double)micro_batches;
        out->unevenness += unevenness_of(sums + BALANCE_LOSSES, b->experts) / b->layers;
    }
    return OTT_OK;
}
