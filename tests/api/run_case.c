/* run_case: small training runs of ott_train, small models, and comparisons of checkpoints. */
#include "api/run_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ott_config *open_run_config(ott_context *context, const char *folder, const char *name,
                            const char *const *more) {
    static const char *const common[] = {
        "--model.dim=32",           "--model.n_layers=2",
        "--model.n_heads=4",        "--model.ffn_hidden_dim=64",
        "--model.vocab_size=256",   "--data.dataset_path=" TEST_SOURCE_DIR "/README.md",
        "--eval.enabled=true",      "--eval.holdout=0.1",
        "--eval.interval=2",        "--eval.steps=2",
        "--train.batch_size=2",     "--train.seq_len=32",
        "--train.max_steps=4",      "--train.threads=2",
        "--optimizer.lr=1e-2",      "--scheduler.warmup_steps=2",
        "--checkpoint.interval=2",  "--checkpoint.keep_last_n=0",
        "--metrics.peak_tflops=0.1"};
    enum { COMMON = sizeof common / sizeof *common };
    const char *arguments[COMMON + RUN_ARGUMENTS + 1];
    char run_folder[160];
    int count = COMMON;
    ott_config *out;
    memcpy(arguments, common, sizeof common);
    for (; *more; more++) arguments[count++] = *more;
    snprintf(run_folder, sizeof run_folder, "--run.dir=%s/%s", folder, name);
    arguments[count++] = run_folder;
    succeed(ott_config_open(context, count, arguments, &out));
    return out;
}

ott_status train_and_close(ott_context *context, ott_config *config, ott_progress_fn progress,
                           ott_loss_fn loss, void *user) {
    ott_train_options o;
    ott_train_options_init(&o);
    o.progress = progress;
    o.loss = loss;
    o.user = user;
    ott_status status = ott_train(context, config, &o);
    ott_config_close(config);
    return status;
}

void open_model_loop(model_loop *l, ott_context *context, const char *const *more) {
    enum { TOKENS = RUN_SEQUENCES * RUN_LENGTH };
    float token[TOKENS + 1];
    ott_config *config = open_run_config(context, "/nowhere", "run", more);
    for (int i = 0; i <= TOKENS; i++) token[i] = (float)(97 + i * i % 26);
    succeed(ott_model_open(context, config, &l->m));
    succeed(ott_model_optimizer_open(l->m, &l->o));
    l->tokens = open_tensor(context, OTT_I32, RUN_SEQUENCES, RUN_LENGTH);
    l->targets = open_tensor(context, OTT_I32, RUN_SEQUENCES, RUN_LENGTH);
    succeed(ott_tensor_write(l->tokens, token, TOKENS));
    succeed(ott_tensor_write(l->targets, token + 1, TOKENS));
    ott_config_close(config);
}

void close_model_loop(model_loop *l) {
    ott_tensor_close(l->tokens);
    ott_tensor_close(l->targets);
    ott_optimizer_close(l->o);
    ott_module_close(l->m);
}

static char *read_file(const char *folder, const char *checkpoint, const char *name, long *bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s/%s", folder, checkpoint, name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s is not there", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *bytes = ftell(f);
    rewind(f);
    char *data = malloc((size_t)*bytes);
    assert_int_equal(fread(data, 1, (size_t)*bytes, f), *bytes);
    fclose(f);
    return data;
}

void expect_same_checkpoints(const char *title, const char *folder, const char *a, const char *b) {
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "float8.safetensors"};
    for (int i = 0; i < 3; i++) {
        long x_bytes, y_bytes;
        char *x = read_file(folder, a, names[i], &x_bytes), *y = read_file(folder, b, names[i], &y_bytes);
        if (x_bytes != y_bytes || memcmp(x, y, (size_t)x_bytes) != 0)
            fail_msg("%s: %s of %s differs from %s", title, names[i], a, b);
        free(x);
        free(y);
    }
}
