/*
 * convert_toy: torchao's tutorial in C. Three linear layers; those that the filter accepts are converted to
 * FP8; ten steps of AdamW teach the model to answer 1; then model and optimizer are saved.
 *
 *     cc convert_toy.c $(pkg-config --cflags --libs ottava) -o convert_toy && ./convert_toy [checkpoint
 * folder]
 */
#include <ottava/ottava.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every call returns a status, and ott_error_text says in one line what is wrong. */
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        ott_status status_ = (call);                                                                         \
        if (status_ != OTT_OK) {                                                                             \
            fprintf(stderr, "convert_toy: %s\n", ott_error_text());                                          \
            exit(ott_status_exit_code(status_));                                                             \
        }                                                                                                    \
    } while (0)

enum { ROWS = 64, STEPS = 10 };

static void print_log(void *user, ott_log_level level, const char *text) {
    (void)user;
    (void)level;
    puts(text);
}

/* Which linear layers to convert, by name and by dimensions: FP8 units want multiples of 16. */
static int module_filter(void *user, const char *fqn, const ott_module *module) {
    (void)user;
    if (strcmp(fqn, "1") == 0) return 0; /* say, it is sensitive */
    return ott_module_in_features(module) % 16 == 0 && ott_module_out_features(module) % 16 == 0;
}

static ott_module *linear(ott_context *context, int64_t in, int64_t out) {
    ott_linear_options o;
    ott_module *m;
    ott_linear_options_init(&o); /* with bias, bf16 activations, fp32 weights */
    o.in_features = in;
    o.out_features = out;
    CHECK(ott_linear_open(context, &o, &m));
    return m;
}

static ott_module *toy_model(ott_context *context) {
    ott_module *parts[] = {linear(context, 2048, 4096), linear(context, 4096, 128), linear(context, 128, 1)};
    ott_module *m;
    CHECK(ott_sequential_open(context, parts, 3, &m)); /* which owns the parts now */
    return m;
}

/* Mean squared error of y[ROWS, 1] against ones, and its gradient. */
static float mean_squared_error(const ott_tensor *y, ott_tensor *dy) {
    float value[ROWS], loss = 0;
    CHECK(ott_tensor_read(y, value, ROWS));
    for (int i = 0; i < ROWS; i++) {
        float error = value[i] - 1;
        loss += error * error / ROWS;
        value[i] = 2 * error / ROWS;
    }
    CHECK(ott_tensor_write(dy, value, ROWS));
    return loss;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "convert_toy.checkpoint";
    ott_context_options options;
    ott_context *context;
    ott_convert_options convert;
    ott_adamw_options adamw;
    ott_optimizer *optimizer;
    ott_tensor *x, *y, *dy;

    ott_context_options_init(&options);
    options.log = print_log;
    CHECK(ott_context_open(&options, &context));
    ott_module *model = toy_model(context);
    CHECK(ott_tensor_open(context, OTT_BF16, ROWS, 2048, &x));
    CHECK(ott_tensor_open(context, OTT_BF16, ROWS, 1, &y));
    CHECK(ott_tensor_open(context, OTT_BF16, ROWS, 1, &dy));
    CHECK(ott_tensor_fill_normal(x, 1, 1.0));

    ott_convert_options_init(&convert); /* recipe tensorwise */
    convert.filter = module_filter;
    CHECK(ott_convert_to_float8_training(model, &convert, NULL));
    ott_adamw_options_init(&adamw);
    adamw.lr = 1e-4;
    CHECK(ott_adamw_open(context, model, &adamw, &optimizer));

    for (int step = 1; step <= STEPS; step++) {
        CHECK(ott_optimizer_zero_grad(optimizer));
        CHECK(ott_module_forward(model, x, y));
        float loss = mean_squared_error(y, dy);
        CHECK(ott_module_backward(model, dy, NULL)); /* nobody wants the gradient of x */
        CHECK(ott_optimizer_step(optimizer, NULL));
        printf("step %2d  loss %.6f\n", step, (double)loss);
    }
    CHECK(ott_checkpoint_save(folder, model, optimizer));
    printf("saved model and optimizer: %s\n", folder);

    ott_optimizer_close(optimizer);
    ott_module_close(model);
    ott_tensor_close(x);
    ott_tensor_close(y);
    ott_tensor_close(dy);
    ott_context_close(context);
    return 0;
}
