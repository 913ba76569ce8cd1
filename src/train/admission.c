/* train/admission: what a run needs, and, when that is too much, which settings would help. */
#include "train/admission.h"
#include "base/size.h"
#include "base/str.h"
#include "checkpoint/writer.h"
#include "train/world.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what a configuration needs ---- */

/* A configuration, and the model it makes. */
typedef struct variant {
    config cfg;
    model_options shape;
} variant;

/* Every recipe of the precision schedule is tried on. */
static ott_status try_phases(trainer *t, const precision_plan *precision, admission_need *out) {
    for (int i = 0; i < precision->phase_count; i++) {
        if (precision->phases[i].recipe != t->recipe) TRY(trainer_convert(t, precision->phases[i].recipe));
        int64_t saved = plan_saved(t->train_plan);
        if (saved > out->saved) out->saved = saved;
    }
    return OTT_OK;
}

static ott_status note_staging(const trainer *t, const config *cfg) {
    int64_t bytes;
    TRY(checkpoint_writer_staging(t->m, cfg, &bytes));
    return dry_run_note(t->device, MEM_STAGING, bytes, 1, "copy for a checkpoint");
}

static ott_status dry_run(const admission *a, const variant *v, device *d, admission_need *out) {
    precision_plan precision;
    trainer_options options;
    trainer *t;
    TRY(precision_plan_read(&v->cfg, &precision));
    TRY(run_trainer_options(&v->cfg, &precision, a->step, &options));
    TRY(trainer_open(a->account, NULL, d, &v->shape, &options, a->train_data, a->validation_data, &t));
    dry_run_listen(d, NULL);
    ott_status status = a->look ? a->look(a->user, t) : OTT_OK;
    if (status == OTT_OK) status = try_phases(t, &precision, out);
    if (status == OTT_OK) status = note_staging(t, &v->cfg);
    trainer_close(t);
    return status;
}

static ott_status need_of(const admission *a, const variant *v, admission_need *out) {
    device *d;
    mem_stats taken = device_taken(a->device);
    *out = (admission_need){0};
    TRY(dry_run_open(a->account, a->device, &d));
    dry_run_listen(d, a->listener);
    ott_status status = dry_run(a, v, d, out);
    out->total = dry_run_peak(d, out->of) + taken.now;
    out->host = dry_run_host_peak(d, out->host_of);
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++) out->of[kind] += taken.now_of[kind];
    device_close(d);
    return status;
}

/* ---- settings that would help ---- */

/* One that can be changed: applies it to v and says what it does; false when it does not apply (any more). */
typedef bool (*setting)(const admission *a, variant *v, char text[96]);

enum { SHORTEST = 128, SMALLEST_CHUNK = 512, SMALLEST_MODEL = 1024 };

static bool halve_batch(const admission *a, variant *v, char text[96]) {
    (void)a;
    int64_t *size = &v->cfg.train.batch_size;
    if (*size < 2) return false;
    *size /= 2;
    snprintf(text, 96, "train.batch_size = %" PRId64, *size);
    return true;
}

static bool halve_evaluation(const admission *a, variant *v, char text[96]) {
    (void)a;
    int64_t rows = config_evaluation_batch(&v->cfg);
    if (!v->cfg.eval.enabled || rows < 2) return false;
    v->cfg.eval.batch_size = rows / 2;
    snprintf(text, 96, "eval.batch_size = %" PRId64, rows / 2);
    return true;
}

static bool halve_length(const admission *a, variant *v, char text[96]) {
    int64_t *length = &v->cfg.train.seq_len;
    bool of_samples = dataset_has_samples(a->train_data) && !v->cfg.data.pack_sequences;
    if (*length < 2 * SHORTEST || of_samples) return false;
    *length /= 2;
    snprintf(text, 96, "train.seq_len = %" PRId64, *length);
    return true;
}

