/* plan/measure: times the steps of a small model. */
#include "plan/measure.h"
#include "base/text/number.h"
#include "base/text/size.h"
#include "base/clock.h"
#include "data/data.h"
#include "model/init.h"
#include "run/run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 5,
    MOST_WIDTH = 768,
    MOST_HIDDEN = 2048,
    MOST_VOCAB = 2048,
    MOST_LENGTH = 1024,
    MOST_TOKENS = 1024
};

/* Sums of one step, by operation and format. */
typedef struct tally {
    double seconds[OP_COUNT][WORK_FORMATS], units[OP_COUNT][WORK_FORMATS];
    double ops; /* seconds of all operations */
    int64_t count;
} tally;

/* The small model in one precision. */
typedef struct probe {
    mem *account;
    config *cfg;
    model_options shape;
    precision_plan precision;
    dataset *train_data, *validation_data;
    trainer *trainer;
    device *device;
    exec_times times;
    tally step[STEPS];
    int done;              /* number of steps run; the first is not timed, because first accesses to memory
                              are slow */
    double between[STEPS]; /* mean seconds from one operation to the next, of each step */
} probe;

static void add_op_to_tally(void *user, enum op_index op, const void *args, double began, double seconds) {
    probe *p = user;
    if (p->done == 0) return;
    tally *t = &p->step[p->done - 1];
    work w = work_of(&p->trainer->cx, op, args);
    (void)began;
    t->seconds[op][w.format] += seconds;
    t->units[op][w.format] += work_units(&w);
    t->ops += seconds;
    t->count++;
}

/* ---- opening ---- */

enum { ARGUMENTS = 14 };

/* Makes the configuration of the small model that is measured, from options as for `ottava train`. */
static ott_status make_config(probe *p, const config *from, const char *precision) {
    char text[ARGUMENTS][96];
    const char *arguments[ARGUMENTS];
    int64_t head = from->model.head_dim, length = size_min(from->train.seq_len, MOST_LENGTH);
    int64_t heads = size_min(from->model.n_heads, MOST_WIDTH / head > 1 ? MOST_WIDTH / head : 1);
    int64_t dim = size_min(from->model.dim, MOST_WIDTH),
            hidden = size_min(from->model.ffn_hidden_dim, MOST_HIDDEN);
    int64_t sequences = MOST_TOKENS / length > 1 ? size_min(from->train.batch_size, MOST_TOKENS / length) : 1;
    const char *row = config_word(from, "float8.recipe_name");
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"model.dim", dim},
                 {"model.n_heads", heads},
                 {"model.n_kv_heads", heads},
                 {"model.head_dim", head},
                 {"model.n_layers", 1},
                 {"model.ffn_hidden_dim", hidden},
                 {"train.seq_len", length},
                 {"model.max_seq_len", length},
                 {"train.batch_size", sequences},
                 {"model.vocab_size", size_min(from->model.vocab_size, MOST_VOCAB)}};
    int count = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        snprintf(text[count++], 96, "--%s=%lld", sizes[i].key, (long long)sizes[i].value);
    snprintf(text[count++], 96, "--data.format=synthetic");
    snprintf(text[count++], 96, "--train.mixed_precision=%s", precision);
    if (strcmp(precision, "fp8") == 0 && strcmp(row, "custom") != 0)
        snprintf(text[count++], 96, "--float8.recipe_name=%s", row);
    for (int i = 0; i < count; i++) arguments[i] = text[i];
    TRY(config_parse(p->account, NULL, count, arguments, &p->cfg));
    TRY(model_options_resolve(p->cfg, &p->shape));
    return precision_plan_read(p->cfg, &p->precision);
}

static ott_status open_probe(probe *p, const config *from, const char *precision) {
    trainer_options options;
    TRY(make_config(p, from, precision));
    TRY(run_trainer_options(p->cfg, &p->precision, 0, &options));
    TRY(data_open(p->account, NULL, p->cfg, &p->shape.vocab, &p->train_data, &p->validation_data));
    TRY(trainer_open(p->account, NULL, p->device, &p->shape, &options, p->train_data, p->validation_data,
                     &p->trainer));
    TRY(model_initialize(p->trainer->m, 1, 0));
    p->times = (exec_times){.on_op = add_op_to_tally, .user = p};
    TRY(exec_times_open(&p->times, p->device));
    p->trainer->cx.times = &p->times;
    return OTT_OK;
}

