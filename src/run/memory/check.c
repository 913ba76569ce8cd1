/* run/memory/check: measures the memory of a run and searches settings that reduce it. */
#include "run/memory/check.h"
#include "base/text/size.h"
#include "base/text/text.h"
#include "checkpoint/writer.h"
#include "run/memory/settings.h"
#include "run/process_group.h"
#include <string.h>

/* ---- measuring ---- */

/* Converts the model to every recipe of the schedule: peak and out->saved become maxima over the recipes. */
static ott_status try_phases(trainer *t, const precision_plan *precision, memory_need *out) {
    for (int i = 0; i < precision->phase_count; i++) {
        if (precision->phases[i].recipe != t->recipe) TRY(trainer_convert(t, precision->phases[i].recipe));
        int64_t saved = plan_saved(t->train_plan);
        if (saved > out->saved) out->saved = saved;
    }
    return OTT_OK;
}

static ott_status measure_dry_run(const memory_check *c, const variant *v, device *d, memory_need *out) {
    precision_plan precision;
    trainer_options options;
    trainer *t;
    int64_t staging;
    TRY(precision_plan_read(&v->cfg, &precision));
    TRY(run_trainer_options(&v->cfg, &precision, c->step, &options));
    options.loss = c->loss;
    TRY(trainer_open(c->account, NULL, d, &v->shape, &options, c->train_data, c->validation_data, &t));
    dry_run_listen(d, NULL);
    ott_status status = c->inspect ? c->inspect(c->user, t) : OTT_OK;
    if (status == OTT_OK) status = try_phases(t, &precision, out);
    if (status == OTT_OK) status = checkpoint_writer_staging(t->m, &v->cfg, NULL, &staging);
    if (status == OTT_OK)
        status = dry_run_count_host(t->device, MEM_STAGING, staging, 1, "copy for a checkpoint");
    trainer_close(t);
    return status;
}

static ott_status need_of(const memory_check *c, const variant *v, memory_need *out) {
    device *d;
    mem_stats taken = device_taken(c->device);
    *out = (memory_need){0};
    TRY(dry_run_open(c->account, c->device, &d));
    dry_run_listen(d, c->listener);
    ott_status status = measure_dry_run(c, v, d, out);
    out->total = dry_run_peak(d, out->by_kind) + taken.now;
    out->host = dry_run_host_peak(d, out->host_by_kind);
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++) out->by_kind[kind] += taken.now_of[kind];
    out->total += c->group_bytes;
    out->by_kind[MEM_COMM] += c->group_bytes;
    device_close(d);
    return status;
}

/* ---- settings that save memory ---- */

/* A change of a setting, made one or more times, and the memory that the run needs afterwards. */
typedef struct proposal {
    setting set;
    int times;     /* how often the setting is applied */
    int64_t total; /* bytes that the run needs with the setting */
    char text[MEMORY_CHECK_TEXT];
} proposal;

enum { MOST_TIMES = 24, MOST_PROPOSALS = 16, SHOWN = 3 };

static memory_limit host_limit(const memory_check *c) {
    memory_limit limit = {.left = INT64_MAX};
    if (!c->is_other_machine) limit_read(mem_read(c->account).now, &limit);
    return limit;
}

/* Changes a setting repeatedly until the run fits or no change is possible. False if nothing is saved. */
static bool apply_setting(const memory_check *c, const variant *from, setting set, int64_t need, int64_t left,
                          proposal *out) {
    variant v = *from;
    memory_need n;
    char text[MEMORY_CHECK_TEXT];
    *out = (proposal){.set = set, .total = need};
    for (int times = 1; times <= MOST_TIMES && out->total > left && set(c, &v, text); times++) {
        if (need_of(c, &v, &n) != OTT_OK) break; /* other keys forbid this setting */
        if (n.host > host_limit(c).left) break;
        if (n.total >= out->total) continue;
        out->total = n.total;
        out->times = times;
        memcpy(out->text, text, sizeof text);
    }
    return out->total < need;
}

/* Lists the settings that save memory; those that save most come first. Returns their number. */
static int find_proposals(const memory_check *c, const variant *v, int64_t need, int64_t left,
                          proposal *list) {
    int count = 0;
    proposal p;
    for (int i = 0; count < MOST_PROPOSALS && memory_check_settings[i]; i++) {
        if (!apply_setting(c, v, memory_check_settings[i], need, left, &p)) continue;
        int at = count++;
        for (; at > 0 && list[at - 1].total > p.total; at--) list[at] = list[at - 1];
        list[at] = p;
    }
    return count;
}

/* ---- suggestions ---- */

