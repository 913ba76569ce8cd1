/* train_fixture: folder, text, configuration, trainer and run for tests of training. */
#define _GNU_SOURCE /* declares mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/open.h"
#include "base/file/file.h"
#include "base/rng.h"
#include "model/init.h"
#include "data/data.h"
#include "run/run.h"
#include "train/schedule.h"
#include "train/train_fixture.h"

void fixture_ok(ott_status status, const char *what) {
    if (status != OTT_OK) fail_msg("%s: %s: %s", what, status_name(status), status_text());
}

/* ---- text ---- */

static const char *const onsets[] = {"b", "d", "f", "g", "h",  "l",  "m",  "n",
                                     "r", "s", "t", "w", "th", "sh", "st", "br"};
static const char *const vowels[] = {"a", "e", "i", "o", "u", "ea", "ai", "ou"};
static const char *const codas[] = {"", "", "", "n", "r", "s", "t", "ll"};

/* Appends word `index` of the invented language. A word has one to three syllables. */
static void append_word(char *out, uint64_t index) {
    uint32_t count = 1 + (index > 20) + (rng_u32(2, 9, index) % 3 == 0);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t draw = rng_u32(2, i, index);
        strcat(out, onsets[draw % 16]);
        strcat(out, vowels[draw / 16 % 8]);
        strcat(out, codas[draw / 128 % 8]);
    }
}

#define WORDS 20000 /* too many words to memorize in a short run: a model must learn how words are built */

/* Writes four to twelve words, some followed by a comma. */
static void write_sentence(char *out, uint64_t seed, uint64_t *draw) {
    uint32_t words = 4 + rng_u32(seed, 0, (*draw)++) % 9;
    out[0] = 0;
    for (uint32_t i = 0; i < words; i++) {
        append_word(out, rng_u32(seed, 0, (*draw)++) % WORDS);
        bool comma = rng_u32(seed, 0, (*draw)++) % 8 == 0;
        strcat(out, i == words - 1 ? ".\n" : comma ? ", " : " ");
    }
    out[0] = (char)(out[0] - 'a' + 'A');
}

void fixture_write_text(const char *path, int64_t bytes, uint64_t seed) {
    char sentence[400]; /* enough for 12 words of at most 18 letters, with punctuation */
    uint64_t draw = 0;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int64_t done = 0, length; done < bytes; done += length) {
        write_sentence(sentence, seed, &draw);
        length = (int64_t)strlen(sentence);
        if (length > bytes - done) length = bytes - done;
        assert_int_equal(fwrite(sentence, 1, (size_t)length, file), length);
    }
    assert_int_equal(fclose(file), 0);
}

/* ---- folder ---- */

bool fixture_takes_few(void) {
    const char *named = getenv(TEST_DEVICE_VARIABLE);
    return FIXTURE_SANITIZED || (named && *named);
}

int fixture_setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    strcpy(f->folder, "/tmp/ottava-train-XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(f->text, sizeof f->text, "%s/text.txt", f->folder);
    fixture_write_text(f->text, 60000, 1);
    *state = f;
    return 0;
}

int fixture_teardown(void **state) {
    fixture *f = *state;
    ott_status status = file_remove_tree(f->folder);
    free(f);
    return status == OTT_OK ? 0 : -1;
}

char *fixture_read(const fixture *f, const char *name, int64_t *bytes) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    FIXTURE_OK(file_size(path, bytes));
    char *data = calloc(1, (size_t)*bytes + 1);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(data, 1, (size_t)*bytes, file), *bytes);
    fclose(file);
    return data;
}

/* ---- configurations ---- */

const precision fixture_precisions[] = {
    [FP32] = {"fp32", {"--train.mixed_precision=fp32"}},
    [BF16] = {"bf16", {"--train.mixed_precision=bf16"}},
    [FP16] = {"fp16", {"--train.mixed_precision=fp16"}},
    [TENSORWISE] = {"tensorwise", {"--train.mixed_precision=fp8", "--float8.recipe_name=tensorwise"}},
    [ROWWISE] = {"rowwise", {"--train.mixed_precision=fp8", "--float8.recipe_name=rowwise"}},
    [ROWWISE_WITH_GW_HP] = {"rowwise_with_gw_hp",
                            {"--train.mixed_precision=fp8", "--float8.recipe_name=rowwise_with_gw_hp"}},
    [DELAYED] = {"delayed", {"--train.mixed_precision=fp8", "--float8.recipe_name=delayed"}},
    [CURRENT] = {"current", {"--train.mixed_precision=fp8", "--float8.recipe_name=current"}},
    [BLOCK] = {"block", {"--train.mixed_precision=fp8", "--float8.recipe_name=block"}},
    [MXFP8] = {"mxfp8", {"--train.mixed_precision=fp8", "--float8.recipe_name=mxfp8"}},
};

