/* run/run_log: writes the log lines before the first step and after the last step. */
#include "run/run_log.h"
#include "backend/backend.h"
#include <stdio.h>
#include <string.h>

void run_log_write_conversion(const logger *log, const trainer *t) {
    if (recipe_gemm_is_fp8(t->recipe, GEMM_COUNT))
        log_info(log, "Float8 conversion: %d of %d linear layers", t->converted.converted,
                 t->converted.linears);
}

static void log_precision(const run *r) {
    if (r->cfg->train.mixed_precision != PRECISION_FP8) {
        log_info(r->log, "Training in %s", r->trainer->recipe->name);
        return;
    }
    config_scale_rounding rounding = r->cfg->float8.round_scales_to_power_of_2;
    log_info(r->log, "Applied Float8 training: recipe=%s, fsdp_float8_all_gather=%s%s%s",
             r->precision.fp8.display, r->cfg->float8.enable_fsdp_float8_all_gather ? "True" : "False",
             rounding == SCALE_ROUNDING_RECIPE ? "" : ", round_scales_to_power_of_2=",
             rounding == SCALE_ROUNDING_RECIPE  ? ""
             : rounding == SCALE_ROUNDING_FALSE ? "False"
                                                : "True");
    for (int i = 0; r->precision.phase_count > 1 && i < r->precision.phase_count; i++)
        log_info(r->log, "Precision schedule: from step %lld on in %s",
                 (long long)r->precision.phases[i].first + 1, r->precision.phases[i].recipe->name);
}

/* Writes how GEMMs read the weights, with numbers of weights: "224 directly, 0 dequantized to bf16, ..." */
static void show_readings(const trainer *t, const int count[WEIGHT_CODES_USES], char *out, size_t size) {
    snprintf(out, size, "%d directly, %d dequantized to %s, %d requantized", count[WEIGHT_CODES_DIRECT],
             count[WEIGHT_CODES_DEQUANTIZED], dtype_name(t->m->activation), count[WEIGHT_CODES_REQUANTIZED]);
}

/* Logs how GEMMs read frozen FP8 weights. Some dequantize or requantize these weights, which rounds again. */
static void log_kept(const run *r) {
    const module_list *all = &r->trainer->m->modules;
    int kept = 0, count[2][WEIGHT_CODES_USES] = {0};
    char forward[128], backward[128];
    for (int i = 0; i < all->count; i++) {
        if (all->items[i].kind != MODULE_LINEAR || !all->items[i].weight->codes) continue;
        kept++;
        for (int pass = 0; pass < 2; pass++)
            count[pass][weight_get_codes_use(&all->items[i].linear->source, pass)]++;
    }
    if (kept == 0) return;
    show_readings(r->trainer, count[0], forward, sizeof forward);
    show_readings(r->trainer, count[1], backward, sizeof backward);
    log_info(r->log, "Kept in FP8: %d frozen weights; forward uses %s; backward %s", kept, forward, backward);
    if (count[0][WEIGHT_CODES_REQUANTIZED] + count[1][WEIGHT_CODES_REQUANTIZED] > 0)
        log_info(r->log,
                 "Requantized weights are rounded again at each use: recipe %s has scales for other blocks "
                 "of elements",
                 r->trainer->recipe->name);
}

/* Logs the kind, ranks and scales of the adapters. Ranks and scales may differ between layers. */
static void log_adapters(const logger *log, const model *m) {
    int64_t least = INT64_MAX, most = 0;
    int count = 0, saved = 0;
    float scale = 0;
    bool is_one = true; /* true if all local adapters have one scale */
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        saved += e->saved;
        if (!e->lora_a) continue;
        count++;
        if (e->linear) {
            is_one = is_one && (scale == 0 || scale == e->linear->lora->scale);
            scale = e->linear->lora->scale;
        }
        if (e->lora_a->rows < least) least = e->lora_a->rows;
        if (e->lora_a->rows > most) most = e->lora_a->rows;
    }
    const char *kind = m->options.adapter.decomposed ? "DoRA" : "LoRA";
    char ranks[64], scales[32] = "a scale for each layer";
    snprintf(ranks, sizeof ranks, least == most ? "rank %lld" : "ranks from %lld to %lld", (long long)least,
             (long long)most);
    if (is_one) snprintf(scales, sizeof scales, "scale %g", (double)scale);
    if (count > 0) log_info(log, "Adapters: %s of %s, %s, on %d linear layers", kind, ranks, scales, count);
    if (saved > 0) log_info(log, "In addition, %d modules are fully trained (peft.modules_to_save)", saved);
}