/* *out = bytes that the run needs with all settings of the list. */
static ott_status need_with(const memory_check *c, const variant *from, const proposal *list, int count,
                            int64_t *out) {
    variant v = *from;
    memory_need n;
    char text[MEMORY_CHECK_TEXT];
    for (int i = 0; i < count; i++)
        for (int times = 0; times < list[i].times; times++) list[i].set(c, &v, text);
    TRY(need_of(c, &v, &n));
    return *out = n.total, OTT_OK;
}

static void write_together(str *text, const memory_check *c, const variant *v, const proposal *list,
                           int count, int64_t left) {
    int64_t together = list[0].total;
    char size[SIZE_TEXT];
    proposal smaller;
    if (count > 1 && need_with(c, v, list, count, &together) == OTT_OK)
        str_printf(text, "; with %s it needs %s", count == 2 ? "both" : "all three",
                   size_text(together, size));
    if (together <= left) return;
    if (count > 0) str_append(text, ", which is still too much");
    if (apply_setting(c, v, memory_check_reduce_model, INT64_MAX, left, &smaller) && smaller.total <= left)
        str_printf(text, "; %s makes a small model of the family to try the configuration; it needs %s",
                   smaller.text, size_text(smaller.total, size));
}

static void write_proposals(str *text, const memory_check *c, const variant *v, int64_t need, int64_t left) {
    proposal list[MOST_PROPOSALS];
    char size[SIZE_TEXT];
    int count = find_proposals(c, v, need, left, list);
    if (count > SHOWN) count = SHOWN;
    for (int i = 0; i < count; i++)
        str_printf(text, "%s%s saves %s", i ? ", " : "what would help most: ", list[i].text,
                   size_text(need - list[i].total, size));
    if (count == 0) {
        str_append(text, "no other setting saves memory");
        list[0] = (proposal){.total = need};
    }
    write_together(text, c, v, list, count, left);
}

enum { MOST_RANKS = 1024 };

/* Doubles the number of ranks until the sharded run fits, and appends the number. False above MOST_RANKS. */
static bool write_ranks(str *text, const memory_check *c, const variant *from, int64_t left) {
    variant v = *from;
    memory_need n;
    char size[SIZE_TEXT];
    mesh m = {.size = {1, 1, 1, 1, 1, 1}};
    int ranks = from->shape.shard_ranks ? 2 * from->shape.shard_ranks->size : 2;
    for (; ranks <= MOST_RANKS; ranks *= 2) {
        m.size[MESH_DP_SHARD] = ranks;
        if (dry_run_group_open(c->account, 0, ranks, &v.shape.shard_ranks) != OTT_OK) return false;
        ott_status status = need_of(c, &v, &n);
        group_close(v.shape.shard_ranks);
        if (status != OTT_OK) return false;
        if (c->device->threads > 0) n.total += process_group_bytes(&m) - n.by_kind[MEM_COMM];
        if (n.total > left) continue;
        str_printf(text,
                   "; sharded over %d ranks with as much memory each (distributed.dp_shard = %d) it needs %s "
                   "on each rank",
                   ranks, ranks, size_text(n.total, size));
        return true;
    }
    return false;
}

/* Appends all suggestions. True if they include a number of ranks. */
static bool write_suggestions(const memory_check *c, const variant *v, int64_t need, int64_t left,
                              str *text) {
    write_proposals(text, c, v, need, left);
    return write_ranks(text, c, v, left);
}

ott_status memory_check_suggest(const memory_check *c, int64_t need, int64_t left, str *out) {
    write_suggestions(c, &(variant){.cfg = *c->cfg, .shape = *c->shape}, need, left, out);
    return str_finish(out);
}

/* ---- FP8 and bf16 ---- */

/* FP8's extra memory is reported if it is at least EXCESS_LEAST bytes and 1 / EXCESS_SHARE of bf16's. */
enum { EXCESS_SHARE = 100, EXCESS_LEAST = 16 << 20 };

/* Measures the run's memory with a setting. *fits = false if other keys do not allow the setting. */
static ott_status try_setting(const memory_check *c, const variant *v, memory_need *out, bool *fits) {
    ott_status status = need_of(c, v, out);
    *fits = status == OTT_OK;
    return status == OTT_ERR_MEMORY ? status : OTT_OK;
}

static ott_status add_offer(const memory_check *c, setting set, int64_t need, memory_check_fp8 *out) {
    variant v = {.cfg = *c->cfg, .shape = *c->shape};
    memory_need n;
    bool fits;
    memory_check_offer *o = &out->offers[out->offer_count];
    if (!set(c, &v, o->text)) return OTT_OK;
    TRY(try_setting(c, &v, &n, &fits));
    if (!fits || n.total >= need) return OTT_OK;
    o->total = n.total;
    out->offer_count++;
    return OTT_OK;
}