/* All dimensions are multiples of 16, so that all layers can run in FP8. Two query heads share a key head. */
static const char *const tiny_run[] = {
    "--model.dim=32",
    "--model.n_layers=2",
    "--model.n_heads=4",
    "--model.n_kv_heads=2",
    "--model.ffn_hidden_dim=64",
    "--model.vocab_size=256",
    "--model.max_seq_len=64",
    "--train.batch_size=2",
    "--train.seq_len=24",
    "--train.max_steps=6",
    "--train.threads=1",
    "--train.seed=7",
    "--optimizer.lr=1e-2",
    "--scheduler.warmup_steps=2",
    "--eval.enabled=true",
    "--eval.holdout=0.1",
    "--eval.interval=2",
    "--eval.steps=2",
    "--checkpoint.interval=3",
    "--checkpoint.keep_last_n=0",
    "--metrics.log_interval=1",
    /* without metrics.peak_tflops the run would measure the peak, which takes longer than the run */
    "--metrics.peak_tflops=0.1",
};

#define ARGUMENTS_MAX 96

static int add_all(const char **arguments, int count, const char *const *more) {
    for (; more && *more; more++) {
        assert_in_range(count, 0, ARGUMENTS_MAX - 1);
        arguments[count++] = *more;
    }
    return count;
}

config *fixture_config(const fixture *f, mem *account, const char *name, const precision *p,
                       const char *const *more) {
    const char *arguments[ARGUMENTS_MAX];
    char folder[200], text[200];
    config *cfg;
    int count = 0;
    snprintf(folder, sizeof folder, "--run.dir=%s/%s", f->folder, name);
    snprintf(text, sizeof text, "--data.dataset_path=%s", f->text);
    for (size_t i = 0; i < sizeof tiny_run / sizeof *tiny_run; i++) arguments[count++] = tiny_run[i];
    count = add_all(arguments, count, (const char *const[]){folder, text, NULL});
    count = add_all(arguments, count, p ? p->arguments : NULL);
    count = add_all(arguments, count, more);
    FIXTURE_OK(config_parse(account, NULL, count, arguments, &cfg));
    return cfg;
}

/* ---- log messages ---- */

static void append_line(void *user, ott_log_level level, const char *text) {
    captured_log *s = user;
    (void)level;
    int left = (int)(sizeof s->text - s->length);
    int length = snprintf(s->text + s->length, (size_t)left, "%s\n", text);
    assert_in_range(length, 0, left - 1);
    s->length += (size_t)length;
}

logger capture_log(captured_log *s) {
    s->length = 0;
    s->text[0] = 0;
    return (logger){.callback = append_line, .user = s, .level = OTT_LOG_DEBUG};
}

