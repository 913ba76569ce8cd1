/* eval/open: opens a model for evaluation, and runs one forward over a batch of documents. */
#include "eval/eval.h"
#include "data/data.h"

enum { HEAD_CHUNK = 256 }; /* tokens of a chunk of logits; a multiple of the block size of every recipe */

/* Lists the filters of the configuration, then the caller's filters. */
static ott_status join_filters(const eval_source *s, const char *all[EVAL_MAX_FILTERS], convert_options *o) {
    int count = 0;
    if (o->filter_count + s->filter_count > EVAL_MAX_FILTERS)
        return status_fail(OTT_ERR_ARGUMENT, "%d filters are given; at most %d are allowed", s->filter_count,
                           EVAL_MAX_FILTERS);
    for (int i = 0; i < o->filter_count; i++) all[count++] = o->filter[i];
    for (int i = 0; i < s->filter_count; i++) all[count++] = s->filter[i];
    o->filter = all;
    o->filter_count = count;
    return OTT_OK;
}

static const char *const allowed[] = {"float8.",
                                      "train.mixed_precision",
                                      "train.batch_size",
                                      "train.seq_len",
                                      "data.add_bos",
                                      "data.add_eos",
                                      "data.document_separator",
                                      "data.pack_sequences",
                                      NULL};

ott_status eval_model_read(mem *account, const logger *log, const eval_source *s, eval_model *e) {
    *e = (eval_model){.account = account, .log = log, .path = s->path, .codec = s->tokenizer};
    inference_plan *p = &e->inference;
    TRY(inference_find(account, e->path, s->base, s->seq_len, &e->cfg, &e->checkpoint));
    const inference_choice choice = {.user = "eval",
                                     .precision = s->precision,
                                     .settings = s->settings,
                                     .setting_count = s->setting_count,
                                     .allowed = allowed};
    TRY(inference_choose(account, e->cfg, e->checkpoint, &choice, p));
    TRY(join_filters(s, e->filters, &p->convert));
    e->window = s->seq_len > 0 ? s->seq_len : e->cfg->train.seq_len;
    if (e->window <= config_max_positions(e->cfg)) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %lld tokens are more than the model's max_seq_len = %lld",
                       e->path, (long long)e->window, (long long)p->shape.max_positions);
}

/* ---- text ---- */

/* Opens the tokenizer that the caller names. Without one, opens the run's tokenizer, or the one in the folder
   of the weights. If there is none, tokens are bytes. */
static ott_status open_text_tokenizer(eval_model *e) {
    char own[PATH_MAX];
    data_tokenizer_path(e->cfg, own);
    const char *path = e->codec ? e->codec : own;
    if (!*path) e->no_text = data_no_text_reason(e->cfg);
    if (!*path) return OTT_OK;
    TRY(tokenizer_open(e->account, path, &e->tokenizer));
    return tokenizer_scratch_open(e->account, e->tokenizer, &e->scratch);
}

ott_status eval_check_text(const eval_model *e) {
    if (!e->no_text) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT,
                       "%s: text needs a tokenizer, and %s: name one with --tokenizer "
                       "(tokenizer in ott_eval_options)",
                       e->path, e->no_text);
}

ott_status eval_encode(const eval_model *e, const char *text, int64_t bytes, unsigned flags,
                       tokenizer_ids *ids) {
    int64_t from = ids->count;
    TRY(eval_check_text(e));
    if (e->tokenizer) {
        TRY(tokenizer_encode(e->tokenizer, e->scratch, text, bytes, flags, ids));
    } else {
        TRY(tokenizer_ids_reserve(ids, bytes));
        for (int64_t i = 0; i < bytes; i++) ids->ids[ids->count++] = (unsigned char)text[i];
    }
    for (int64_t i = from; i < ids->count; i++)
        if (ids->ids[i] >= e->m->options.vocab)
            return status_fail(OTT_ERR_ARGUMENT,
                               "the text has token %d, but the model's vocabulary has only %lld", ids->ids[i],
                               (long long)e->m->options.vocab);
    return OTT_OK;
}