static void close_probe(probe *p) {
    if (p->trainer) exec_times_close(&p->times, p->device);
    trainer_close(p->trainer);
    dataset_close(p->train_data);
    dataset_close(p->validation_data);
    config_close(p->cfg);
}

static ott_status run_probe_step(probe *p) {
    step_result result;
    double began = clock_seconds();
    TRY(exec_times_start(&p->times, p->device));
    TRY(trainer_step(p->trainer, 1e-4, &result));
    double seconds = clock_seconds() - began;
    if (p->done > 0) {
        const tally *t = &p->step[p->done - 1];
        p->between[p->done - 1] = (seconds - t->ops) / (double)t->count;
    }
    p->done++;
    return OTT_OK;
}

/* ---- rates ---- */

static double median_of_steps(double values[STEPS]) {
    qsort(values, STEPS, sizeof *values, number_compare);
    return values[STEPS / 2];
}

/* Stores the median rates of the steps that were measured. replace: overwrites rates stored before. */
static void store_rates(probe *p, bool replace, machine *out) {
    for (int op = 0; op < OP_COUNT; op++)
        for (int f = 0; f < WORK_FORMATS; f++) {
            double each[STEPS];
            for (int i = 0; i < STEPS; i++)
                each[i] =
                    p->step[i].units[op][f] > 0 ? p->step[i].seconds[op][f] / p->step[i].units[op][f] : 0;
            double seconds = median_of_steps(each);
            if (seconds > 0 && (replace || out->seconds[op][f] == 0)) out->seconds[op][f] = seconds;
        }
    double between = median_of_steps(p->between);
    if (replace) out->rate.launch = between > 0 ? between : 0;
}

/* Derives the rates that `ottava plan` prints and that unmeasured operations use. */
static void derive_rates(const config *cfg, device *d, machine *out) {
    device_memory memory;
    machine_rates *r = &out->rate;
    static const ott_dtype formats[WORK_FORMATS] = {
        [WORK_FP32] = OTT_F32, [WORK_BF16] = OTT_BF16, [WORK_FP8] = OTT_E4M3};
    device_read_memory(d, &memory);
    r->gib = (double)memory.total / 1073741824.0;
    for (int f = 0; f < WORK_FORMATS; f++) {
        r->peak[f] = device_peak(d, formats[f]);
        double seconds = out->seconds[OP_INDEX_gemm][f];
        r->gemm[f] = seconds > 0 ? 1 / seconds : r->peak[f];
    }
    work_format high = cfg->train.mixed_precision == PRECISION_FP32 ? WORK_FP32 : WORK_BF16;
    r->attention_forward = 1 / out->seconds[OP_INDEX_attention_forward][high];
    r->attention_backward = 1 / out->seconds[OP_INDEX_attention_backward][high];
    r->bandwidth = 1 / out->seconds[OP_INDEX_rmsnorm_forward][WORK_BF16];
}

static ott_status measure_probes(probe probes[2], const config *cfg, machine *out) {
    TRY(open_probe(&probes[0], cfg, cfg->train.mixed_precision == PRECISION_FP32 ? "fp32" : "bf16"));
    TRY(open_probe(&probes[1], cfg, "fp8"));
    for (int i = 0; i <= STEPS; i++) /* interleaved, so that disturbances affect both probes */
        for (int k = 0; k < 2; k++) TRY(run_probe_step(&probes[k]));
    store_rates(&probes[0], true, out);
    store_rates(&probes[1], cfg->train.mixed_precision == PRECISION_FP8, out);
    derive_rates(cfg, probes[0].device, out);
    return OTT_OK;
}

ott_status measure_machine(mem *account, const config *cfg, device *d, machine *out) {
    probe *probes;
    *out = (machine){.name = "cpu", .is_local = true, .like = d};
    snprintf(out->about, sizeof out->about, "%s, measured now", d->name);
    TRY(mem_alloc_array(account, MEM_OTHER, 2, sizeof(probe), "measurements", &probes));
    for (int k = 0; k < 2; k++) probes[k] = (probe){.account = account, .device = d};
    ott_status status = measure_probes(probes, cfg, out);
    for (int k = 0; k < 2; k++) close_probe(&probes[k]);
    mem_free(account, probes);
    /* Assumes processes on one machine, and 10 Gb/s Ethernet between machines. */
    out->rate.link = 1.2e9;
    out->rate.network = 1e9;
    out->rate.node = 1;
    out->rate.latency = 5e-5;
    return status;
}