int captured_log_count(const captured_log *s, const char *part) {
    int count = 0;
    for (const char *at = s->text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

bool captured_log_has(const captured_log *s, const char *part) {
    return strstr(s->text, part) != NULL;
}

/* ---- a trainer ---- */

static ott_status open_parts(rig *r, const rig_options *o) {
    model_options shape;
    trainer_options options;
    TRY(model_options_resolve(r->cfg, &shape));
    shape.tensor_ranks = o->tensor_ranks;
    shape.sequence_parallel = o->sequence_parallel;
    shape.context_ranks = o->context_ranks;
    shape.expert_ranks = o->expert_ranks;
    shape.expert_shard_ranks = o->expert_shard_ranks;
    TRY(data_open(r->account, NULL, r->cfg, &shape.vocab, &r->train_data, &r->validation_data));
    r->device = o->device;
    if (!r->device) TRY(test_device_open(r->account, (int)r->cfg->train.threads, o->isa, &r->device));
    TRY(precision_plan_read(r->cfg, &r->precision));
    TRY(run_trainer_options(r->cfg, &r->precision, 0, &options));
    if (o->row) options.convert.recipe = o->row;
    options.run_group = o->run_group ? o->run_group : o->stage_ranks ? o->stage_ranks : o->data_group;
    options.data_group = o->data_group;
    options.replica_group = o->shard_group ? o->replica_group : o->data_group;
    shape.shard_ranks = o->shard_group;
    shape.stage = o->stage;
    shape.stage_ranks = o->stage_ranks;
    TRY(trainer_open(r->account, NULL, r->device, &shape, &options, r->train_data, r->validation_data,
                     &r->t));
    return model_initialize(r->t->m, (uint64_t)r->cfg->train.seed, (int)r->cfg->train.threads);
}

static void close_parts(rig *r) {
    trainer_close(r->t);
    if (r->device) device_close(r->device);
    dataset_close(r->train_data);
    dataset_close(r->validation_data);
}

ott_status rig_try(rig *r, mem *account, const fixture *f, const rig_options *o) {
    mem *apart; /* separate account for the configuration, because rig_try limits only the rig's memory */
    FIXTURE_OK(mem_open(&apart));
    *r = (rig){.account = account, .cfg = fixture_config(f, apart, "rig", o->precision, o->more)};
    ott_status status = open_parts(r, o);
    close_parts(r);
    config_close(r->cfg);
    mem_close(apart);
    return status;
}

void rig_prepare(rig *r, const fixture *f, const rig_options *o) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    *r = (rig){.account = account, .cfg = fixture_config(f, account, "rig", o->precision, o->more)};
}

ott_status rig_make(rig *r, const rig_options *o) {
    return open_parts(r, o);
}

void rig_open(rig *r, const fixture *f, const rig_options *o) {
    rig_prepare(r, f, o);
    FIXTURE_OK(rig_make(r, o));
}

void rig_close(rig *r) {
    close_parts(r);
    config_close(r->cfg);
    assert_int_equal(mem_read(r->account).now, 0);
    mem_close(r->account);
}

step_result rig_step(rig *r) {
    step_result s;
    double rate = schedule_learning_rate(r->cfg, r->t->run.step, r->cfg->train.max_steps);
    FIXTURE_OK(trainer_step(r->t, rate, &s));
    return s;
}

double rig_validate(rig *r) {
    evaluation e;
    FIXTURE_OK(trainer_evaluate(r->t, r->cfg->eval.steps, &e));
    return e.loss;
}

void rig_save(rig *r, const fixture *f, const char *name, char *path) {
    char folder[160], *written;
    snprintf(folder, sizeof folder, "%s/%s", f->folder, name);
    FIXTURE_OK(trainer_use_average(r->t, true));
    FIXTURE_OK(checkpoint_save(r->t->m, r->cfg, r->t->recipe->name, &r->t->run, NULL, folder, 0, &written));
    FIXTURE_OK(trainer_use_average(r->t, false));
    snprintf(path, 160, "%s", written);
    mem_free(r->account, written);
}

const parameter *rig_parameter(const rig *r, const char *name) {
    for (int i = 0; i < r->t->m->parameter_count; i++)
        if (strcmp(r->t->m->parameters[i].name, name) == 0) return &r->t->m->parameters[i];
    fail_msg("the model has no parameter %s", name);
    return NULL;
}

void rig_poke(rig *r, const char *name, int64_t index, float value) {
    float *data = rig_parameter(r, name)->value.data;
    FIXTURE_OK(device_copy_in(r->device, data + index, &value, sizeof value));
    model_weights_changed(r->t->m);
}

float rig_peek(const rig *r, const tensor *t, int64_t index) {
    float value;
    FIXTURE_OK(device_copy_out(r->device, &value, (const float *)t->data + index, sizeof value));
    return value;
}

float *rig_copy(const rig *r, const void *device_data, int64_t count) {
    float *host = malloc((size_t)count * sizeof *host);
    FIXTURE_OK(device_copy_out(r->device, host, device_data, count * (int64_t)sizeof *host));
    return host;
}

float *rig_copy_wide(const rig *r, const tensor *t) {
    float *host = malloc((size_t)tensor_count(*t) * sizeof *host);
    FIXTURE_OK(device_copy_out(r->device, host, t->data, tensor_bytes(*t)));
    cast_in_place(host, t->dtype, OTT_F32, tensor_count(*t));
    return host;
}

snapshot snapshot_take(const rig *r) {
    const model *m = r->t->m;
    enum { BLOCKS = 2 + PARAMETER_SLOTS };
    struct {
        const void *data;
        int64_t bytes;
    } blocks[BLOCKS] = {{m->values, m->block_bytes}, {m->masters, m->master_bytes}};
    int64_t bytes = m->block_bytes + m->master_bytes;
    for (int i = 0; i < PARAMETER_SLOTS; i++) {
        blocks[2 + i].data = m->slot[i];
        blocks[2 + i].bytes = m->slot_bytes[i];
        bytes += m->slot_bytes[i];
    }
    snapshot s = {.data = malloc((size_t)bytes)};
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].bytes == 0) continue;
        FIXTURE_OK(device_copy_out(r->device, (char *)s.data + s.bytes, blocks[i].data, blocks[i].bytes));
        s.bytes += blocks[i].bytes;
    }
    return s;
}

