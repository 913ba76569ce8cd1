/* cli/eval: `ottava eval`: measures accuracy, perplexity, or the difference from another model. */
#include "cli.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECONDS_BETWEEN = 10 };

typedef struct eval_request {
    const char *model, *task, *forms;
    option_texts filter, settings;
    int json;
    time_t shown_at; /* when the last progress line was printed in a pipe */
    output *out;
    ott_eval_options options;
} eval_request;

/* Redraws the progress line on a terminal. In a pipe, prints it every 10 seconds, but not with --json. */
static void show_eval_progress(void *user, const ott_work *w) {
    eval_request *r = user;
    char line[128], left[32];
    output_duration(w->seconds_left, left);
    snprintf(line, sizeof line, "%s %lld/%lld %d%%  ETA %s",
             r->options.task == OTT_EVAL_HELLASWAG ? "row" : "window", (long long)w->done,
             (long long)w->total, (int)(100 * w->done / w->total), left);
    output_live(r->out, line);
    if (r->out->terminal || r->json || time(NULL) - r->shown_at < SECONDS_BETWEEN) return;
    r->shown_at = time(NULL);
    output_line(r->out, line);
}

/* ---- the result ---- */

static void print_number(eval_request *r, const char *name, const char *format, double value) {
    char line[160], number[64];
    if (isnan(value)) return;
    snprintf(number, sizeof number, format, value);
    snprintf(line, sizeof line, "%-16s %s", name, number);
    output_line(r->out, line);
}

static void print_accuracy(eval_request *r, const char *name, double value, double error) {
    char line[160], around[32] = "";
    if (isnan(value)) return;
    if (!isnan(error)) snprintf(around, sizeof around, " +- %.4f", error);
    snprintf(line, sizeof line, "%-16s %.4f%s", name, value, around);
    output_line(r->out, line);
}

/* A threshold of the comparison with --against, and the measured value. NaN exceeds every threshold. */
typedef struct limit {
    const char *name, *key, *side;
    double measured, limit;
    bool held;
} limit;

enum { LIMITS = 3 };

static void take_limits(const eval_request *r, const ott_eval_result *e, limit out[LIMITS]) {
    const ott_eval_options *o = &r->options;
    out[0] = (limit){"KL max", "kl_max", "at most", e->kl_max, o->kl_max, e->kl_max <= o->kl_max};
    out[1] = (limit){"KL mean", "kl_mean", "at most", e->kl_mean, o->kl_mean, e->kl_mean <= o->kl_mean};
    out[2] = (limit){"cosine", "cosine", "at least", e->cosine, o->cosine, e->cosine >= o->cosine};
}

/* Prints a line: `word`, then the thresholds that were met. If `held` is false: those that were missed. */
static void print_limits(eval_request *r, const limit limits[LIMITS], bool held, const char *word) {
    char line[160];
    bool any = false;
    for (int i = 0; i < LIMITS; i++) {
        const limit *l = &limits[i];
        if (l->held != held) continue;
        snprintf(line, sizeof line, "%s%s %.6g (%s %g)", any ? ", " : word, l->name, l->measured, l->side,
                 l->limit);
        output_text(r->out, line);
        any = true;
    }
    if (any) output_text(r->out, "\n");
}

static void print_table(eval_request *r, const ott_eval_result *e) {
    const ott_eval_options *o = &r->options;
    char line[160];
    snprintf(line, sizeof line, "%-16s %lld%s", o->task == OTT_EVAL_HELLASWAG ? "rows" : "windows",
             (long long)e->items, e->items < e->total ? " (stopped)" : "");
    output_line(r->out, line);
    print_number(r, "tokens", "%.0f", (double)e->tokens);
    if (e->window > 0) { /* a result depends on both numbers */
        snprintf(line, sizeof line, "%-16s %lld tokens, %lld in a forward pass, %s BOS in front",
                 "each window", (long long)e->window, (long long)e->batch, e->bos ? "a" : "no");
        output_line(r->out, line);
    }
    print_accuracy(r, "acc", e->acc, e->acc_stderr);
    print_accuracy(r, "acc_norm", e->acc_norm, e->acc_norm_stderr);
    print_accuracy(r, "acc_llmc", e->acc_llmc, e->acc_llmc_stderr);
    print_number(r, "loss", "%.6f", e->loss);
    print_number(r, "perplexity", "%.4f", e->perplexity);
    print_number(r, "bits per byte", "%.6f", e->bits_per_byte);
    print_number(r, "KL max", "%.6g", e->kl_max);
    print_number(r, "KL mean", "%.6g", e->kl_mean);
    print_number(r, "cosine", "%.8f", e->cosine);
    print_number(r, "top-1 agreement", "%.4f", e->agreement);
    snprintf(line, sizeof line, "%-16s %lld, in FP8: %lld", "GEMMs", (long long)e->gemms,
             (long long)e->fp8_gemms);
    output_line(r->out, line);
    if (e->truncated > 0)
        print_number(r, "truncated", "%.0f endings: their context was truncated", (double)e->truncated);
    if (o->task != OTT_EVAL_COMPARE) return;
    limit limits[LIMITS];
    take_limits(r, e, limits);
    print_limits(r, limits, false, "MISSED: ");
    print_limits(r, limits, true, e->passed ? "passed: " : "held: ");
}

