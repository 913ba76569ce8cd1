/*
 * own_loop: your own training loop with FP8 GEMMs. Two linear layers with a ReLU between them learn the
 * outputs of a third matrix. Each step quantizes the tensors of both layers, runs the three FP8 GEMMs of each
 * layer, and updates the fp32 weights by gradient descent. The weights are arrays of this program.
 *
 * cc own_loop.c $(pkg-config --cflags --libs ottava) -o own_loop && ./own_loop [recipe]
 */
#include <ottava/ottava.h>
#include <stdio.h>
#include <stdlib.h>

/* The library's functions return a status. ott_error_text() is one line that explains a failure. */
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        ott_status status_ = (call);                                                                         \
        if (status_ != OTT_OK) {                                                                             \
            fprintf(stderr, "own_loop: %s\n", ott_error_text());                                             \
            exit(ott_status_exit_code(status_));                                                             \
        }                                                                                                    \
    } while (0)

enum { TOKENS = 128, IN = 64, HIDDEN = 128, OUT = 32, STEPS = 60 };

/* The layer y[TOKENS, out] = x[TOKENS, in] weight[out, in]^T, with all tensors of forward and backward. */
typedef struct layer {
    float weight[HIDDEN * IN], grad[HIDDEN * IN]; /* fp32 master and gradient, in this program's memory */
    int64_t in, out;
    ott_tensor *master, *gradient; /* views of `weight` and `grad` */
    ott_tensor *compute;           /* bf16 copy of the weights */
    ott_tensor *x, *y, *dy, *dx;   /* bf16 activations and their gradients */
    ott_qtensor *qx, *qw, *qdy;    /* quantized input, weight and output gradient */
} layer;

static void open_layer(ott_context *c, ott_recipe *recipe, layer *l, int64_t in, int64_t out,
                       double deviation) {
    l->in = in;
    l->out = out;
    CHECK(ott_tensor_wrap(c, l->weight, OTT_F32, out, in, &l->master));
    CHECK(ott_tensor_wrap(c, l->grad, OTT_F32, out, in, &l->gradient));
    CHECK(ott_tensor_open(c, OTT_BF16, out, in, &l->compute));
    CHECK(ott_tensor_open(c, OTT_BF16, TOKENS, in, &l->x));
    CHECK(ott_tensor_open(c, OTT_BF16, TOKENS, out, &l->y));
    CHECK(ott_tensor_open(c, OTT_BF16, TOKENS, out, &l->dy));
    CHECK(ott_tensor_open(c, OTT_BF16, TOKENS, in, &l->dx));
    CHECK(ott_qtensor_open(c, TOKENS, in, recipe, OTT_INPUT, &l->qx));
    CHECK(ott_qtensor_open(c, out, in, recipe, OTT_WEIGHT, &l->qw));
    CHECK(ott_qtensor_open(c, TOKENS, out, recipe, OTT_GRAD_OUTPUT, &l->qdy));
    CHECK(ott_tensor_fill_normal(l->master, (uint64_t)out, deviation));
}

static void close_layer(layer *l) {
    ott_tensor *tensors[] = {l->master, l->gradient, l->compute, l->x, l->y, l->dy, l->dx};
    ott_qtensor *qtensors[] = {l->qx, l->qw, l->qdy};
    for (int i = 0; i < 7; i++) ott_tensor_close(tensors[i]);
    for (int i = 0; i < 3; i++) ott_qtensor_close(qtensors[i]);
}

/* y = x W^T. Weights are quantized from the fp32 master, the input from bf16. */
static void forward(ott_recipe *recipe, layer *l) {
    CHECK(ott_tensor_convert(l->master, l->compute)); /* for recipes that compute a GEMM in bf16 */
    CHECK(ott_quantize(l->qx, l->x));
    CHECK(ott_quantize(l->qw, l->master));
    const ott_operand x = {l->x, l->qx}, w = {l->compute, l->qw};
    CHECK(ott_gemm(recipe, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, l->y));
}

/* dx = dy W, grad = dy^T x. Uses the columnwise quantized copies of x and W, which `forward` has made. */
static void backward(ott_recipe *recipe, layer *l) {
    CHECK(ott_quantize(l->qdy, l->dy));
    const ott_operand x = {l->x, l->qx}, w = {l->compute, l->qw}, dy = {l->dy, l->qdy};
    CHECK(ott_gemm(recipe, OTT_GEMM_GRAD_INPUT, &dy, &w, NULL, 0, l->dx));
    CHECK(ott_gemm(recipe, OTT_GEMM_GRAD_WEIGHT, &dy, &x, NULL, 0, l->gradient));
}

/* Updates the weights by gradient descent, then the scales if the recipe uses delayed scaling. */
static void update(layer *l, float learning_rate) {
    for (int64_t i = 0; i < l->out * l->in; i++) l->weight[i] -= learning_rate * l->grad[i];
    CHECK(ott_qtensor_update_scale(l->qx, NULL));
    CHECK(ott_qtensor_update_scale(l->qw, NULL));
    CHECK(ott_qtensor_update_scale(l->qdy, NULL));
}