static bool recompute(const admission *a, variant *v, char text[96]) {
    (void)a;
    if (v->cfg.train.activation_checkpointing == CHECKPOINTING_FULL) return false;
    v->cfg.train.activation_checkpointing = CHECKPOINTING_FULL;
    snprintf(text, 96, "train.activation_checkpointing = \"full\"");
    return true;
}

static bool save_at_once(const admission *a, variant *v, char text[96]) {
    (void)a;
    if (v->cfg.checkpoint.async_mode == ASYNC_DISABLED) return false;
    v->cfg.checkpoint.async_mode = ASYNC_DISABLED;
    snprintf(text, 96, "checkpoint.async_mode = \"disabled\"");
    return true;
}

static bool chunk_loss(const admission *a, variant *v, char text[96]) {
    (void)a;
    bool chunked = v->cfg.train.loss_fn == LOSS_CHUNKED_CROSS_ENTROPY;
    int64_t chunk = v->cfg.train.ce_chunk_size;
    if (chunked && chunk > 0 && chunk <= SMALLEST_CHUNK) return false;
    v->cfg.train.loss_fn = LOSS_CHUNKED_CROSS_ENTROPY;
    v->cfg.train.ce_chunk_size = SMALLEST_CHUNK;
    snprintf(text, 96, "train.loss_fn = \"chunked_cross_entropy\" and train.ce_chunk_size = %d",
             SMALLEST_CHUNK);
    return true;
}

static bool halve_precision(const admission *a, variant *v, char text[96]) {
    (void)a;
    if (v->cfg.train.mixed_precision != PRECISION_FP32) return false;
    v->cfg.train.mixed_precision = PRECISION_BF16;
    snprintf(text, 96, "train.mixed_precision = \"bf16\"");
    return true;
}

/* Fine-tuning does as well without. */
static bool freeze_embedding(const admission *a, variant *v, char text[96]) {
    static const char *const names[] = {"model.embed_tokens"};
    static const config_list list = {names, 1};
    if (!*a->cfg->model.hf_path || v->shape.freeze->count > 0) return false;
    v->shape.freeze = &list;
    snprintf(text, 96, "train.freeze = \"%s\"", names[0]);
    return true;
}

/* On a GPU: first the moments, then masters too. */
static bool offload_more(const admission *a, variant *v, char text[96]) {
    config_offload *offload = &v->cfg.train.offload;
    if (a->device->threads > 0 || *offload == OFFLOAD_STATE || v->cfg.optimizer.name == OPTIMIZER_MUON)
        return false;
    *offload = *offload == OFFLOAD_NONE ? OFFLOAD_MOMENTS : OFFLOAD_STATE;
    v->shape.offload = *offload;
    snprintf(text, 96, "train.offload = \"%s\"", *offload == OFFLOAD_STATE ? "state" : "moments");
    return *offload == OFFLOAD_MOMENTS || config_copies_masters(&v->cfg);
}

/* For a run that only tries a configuration: the same family, smaller. */
static bool reduce_more(const admission *a, variant *v, char text[96]) {
    config smaller = *a->asked;
    int64_t by = v->cfg.model.reduce; /* 1 in the resolved configuration; then what was tried last */
    if (by <= 1) by = smaller.model.reduce > 1 ? smaller.model.reduce : 1;
    if (2 * by > SMALLEST_MODEL) return false;
    smaller.model.reduce = 2 * by;
    model_options shape;
    if (model_options_resolve(&smaller, &shape) != OTT_OK) return false;
    shape.vocab = a->shape->vocab;
    shape.freeze = v->shape.freeze;
    shape.shard_ranks = v->shape.shard_ranks;
    shape.expert_ranks = v->shape.expert_ranks;
    shape.expert_shard_ranks = v->shape.expert_shard_ranks;
    v->shape = shape;
    v->cfg.model.reduce = 2 * by;
    snprintf(text, 96, "model.reduce = %" PRId64, 2 * by);
    return true;
}

