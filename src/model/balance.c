/* model/balance: counts of what experts get, and biases. */
#include "model/balance.h"
#include "model/model.h"

static bool is_mixture(const model *m, int64_t layer) {
    return m->blocks[layer].ffn == &ffn_moe;
}

/* The next layer from `layer` on that is one. */
static int64_t next_mixture(const model *m, int64_t layer) {
    while (layer < m->options.layers && !is_mixture(m, layer)) layer++;
    return layer;
}

static tensor count_of(const balance *b, int number) {
    return tensor_columns(b->told, BALANCE_LOSSES + number * b->experts, b->experts);
}

static void tell_layers(model *m) {
    const balance *b = &m->balance;
    int number = 0;
    for (int64_t i = next_mixture(m, 0); i < m->options.layers; i = next_mixture(m, i + 1)) {
        m->blocks[i].moe.losses = tensor_columns(b->told, 0, BALANCE_LOSSES);
        m->blocks[i].moe.count = count_of(b, number++);
    }
}

/* Even, before anything was seen. */
static ott_status fill_loads(const model *m) {
    const balance *b = &m->balance;
    int64_t count = tensor_count(b->loads);
    for (int64_t i = 0; i < count; i++) b->host[i] = 1.0f / (float)b->experts;
    return device_copy_in(m->device, b->loads.data, b->host, count * (int64_t)sizeof(float));
}

ott_status balance_open(model *m) {
    balance *b = &m->balance;
    void *memory;
    for (int64_t i = next_mixture(m, 0); i < m->options.layers; i = next_mixture(m, i + 1)) b->layers++;
    if (b->layers == 0) return OTT_OK;
    b->experts = m->options.moe.experts;
    int64_t told = BALANCE_LOSSES + b->layers * b->experts;
    int64_t bytes = backend_align(m->device->can, told * (int64_t)sizeof(float)),
            loads = m->options.moe.biased ? b->layers : 0;
    TRY(mem_alloc_array(m->device->account, MEM_OTHER, told, sizeof *b->host, "experts' counts", &memory));
    b->host = memory;
    TRY(device_allocate(m->device, MEM_OTHER, bytes + loads * b->experts * (int64_t)sizeof(float),
                        "experts' counts", &b->block));
    b->told = tensor_vector(b->block, OTT_F32, told);
    b->loads = tensor_matrix((char *)b->block + bytes, OTT_F32, loads, b->experts);
    tell_layers(m);
    TRY(fill_loads(m));
    return balance_begin(m);
}

void balance_close(model *m) {
    device_release(m->device, m->balance.block);
    mem_free(m->device->account, m->balance.host);
}

ott_status balance_begin(const model *m) {
    const balance *b = &m->balance;
    return b->block ? device_zero(m->device, b->told.data, tensor_bytes(b->told)) : OTT_OK;
}

ott_status balance_reduce(exec *cx, const model *m, group *ranks) {
    return m->balance.block ? group_all_reduce(ranks, cx, &m->balance.told, REDUCE_SUM) : OTT_OK;
}

ott_status balance_update(exec *cx, const model *m, const tensor *state) {
    const balance *b = &m->balance;
    for (int64_t i = next_mixture(m, 0), number = 0; number < b->loads.rows;
         i = next_mixture(m, i + 1), number++) {
        const parameter *p = m->blocks[i].moe.bias;
        tensor load = tensor_rows(b->loads, number, 1), count = count_of(b, (int)number);
        TRY(op_balance_bias(cx, &(balance_bias_args){.bias = &p->shard.value,
                                                     .load = &load,
                                                     .count = &count,
                                                     .state = state,
                                                     .rate = (float)m->options.moe.bias_rate,
                                                     .first = parameter_shard_part(p).column}));
    }
    return OTT_OK;
}

/* The largest count of a layer over the mean one; 0: it has none. */
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
    TRY(device_copy_out(m->device, b->host, b->told.data, tensor_bytes(b->told)));
    out->loss = (double)b->host[BALANCE_LOSS] / (double)micro_batches;
    out->z_loss = (double)b->host[BALANCE_Z_LOSS] / (double)micro_batches;
    for (int i = 0; i < b->layers; i++)
        out->unevenness += unevenness_of(b->host + BALANCE_LOSSES + i * b->experts, b->experts) / b->layers;
    return OTT_OK;
}