/* ---- opening ---- */

ott_status eval_model_open(device *d, eval_model *e) {
    e->device = d;
    inference_plan *p = &e->inference;
    TRY(inference_open(p, e->device, e->window, e->log, &e->m));
    e->m->loss.chunk = HEAD_CHUNK;
    log_info(e->log, "%s: %s, window of %lld tokens", e->checkpoint ? e->checkpoint : e->path,
             p->convert.recipe->name, (long long)e->window);
    TRY(open_text_tokenizer(e));
    TRY(model_slot_open(e->m, &e->slot));
    e->cx = (exec){.device = d, .is_first_microbatch = true, .log = e->log};
    return plan_create(d, &e->plan);
}

void eval_model_close(eval_model *e) {
    if (!e->account) return;
    if (e->device) model_slot_close(e->device, e->slot);
    plan_destroy(e->plan);
    device_release(e->device, e->arena);
    device_release(e->device, e->device_block);
    model_close(e->m);
    tokenizer_scratch_close(e->scratch);
    tokenizer_close(e->tokenizer);
    mem_free(e->account, e->checkpoint);
    config_close(e->cfg);
    *e = (eval_model){0};
}

/* ---- batches ---- */

void eval_batch_clear(eval_batch *b) {
    b->tokens = b->documents = 0;
}

void eval_batch_free(eval_batch *b) {
    mem_free(b->account, b->token);
    *b = (eval_batch){.account = b->account};
}

/* Grows the batch. Its arrays are in one allocation, so they are copied to a larger one. */
static ott_status grow_batch(eval_batch *b, int64_t tokens) {
    int32_t *all;
    if (tokens <= b->capacity) return OTT_OK;
    int64_t capacity = tokens > 2 * b->capacity ? tokens : 2 * b->capacity;
    TRY(mem_alloc_array(b->account, MEM_DATA, 5 * capacity + 1, sizeof(int32_t), "batch", &all));
    int32_t *from[] = {b->token, b->target, b->position, b->start};
    int64_t counts[] = {b->tokens, b->tokens, b->tokens, b->documents + 1};
    for (int i = 0; b->token && i < 4; i++)
        memcpy(all + i * capacity, from[i], (size_t)counts[i] * sizeof *all);
    mem_free(b->account, b->token);
    b->token = all;
    b->target = all + capacity;
    b->position = all + 2 * capacity;
    b->start = all + 3 * capacity;
    b->loss = (float *)(all + 4 * capacity + 1);
    b->capacity = capacity;
    return OTT_OK;
}

ott_status eval_batch_add(eval_batch *b, const int32_t *ids, int64_t count, int64_t first) {
    STATUS_REQUIRE(first >= 1 && first < count);
    TRY(grow_batch(b, b->tokens + count - 1));
    for (int64_t i = 0; i + 1 < count; i++) {
        int64_t at = b->tokens + i;
        b->token[at] = ids[i];
        b->target[at] = i + 1 >= first ? ids[i + 1] : -1;
        b->position[at] = (int32_t)i;
    }
    b->start[b->documents++] = (int32_t)b->tokens;
    b->tokens += count - 1;
    b->start[b->documents] = (int32_t)b->tokens;
    return OTT_OK;
}

ott_status eval_batch_add_row(eval_batch *b, const dataset_row *row, int64_t length) {
    TRY(grow_batch(b, b->tokens + length));
    size_t bytes = (size_t)length * sizeof *row->token;
    memcpy(b->token + b->tokens, row->token, bytes);
    memcpy(b->target + b->tokens, row->target, bytes);
    memcpy(b->position + b->tokens, row->position, bytes);
    for (int64_t i = 0; i < row->documents; i++)
        b->start[b->documents++] = (int32_t)b->tokens + row->start[i];
    b->tokens += length;
    b->start[b->documents] = (int32_t)b->tokens;
    return OTT_OK;
}

/* ---- a forward ---- */