/* ReLU between the layers and its backward, both on the host. */
static void relu(const layer *from, layer *to) {
    static float h[TOKENS * HIDDEN];
    CHECK(ott_tensor_read(from->y, h, TOKENS * HIDDEN));
    for (int i = 0; i < TOKENS * HIDDEN; i++) h[i] = h[i] > 0 ? h[i] : 0;
    CHECK(ott_tensor_write(to->x, h, TOKENS * HIDDEN));
}

static void relu_backward(const layer *to, layer *from) {
    static float h[TOKENS * HIDDEN], g[TOKENS * HIDDEN];
    CHECK(ott_tensor_read(to->x, h, TOKENS * HIDDEN));
    CHECK(ott_tensor_read(to->dx, g, TOKENS * HIDDEN));
    for (int i = 0; i < TOKENS * HIDDEN; i++) g[i] = h[i] > 0 ? g[i] : 0;
    CHECK(ott_tensor_write(from->dy, g, TOKENS * HIDDEN));
}

/* Prints the scales and the cast errors of a tensor in the last step. */
static void print_statistics(const char *name, ott_qtensor *q, const ott_tensor *x) {
    ott_qdata use;
    ott_statistics s;
    ott_qdata_init(&use);
    CHECK(ott_qtensor_data(q, OTT_ROWWISE, &use));
    if (!use.codes) return; /* the recipe keeps this use in high precision */
    ott_statistics_init(&s);
    CHECK(ott_quantize_statistics(q, x, OTT_ROWWISE, &s));
    printf("  %-12s %6lld scales, the first %-9g amax %-11g saturated %.2f%%, underflowed %.2f%%, SQNR %.1f "
           "dB\n",
           name, (long long)use.count, use.scale[0], s.amax, 100 * s.saturated, 100 * s.underflowed,
           s.sqnr_db);
}

/* Computes the output to learn: target = x teacher^T in fp32. */
static ott_tensor *make_target(ott_context *c, const ott_tensor *x_bf16) {
    ott_recipe *fp32;
    ott_tensor *x, *teacher, *y;
    CHECK(ott_recipe_open(c, "fp32", &fp32));
    CHECK(ott_tensor_open(c, OTT_F32, TOKENS, IN, &x));
    CHECK(ott_tensor_convert(x_bf16, x));
    CHECK(ott_tensor_open(c, OTT_F32, OUT, IN, &teacher));
    CHECK(ott_tensor_fill_normal(teacher, 7, 0.125));
    CHECK(ott_tensor_open(c, OTT_F32, TOKENS, OUT, &y));
    const ott_operand a = {x, NULL}, b = {teacher, NULL};
    CHECK(ott_gemm(fp32, OTT_GEMM_OUTPUT, &a, &b, NULL, 0, y));
    ott_tensor_close(x);
    ott_tensor_close(teacher);
    ott_recipe_close(fp32);
    return y;
}

static double train_step(ott_recipe *recipe, layer *first, layer *second, const ott_tensor *target) {
    double loss;
    forward(recipe, first);
    relu(first, second);
    forward(recipe, second);
    CHECK(ott_mse_loss(second->y, target, &loss, second->dy));
    backward(recipe, second);
    relu_backward(second, first);
    backward(recipe, first);
    update(first, 0.8f);
    update(second, 0.8f);
    return loss;
}

static void print_text(void *user, const char *text) {
    fputs(text, user);
}

int main(int argc, char **argv) {
    static layer first, second;
    double loss = 0, loss_before = 0;
    const char *name = argc > 1 ? argv[1] : "delayed";
    ott_context *context;
    ott_context_options options;
    ott_recipe *recipe;
    ott_context_options_init(&options);
    options.device = "cpu"; /* the weights are arrays in host memory */
    CHECK(ott_context_open(&options, &context));
    CHECK(ott_recipe_open(context, name, &recipe));
    if (argc == 1) CHECK(ott_recipe_set(recipe, "amax_history_len", "16"));
    CHECK(ott_recipe_describe(recipe, print_text, stdout));

    open_layer(context, recipe, &first, IN, HIDDEN, 0.125);
    open_layer(context, recipe, &second, HIDDEN, OUT, 0.09);
    CHECK(ott_tensor_fill_normal(first.x, 3, 1.0));
    ott_tensor *target = make_target(context, first.x);

    for (int i = 1; i <= STEPS; i++) {
        loss = train_step(recipe, &first, &second, target);
        if (i == 1) loss_before = loss;
        if (i == 1 || i % 10 == 0) printf("step %2d  loss %.4f\n", i, loss);
    }
    puts("first layer, rowwise:");
    print_statistics("input", first.qx, first.x);
    print_statistics("grad_output", first.qdy, first.dy);

    close_layer(&first);
    close_layer(&second);
    ott_tensor_close(target);
    ott_recipe_close(recipe);
    ott_context_close(context);
    if (!(loss < 0.25 * loss_before)) {
        fprintf(stderr, "own_loop: the loss fell only from %g to %g\n", loss_before, loss);
        return 1;
    }
    return 0;
}
