/*
 * convert_toy: torchao's tutorial for float8 training in C, with the same sizes. It converts some of three
 * linear layers to FP8, trains them with AdamW to output 1 for 4096 x 2048 random inputs, and saves model and
 * optimizer.
 *
 *     cc convert_toy.c $(pkg-config --cflags --libs ottava) -o convert_toy
 *     ./convert_toy [checkpoint folder [steps, 3]]      (the tutorial takes 10)
 */
#include <ottava/ottava.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library's functions return a status. ott_error_text() is one line that explains a failure. */
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        ott_status status_ = (call);                                                                         \
        if (status_ != OTT_OK) {                                                                             \
            fprintf(stderr, "convert_toy: %s\n", ott_error_text());                                          \
            exit(ott_status_exit_code(status_));                                                             \
        }                                                                                                    \
    } while (0)

enum { ROWS = 4096, IN = 2048, STEPS = 3 };

static void print_log(void *user, ott_log_level level, const char *text) {
    (void)user;
    (void)level;
    puts(text);
}

/* Chooses the layers to convert, by name and size. FP8 GEMMs on a GPU need sizes that are multiples of 16. */
static int module_filter(void *user, const char *fqn, const ott_module *module) {
    (void)user;
    if (strcmp(fqn, "1") == 0) return 0; /* for example, because this layer is sensitive to quantization */
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
    ott_module *parts[] = {linear(context, IN, 4096), linear(context, 4096, 128), linear(context, 128, 1)};
    ott_module *m;
    CHECK(ott_sequential_open(context, parts, 3, &m)); /* the sequential owns the parts */
    return m;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "convert_toy.checkpoint";
    const int steps = argc > 2 ? atoi(argv[2]) : STEPS;
    ott_context_options options;
    ott_context *context;
    ott_convert_options convert;
    ott_adamw_options adamw;
    ott_optimizer *optimizer;
    ott_tensor *x, *y, *labels, *dy;
    double loss;

    ott_context_options_init(&options);
    options.log = print_log;
    CHECK(ott_context_open(&options, &context));
    ott_module *model = toy_model(context);
    CHECK(ott_tensor_open(context, OTT_BF16, ROWS, IN, &x));
    CHECK(ott_tensor_open(context, OTT_BF16, ROWS, 1, &y));
    CHECK(ott_tensor_open(context, OTT_BF16, ROWS, 1, &labels));
    CHECK(ott_tensor_open(context, OTT_BF16, ROWS, 1, &dy));
    CHECK(ott_tensor_fill_normal(x, 1, 1.0));
    CHECK(ott_tensor_fill(labels, 1.0));

    ott_convert_options_init(&convert); /* default recipe: tensorwise */
    convert.filter = module_filter;
    CHECK(ott_convert_to_float8_training(model, &convert, NULL));
    ott_adamw_options_init(&adamw);
    adamw.lr = 1e-3;
    CHECK(ott_adamw_open(context, model, &adamw, &optimizer));

    for (int step = 1; step <= steps; step++) {
        CHECK(ott_optimizer_zero_grad(optimizer));
        CHECK(ott_module_forward(model, x, y));
        CHECK(ott_mse_loss(y, labels, &loss, dy));
        CHECK(ott_module_backward(model, dy, NULL)); /* NULL: the gradient of x is not needed */
        CHECK(ott_optimizer_step(optimizer, NULL));
        printf("step %2d  loss %.6f\n", step, loss);
    }
    CHECK(ott_checkpoint_save(folder, model, optimizer));
    printf("saved model and optimizer: %s\n", folder);

    ott_optimizer_close(optimizer);
    ott_module_close(model);
    ott_tensor_close(x);
    ott_tensor_close(y);
    ott_tensor_close(labels);
    ott_tensor_close(dy);
    ott_context_close(context);
    return 0;
}