/* Returns views of device memory: tokens, targets, positions and document starts, in this order. */
static batch lay_out_batch(const eval_model *e, int64_t tokens, int64_t documents) {
    int32_t *data = e->device_block;
    return (batch){.count = 1,
                   .length = tokens,
                   .token = tensor_vector(data, OTT_I32, tokens),
                   .target = tensor_vector(data + tokens, OTT_I32, tokens),
                   .at = {.position = tensor_vector(data + 2 * tokens, OTT_I32, tokens),
                          .cu_seqlens = tensor_vector(data + 3 * tokens, OTT_I32, documents + 1)}};
}

static ott_status grow_device(eval_model *e, int64_t tokens) {
    if (tokens <= e->device_tokens) return OTT_OK;
    device_release(e->device, e->device_block);
    e->device_block = NULL;
    e->device_tokens = 0;
    TRY(device_allocate(e->device, MEM_DATA, 4 * (5 * tokens + 1), "batch", &e->device_block));
    e->device_tokens = tokens;
    return OTT_OK;
}

/* A plan is for one number of tokens and one length of cu_seqlens. Records a new plan if these differ. */
static ott_status plan_for(eval_model *e, const batch *b, const tensor *losses) {
    if (b->length == e->planned && b->at.cu_seqlens.columns == e->planned_places) return OTT_OK;
    e->planned = 0;
    plan_record(e->plan);
    TRY(model_run(&e->cx, e->m, e->slot, b, NULL, losses));
    TRY(plan_seal(e->plan));
    if (plan_bytes(e->plan) > e->arena_bytes) {
        device_release(e->device, e->arena);
        e->arena = NULL;
        e->arena_bytes = 0;
        TRY(device_allocate(e->device, MEM_STEP, plan_bytes(e->plan), "activations", &e->arena));
        e->arena_bytes = plan_bytes(e->plan);
    }
    plan_bind(e->plan, e->arena);
    e->planned = b->length;
    e->planned_places = b->at.cu_seqlens.columns;
    return OTT_OK;
}

static ott_status check_losses(const eval_model *e, const eval_batch *b) {
    for (int64_t i = 0; i < b->tokens; i++)
        if (!isfinite(b->loss[i]))
            return status_fail(OTT_ERR_DIVERGED, "%s: the loss of a token is %g: the model has diverged",
                               e->path, (double)b->loss[i]);
    return OTT_OK;
}

bool eval_is_logits(const eval_model *e, const char *module, const char *what) {
    return strcmp(what, "logits") == 0 && strcmp(module, e->m->loss.head.name) == 0;
}

ott_status eval_forward(eval_model *e, eval_batch *b, const hook *look) {
    STATUS_REQUIRE(b->documents > 0);
    TRY(grow_device(e, b->tokens));
    /* Adds documents of no tokens until their number is a power of two, so that fewer plans are needed. */
    int64_t places = 1;
    while (places < b->documents) places *= 2;
    if (places > b->tokens) places = b->tokens;
    for (int64_t i = b->documents + 1; i <= places; i++) b->start[i] = (int32_t)b->tokens;
    int64_t documents = places;
    batch on_device = lay_out_batch(e, b->tokens, documents);
    tensor losses = tensor_vector((int32_t *)e->device_block + 4 * b->tokens + 1, OTT_F32, b->tokens);
    e->cx.plan = e->plan;
    TRY(plan_for(e, &on_device, &losses));
    int32_t *data = e->device_block;
    int64_t bytes = 4 * b->tokens;
    TRY(device_copy_in(e->device, data, b->token, bytes));
    TRY(device_copy_in(e->device, data + b->tokens, b->target, bytes));
    TRY(device_copy_in(e->device, data + 2 * b->tokens, b->position, bytes));
    TRY(device_copy_in(e->device, data + 3 * b->tokens, b->start, 4 * (documents + 1)));
    e->cx.hook = look;
    plan_replay(e->plan);
    ott_status status = model_run(&e->cx, e->m, e->slot, &on_device, NULL, &losses);
    e->cx.hook = NULL;
    if (status == OTT_OK) status = device_copy_out(e->device, b->loss, losses.data, 4 * b->tokens);
    return status == OTT_OK ? check_losses(e, b) : status;
}