/* A setting, made as strong as it takes, and what it gives. */
typedef struct proposal {
    setting set;
    int times; /* it is applied */
    int64_t total;
    char text[96];
} proposal;

enum { MOST_TIMES = 24, MOST_PROPOSALS = 9, SHOWN = 3 };

static memory_limit host_room(const admission *a) {
    memory_limit room;
    limit_read(mem_read(a->account).now, &room);
    return room;
}

/* Applies it again and again until it fits or cannot be applied again. False: it saves nothing. */
static bool propose(const admission *a, const variant *from, setting set, int64_t need, int64_t left,
                    proposal *out) {
    variant v = *from;
    admission_need n;
    char text[96];
    *out = (proposal){.set = set, .total = need};
    for (int times = 1; times <= MOST_TIMES && out->total > left && set(a, &v, text); times++) {
        if (need_of(a, &v, &n) != OTT_OK) break; /* does not go with the rest of the configuration */
        if (n.host > host_room(a).left) break;
        if (n.total >= out->total) continue;
        out->total = n.total;
        out->times = times;
        memcpy(out->text, text, sizeof text);
    }
    return out->total < need;
}

static void insert(proposal *list, int *count, const proposal *p) {
    int at = *count;
    for (; at > 0 && list[at - 1].total > p->total; at--) list[at] = list[at - 1];
    list[at] = *p;
    (*count)++;
}

/* All that save something, the best first. */
static int find_proposals(const admission *a, const variant *v, int64_t need, int64_t left, proposal *list) {
    static const setting settings[MOST_PROPOSALS] = {halve_batch,     halve_evaluation, halve_length,
                                                     recompute,       save_at_once,     chunk_loss,
                                                     halve_precision, freeze_embedding, offload_more};
    int count = 0;
    proposal p;
    for (int i = 0; i < MOST_PROPOSALS && settings[i]; i++)
        if (propose(a, v, settings[i], need, left, &p)) insert(list, &count, &p);
    return count;
}

/* ---- the refusal ---- */

/* Of all bytes, those that matter. */
static void write_kinds(str *text, int64_t all, const int64_t of[MEM_KIND_COUNT]) {
    bool written[MEM_KIND_COUNT] = {false};
    char size[SIZE_TEXT];
    for (int i = 0; i < MEM_KIND_COUNT; i++) {
        int largest = -1;
        for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
            if (!written[kind] && (largest < 0 || of[kind] > of[largest])) largest = kind;
        written[largest] = true;
        if (of[largest] * 50 < all) return;
        str_printf(text, "%s%s %s", i ? ", " : "", mem_kind_name((mem_kind)largest),
                   size_text(of[largest], size));
    }
}

/* What several of them need together. */
static ott_status need_with(const admission *a, const variant *from, const proposal *list, int count,
                            int64_t *out) {
    variant v = *from;
    admission_need n;
    char text[96];
    for (int i = 0; i < count; i++)
        for (int times = 0; times < list[i].times; times++) list[i].set(a, &v, text);
    TRY(need_of(a, &v, &n));
    *out = n.total;
    return OTT_OK;
}

static void write_together(str *text, const admission *a, const variant *v, const proposal *list, int count,
                           int64_t left) {
    int64_t together = list[0].total;
    char size[SIZE_TEXT];
    proposal smaller;
    if (count > 1 && need_with(a, v, list, count, &together) == OTT_OK)
        str_printf(text, "; with %s it needs %s", count == 2 ? "both" : "all three",
                   size_text(together, size));
    if (together <= left) return;
    str_append(text, count > 0 ? ", which is still too much" : "; no other setting of the step saves any");
    if (propose(a, v, reduce_more, INT64_MAX, left, &smaller) && smaller.total <= left)
        str_printf(text, "; %s makes a small model of the family, to try the configuration with, of %s",
                   smaller.text, size_text(smaller.total, size));
}