/* Prints a number; null if it is NaN, which means that the task does not compute it. */
static void json_number(eval_request *r, const char *name, double value) {
    char line[96], number[40] = "null";
    if (isfinite(value)) snprintf(number, sizeof number, "%.17g", value);
    snprintf(line, sizeof line, ", \"%s\": %s", name, number);
    output_text(r->out, line);
}

static void json_missed(eval_request *r, const ott_eval_result *e) {
    limit limits[LIMITS];
    const char *between = "\"";
    take_limits(r, e, limits);
    output_text(r->out, ", \"missed\": [");
    for (int i = 0; i < LIMITS; i++) {
        if (limits[i].held) continue;
        output_text(r->out, between);
        output_text(r->out, limits[i].key);
        output_text(r->out, "\"");
        between = ", \"";
    }
    output_text(r->out, "]");
}

static void print_result_json(eval_request *r, const ott_eval_result *e) {
    static const char *const tasks[] = {"perplexity", "hellaswag", "compare"};
    char line[96];
    snprintf(line, sizeof line, "{\"task\": \"%s\"", tasks[r->options.task]);
    output_text(r->out, line);
#define NUMBER(member) json_number(r, #member, (double)e->member)
    NUMBER(items);
    NUMBER(total);
    NUMBER(tokens);
    NUMBER(truncated);
    NUMBER(window);
    NUMBER(batch);
    output_text(r->out, e->bos ? ", \"bos\": true" : ", \"bos\": false");
    NUMBER(acc);
    NUMBER(acc_stderr);
    NUMBER(acc_norm);
    NUMBER(acc_norm_stderr);
    NUMBER(acc_llmc);
    NUMBER(acc_llmc_stderr);
    NUMBER(loss);
    NUMBER(perplexity);
    NUMBER(bits_per_byte);
    NUMBER(kl_max);
    NUMBER(kl_mean);
    NUMBER(cosine);
    json_number(r, "top1_agreement", e->agreement);
    NUMBER(gemms);
    NUMBER(fp8_gemms);
    NUMBER(seconds);
#undef NUMBER
    output_text(r->out, e->passed ? ", \"passed\": true" : ", \"passed\": false");
    if (r->options.task == OTT_EVAL_COMPARE) json_missed(r, e);
    output_text(r->out, "}\n");
}

/* ---- the verb ---- */

static int evaluate(ott_context *context, output *out, void *user) {
    eval_request *r = user;
    ott_eval_result result;
    ott_eval_result_init(&result);
    r->out = out;
    out->ends_at_once = true;
    cli_stop_begin(context, CLI_STOP_PLAIN);
    ott_status status = ott_eval(context, r->model, &r->options, &result);
    cli_stop_end();
    output_live_end(out);
    if (status != OTT_OK) return cli_fail(status);
    if (r->json)
        print_result_json(r, &result);
    else
        print_table(r, &result);
    if (result.items < result.total) return CLI_SIGNAL + cli_stop_signal();
    return result.passed ? CLI_DONE : CLI_FAILED;
}