static void log_model(const run *r) {
    const model *m = r->trainer->m;
    const model_options *o = &m->options;
    int trained = 0, decayed = 0;
    char count[32];
    for (int i = 0; i < m->all_parameter_count; i++) {
        trained += !m->all_parameters[i]->frozen;
        decayed += m->all_parameters[i]->decay && !m->all_parameters[i]->frozen;
    }
    log_info(r->log, "Optimizer groups: %d params with decay, %d params without decay", decayed,
             trained - decayed);
    log_info(r->log,
             "Model: %s, %s parameters, dim %lld, %lld layers, %lld heads, %lld key heads, ffn %lld, "
             "vocabulary %lld%s",
             o->family->name, str_commas(model_parameter_count(m), count), (long long)o->dim,
             (long long)o->layers, (long long)o->heads, (long long)o->kv_heads, (long long)o->hidden,
             (long long)o->vocab, o->tied ? ", tied head" : "");
    log_adapters(r->log, m);
    if (trained < m->all_parameter_count)
        log_info(r->log, "Frozen: %d params, %s of the parameters", m->all_parameter_count - trained,
                 str_commas(model_frozen_count(m), count));
    run_log_write_conversion(r->log, r->trainer);
    if (r->trainer->converted.has_fp8_head)
        log_info(r->log,
                 "The output head runs in FP8, which may cost more loss than all other layers together "
                 "(docs/reference/recipes.md): \"%s\" in float8.filter_fqns keeps it in high precision",
                 config_head_name(r->cfg));
    log_kept(r);
}

static void log_offload(const run *r) {
    const memory_need *n = &r->need;
    if (r->cfg->train.offload == OFFLOAD_NONE) return;
    if (r->trainer->device->threads > 0)
        log_info(r->log, "Offload: train.offload = \"%s\" has no effect, since the device is the CPU",
                 config_word(r->cfg, "train.offload"));
    else
        log_info(r->log, "Offload: %.1f MiB of moments and %.1f MiB of master weights are in host memory",
                 (double)n->host_by_kind[MEM_OPTIMIZER] / 1048576.0,
                 (double)n->host_by_kind[MEM_PARAM] / 1048576.0);
}

static void log_memory(const run *r) {
    const memory_need *n = &r->need;
    double mib[MEM_KIND_COUNT];
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++) mib[kind] = (double)n->by_kind[kind] / 1048576.0;
    log_info(r->log,
             "Memory plan: %.1f MiB = parameters %.1f, gradients %.1f, optimizer %.1f, compute weights %.1f, "
             "step %.1f (including %.1f saved for backward), thread scratch %.1f, data %.1f, other %.1f",
             (double)n->total / 1048576.0, mib[MEM_PARAM], mib[MEM_GRAD], mib[MEM_OPTIMIZER], mib[MEM_WEIGHT],
             mib[MEM_STEP], (double)n->saved / 1048576.0, mib[MEM_SCRATCH], mib[MEM_DATA], mib[MEM_OTHER]);
    char text[MEMORY_CHECK_FP8_TEXT];
    if (r->need_fp8.excess != 0) {
        memory_check_show_fp8(&r->need_fp8, r->need.total, text);
        log_info(r->log, "%s", text);
    }
    int64_t staging = n->by_kind[MEM_STAGING] + n->host_by_kind[MEM_STAGING];
    if (staging > 0)
        log_info(r->log,
                 "Checkpoints are written while training continues: a copy of the state needs %.1f MiB of %s",
                 (double)staging / 1048576.0, n->host_by_kind[MEM_STAGING] > 0 ? "host memory" : "the plan");
    log_offload(r);
    if (n->by_kind[MEM_COMM] > 0)
        log_info(r->log, "Collectives: %.1f MiB of the plan are buffers for messages between ranks",
                 mib[MEM_COMM]);
}

