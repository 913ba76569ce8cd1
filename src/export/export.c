/* export/export: opens a trained model and writes it to a staging folder or file, which is then renamed. */
#include "export/export.h"
#include "backend/backend.h"
#include "base/file/file.h"
#include "base/staging.h"
#include "checkpoint/checkpoint.h"
#include "folders/gguf_save.h"
#include "folders/hf/save.h"
#include "folders/peft.h"
#include "formats/hf/folder.h"
#include "export/export_gguf.h"
#include "run/export_tokenizer.h"
#include "run/inference.h"
#include <inttypes.h>
#include <string.h>

typedef struct exporter {
    mem *account;
    const logger *log;
    const ott_export_options *options;
    const char *source; /* the user's path; for a run, the path of its checkpoint */
    char *checkpoint;   /* NULL if the source is a Hugging Face folder */
    config *cfg;
    inference_plan plan;
    device *device;
    model *m;
    int64_t tokenizer_files; /* number of files copied from data.tokenizer_path */
    str goal;                /* path of the exported folder or file */
} exporter;

/* ---- opening ---- */

static bool is_gguf(const exporter *e) {
    return e->options->format == OTT_EXPORT_GGUF || e->options->format == OTT_EXPORT_GGUF_Q8;
}

static ott_status check_export_folder(const exporter *e) {
    file_list names;
    const char *goal = e->goal.text;
    if (!file_exists(goal)) return OTT_OK;
    if (is_gguf(e)) return status_fail(OTT_ERR_ARGUMENT, "%s exists: give the path of a new file", goal);
    if (!file_is_folder(goal))
        return status_fail(OTT_ERR_ARGUMENT, "%s is a file: give a new or empty folder", goal);
    TRY(file_list_folder(e->account, goal, &names));
    int64_t count = names.count;
    file_list_free(&names);
    if (count == 0) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s is not empty: give a new or empty folder", goal);
}

static bool as_trained(const exporter *e) {
    return e->options->format == OTT_EXPORT_HF_FP8 && e->options->granularity == OTT_EXPORT_AS_TRAINED;
}

/* Only an export "as trained" reads the layers' FP8 specs. Without a log, because the loader would report
   FP8 state that an export does not read. */
static ott_status open_export_model(exporter *e) {
    TRY(inference_read(e->account, e->cfg, e->checkpoint, &e->plan));
    if (!as_trained(e)) e->plan.convert.recipe = NULL;
    const backend_choice choice = {.name = e->options->device,
                                   .threads = 1,
                                   .recipe = e->plan.convert.recipe,
                                   .emulates = e->cfg->float8.emulate,
                                   .log = e->log};
    TRY(backend_open(&choice, e->account, &e->device));
    return inference_open(&e->plan, e->device, 1, NULL, &e->m);
}

static ott_status find_original(const exporter *e, const char **out) {
    const char *from = e->options->from;
    *out = from ? from : e->cfg->model.hf_path;
    if (!**out) return *out = NULL, OTT_OK;
    if (hf_folder_is_model(*out)) return OTT_OK;
    return status_fail(
        OTT_ERR_NOT_FOUND,
        "%s: %s is not a folder or GGUF file: give a Hugging Face folder with the tokenizer by "
        "--from (from in ott_export_options), or an empty --from for no tokenizer",
        *out, from ? "--from" : "model.hf_path of the model");
}

static void write_fp8_report(const exporter *e, const hf_save_summary *s, str *report) {
    static const char *const scales[] = {[HF_SCALE_TENSOR] = "one scale per matrix",
                                         [HF_SCALE_CHANNEL] = "one scale per output channel",
                                         [HF_SCALE_BLOCK] = "one scale per 128x128 elements"};
    bool one = s->granularity == HF_SCALE_TENSOR;
    str_printf(report, "FP8: %" PRId64 " matrices of the blocks in E4M3, %s%s; ", s->matrices,
               scales[s->granularity], one && !as_trained(e) ? ", shared by q, k, v and by gate, up" : "");
    if (s->kept > 0) str_printf(report, "%" PRId64 " that ran in high precision, and ", s->kept);
    str_append(report, "everything else in bf16\n");
    str_printf(report, "Read by: %s\n", s->readers);
    if (!as_trained(e)) return;
    str_append(report, "Codes and scales are the same as in training; the output head is in bf16, too\n");
    if (one)
        str_append(report, "vLLM joins q, k, v and gate, up, and requantizes them with the largest "
                           "scale\n");
}