/* Sets the task: OTT_EVAL_COMPARE if --against names a second model, otherwise the task that --task names. */
static int take_task(eval_request *r) {
    static const char *const names[] = {"perplexity", "hellaswag"};
    ott_eval_options *o = &r->options;
    if (o->against && r->task)
        return cli_error(CLI_BAD_INPUT, "eval: --against compares two models; remove --task");
    if (!o->against && !r->task)
        return cli_error(CLI_BAD_INPUT,
                         "eval: --task is missing: --task=hellaswag, --task=perplexity, or --against=MODEL");
    o->task = OTT_EVAL_COMPARE;
    if (o->against) return CLI_DONE;
    for (int i = 0; i < 2; i++)
        if (strcmp(r->task, names[i]) == 0) {
            o->task = i == 0 ? OTT_EVAL_PERPLEXITY : OTT_EVAL_HELLASWAG;
            return CLI_DONE;
        }
    const char *near = options_nearest(r->task, names, 2);
    return cli_error(CLI_BAD_INPUT, "eval: --task is \"%s\"; it takes hellaswag or perplexity%s%s%s", r->task,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int set_hellaswag_forms(eval_request *r) {
    ott_eval_options *o = &r->options;
    if (!r->forms) return CLI_DONE;
    if (strcmp(r->forms, "lm-eval") == 0)
        o->hellaswag_forms = OTT_HELLASWAG_LM_EVAL;
    else if (strcmp(r->forms, "llm.c") == 0)
        o->hellaswag_forms = OTT_HELLASWAG_LLMC;
    else if (strcmp(r->forms, "both") != 0)
        return cli_error(CLI_BAD_INPUT, "eval: --form is \"%s\"; it takes lm-eval, llm.c or both", r->forms);
    return CLI_DONE;
}

static int run_eval_request(eval_request *r) {
    ott_eval_options *o = &r->options;
    o->filter = r->filter.text;
    o->filter_count = r->filter.count;
    o->settings = r->settings.text;
    o->setting_count = r->settings.count;
    o->progress = show_eval_progress;
    o->user = r;
    r->shown_at = time(NULL);
    if (!o->data) return cli_error(CLI_BAD_INPUT, "eval: --data is missing: --data=FILE");
    int code = take_task(r);
    if (code == CLI_DONE) code = set_hellaswag_forms(r);
    return code == CLI_DONE ? cli_run(OTT_LOG_WARNING, evaluate, r) : code;
}

int verb_eval(int argc, char **argv) {
    eval_request r = {0};
    ott_eval_options *o = &r.options;
    ott_eval_options_init(o);
    const option options[] = {
        {"--task", "hellaswag|perplexity", OPTION_TEXT, &r.task, "what to measure"},
        {"--data", "FILE", OPTION_TEXT, &o->data, "rows of HellaSwag; text, JSONL, or tokens (.bin, .npy)"},
        {"--against", "MODEL", OPTION_MODEL, &o->against,
         "compare the predictions with those of this model; exit code 1: a result misses its limit"},
        {"--precision", PRECISIONS, OPTION_TEXT, &o->precision, HELP_PRECISION},
        {"--against-precision", PRECISIONS, OPTION_TEXT, &o->against_precision,
         "the same for the model of --against (trained)"},
        {"--filter", "NAME", OPTION_TEXTS, &r.filter,
         "layers with this text in their name stay in high precision; may be given several times"},
        {"--limit", "N", OPTION_INT64, &o->limit, "maximum number of rows or windows; 0: all (0)"},
        {"--seq-len", "N", OPTION_INT64, &o->seq_len,
         "context length in tokens; 0: train.seq_len of the run, or 2048 for a folder (0)"},
        {"--form", "lm-eval|llm.c|both", OPTION_TEXT, &r.forms,
         "HellaSwag format: lm-eval (acc, acc_norm), llm.c (acc_llmc), both (both)"},
        {"--logits", "FILE", OPTION_TEXT, &o->logits,
         "write the logits of the task perplexity to this safetensors file (docs/howto/evaluation.md)"},
        {"--tokenizer", "PATH", OPTION_TOKENIZER, &o->tokenizer, HELP_TOKENIZER},
        {"--base", "HF_DIR", OPTION_MODEL, &o->base, HELP_BASE},
        {"--text-field", "NAME", OPTION_TEXT, &o->text_field, "field of a JSONL row with its text (text)"},
        {"--kl-max", "X", OPTION_REAL, &o->kl_max,
         "limit of --against: largest KL divergence of a token (0.01)"},
        {"--kl-mean", "X", OPTION_REAL, &o->kl_mean, "limit of --against: mean KL divergence (0.003)"},
        {"--cosine", "X", OPTION_REAL, &o->cosine, "limit of --against: cosine of all logits (0.999)"},
        {"--device", DEVICES, OPTION_TEXT, &o->device, HELP_DEVICE},
        {"--threads", "N", OPTION_INT, &o->threads, HELP_THREADS},
        {"--json", NULL, OPTION_FLAG, &r.json, "one JSON object instead of a table"},
    };
    const command c = {
        .name = "eval",
        .synopsis = "MODEL --task TASK --data FILE [options]",
        .about = "Evaluates a run folder (its newest checkpoint), one checkpoint, a Hugging Face folder\n"
                 "or a GGUF file. hellaswag: acc and acc_norm as in lm-eval; acc_llmc as in llm.c, by the "
                 "smallest\n"
                 "mean token loss. perplexity: loss of a text, its exponential, bits per byte. --against:\n"
                 "KL divergence of each token from the other model's, cosine of the logits, top-1\n"
                 "agreement. Ctrl-C prints the results so far and ends with exit code 130.",
        COMMAND_OPTIONS(options),
        .operand = "MODEL",
        .operands_most = 1,
        .operand_is_model = true,
        .settings = &r.settings};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;
    r.model = argv[0];
    return run_eval_request(&r);
}