/* Logs keys of the Hugging Face folder that transformers would apply and this run does not. */
static void log_folder(const run *r) {
    const model_options *o = &r->trainer->m->options;
    if (r->notes.dropout[0])
        log_warning(r->log, "config.json of %s has %s, which is ignored: Ottava trains without dropout",
                    r->cfg->model.hf_path, r->notes.dropout);
    if (r->notes.router_aux_loss_coef >= 0)
        log_info(r->log,
                 "config.json of %s has router_aux_loss_coef = %g; this run uses %g, the value of the key "
                 "model.moe_aux_loss_weight",
                 r->cfg->model.hf_path, r->notes.router_aux_loss_coef, o->moe.balance);
    if (o->has_padding)
        log_info(r->log,
                 "Row %lld of the embedding (model.pad_token_id) gets no gradient from padding tokens",
                 (long long)o->padding);
}

/* Logs how masters loaded from bf16 behave in training: docs/explanation/small-updates.md. */
static void log_masters(const run *r) {
    ott_dtype from = r->trainer->m->masters_from;
    if (from == OTT_F32 || r->trainer->run.step > 0) return;
    if (r->cfg->train.master_dither)
        log_info(r->log, "Masters: loaded from %s, with a random offset below half a unit in the last place",
                 dtype_name(from));
    else if (r->cfg->train.mixed_precision != PRECISION_FP32)
        log_info(
            r->log,
            "Masters: exact %s values. The first updates of a small learning rate act too weakly in bf16 "
            "and too strongly in FP8; train.master_dither=true avoids that",
            dtype_name(from));
}

static void log_graphs(const run *r) {
    const trainer *t = r->trainer;
    if (!t->options.graphs) return;
    if (t->replay.enabled && device_has_graphs(t->device))
        log_info(r->log, "Graphs: micro-batches and the optimizer are recorded once and then replayed%s",
                 r->cfg->train.compile_mode == COMPILE_MAX_AUTOTUNE
                     ? "; train.compile_mode=max-autotune has no further effect"
                     : "");
    else
        log_info(r->log, "Graphs: not used, since %s; every kernel is launched separately",
                 t->replay.enabled          ? "the device has none"
                 : t->options.loss.function ? "a function of the caller computes the loss"
                                            : "ranks communicate inside a step");
}

static const char *source_of_peak(const run *r, char text[96]) {
    if (r->cfg->metrics.peak_tflops > 0) return "metrics.peak_tflops";
    const char *unit = backend_peak_unit(r->device, run_product_format(r));
    if (unit) {
        snprintf(text, 96, "speed of %ss, measured at the start and during the first steps", unit);
        return text;
    }
    return r->progress.peak_flops > 0 ? "dense bf16 products, by its data sheet"
                                      : "unknown for this device: set metrics.peak_tflops";
}

/* Logs how much faster products would be on the CPU's tile unit (AMX), if the run does not use the unit. */
static void log_tiles(const run *r) {
    const config *cfg = r->cfg;
    bool fp8 = cfg->train.mixed_precision == PRECISION_FP8;
    bool chain =
        fp8 ? cfg->float8.accumulate == SUM_FP32
            : cfg->train.mixed_precision == PRECISION_BF16 && cfg->train.bf16_accumulate == BF16_SUM_FP32;
    double speed;
    if (!chain || !backend_has_tiles(r->trainer->device)) return;
    if (backend_tiles_speed(r->trainer->device, &speed) != OTT_OK || speed <= 1) return;
    log_info(r->log, "Tile unit: products are %.1f times as fast with %s = \"tile32\" (or \"auto\"), %s",
             speed, fp8 ? "float8.accumulate" : "train.bf16_accumulate",
             "which sums in another order; this run does not use it");
}

