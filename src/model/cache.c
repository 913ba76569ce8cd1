/* model/cache: memory for earlier tokens, and runs of new tokens in chunks of planned sizes. */
#include "model/cache.h"
#include "model/run.h"

enum { SIZES = 8 }; /* number of chunk sizes: 1, 2, 4, ... tokens */
_Static_assert(1 << (SIZES - 1) == CACHE_CHUNK, "the largest chunk");

struct model_cache {
    model *m;
    device *device;
    exec cx;
    model_slot *slot;
    plan *plans[SIZES]; /* plans[i] runs 1 << i tokens; NULL if that exceeds the capacity */
    void *arena;        /* memory that all plans share, because only one plan runs at any time */
    int64_t capacity, length;
    sequence_cache *layers; /* [layers] earlier tokens */
    void *memory;           /* device memory of `layers` */
    int32_t *staging;       /* host copy of device_staging: tokens, positions, two cu_seqlens */
    void *device_staging, *device_logits;
};

/* ---- a pass over one chunk ---- */

static batch chunk_of(const model_cache *c, int64_t count) {
    int32_t *data = c->device_staging;
    return (batch){.count = 1,
                   .length = count,
                   .token = tensor_vector(data, OTT_I32, count),
                   .target = tensor_vector(data, OTT_I32, count), /* logits do not need targets */
                   .at = {.position = tensor_vector(data + count, OTT_I32, count),
                          .cu_seqlens = tensor_vector(data + 2 * count, OTT_I32, 2)},
                   .cache = c->layers};
}

static ott_status run_chunk(model_cache *c, int64_t count) {
    batch b = chunk_of(c, count);
    tensor logits = tensor_matrix(c->device_logits, c->m->activation, 1, c->m->options.vocab);
    return model_logits(&c->cx, c->m, c->slot, &b, &logits);
}

static ott_status copy_in(model_cache *c, const int32_t *tokens, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        c->staging[i] = tokens[i];
        c->staging[count + i] = (int32_t)(c->length + i);
    }
    c->staging[2 * count] = 0;
    c->staging[2 * count + 1] = (int32_t)count;
    return device_copy_in(c->device, c->device_staging, c->staging, 4 * (2 * count + 2));
}

static ott_status extend_by_chunk(model_cache *c, int size, const int32_t *tokens) {
    int64_t count = (int64_t)1 << size;
    for (int64_t i = 0; i < c->m->options.layers; i++) c->layers[i].past = c->length;
    c->cx.plan = c->plans[size];
    plan_replay(c->cx.plan);
    TRY(copy_in(c, tokens, count));
    TRY(run_chunk(c, count));
    c->length += count;
    return OTT_OK;
}

ott_status model_cache_extend(model_cache *c, const int32_t *tokens, int64_t count, float *logits) {
    STATUS_REQUIRE(count > 0 && c->length + count <= c->capacity);
    for (int64_t done = 0; done < count;) {
        int size = SIZES - 1;
        while ((int64_t)1 << size > count - done) size--;
        TRY(extend_by_chunk(c, size, tokens + done));
        done += (int64_t)1 << size;
    }
    ott_dtype act = c->m->activation;
    int64_t vocab = c->m->options.vocab;
    TRY(device_copy_out(c->device, logits, c->device_logits, vocab * dtype_bytes(act)));
    /* Converts to fp32 in place, last element first, so that none is overwritten before it is read. */
    for (int64_t i = vocab - 1; i >= 0; i--) logits[i] = cast_load(logits, act, i);
    return OTT_OK;
}

/* ---- opening ---- */

static int64_t layer_bytes(const model_cache *c, int64_t layer) {
    block *b = &c->m->blocks[layer];
    int64_t bytes = b->mixer->cache_bytes(block_mixer(b), c->m->activation, c->capacity);
    return backend_align(c->device->can, bytes);
}

