/*
 * fp8_layer: two linear layers in FP8, trained in your own loop. The tutorial docs/tutorials/c-program.md
 * explains this program.
 *
 *     cc fp8_layer.c $(pkg-config --cflags --libs ottava) -o fp8_layer && ./fp8_layer
 */
#include <ottava/ottava.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        ott_status status_ = (call);                                                                         \
        if (status_ != OTT_OK) {                                                                             \
            fprintf(stderr, "fp8_layer: %s\n", ott_error_text());                                            \
            exit(ott_status_exit_code(status_));                                                             \
        }                                                                                                    \
    } while (0)

enum { ROWS = 256, IN = 128, HIDDEN = 512, STEPS = 20 };

static ott_module *linear(ott_context *context, int64_t in, int64_t out) {
    ott_linear_options o;
    ott_module *m;
    ott_linear_options_init(&o);
    o.in_features = in;
    o.out_features = out;
    CHECK(ott_linear_open(context, &o, &m));
    return m;
}

static ott_tensor *tensor(ott_context *context, int64_t columns) {
    ott_tensor *t;
    CHECK(ott_tensor_open(context, OTT_BF16, ROWS, columns, &t));
    return t;
}

int main(void) {
    ott_context *context;
    ott_module *model;
    ott_optimizer *optimizer;
    double loss;

    CHECK(ott_context_open(NULL, &context));
    ott_module *parts[] = {linear(context, IN, HIDDEN), linear(context, HIDDEN, 16)};
    CHECK(ott_sequential_open(context, parts, 2, &model)); /* owns the parts */

    ott_recipe *recipe;
    ott_convert_options convert;
    CHECK(ott_recipe_open(context, "delayed", &recipe));
    CHECK(ott_recipe_set(recipe, "amax_history_len", "16"));
    ott_convert_options_init(&convert);
    convert.recipe = recipe;
    CHECK(ott_convert_to_float8_training(model, &convert, NULL));

    ott_adamw_options adamw;
    ott_adamw_options_init(&adamw);
    adamw.lr = 1e-3;
    CHECK(ott_adamw_open(context, model, &adamw, &optimizer));

    ott_tensor *x = tensor(context, IN), *y = tensor(context, 16);
    ott_tensor *target = tensor(context, 16), *dy = tensor(context, 16);
    CHECK(ott_tensor_fill_normal(x, 1, 1.0));
    CHECK(ott_tensor_fill(target, 1.0));

    for (int step = 1; step <= STEPS; step++) {
        CHECK(ott_optimizer_zero_grad(optimizer));
        CHECK(ott_module_forward(model, x, y));
        CHECK(ott_mse_loss(y, target, &loss, dy));
        CHECK(ott_module_backward(model, dy, NULL));
        CHECK(ott_optimizer_step(optimizer, NULL));
        if (step == 1 || step % 5 == 0) printf("step %2d  loss %.4f\n", step, loss);
    }

    float scale, amax;
    CHECK(ott_module_scale(ott_module_child(model, "0"), "weight", &scale, &amax));
    printf("first weight: amax %g, scale %g\n", (double)amax, (double)scale);

    ott_tensor *tensors[] = {x, y, target, dy};
    for (int i = 0; i < 4; i++) ott_tensor_close(tensors[i]);
    ott_optimizer_close(optimizer);
    ott_module_close(model);
    ott_recipe_close(recipe);
    ott_context_close(context);
    return 0;
}