ott_status memory_check_compare_fp8(const memory_check *c, int64_t need, memory_check_fp8 *out) {
    static const setting settings[MEMORY_CHECK_OFFERS] = {memory_check_exclude_head, memory_check_chunk_loss};
    variant v = {.cfg = *c->cfg, .shape = *c->shape};
    memory_need bf16;
    bool fits;
    *out = (memory_check_fp8){0};
    if (v.cfg.train.mixed_precision != PRECISION_FP8) return OTT_OK;
    v.cfg.train.mixed_precision = PRECISION_BF16;
    TRY(try_setting(c, &v, &bf16, &fits));
    int64_t excess = need - bf16.total;
    if (!fits || excess < EXCESS_LEAST || excess < bf16.total / EXCESS_SHARE) return OTT_OK;
    out->excess = excess;
    for (int i = 0; i < MEMORY_CHECK_OFFERS; i++) TRY(add_offer(c, settings[i], need, out));
    return OTT_OK;
}

void memory_check_show_fp8(const memory_check_fp8 *c, int64_t need, char out[MEMORY_CHECK_FP8_TEXT]) {
    size_t length = 0;
    text_format(out, MEMORY_CHECK_FP8_TEXT, "FP8 needs %.1f MiB, %.1f more than bf16",
                (double)need / 1048576.0, (double)c->excess / 1048576.0);
    for (int i = 0; i < c->offer_count; i++) {
        length = strlen(out);
        text_format(out + length, MEMORY_CHECK_FP8_TEXT - length, "%s %.1f MiB with %s",
                    i ? "," : "; it needs", (double)c->offers[i].total / 1048576.0, c->offers[i].text);
    }
}

/* ---- the error message ---- */

/* Appends the kinds of memory that are at least 2% of the total, largest first. */
static void append_memory_kinds(str *text, int64_t all, const int64_t bytes_of_kind[MEM_KIND_COUNT]) {
    bool written[MEM_KIND_COUNT] = {false};
    char size[SIZE_TEXT];
    for (int i = 0; i < MEM_KIND_COUNT; i++) {
        int largest = -1;
        for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
            if (!written[kind] && (largest < 0 || bytes_of_kind[kind] > bytes_of_kind[largest]))
                largest = kind;
        written[largest] = true;
        if (bytes_of_kind[largest] * 50 < all) return;
        str_printf(text, "%s%s %s", i ? ", " : "", mem_kind_name((mem_kind)largest),
                   size_text(bytes_of_kind[largest], size));
    }
}

static ott_status fail_with_suggestions(const memory_check *c, const variant *v, const memory_need *n,
                                        const memory_limit *limit) {
    char size[SIZE_TEXT], left[LIMIT_TEXT];
    str text = {.account = c->account};
    int64_t available = limit->left + device_taken(c->device).now;
    str_printf(&text, "the run needs %s and %s: ", size_text(n->total, size), limit_text(limit, left));
    append_memory_kinds(&text, n->total, n->by_kind);
    str_append(&text, "; ");
    if (write_suggestions(c, v, n->total, available, &text))
        str_append(&text, "; ottava plan estimates the speed on these ranks");
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = status_fail(OTT_ERR_MEMORY, "%s", text.text);
    str_free(&text);
    return status;
}

ott_status memory_check_measure(const memory_check *c, memory_need *out) {
    return need_of(c, &(variant){.cfg = *c->cfg, .shape = *c->shape}, out);
}

/* Checks the host memory that a run needs in addition to a GPU's memory. */
static ott_status check_host(const memory_check *c, const memory_need *n) {
    memory_limit limit = host_limit(c);
    char size[SIZE_TEXT], left[LIMIT_TEXT];
    str text = {.account = c->account};
    if (n->host <= limit.left) return OTT_OK;
    str_printf(&text, "the run needs %s of host memory, and %s: ", size_text(n->host, size),
               limit_text(&limit, left));
    append_memory_kinds(&text, n->host, n->host_by_kind);
    if (n->host_by_kind[MEM_STAGING] > 0)
        str_append(&text, "; checkpoint.async_mode = \"disabled\" needs no copy for checkpoints");
    if (c->cfg->train.offload != OFFLOAD_NONE)
        str_append(&text, "; train.offload = \"none\" keeps the training state in device memory");
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = status_fail(OTT_ERR_MEMORY, "%s", text.text);
    str_free(&text);
    return status;
}

ott_status memory_check_decide(const memory_check *c, memory_need *out) {
    device_memory memory;
    variant v = {.cfg = *c->cfg, .shape = *c->shape};
    int64_t taken = device_taken(c->device).now;
    TRY(need_of(c, &v, out));
    TRY(check_host(c, out));
    device_read_memory(c->device, &memory);
    if (memory.limit.left == INT64_MAX || out->total - taken <= memory.limit.left) return OTT_OK;
    return fail_with_suggestions(c, &v, out, &memory.limit);
}