static ott_status open_layers(model_cache *c) {
    int64_t layers = c->m->options.layers, bytes = 0;
    for (int64_t i = 0; i < layers; i++) bytes += layer_bytes(c, i);
    TRY(mem_alloc_array(c->device->account, MEM_OTHER, layers, sizeof *c->layers, "key cache", &c->layers));
    TRY(device_allocate(c->device, MEM_STEP, bytes, "key cache", &c->memory));
    char *place = c->memory;
    for (int64_t i = 0; i < layers; i++) {
        c->layers[i] = (sequence_cache){.data = place, .capacity = c->capacity};
        place += layer_bytes(c, i);
    }
    return OTT_OK;
}

/* Plans the memory of a pass for every chunk size up to the capacity. All plans share one block of memory. */
static ott_status open_cache_plans(model_cache *c) {
    int64_t most = 0;
    for (int i = 0; i < SIZES && (int64_t)1 << i <= c->capacity; i++) {
        TRY(plan_create(c->device, &c->plans[i]));
        c->cx.plan = c->plans[i];
        plan_record(c->plans[i]);
        TRY(run_chunk(c, (int64_t)1 << i));
        TRY(plan_seal(c->plans[i]));
        if (plan_bytes(c->plans[i]) > most) most = plan_bytes(c->plans[i]);
    }
    TRY(device_allocate(c->device, MEM_STEP, most, "activations", &c->arena));
    for (int i = 0; i < SIZES && c->plans[i]; i++) plan_bind(c->plans[i], c->arena);
    return OTT_OK;
}

static ott_status open_cache_buffers(model_cache *c) {
    TRY(model_slot_open(c->m, &c->slot));
    TRY(open_layers(c));
    int64_t bytes = 4 * (2 * CACHE_CHUNK + 2);
    TRY(mem_alloc(c->device->account, MEM_DATA, bytes, "chunk of tokens", &c->staging));
    TRY(device_allocate(c->device, MEM_DATA, bytes, "chunk of tokens", &c->device_staging));
    TRY(device_allocate(c->device, MEM_DATA, c->m->options.vocab * dtype_bytes(c->m->activation), "logits",
                        &c->device_logits));
    return open_cache_plans(c);
}

ott_status model_cache_open(model *m, const logger *log, int64_t capacity, model_cache **out) {
    model_cache *c;
    STATUS_REQUIRE(capacity > 0);
    TRY(mem_alloc(m->device->account, MEM_OTHER, sizeof(model_cache), "cache", &c));
    *c = (model_cache){.m = m, .device = m->device, .capacity = capacity};
    c->cx = (exec){.device = m->device, .is_first_microbatch = true, .log = log};
    ott_status status = open_cache_buffers(c);
    if (status != OTT_OK) return model_cache_close(c), status;
    return *out = c, OTT_OK;
}

void model_cache_close(model_cache *c) {
    if (!c) return;
    mem *account = c->device->account;
    for (int i = 0; i < SIZES; i++) plan_destroy(c->plans[i]);
    device_release(c->device, c->arena);
    device_release(c->device, c->memory);
    device_release(c->device, c->device_staging);
    device_release(c->device, c->device_logits);
    model_slot_close(c->device, c->slot);
    mem_free(account, c->layers);
    mem_free(account, c->staging);
    mem_free(account, c);
}

/* ---- facts ---- */

int64_t model_cache_length(const model_cache *c) {
    return c->length;
}
int64_t model_cache_capacity(const model_cache *c) {
    return c->capacity;
}

void model_cache_set_step(model_cache *c, int64_t step) {
    c->cx.step = step;
}

void model_cache_truncate(model_cache *c, int64_t length) {
    if (length < c->length) c->length = length;
}

void model_cache_gemms(const model_cache *c, int64_t *all, int64_t *fp8) {
    const int64_t *output = c->cx.gemms[GEMM_OUTPUT];
    *all = output[0] + output[1];
    *fp8 = output[1];
}