void run_log_write_start(const run *r) {
    const trainer *t = r->trainer;
    char source[96];
    if (*r->cfg->run.description) log_info(r->log, "Starting job: %s", r->cfg->run.description);
    if (r->cfg->data.format == DATA_SYNTHETIC)
        log_warning(r->log, "Training on random tokens (data.format = \"synthetic\"): speed and memory are "
                            "realistic, the loss is meaningless");
    log_precision(r);
    log_model(r);
    log_folder(r);
    log_masters(r);
    log_info(r->log, "Device: %s; peak used for mfu: %.3e FLOP/s (%s)", r->trainer->device->name,
             r->progress.peak_flops, source_of_peak(r, source));
    log_tiles(r);
    log_memory(r);
    log_graphs(r);
    if (t->options.loss.function)
        log_info(r->log, "Loss: computed by a function of the caller, instead of train.loss_fn");
    if (mesh_ranks(&r->process_group.mesh) > 1) {
        char text[128];
        mesh_describe(&r->process_group.mesh, text);
        log_info(r->log, "Ranks: %s; a step trains on %lld rows", text, (long long)config_step_rows(r->cfg));
    }
    log_info(
        r->log,
        "Starting training: step=%lld, max_steps=%lld, batch_size=%lld, grad_accum=%lld, world_size=%lld",
        (long long)t->run.step, (long long)r->cfg->train.max_steps, (long long)t->options.batch_size,
        (long long)t->options.grad_accum, (long long)mesh_ranks(&r->process_group.mesh));
    if (r->cfg->checkpoint.interval <= 0)
        log_warning(r->log,
                    "checkpoint.interval = 0: unless it is stopped, this run saves no checkpoint, and its "
                    "weights are lost; give --checkpoint.interval=N to save every N steps and at the end");
}

/* ---- after the last step ---- */

/* Writes the names of the recipes that ran FP8 GEMMs, each once: "rowwise" or "rowwise, tensorwise". */
static void name_recipes(const run_history *h, char *out, size_t size) {
    size_t length = 0;
    out[0] = 0;
    for (int i = 0; i < h->phase_count; i++) {
        const report_phase *p = &h->phases[i];
        bool named = p->fp8_gemms == 0;
        for (int k = 0; k < i; k++) named |= strcmp(p->recipe, h->phases[k].recipe) == 0;
        if (named || length >= size) continue;
        length += (size_t)snprintf(out + length, size - length, "%s%s", length > 0 ? ", " : "", p->recipe);
    }
}

/* Logs the number of GEMMs of the run, and of each precision phase if there are several. */
static void log_gemms(const run *r) {
    const run_history *h = &r->progress.history;
    report_phase sum = run_history_sum(h);
    char a[32], b[32], c[32], time[32], names[256];
    name_recipes(h, names, sizeof names);
    log_info(r->log, "GEMMs run: %s, in FP8: %s%s%s", str_commas(sum.gemms, a), str_commas(sum.fp8_gemms, b),
             sum.fp8_gemms ? ", recipe " : "", names);
    for (int i = 0; h->phase_count > 1 && i < h->phase_count; i++) {
        const report_phase *p = &h->phases[i];
        log_info(r->log, "  %lld steps in %s: %s tokens, %s, %s GEMMs, in FP8: %s", (long long)p->steps,
                 p->recipe, str_commas(p->tokens, c), str_duration(p->seconds, time), str_commas(p->gemms, a),
                 str_commas(p->fp8_gemms, b));
    }
}

static double mib(int64_t bytes) {
    return (double)bytes / 1048576.0;
}

void run_log_write_end(const run *r) {
    const trainer *t = r->trainer;
    char tokens[32], time[32];
    if (r->cfg->checkpoint.interval == 0 && r->saved_step < 0)
        log_warning(r->log, "No checkpoint was saved: checkpoint.interval = 0");
    log_gemms(r);
    const store_traffic *s = &t->m->store.traffic; /* bytes of the parameter store's collectives */
    if (r->process_group.shard->size > 1)
        log_info(r->log,
                 "Gathered from ranks: %.1f MiB in FP8, %.1f in bf16, %.1f in fp16, %.1f in fp32; amaxes: "
                 "%.2f; gradients reduced: %.1f",
                 mib(s->fp8), mib(s->bf16), mib(s->f16), mib(s->fp32), mib(s->amax), mib(s->gradient));
    log_info(r->log, "Peak memory: planned %.1f MiB, allocated %.1f MiB, resident %.1f MiB",
             mib(r->need.total), mib(device_taken(t->device).peak), mib(progress_peak_resident()));
    log_info(r->log, "Training complete: %lld steps, %s tokens, %s of training", (long long)t->run.step,
             str_commas(t->run.tokens, tokens),
             str_duration(run_history_sum(&r->progress.history).seconds, time));
}
