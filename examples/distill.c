/*
 * distill: trains a small model on a text and on the predictions of a larger one (Hinton et al. 2015). A run
 * trains the larger model, the teacher. A second run trains the student with a loss function of this program,
 * and generates a line of text from the student's weights after every 40 steps.
 *
 *     cc distill.c $(pkg-config --cflags --libs ottava) -lm -o distill && ./distill [--section.key=value ...]
 *
 * The arguments change the student's configuration. Writes distill.txt, and the folders distill_teacher and
 * distill_student.
 */
#include <math.h>
#include <ottava/ottava.h>
#include <stdio.h>
#include <stdlib.h>

/* The library's functions return a status. ott_error_text() is one line that explains a failure. */
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        ott_status status_ = (call);                                                                         \
        if (status_ != OTT_OK) {                                                                             \
            fprintf(stderr, "distill: %s\n", ott_error_text());                                              \
            exit(ott_status_exit_code(status_));                                                             \
        }                                                                                                    \
    } while (0)

enum { TEXT = 8192, VOCAB = 256, MOST_ARGUMENTS = 32 };

/* Writes a text to learn. One byte is one token. */
static void write_text(void) {
    static const char *const words[] = {"one ", "two ", "three ", "four ", "and ", "again "};
    FILE *file = fopen("distill.txt", "wb");
    int failed = !file;
    for (unsigned i = 1, n = 0; !failed && n < TEXT / 4; i = i * 75 % 65537, n++)
        failed = fputs(words[i % 6], file) < 0;
    if (failed || fclose(file) != 0) {
        perror("distill.txt");
        exit(2);
    }
}

/* Opens a configuration: the shared arguments, then those of one model. */
static ott_config *configure(ott_context *context, const char *const *more, int more_count) {
    const char *arguments[MOST_ARGUMENTS] = {
        "--data.dataset_path=distill.txt", "--train.seq_len=32",       "--train.batch_size=4",
        "--train.max_steps=120",           "--optimizer.lr=5e-3",      "--scheduler.warmup_steps=5",
        "--model.vocab_size=256",          "--model.n_heads=4",        "--checkpoint.interval=120",
        "--checkpoint.load_path=auto",     "--metrics.peak_tflops=0.1"};
    int count = 11;
    ott_config *config;
    for (int i = 0; i < more_count && count < MOST_ARGUMENTS; i++) arguments[count++] = more[i];
    CHECK(ott_config_open(context, count, arguments, &config));
    return config;
}

/* ---- the teacher ---- */

typedef struct teacher {
    ott_context *context; /* a context of its own, because the student's context is inside ott_train */
    ott_module *model;
} teacher;

/* Trains the teacher, unless an earlier run of this program did, and opens it for evaluation. */
static void open_teacher(teacher *t) {
    static const char *const arguments[] = {"--model.dim=64", "--model.n_layers=2",
                                            "--run.dir=distill_teacher"};
    CHECK(ott_context_open(NULL, &t->context));
    ott_config *config = configure(t->context, arguments, 3);
    CHECK(ott_train(t->context, config, NULL));
    CHECK(ott_model_open(t->context, config, &t->model));
    CHECK(ott_checkpoint_load("distill_teacher/checkpoints/step-120", t->model, NULL));
    CHECK(ott_module_set_training(t->model, 0));
    ott_config_close(config);
}

/* Computes the teacher's logits[tokens, VOCAB] for the tokens of a micro-batch. */
static void run_teacher(teacher *t, const ott_loss_batch *batch, float *logits) {
    int64_t tokens = batch->sequences * batch->length;
    ott_tensor *x, *y;
    CHECK(ott_tensor_open(t->context, OTT_I32, batch->sequences, batch->length, &x));
    CHECK(ott_tensor_open(t->context, ott_module_dtype(t->model), tokens, VOCAB, &y));
    for (int64_t i = 0; i < tokens; i++) logits[i] = (float)batch->token[i];
    CHECK(ott_tensor_write(x, logits, tokens));
    CHECK(ott_module_forward(t->model, x, y));
    CHECK(ott_tensor_read(y, logits, tokens * VOCAB));
    ott_tensor_close(x);
    ott_tensor_close(y);
}

