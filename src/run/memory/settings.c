/* run/memory/settings: one function for each setting that saves memory. */
#include "run/memory/settings.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHORTEST = 128, SMALLEST_CHUNK = 512, SMALLEST_MODEL = 1024 };

static bool halve_batch(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    (void)c;
    int64_t *size = &v->cfg.train.batch_size;
    if (*size < 2) return false;
    *size /= 2;
    snprintf(text, MEMORY_CHECK_TEXT, "train.batch_size = %" PRId64, *size);
    return true;
}

static bool halve_evaluation(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    (void)c;
    int64_t rows = config_evaluation_batch(&v->cfg);
    if (!v->cfg.eval.enabled || rows < 2) return false;
    v->cfg.eval.batch_size = rows / 2;
    snprintf(text, MEMORY_CHECK_TEXT, "eval.batch_size = %" PRId64, rows / 2);
    return true;
}

static bool halve_length(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    int64_t *length = &v->cfg.train.seq_len;
    bool of_samples = c->train_data && dataset_has_samples(c->train_data) && !v->cfg.data.pack_sequences;
    if (*length < 2 * SHORTEST || of_samples) return false;
    *length /= 2;
    snprintf(text, MEMORY_CHECK_TEXT, "train.seq_len = %" PRId64, *length);
    return true;
}

static bool recompute_all(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    (void)c;
    if (v->cfg.train.activation_checkpointing == CHECKPOINTING_FULL) return false;
    v->cfg.train.activation_checkpointing = CHECKPOINTING_FULL;
    snprintf(text, MEMORY_CHECK_TEXT, "train.activation_checkpointing = \"full\"");
    return true;
}

static bool save_synchronously(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    (void)c;
    if (v->cfg.checkpoint.async_mode == ASYNC_DISABLED) return false;
    v->cfg.checkpoint.async_mode = ASYNC_DISABLED;
    snprintf(text, MEMORY_CHECK_TEXT, "checkpoint.async_mode = \"disabled\"");
    return true;
}

bool memory_check_chunk_loss(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    (void)c;
    bool chunked = v->cfg.train.loss_fn == LOSS_CHUNKED_CROSS_ENTROPY;
    int64_t chunk = v->cfg.train.ce_chunk_size;
    if (chunked && chunk > 0 && chunk <= SMALLEST_CHUNK) return false;
    v->cfg.train.loss_fn = LOSS_CHUNKED_CROSS_ENTROPY;
    v->cfg.train.ce_chunk_size = SMALLEST_CHUNK;
    snprintf(text, MEMORY_CHECK_TEXT,
             "train.loss_fn = \"chunked_cross_entropy\" and train.ce_chunk_size = %d", SMALLEST_CHUNK);
    return true;
}

/* Excludes the output head from FP8: an FP8 head stores two quantized copies of the logits' gradient. */
bool memory_check_exclude_head(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    static const char head[] = "output_head";
    str_list *list = &v->cfg.float8.filter_fqns;
    (void)c;
    if (v->cfg.train.mixed_precision != PRECISION_FP8 || list->count >= MEMORY_CHECK_FILTERS) return false;
    for (int64_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], head) == 0) return false;
    snprintf(text, MEMORY_CHECK_TEXT,
             list->count ? "\"%s\" added to float8.filter_fqns" : "float8.filter_fqns = \"%s\"", head);
    for (int64_t i = 0; i < list->count; i++) v->filters[i] = list->items[i];
    v->filters[list->count] = head;
    *list = (str_list){v->filters, list->count + 1};
    return true;
}

static bool halve_precision(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    (void)c;
    if (v->cfg.train.mixed_precision != PRECISION_FP32) return false;
    v->cfg.train.mixed_precision = PRECISION_BF16;
    snprintf(text, MEMORY_CHECK_TEXT, "train.mixed_precision = \"bf16\"");
    return true;
}

/* Freezes the embedding of a Hugging Face model: fine-tuning does not need to train the embedding. */
static bool freeze_embedding(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    static const char *const names[] = {"model.embed_tokens"};
    static const str_list list = {names, 1};
    if (!*c->cfg->model.hf_path || v->shape.freeze->count > 0) return false;
    v->shape.freeze = &list;
    snprintf(text, MEMORY_CHECK_TEXT, "train.freeze = \"%s\"", names[0]);
    return true;
}

/* On a GPU: offloads the moments at the first call, and also the master weights at the second call. */
static bool offload_more(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    config_offload *offload = &v->cfg.train.offload;
    if (c->device->threads > 0 || *offload == OFFLOAD_STATE || v->cfg.optimizer.name == OPTIMIZER_MUON)
        return false;
    *offload = *offload == OFFLOAD_NONE ? OFFLOAD_MOMENTS : OFFLOAD_STATE;
    v->shape.offload = *offload;
    snprintf(text, MEMORY_CHECK_TEXT, "train.offload = \"%s\"",
             *offload == OFFLOAD_STATE ? "state" : "moments");
    return *offload == OFFLOAD_MOMENTS || config_copies_masters(&v->cfg);
}

bool memory_check_reduce_model(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]) {
    config smaller = *c->asked;
    int64_t by = v->cfg.model.reduce; /* 1 in the resolved configuration, later the last value tried */
    if (by <= 1) by = smaller.model.reduce > 1 ? smaller.model.reduce : 1;
    if (2 * by > SMALLEST_MODEL) return false;
    smaller.model.reduce = 2 * by;
    model_options shape;
    if (model_options_resolve(&smaller, &shape) != OTT_OK) return false;
    shape.vocab = c->shape->vocab;
    shape.freeze = v->shape.freeze;
    shape.shard_ranks = v->shape.shard_ranks;
    shape.expert_ranks = v->shape.expert_ranks;
    shape.expert_shard_ranks = v->shape.expert_shard_ranks;
    v->shape = shape;
    v->cfg.model.reduce = 2 * by;
    snprintf(text, MEMORY_CHECK_TEXT, "model.reduce = %" PRId64, 2 * by);
    return true;
}

const setting memory_check_settings[] = {halve_batch,
                                         halve_evaluation,
                                         halve_length,
                                         recompute_all,
                                         save_synchronously,
                                         memory_check_chunk_loss,
                                         memory_check_exclude_head,
                                         halve_precision,
                                         freeze_embedding,
                                         offload_more,
                                         NULL};