static void write_proposals(str *text, const admission *a, const variant *v, int64_t need, int64_t left) {
    proposal list[MOST_PROPOSALS];
    char size[SIZE_TEXT];
    int count = find_proposals(a, v, need, left, list);
    if (count > SHOWN) count = SHOWN;
    for (int i = 0; i < count; i++)
        str_printf(text, "%s%s saves %s", i ? ", " : "; what would help most: ", list[i].text,
                   size_text(need - list[i].total, size));
    if (count == 0) list[0] = (proposal){.total = need};
    write_together(text, a, v, list, count, left);
}

enum { MOST_RANKS = 1024 };

/* The fewest ranks, a power of two, that hold the parameters between them and have room each. */
static void write_ranks(str *text, const admission *a, const variant *from, int64_t left) {
    variant v = *from;
    admission_need n;
    char size[SIZE_TEXT];
    mesh m = {.size = {1, 1, 1, 1, 1, 1}};
    int ranks = from->shape.shard_ranks ? 2 * from->shape.shard_ranks->size : 2;
    for (; ranks <= MOST_RANKS; ranks *= 2) {
        m.size[MESH_DP_SHARD] = ranks;
        if (dry_run_group_open(a->account, 0, ranks, &v.shape.shard_ranks) != OTT_OK) return;
        ott_status status = need_of(a, &v, &n);
        group_close(v.shape.shard_ranks);
        if (status != OTT_OK) return;
        if (a->device->threads > 0) n.total += world_group_bytes(&m) - n.of[MEM_COMM];
        if (n.total > left) continue;
        str_printf(
            text,
            "; on %d ranks (distributed.dp_shard) with as much memory each it needs %s of each; ottava plan "
            "tells how fast that is",
            ranks, size_text(n.total, size));
        return;
    }
}

static ott_status refuse(const admission *a, const variant *v, const admission_need *n,
                         const memory_limit *room) {
    char size[SIZE_TEXT], left[LIMIT_TEXT];
    str text = {.account = a->account};
    int64_t available = room->left + device_taken(a->device).now;
    str_printf(&text, "the run needs %s and %s: ", size_text(n->total, size), limit_text(room, left));
    write_kinds(&text, n->total, n->of);
    write_proposals(&text, a, v, n->total, available);
    write_ranks(&text, a, v, available);
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = status_fail(OTT_ERR_MEMORY, "%s", text.text);
    str_free(&text);
    return status;
}

ott_status admission_measure(const admission *a, admission_need *out) {
    return need_of(a, &(variant){.cfg = *a->cfg, .shape = *a->shape}, out);
}

/* Of a device with memory of its own, beside which the run takes some of the host's. */
static ott_status check_host(const admission *a, const admission_need *n) {
    memory_limit room = host_room(a);
    char size[SIZE_TEXT], left[LIMIT_TEXT];
    str text = {.account = a->account};
    if (n->host <= room.left) return OTT_OK;
    str_printf(&text, "the run needs %s of the host's memory, and %s: ", size_text(n->host, size),
               limit_text(&room, left));
    write_kinds(&text, n->host, n->host_of);
    if (n->host_of[MEM_STAGING] > 0)
        str_append(&text, "; checkpoint.async_mode = \"disabled\" needs no copy for checkpoints");
    if (a->cfg->train.offload != OFFLOAD_NONE)
        str_append(&text, "; train.offload = \"none\" leaves the training state in the device's memory");
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = status_fail(OTT_ERR_MEMORY, "%s", text.text);
    str_free(&text);
    return status;
}

ott_status admission_decide(const admission *a, admission_need *out) {
    device_memory memory;
    variant v = {.cfg = *a->cfg, .shape = *a->shape};
    int64_t taken = device_taken(a->device).now;
    TRY(need_of(a, &v, out));
    TRY(check_host(a, out));
    device_read_memory(a->device, &memory);
    if (memory.room.left == INT64_MAX || out->total - taken <= memory.room.left) return OTT_OK;
    return refuse(a, &v, out, &memory.room);
}