bool snapshot_equal(const snapshot *a, const snapshot *b) {
    return a->bytes == b->bytes && memcmp(a->data, b->data, (size_t)a->bytes) == 0;
}

void snapshot_free(snapshot *s) {
    free(s->data);
    s->data = NULL;
}

/* ---- full runs ---- */

typedef struct stopper {
    int64_t steps, after, within; /* steps done; run_options.stop_after; stop_within, counts down */
    bool asked;
} stopper;

static void count_step(void *user, const ott_progress *p) {
    stopper *s = user;
    (void)p;
    s->steps++;
}

/* A stop hook: requests a stop once, `within` calls after the run has done `after` steps. */
static bool stop_now(void *user) {
    stopper *s = user;
    if (s->after == 0 || s->asked || s->steps < s->after || s->within-- > 0) return false;
    return s->asked = true;
}

ott_status fixture_run(const fixture *f, const run_options *o) {
    mem *account;
    stopper s = {.after = o->stop_after, .within = o->stop_within};
    train_hooks hooks = {.progress = count_step, .user = &s, .stop = stop_now, .stop_user = &s};
    logger log = {0};
    FIXTURE_OK(mem_open(&account));
    if (o->logged) log = capture_log(o->logged);
    config *cfg = fixture_config(f, account, o->name, o->precision, o->more);
    ott_status status = run_loop(account, &log, cfg, &hooks);
    config_close(cfg);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return status;
}

/* ---- files of a run ---- */

/* Removes ,"key":value from every line. Values contain no comma. */
static void remove_key(char *text, const char *key) {
    char pattern[40];
    snprintf(pattern, sizeof pattern, ",\"%s\":", key);
    for (char *at; (at = strstr(text, pattern));) {
        char *end = at + strlen(pattern);
        end += strcspn(end, ",}");
        memmove(at, end, strlen(end) + 1);
    }
}

char *fixture_read_metrics(const fixture *f, const char *run) {
    static const char *const timing[] = {"timestamp", "tps", "tps_per_gpu", "tflops", "mfu", "mem"};
    char name[80];
    int64_t bytes;
    snprintf(name, sizeof name, "%s/metrics.jsonl", run);
    char *text = fixture_read(f, name, &bytes);
    for (size_t i = 0; i < sizeof timing / sizeof *timing; i++) remove_key(text, timing[i]);
    return text;
}

static void expect_same_metrics(const fixture *f, const char *a, const char *b) {
    char *text_a = fixture_read_metrics(f, a), *text_b = fixture_read_metrics(f, b);
    if (strcmp(text_a, text_b)) fail_msg("%s and %s differ in their metrics:\n%s\n%s", a, b, text_a, text_b);
    free(text_a);
    free(text_b);
}

void fixture_expect_same_file(const fixture *f, const char *a, const char *b, const char *file) {
    char name_a[120], name_b[120];
    int64_t bytes_a, bytes_b;
    snprintf(name_a, sizeof name_a, "%s/%s", a, file);
    snprintf(name_b, sizeof name_b, "%s/%s", b, file);
    char *data_a = fixture_read(f, name_a, &bytes_a), *data_b = fixture_read(f, name_b, &bytes_b);
    if (bytes_a != bytes_b || memcmp(data_a, data_b, (size_t)bytes_a))
        fail_msg("%s and %s differ", name_a, name_b);
    free(data_a);
    free(data_b);
}

void fixture_expect_same_run(const fixture *f, const char *a, const char *b, int step) {
    static const char *const files[] = {"model", "optimizer", "float8"};
    char name[64];
    expect_same_metrics(f, a, b);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "checkpoints/step-%d/%s.safetensors", step, files[i]);
        fixture_expect_same_file(f, a, b, name);
    }
}