static void write_folder_report(const exporter *e, const hf_save_summary *s, const char *original,
                                str *report) {
    char count[32];
    str_printf(report, "Exported %s to %s\n", e->source, e->goal.text);
    str_printf(report, "Family: %s; %" PRId64 " tensors, %s bytes\n", s->family, s->tensors,
               str_commas(s->bytes, count));
    if (e->options->format == OTT_EXPORT_HF_FP8)
        write_fp8_report(e, s, report);
    else
        str_printf(report, "Weights: %s\n", dtype_name(e->options->dtype));
    const char *own = e->options->from ? "" : e->cfg->data.tokenizer_path;
    if (original && !file_is_gguf(original))
        str_printf(report, "Copied: %" PRId64 " files of %s\n", s->copied, original);
    if (e->tokenizer_files > 0)
        str_printf(report, "Copied: the %stokenizer, %" PRId64 " files of %s\n", *own ? "run's " : "",
                   e->tokenizer_files, *own ? own : original);
    if (!original && e->tokenizer_files == 0)
        str_append(report, "Copied: nothing: there is no Hugging Face folder and no tokenizer "
                           "(--from adds one)\n");
}

/* Writes the model, or only its adapters if options is NULL. */
static ott_status write_staged(exporter *e, const hf_save_options *options, hf_save_summary *sum) {
    staging s;
    TRY(staging_open(e->account, e->goal.text, &s));
    ott_status status =
        options ? hf_model_save(e->m, options, s.path.text, sum) : peft_save(e->m, e->cfg, NULL, s.path.text);
    if (status == OTT_OK && options)
        status = export_tokenizer(e->account, e->cfg, e->options->from, s.path.text, &e->tokenizer_files);
    if (status == OTT_OK)
        status = check_export_folder(e); /* checked twice: another program may have created the goal */
    return staging_end(&s, status);
}

static ott_status export_model(exporter *e, str *report) {
    static const hf_method methods[] = {
        [OTT_EXPORT_FP8] = HF_METHOD_FP8, [OTT_EXPORT_COMPRESSED_TENSORS] = HF_METHOD_COMPRESSED};
    static const hf_scales scales[] = {[OTT_EXPORT_TENSOR] = HF_SCALE_TENSOR,
                                       [OTT_EXPORT_CHANNEL] = HF_SCALE_CHANNEL,
                                       [OTT_EXPORT_BLOCK] = HF_SCALE_BLOCK,
                                       [OTT_EXPORT_AS_TRAINED] = HF_SCALE_AS_TRAINED};
    const ott_export_options *o = e->options;
    bool fp8 = o->format == OTT_EXPORT_HF_FP8;
    hf_save_summary sum;
    hf_save_options options = {.dtype = fp8 ? OTT_BF16 : o->dtype,
                               .fp8 = fp8,
                               .method = methods[o->method],
                               .granularity = scales[o->granularity],
                               .log = e->log};
    TRY(find_original(e, &options.original));
    TRY(status_context(write_staged(e, &options, &sum), "cannot export to %s", e->goal.text));
    write_folder_report(e, &sum, options.original, report);
    return OTT_OK;
}

static ott_status export_adapters(exporter *e, str *report) {
    const config *cfg = e->cfg;
    const moe_options *experts = &e->m->options.moe;
    /* vLLM requires the same rank and alpha in all layers, and has neither DoRA nor modules_to_save. */
    bool vllm_reads = !cfg->peft.use_dora && cfg->peft.rank_pattern.count == 0 &&
                      cfg->peft.alpha_pattern.count == 0 && cfg->peft.modules_to_save.count == 0;
    if (!cfg->peft.enabled)
        return status_fail(OTT_ERR_ARGUMENT, "%s: has no adapters (peft.enabled): use another --format",
                           e->source);
    TRY(status_context(write_staged(e, NULL, NULL), "cannot export to %s", e->goal.text));
    if (experts->biased && experts->bias_rate > 0)
        log_warning(e->log,
                    "a PEFT folder cannot hold the routing biases, which this run changed "
                    "(model.moe_bias_rate = %g): with the base model's biases, tokens may go to other "
                    "experts; use --format=hf, or train with model.moe_bias_rate = 0",
                    experts->bias_rate);
    str_printf(report, "Exported the adapters of %s to %s\nRead by: PEFT%s and peft.path\n", e->source,
               e->goal.text, vllm_reads ? ", vLLM," : "");
    return OTT_OK;
}

