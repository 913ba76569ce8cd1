/*
 * model_loop: your own training loop for a model of `ottava train`. A run trains the model for 60 steps. This
 * program loads the run's checkpoint of step 20, trains 20 steps with its own loop and data reader, and saves
 * a checkpoint. A second run resumes from it at step 40. Weights, moments, FP8 scales and counters are passed
 * on bit for bit. Then the same loop trains a model that is described by options, without a configuration.
 *
 *     cc model_loop.c $(pkg-config --cflags --libs ottava) -o model_loop && ./model_loop
 *
 * Writes model_loop.txt, and the folders model_loop_run, model_loop_own and model_loop_after.
 */
#include <ottava/ottava.h>
#include <stdio.h>
#include <stdlib.h>

/* The library's functions return a status. ott_error_text() is one line that explains a failure. */
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        ott_status status_ = (call);                                                                         \
        if (status_ != OTT_OK) {                                                                             \
            fprintf(stderr, "model_loop: %s\n", ott_error_text());                                           \
            exit(ott_status_exit_code(status_));                                                             \
        }                                                                                                    \
    } while (0)

enum { SEQUENCES = 4, LENGTH = 32, TEXT = 8192, PART = 20 };

/* Writes a text to learn. One byte is one token. */
static void write_text(char text[TEXT]) {
    static const char *const words[] = {"one ", "two ", "three ", "four ", "and ", "again "};
    int length = 0;
    for (unsigned i = 1; length < TEXT - 8; i = i * 75 % 65537) {
        const char *word = words[i % 6];
        while (*word) text[length++] = *word++;
    }
    while (length < TEXT) text[length++] = '.';
    FILE *file = fopen("model_loop.txt", "wb");
    if (!file || fwrite(text, 1, TEXT, file) != TEXT || fclose(file) != 0) {
        perror("model_loop.txt");
        exit(2);
    }
}

/* The configuration, as arguments of `ottava train`. */
static ott_config *configure(ott_context *context, const char *folder, const char *load_path) {
    const char *const arguments[] = {"--model.dim=64",
                                     "--model.n_layers=2",
                                     "--model.n_heads=4",
                                     "--model.vocab_size=256",
                                     "--data.dataset_path=model_loop.txt",
                                     "--train.seq_len=32",
                                     "--train.batch_size=4",
                                     "--train.max_steps=60",
                                     "--train.mixed_precision=fp8",
                                     "--float8.recipe_name=delayed",
                                     "--optimizer.lr=5e-3",
                                     "--scheduler.warmup_steps=5",
                                     "--checkpoint.interval=20",
                                     "--metrics.peak_tflops=0.1"};
    ott_config *config;
    CHECK(ott_config_open(context, sizeof arguments / sizeof *arguments, arguments, &config));
    CHECK(ott_config_set(config, "run.dir", folder));
    CHECK(ott_config_set(config, "checkpoint.load_path", load_path));
    return config;
}

/* ---- runs ---- */

static void print_progress(void *user, const ott_progress *p) {
    if (p->step % 10 == 0)
        printf("%s, step %2lld: loss %.4f\n", (const char *)user, (long long)p->step, p->loss);
}

static void train(ott_context *context, const char *folder, const char *load_path) {
    static char who[] = "run";
    ott_config *config = configure(context, folder, load_path);
    ott_train_options options;
    ott_train_options_init(&options);
    options.progress = print_progress;
    options.user = who;
    CHECK(ott_train(context, config, &options));
    ott_config_close(config);
}

/* ---- the own loop ---- */

/* Reads sequence number `number` of the text. The target of a token is the next token. */
static void read_sequence(const char *text, long long number, float *token, float *target) {
    long long first = number * LENGTH % (TEXT - LENGTH);
    for (int i = 0; i < LENGTH; i++) {
        token[i] = (float)(unsigned char)text[first + i];
        target[i] = (float)(unsigned char)text[first + i + 1];
    }
}

static void one_step(ott_context *context, ott_module *model, ott_optimizer *optimizer, const char *text,
                     const char *who) {
    float token[SEQUENCES * LENGTH], target[SEQUENCES * LENGTH];
    ott_tensor *tokens, *targets;
    ott_model_counters at;
    double loss;

    ott_model_counters_init(&at);
    CHECK(
        ott_model_read_counters(model, &at)); /* at.samples: sequences trained so far, by runs and programs */
    for (int i = 0; i < SEQUENCES; i++)
        read_sequence(text, at.samples + i, token + i * LENGTH, target + i * LENGTH);
    CHECK(ott_tensor_open(context, OTT_I32, SEQUENCES, LENGTH, &tokens));
    CHECK(ott_tensor_open(context, OTT_I32, SEQUENCES, LENGTH, &targets));
    CHECK(ott_tensor_write(tokens, token, SEQUENCES * LENGTH)); /* copies the tokens to the device */
    CHECK(ott_tensor_write(targets, target, SEQUENCES * LENGTH));

    CHECK(ott_optimizer_zero_grad(optimizer));
    CHECK(ott_model_loss(model, tokens, targets, 0, &loss));
    CHECK(ott_optimizer_step(optimizer, NULL));
    if ((at.step + 1) % 10 == 0) printf("%s, step %2lld: loss %.4f\n", who, (long long)at.step + 1, loss);
    ott_tensor_close(tokens);
    ott_tensor_close(targets);
}

static void own_loop(ott_context *context, const char *text) {
    ott_config *config = configure(context, "unused", "");
    ott_module *model;
    ott_optimizer *optimizer;
    CHECK(ott_model_open(context, config, &model));
    CHECK(ott_model_optimizer_open(model, &optimizer)); /* [optimizer] and [scheduler] of the configuration */
    CHECK(ott_checkpoint_load("model_loop_run/checkpoints/step-20", model, optimizer));
    ott_module *head = ott_module_child(model, "lm_head");
    printf("own, lm_head: %s, recipe %s\n", ott_module_kind(head), ott_module_recipe(head));
    for (int i = 0; i < PART; i++) one_step(context, model, optimizer, text, "own");
    CHECK(ott_checkpoint_save("model_loop_own", model, optimizer));
    ott_optimizer_close(optimizer);
    ott_module_close(model);
    ott_config_close(config);
}

/* A model without a configuration. Members of the options that are 0 get defaults. */
static void own_model(ott_context *context, const char *text) {
    ott_model_options options;
    ott_adamw_options adamw;
    ott_module *model;
    ott_optimizer *optimizer;
    ott_model_options_init(&options);
    options.family = "qwen3";
    options.dim = 64;
    options.n_layers = 2;
    options.n_heads = 4;
    options.n_kv_heads = 2;
    options.vocab_size = 256;
    options.max_seq_len = LENGTH;
    options.seed = 1;
    CHECK(ott_model_open_options(context, &options, &model));
    CHECK(ott_convert_to_float8_training(model, NULL, NULL));
    ott_adamw_options_init(&adamw);
    adamw.lr = 5e-3;
    CHECK(ott_adamw_open(context, model, &adamw, &optimizer));
    for (int i = 0; i < PART; i++) one_step(context, model, optimizer, text, "options");
    ott_optimizer_close(optimizer);
    ott_module_close(model);
}

int main(void) {
    static char text[TEXT];
    ott_context *context;
    CHECK(ott_context_open(NULL, &context));
    write_text(text);
    /* "auto" resumes the run; if the run is finished, nothing is trained */
    train(context, "model_loop_run", "auto");
    own_loop(context, text);
    train(context, "model_loop_after", "model_loop_own");
    own_model(context, text);
    ott_context_close(context);
    return 0;
}