/* ---- the loss ---- */

/* Replaces x by log(softmax(x)). */
static void log_softmax(float x[VOCAB]) {
    float most = x[0], sum = 0;
    for (int i = 1; i < VOCAB; i++) most = fmaxf(most, x[i]);
    for (int i = 0; i < VOCAB; i++) sum += expf(x[i] - most);
    for (int i = 0; i < VOCAB; i++) x[i] -= most + logf(sum);
}

/* The loss of a token is -sum(q log p). p: the student's probabilities, from its logits x. q: in training the
   mean of the teacher's probabilities, from its logits y, and of the target's; in an evaluation only the
   target's. Replaces x by the gradient p - q. */
static float one_loss(float x[VOCAB], float y[VOCAB], int target, int training) {
    float loss = 0;
    log_softmax(x);
    if (!training) return -x[target];
    log_softmax(y);
    for (int i = 0; i < VOCAB; i++) {
        float q = 0.5f * (i == target ? 1.0f : 0.0f) + 0.5f * expf(y[i]);
        loss -= q * x[i];
        x[i] = expf(x[i]) - q;
    }
    return loss;
}

static ott_status distill(void *user, const ott_loss_batch *batch) {
    int64_t tokens = batch->sequences * batch->length;
    float *logits = malloc((size_t)(tokens * VOCAB) * sizeof *logits);
    if (!logits) return OTT_ERR_MEMORY;
    if (batch->training) run_teacher(user, batch, logits);
    for (int64_t t = 0; t < tokens; t++) {
        float *own = batch->logits + t * VOCAB;
        if (batch->target[t] >= 0)
            batch->loss[t] = one_loss(own, logits + t * VOCAB, batch->target[t], batch->training);
        else
            for (int i = 0; i < VOCAB; i++) own[i] = 0; /* no loss, so no gradient */
    }
    free(logits);
    return OTT_OK;
}

/* ---- the student ---- */

typedef struct student {
    teacher teacher; /* the first member: ott_train passes the same pointer to both callbacks */
    ott_context *context;
} student;

static void print_text(void *user, const char *text) {
    fputs(text, user);
}

/* Generates from the weights as they are after this step. */
static void show_progress(void *user, const ott_progress *p) {
    const student *s = user;
    ott_generate_options options;
    if (p->step % 40 != 0) return;
    printf("step %3lld: loss %.4f, text: ", (long long)p->step, p->loss);
    ott_generate_options_init(&options);
    options.prompt = "one ";
    options.max_tokens = 24;
    options.temperature = 0;
    if (ott_generate(s->context, NULL, &options, print_text, stdout) == OTT_OK)
        puts("");
    else
        puts(ott_error_text()); /* for example, if ranks divide the model */
}

int main(int argc, char **argv) {
    static const char *const arguments[] = {"--model.dim=32", "--model.n_layers=1",
                                            "--train.mixed_precision=fp8", "--run.dir=distill_student"};
    const char *all[MOST_ARGUMENTS];
    int count = 0;
    student s;
    ott_train_options options;
    write_text();
    open_teacher(&s.teacher);
    CHECK(ott_context_open(NULL, &s.context));
    for (; count < 4; count++) all[count] = arguments[count];
    for (int i = 1; i < argc && count < MOST_ARGUMENTS; i++) all[count++] = argv[i];
    ott_config *config = configure(s.context, all, count);
    ott_train_options_init(&options);
    options.progress = show_progress;
    options.loss = distill;
    options.user = &s;
    CHECK(ott_train(s.context, config, &options));
    ott_config_close(config);
    ott_context_close(s.context);
    ott_module_close(s.teacher.model);
    ott_context_close(s.teacher.context);
    return 0;
}