static void write_gguf_report(const exporter *e, const gguf_save_summary *s, const str *tokenizer,
                              str *report) {
    char count[32];
    bool q8 = e->options->format == OTT_EXPORT_GGUF_Q8;
    str_printf(report, "Exported %s to %s\n", e->source, e->goal.text);
    str_printf(report, "Architecture: %s; %" PRId64 " tensors, %s bytes\n", s->architecture, s->tensors,
               str_commas(s->bytes, count));
    str_printf(report, "Weights: %s", q8 ? "Q8_0" : dtype_name(e->options->dtype));
    if (s->fallback_count > 0)
        str_printf(report, "; %" PRId64 " matrices whose rows are not a multiple of 32 elements are in %s",
                   s->fallback_count, dtype_name(e->options->dtype));
    str_printf(report, "\nTokenizer: %s\nRead by: llama.cpp\n", tokenizer->text);
}

static ott_status write_gguf(exporter *e, gguf_metadata *metadata, str *tokenizer, gguf_save_summary *sum) {
    static const gguf_type types[] = {[OTT_F32] = GGUF_F32, [OTT_BF16] = GGUF_BF16, [OTT_F16] = GGUF_F16};
    gguf_type other = types[e->options->dtype];
    const gguf_save_options options = {.type = e->options->format == OTT_EXPORT_GGUF_Q8 ? GGUF_Q8_0 : other,
                                       .fallback_type = other,
                                       .log = e->log};
    TRY(export_gguf_tokenizer(e->account, e->log, e->cfg, e->options->from, e->m->options.vocab, metadata,
                              tokenizer));
    return gguf_model_save(e->m, &options, metadata, e->goal.text, sum);
}

static ott_status export_gguf(exporter *e, str *report) {
    gguf_metadata metadata = {.bytes = {.account = e->account}};
    str tokenizer = {.account = e->account};
    gguf_save_summary sum;
    ott_status status = write_gguf(e, &metadata, &tokenizer, &sum);
    if (status == OTT_OK)
        write_gguf_report(e, &sum, &tokenizer, report);
    else
        status = status_context(status, "cannot export to %s", e->goal.text);
    gguf_metadata_free(&metadata);
    str_free(&tokenizer);
    return status;
}

/* ---- all formats ---- */

/* If model.hf_path no longer has the adapters' base weights, uses the folder of the option --from instead. */
static ott_status find_base(exporter *e) {
    const char *from = e->options->from;
    bool fits;
    if (!e->checkpoint || !e->cfg->peft.enabled || !*e->cfg->model.hf_path || !from || !*from) return OTT_OK;
    TRY(checkpoint_base_matches(e->account, e->checkpoint, e->cfg->model.hf_path, &fits));
    return fits ? OTT_OK : config_set(e->cfg, "model.hf_path", from);
}

static ott_status export_run_in(exporter *e, const char *path, const char *folder, str *report) {
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/') length--;
    str_printf(&e->goal, "%.*s", (int)length, folder);
    TRY(str_finish(&e->goal));
    TRY(check_export_folder(e));
    /* When a PEFT folder is exported, --from names the folder of its base weights. */
    const char *from = e->options->from;
    bool adapters = file_is_in(path, PEFT_CONFIG_NAME) && from && *from;
    TRY(inference_find(e->account, path, adapters ? from : NULL, 0, &e->cfg, &e->checkpoint));
    e->source = e->checkpoint ? e->checkpoint : path;
    TRY(find_base(e));
    TRY(open_export_model(e));
    if (is_gguf(e)) return export_gguf(e, report);
    return e->options->format == OTT_EXPORT_PEFT ? export_adapters(e, report) : export_model(e, report);
}

ott_status export_run(mem *account, const logger *log, const char *path, const char *folder,
                      const ott_export_options *options, str *report) {
    exporter *e;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(exporter), "export", &e));
    *e = (exporter){.account = account, .log = log, .options = options, .goal.account = account};
    ott_status status = export_run_in(e, path, folder, report);
    model_close(e->m);
    device_close(e->device);
    config_close(e->cfg);
    mem_free(account, e->checkpoint);
    str_free(&e->goal);
    mem_free(account, e);
    return status;
}
