/*
 * Compares every layer's backward with finite differences of its forward, in fp32.
 *
 * The loss is sum(output * weight) with random weights, accumulated in double. Backward gets these weights as
 * the gradient of the output. A layer is a row of a table: its constructor, its forward and its backward. All
 * other code is shared.
 *
 * Each input and parameter is changed in directions of length 1: in single elements (in small tensors, every
 * element) and in random directions that change all elements at once. The derivative in a direction d comes
 * from four points, (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h, with h = 2^-5:
 *
 * Truncation: h^4 / 30 * L^(5), 3e-8 of the fifth derivative. Values are of order 1 and layers are smooth on
 * that scale, so it is at most 1e-4. It is largest where one direction of a query weight changes the scores
 * of 80 tokens at once.
 *
 * Rounding: an output of order 1 has an independent error of a few fp32 half-ulps (6e-8). Over n outputs the
 * loss has an error of about 3 * 6e-8 * sqrt(n), and its derivative 1.5 times that over h: 9e-6 sqrt(n), 2e-4
 * for the 500 outputs of the largest layers.
 *
 * Analytic and numeric derivative may differ by BOUND times the root mean square of the tensor's gradient (1
 * or more here), plus BOUND times the derivative itself. If an element is wrong by a hundredth of a typical
 * element, the difference is twenty times the allowed one. The negative controls show that the test finds
 * this.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "nn/attention/attention.h"
#include "nn/attention/latent_attention.h"
#include "nn/embedding.h"
#include "nn/layer_harness.h"
#include "nn/loss.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "tensor/rules/dropout.h"

#define STEP           0x1p-5
#define BOUND          5e-4
#define SMALL_TENSOR   64 /* a tensor with at most this many elements: each is moved */
#define SINGLES        24 /* number of elements that are moved in a larger tensor */
#define RANDOM         24 /* number of directions that move all elements */
#define PARAMETERS_MAX 8
#define VARIABLES_MAX  8
#define TOKENS_MAX     96

/* A tensor that is changed to compute a derivative, and the tensor with backward's gradient for it. */
typedef struct variable {
    const char *name;
    tensor value, grad;
} variable;

/* A layer under test, with the tensors outside of the plan that it reads and writes, and the variables that
   are checked. */
typedef struct layer {
    harness h;
    linear linear;
    lora lora;
    dora_tables tables;
    norm norm;
    rope rope;
    attention attention;
    latent_attention latent;
    mlp mlp;
    embedding embedding;
    loss_head loss;
    attention_saved attention_saved;
    latent_attention_saved latent_saved;
    mlp_saved mlp_saved;
    activation_specs input_specs, grad_specs; /* empty, because layers run in fp32 */
    parameter parameters[PARAMETERS_MAX];
    int parameter_count;
    tensor x, dx, residual, h_out, rstd;
    tensor token, target, grad_scale;
    sequence_metadata at;
    tensor output[2], weight[2]; /* weight: the gradient of the loss by the output */
    int output_count;
    variable variables[VARIABLES_MAX];
    int variable_count;
} layer;

typedef struct layer_row {
    const char *name;
    void (*build)(layer *l);
    ott_status (*forward)(exec *cx, layer *l);
    ott_status (*backward)(exec *cx, layer *l);
} layer_row;

/* ---- building ---- */

static void add_variable(layer *l, const char *name, tensor value, tensor grad) {
    assert_in_range(l->variable_count, 0, VARIABLES_MAX - 1);
    l->variables[l->variable_count++] = (variable){name, value, grad};
}

static void add_output(layer *l, tensor t) {
    uint64_t stream = 900 + (uint64_t)l->output_count;
    l->output[l->output_count] = t;
    l->weight[l->output_count++] = harness_tensor_normal(&l->h, OTT_F32, t.rows, t.columns, 1.0, stream);
}

static parameter *add_parameter(layer *l, const char *name, int64_t rows, int64_t columns, double deviation) {
    assert_in_range(l->parameter_count, 0, PARAMETERS_MAX - 1);
    uint64_t stream = 100 + (uint64_t)l->parameter_count;
    parameter *p = &l->parameters[l->parameter_count++];
    *p = harness_parameter(&l->h, name, rows, columns, deviation, stream);
    add_variable(l, name, p->value, p->grad);
    return p;
}

static void add_input(layer *l, int64_t rows, int64_t columns) {
    l->x = harness_tensor_normal(&l->h, OTT_F32, rows, columns, 1.0, 1);
    l->dx = harness_tensor(&l->h, OTT_F32, rows, columns);
    add_variable(l, "x", l->x, l->dx);
}

static void make_linear(layer *l, linear *made, const char *name, int64_t in, int64_t out) {
    linear_spec spec;
    recipe_compile(recipe_high_precision(OTT_F32), OTT_F32, &spec);
    *made = (linear){.name = name, .in = in, .out = out};
    made->weight = add_parameter(l, name, out, in, 1.0 / sqrt((double)in));
    HARNESS_OK(linear_set_spec(made, l->h.device, &spec));
}

/* Wraps an existing tensor as an activation. */
static activation activation_of(tensor t) {
    return (activation){.t = t};
}

/* Makes a batch of documents with these lengths. A 0 ends the list. Positions begin at 0 in each document. */
static void place(layer *l, const int32_t *lengths) {
    int32_t start[TOKENS_MAX + 1] = {0}, position[TOKENS_MAX];
    int32_t documents = 0, tokens = 0;
    for (; lengths[documents] > 0; documents++) {
        for (int32_t i = 0; i < lengths[documents]; i++) position[tokens++] = i;
        start[documents + 1] = tokens;
    }
    l->at.position = harness_vector_of_int(&l->h, tokens, position);
    l->at.cu_seqlens = harness_vector_of_int(&l->h, documents + 1, start);
}

/* ---- linear ---- */

static void build_linear(layer *l) {
    add_input(l, 11, 13);
    make_linear(l, &l->linear, "weight", 13, 7);
    HARNESS_OK(linear_connect(&l->linear, &l->input_specs, &l->grad_specs));
    add_output(l, harness_tensor(&l->h, OTT_F32, 11, 7));
}

static void build_linear_bias(layer *l) {
    build_linear(l);
    l->linear.bias = add_parameter(l, "bias", 0, 7, 1.0);
}

static void build_lora_of(layer *l, float dropout, bool drops_output) {
    static const int32_t number[] = {-5, 3};
    build_linear(l);
    l->lora = (lora){.a = add_parameter(l, "lora_A", 3, 13, 0.3),
                     .b = add_parameter(l, "lora_B", 7, 3, 0.5),
                     .scale = 2.5f,
                     .dropout = dropout,
                     .drops_output = drops_output,
                     .seed = 5,
                     .stream = 9};
    l->linear.lora = &l->lora;
    l->target = harness_vector_of_int(&l->h, 2, number);
    l->h.cx.token = &l->target;
}

static void build_lora(layer *l) {
    build_lora_of(l, 0.0f, false);
}
static void build_lora_before(layer *l) {
    build_lora_of(l, 0.3f, false);
}
static void build_lora_after(layer *l) {
    build_lora_of(l, 0.3f, true);
}

/* DoRA's backward treats the norms of the weight's rows as constants, so finite differences of A and B would
   not match. The test changes only the input and the magnitudes. */
static void build_dora_of(layer *l, float dropout) {
    float ones[13];
    int32_t order[7];
    build_lora_of(l, dropout, false);
    for (int i = 0; i < 13; i++) ones[i] = 1.0f;
    for (int i = 0; i < 7; i++) order[i] = i;
    l->tables = (dora_tables){.ones = harness_tensor_of(&l->h, OTT_F32, 1, 13, ones),
                              .order = harness_vector_of_int(&l->h, 7, order)};
    l->variable_count = 1;
    l->lora.magnitude = add_parameter(l, "lora_m", 0, 7, 1.0);
    l->lora.tables = &l->tables;
    l->linear.weight->frozen = true;
    HARNESS_OK(linear_set_spec(&l->linear, l->h.device, &l->linear.spec));
}

static void build_dora(layer *l) {
    build_dora_of(l, 0.0f);
}
static void build_dora_dropped(layer *l) {
    build_dora_of(l, 0.3f);
}

static ott_status forward_linear(exec *cx, layer *l) {
    activation x = activation_of(l->x);
    return linear_forward(cx, &l->linear, &x, &l->output[0]);
}

static ott_status backward_linear(exec *cx, layer *l) {
    activation x = activation_of(l->x), g = activation_of(l->weight[0]);
    TRY(linear_grad_input(cx, &l->linear, &g, &l->dx, false));
    return linear_grad_weight(cx, &l->linear, &x, &g);
}

/* ---- norm ---- */

static void build_norm(layer *l) {
    add_input(l, 9, 21);
    l->norm = (norm){.name = "norm", .weight = add_parameter(l, "weight", 0, 21, 1.0), .epsilon = 1e-5f};
    l->rstd = harness_tensor(&l->h, OTT_F32, 1, 9);
    add_output(l, harness_tensor(&l->h, OTT_F32, 9, 21));
}

/* A norm with a second output, the residual stream h. The loss includes h, so its gradient is checked. */
static void build_norm_residual(layer *l) {
    build_norm(l);
    l->residual = harness_tensor_normal(&l->h, OTT_F32, 9, 21, 1.0, 2);
    add_variable(l, "delta", l->residual, l->dx);
    add_output(l, harness_tensor(&l->h, OTT_F32, 9, 21));
}

static ott_status forward_norm(exec *cx, layer *l) {
    activation y = activation_of(l->output[0]);
    return norm_forward(cx, &l->norm, &l->x, NULL, NULL, &y, &l->rstd);
}

static ott_status backward_norm(exec *cx, layer *l) {
    activation dx = activation_of(l->dx);
    return norm_backward(cx, &l->norm, &l->weight[0], &l->x, &l->rstd, NULL, &dx);
}

static ott_status forward_norm_residual(exec *cx, layer *l) {
    activation y = activation_of(l->output[0]);
    return norm_forward(cx, &l->norm, &l->x, &l->residual, &l->output[1], &y, &l->rstd);
}

static ott_status backward_norm_residual(exec *cx, layer *l) {
    activation dx = activation_of(l->dx);
    return norm_backward(cx, &l->norm, &l->weight[0], &l->output[1], &l->rstd, &l->weight[1], &dx);
}

/* ---- rope ---- */

static const rope_options plain_rope = {.kind = ROPE_PLAIN, .theta = 1e4};
static const rope_options llama3_rope = {.kind = ROPE_LLAMA3,
                                         .theta = 1e4,
                                         .factor = 8,
                                         .low_frequency_factor = 1,
                                         .high_frequency_factor = 4,
                                         .original_max_position = 128};

/* Rotates adjacent pairs of elements, in three quarters of a head. */
static const rope_options interleaved_rope = {.kind = ROPE_YARN,
                                              .theta = 1e4,
                                              .partial_rotary_factor = 0.75,
                                              .interleaved = true,
                                              .factor = 4,
                                              .original_max_position = 32,
                                              .beta_fast = 8,
                                              .beta_slow = 1};

static void build_rope_of(layer *l, const rope_options *o) {
    const int32_t lengths[] = {7, 1, 5, 0};
    place(l, lengths);
    HARNESS_OK(rope_build(&l->rope, l->h.device, o, 8, 16));
    add_input(l, 13, 3 * 8);
    add_output(l, harness_tensor(&l->h, OTT_F32, 13, 3 * 8));
}

static void build_rope(layer *l) {
    build_rope_of(l, &plain_rope);
}
static void build_rope_llama3(layer *l) {
    build_rope_of(l, &llama3_rope);
}

static void build_rope_interleaved(layer *l) {
    build_rope_of(l, &interleaved_rope);
}

static ott_status rotate_copy(exec *cx, layer *l, const tensor *from, const tensor *to, bool inverse) {
    TRY(op_convert(cx, &(convert_args){.x = from, .y = to}));
    return rope_apply(cx, &l->rope, to, &l->at.position, inverse);
}

static ott_status forward_rope(exec *cx, layer *l) {
    return rotate_copy(cx, l, &l->x, &l->output[0], false);
}
static ott_status backward_rope(exec *cx, layer *l) {
    return rotate_copy(cx, l, &l->weight[0], &l->dx, true);
}
/* A wrong backward for a negative control: it rotates in the same direction as forward. */
static ott_status backward_rope_forwards(exec *cx, layer *l) {
    return rotate_copy(cx, l, &l->weight[0], &l->dx, false);
}

/* ---- attention ---- */

typedef struct attention_shape {
    int64_t dim, heads, kv_heads, head_dim, window;
    int32_t lengths[5]; /* lengths of the documents, ended by 0 */
    bool fused;         /* q, k and v are columns of one matrix */
} attention_shape;

static void build_attention_of(layer *l, const attention_shape *a) {
    place(l, a->lengths);
    HARNESS_OK(rope_build(&l->rope, l->h.device, &plain_rope, a->head_dim, TOKENS_MAX));
    l->attention = (attention){.core = {.heads = a->heads,
                                        .kv_heads = a->kv_heads,
                                        .head_dim = a->head_dim,
                                        .window = a->window,
                                        .rope = &l->rope}};
    int64_t tokens = l->at.position.columns;
    add_input(l, tokens, a->dim);
    if (a->fused) {
        make_linear(l, &l->attention.qkv, "qkv", a->dim, (a->heads + 2 * a->kv_heads) * a->head_dim);
    } else {
        make_linear(l, &l->attention.q, "q", a->dim, a->heads * a->head_dim);
        make_linear(l, &l->attention.k, "k", a->dim, a->kv_heads * a->head_dim);
        make_linear(l, &l->attention.v, "v", a->dim, a->kv_heads * a->head_dim);
    }
    make_linear(l, &l->attention.core.o, "o", a->heads * a->head_dim, a->dim);
    HARNESS_OK(attention_connect(&l->attention, &l->input_specs, &l->grad_specs));
    add_output(l, harness_tensor(&l->h, OTT_F32, tokens, a->dim));
}

static void build_attention(layer *l) {
    build_attention_of(
        l, &(attention_shape){.dim = 12, .heads = 3, .kv_heads = 3, .head_dim = 8, .lengths = {17}});
}
static void build_attention_grouped(layer *l) {
    build_attention_of(
        l, &(attention_shape){.dim = 12, .heads = 4, .kv_heads = 2, .head_dim = 6, .lengths = {17}});
}
static void build_attention_documents(layer *l) {
    build_attention_of(
        l, &(attention_shape){.dim = 12, .heads = 4, .kv_heads = 2, .head_dim = 8, .lengths = {7, 1, 12, 3}});
}
static void build_attention_fused(layer *l) {
    build_attention_of(
        l, &(attention_shape){
               .dim = 12, .heads = 4, .kv_heads = 2, .head_dim = 8, .lengths = {7, 1, 12}, .fused = true});
}
static void build_attention_window(layer *l) {
    build_attention_of(
        l, &(attention_shape){
               .dim = 12, .heads = 2, .kv_heads = 1, .head_dim = 8, .window = 4, .lengths = {15, 9}});
}
/* Attention with more keys than a tile of the kernel has (tensor/rules/attention.h). One case has a window
   that skips the first tile. */
static void build_attention_tiles(layer *l) {
    build_attention_of(
        l, &(attention_shape){.dim = 6, .heads = 2, .kv_heads = 1, .head_dim = 4, .lengths = {5, 83}});
}
static void build_attention_tiles_window(layer *l) {
    build_attention_of(
        l,
        &(attention_shape){.dim = 6, .heads = 1, .kv_heads = 1, .head_dim = 4, .window = 9, .lengths = {88}});
}

static void make_path(layer *l, latent_path *p, bool queries, int64_t rank, int64_t extra, int64_t out) {
    make_linear(l, &p->a, queries ? "q_a" : "kv_a", l->x.columns, rank + extra);
    p->norm = (norm){.name = "latent norm",
                     .weight = add_parameter(l, queries ? "q_a_norm" : "kv_a_norm", 0, rank, 1.0),
                     .epsilon = 1e-5f};
    make_linear(l, &p->b, queries ? "q_b" : "kv_b", rank, out);
}

static void build_attention_latent_of(layer *l, const latent_shape *s) {
    const int32_t lengths[] = {7, 1, 12, 3, 0};
    int64_t heads = 3, width = latent_key_width(s);
    place(l, lengths);
    HARNESS_OK(rope_build(&l->rope, l->h.device, &interleaved_rope, s->rope_dim, TOKENS_MAX));
    l->latent = (latent_attention){.core = {.heads = heads,
                                            .kv_heads = heads,
                                            .head_dim = width,
                                            .rope = &l->rope,
                                            .rope_first = s->nope_dim},
                                   .shape = *s};
    int64_t tokens = l->at.position.columns;
    add_input(l, tokens, 12);
    if (s->query_rank > 0)
        make_path(l, &l->latent.query, true, s->query_rank, 0, heads * width);
    else
        make_linear(l, &l->latent.q, "q", 12, heads * width);
    make_path(l, &l->latent.key, false, s->key_rank, s->rope_dim, heads * (s->nope_dim + s->value));
    make_linear(l, &l->latent.core.o, "o", heads * s->value, 12);
    HARNESS_OK(latent_attention_connect(&l->latent, &l->input_specs, &l->grad_specs));
    add_output(l, harness_tensor(&l->h, OTT_F32, tokens, 12));
}

static void build_attention_latent(layer *l) {
    build_attention_latent_of(
        l, &(latent_shape){.query_rank = 7, .key_rank = 9, .nope_dim = 5, .rope_dim = 8, .value = 6});
}
static void build_attention_latent_keys(layer *l) {
    build_attention_latent_of(l, &(latent_shape){.key_rank = 9, .nope_dim = 4, .rope_dim = 8, .value = 12});
}

static ott_status forward_attention(exec *cx, layer *l) {
    activation x = activation_of(l->x);
    TRY(attention_forward(cx, &l->attention, &l->at, &x, &l->attention_saved));
    TRY(attention_core_project(cx, &l->attention.core, &l->attention_saved.core, &l->output[0]));
    return attention_core_keep(cx, &l->attention_saved.core);
}

static ott_status backward_attention(exec *cx, layer *l) {
    activation x = activation_of(l->x), g = activation_of(l->weight[0]);
    return attention_backward(cx, &l->attention, &l->at, &l->attention_saved, &x, &g, &l->dx);
}

static ott_status forward_latent(exec *cx, layer *l) {
    activation x = activation_of(l->x);
    TRY(latent_attention_forward(cx, &l->latent, &l->at, &x, &l->latent_saved));
    TRY(attention_core_project(cx, &l->latent.core, &l->latent_saved.core, &l->output[0]));
    return attention_core_keep(cx, &l->latent_saved.core);
}

static ott_status backward_latent(exec *cx, layer *l) {
    activation x = activation_of(l->x), g = activation_of(l->weight[0]);
    return latent_attention_backward(cx, &l->latent, &l->at, &l->latent_saved, &x, &g, &l->dx);
}

/* ---- mlp ---- */

static void build_mlp_of(layer *l, bool fused) {
    add_input(l, 10, 12);
    if (fused) {
        make_linear(l, &l->mlp.gate_up, "gate_up", 12, 38);
    } else {
        make_linear(l, &l->mlp.gate, "gate", 12, 19);
        make_linear(l, &l->mlp.up, "up", 12, 19);
    }
    make_linear(l, &l->mlp.down, "down", 19, 12);
    HARNESS_OK(mlp_connect(&l->mlp, &l->input_specs, &l->grad_specs));
    add_output(l, harness_tensor(&l->h, OTT_F32, 10, 12));
}

static void build_mlp(layer *l) {
    build_mlp_of(l, false);
}
static void build_mlp_fused(layer *l) {
    build_mlp_of(l, true);
}

/* An MLP of two matrices, with GELU. */
static void build_mlp_gelu(layer *l) {
    add_input(l, 10, 12);
    l->mlp.activates = true;
    l->mlp.function = ACTIVATE_GELU_ERF;
    make_linear(l, &l->mlp.up, "up", 12, 19);
    make_linear(l, &l->mlp.down, "down", 19, 12);
    HARNESS_OK(mlp_connect(&l->mlp, &l->input_specs, &l->grad_specs));
    add_output(l, harness_tensor(&l->h, OTT_F32, 10, 12));
}

static ott_status forward_mlp(exec *cx, layer *l) {
    activation x = activation_of(l->x);
    TRY(mlp_forward(cx, &l->mlp, &x, &l->mlp_saved));
    TRY(mlp_activate(cx, &l->mlp, &l->mlp_saved));
    TRY(mlp_project(cx, &l->mlp, &l->mlp_saved, &l->output[0]));
    return mlp_keep(cx, &l->mlp, &l->mlp_saved);
}

static ott_status backward_mlp(exec *cx, layer *l) {
    activation x = activation_of(l->x), g = activation_of(l->weight[0]);
    return mlp_backward(cx, &l->mlp, &l->mlp_saved, &x, &g, &l->dx);
}

/* ---- embedding ---- */

static void build_embedding(layer *l) {
    /* some rows of the table are read several times, some never */
    const int32_t token[] = {3, 0, 3, 7, 2, 3, 7};
    l->token = harness_vector_of_int(&l->h, 7, token);
    l->embedding = (embedding){.name = "embedding", .weight = add_parameter(l, "table", 8, 6, 1.0)};
    add_output(l, harness_tensor(&l->h, OTT_F32, 7, 6));
}

static ott_status forward_embedding(exec *cx, layer *l) {
    return embedding_forward(cx, &l->embedding, &l->token, &l->output[0]);
}
static ott_status backward_embedding(exec *cx, layer *l) {
    return embedding_backward(cx, &l->embedding, &l->token, &l->weight[0]);
}

/* ---- loss head ---- */

/* The layer multiplies gradients by this factor (grad_scale), so the test multiplies losses by it. */
#define LOSS_SCALE 0.75f

static void build_loss_of(layer *l, int64_t chunk) {
    enum { TOKENS = 11, DIM = 6, VOCABULARY = 9 };
    /* one chunk of 4 has only ignored targets */
    const int32_t target[TOKENS] = {4, -1, 0, 8, 3, -1, -1, -1, 2, 2, -100};
    const float scale = LOSS_SCALE;
    float weights[TOKENS];
    add_input(l, TOKENS, DIM);
    make_linear(l, &l->loss.head, "head", DIM, VOCABULARY);
    l->loss.chunk = chunk;
    HARNESS_OK(loss_connect(&l->loss, &l->input_specs));
    l->target = harness_vector_of_int(&l->h, TOKENS, target);
    l->grad_scale = harness_tensor_of(&l->h, OTT_F32, 1, 1, &scale);
    add_output(l, harness_tensor(&l->h, OTT_F32, 1, TOKENS));
    for (int i = 0; i < TOKENS; i++) weights[i] = LOSS_SCALE;
    harness_put(&l->h, &l->weight[0], weights);
}

static void build_loss(layer *l) {
    build_loss_of(l, 100);
}
static void build_loss_chunked(layer *l) {
    build_loss_of(l, 4);
}

/* The loss includes a z-loss: the square of each token's logsumexp(logits). */
static void build_loss_z(layer *l) {
    const float weight = LOSS_SCALE * 0.3f;
    build_loss_of(l, 4);
    add_output(l, harness_tensor(&l->h, OTT_F32, 1, 1));
    harness_put(&l->h, &l->weight[1], &weight);
    l->loss.z_weight = 0.3f;
    l->loss.z = l->output[1];
}

/* The layer computes loss and gradient in one call. */
static ott_status forward_loss(exec *cx, layer *l) {
    activation x = activation_of(l->x);
    const loss_input in = {.target = l->target};
    return loss_forward(cx, &l->loss, &x, &in, &l->grad_scale, &l->output[0], &l->dx);
}
static ott_status forward_loss_z(exec *cx, layer *l) {
    if (!plan_recording(cx->plan)) harness_zero(&l->h, &l->loss.z);
    return forward_loss(cx, l);
}
static ott_status backward_nothing(exec *cx, layer *l) {
    (void)cx;
    (void)l;
    return OTT_OK;
}

static const layer_row layers[] = {
    {"linear", build_linear, forward_linear, backward_linear},
    {"linear with bias", build_linear_bias, forward_linear, backward_linear},
    {"linear with an adapter", build_lora, forward_linear, backward_linear},
    {"linear with an adapter, dropout before", build_lora_before, forward_linear, backward_linear},
    {"linear with an adapter, dropout after", build_lora_after, forward_linear, backward_linear},
    {"linear with a decomposed adapter", build_dora, forward_linear, backward_linear},
    {"linear with a decomposed adapter, dropout", build_dora_dropped, forward_linear, backward_linear},
    {"norm", build_norm, forward_norm, backward_norm},
    {"norm with residual", build_norm_residual, forward_norm_residual, backward_norm_residual},
    {"rope", build_rope, forward_rope, backward_rope},
    {"rope llama3", build_rope_llama3, forward_rope, backward_rope},
    {"rope interleaved", build_rope_interleaved, forward_rope, backward_rope},
    {"attention", build_attention, forward_attention, backward_attention},
    {"attention, grouped heads", build_attention_grouped, forward_attention, backward_attention},
    {"attention, documents", build_attention_documents, forward_attention, backward_attention},
    {"attention, fused", build_attention_fused, forward_attention, backward_attention},
    {"attention, window", build_attention_window, forward_attention, backward_attention},
    {"attention, tiles", build_attention_tiles, forward_attention, backward_attention},
    {"attention, tiles and window", build_attention_tiles_window, forward_attention, backward_attention},
    {"attention, latents", build_attention_latent, forward_latent, backward_latent},
    {"attention, a latent of keys", build_attention_latent_keys, forward_latent, backward_latent},
    {"mlp", build_mlp, forward_mlp, backward_mlp},
    {"mlp, fused", build_mlp_fused, forward_mlp, backward_mlp},
    {"mlp, GELU without a gate", build_mlp_gelu, forward_mlp, backward_mlp},
    {"embedding", build_embedding, forward_embedding, backward_embedding},
    {"loss head", build_loss, forward_loss, backward_nothing},
    {"loss head, chunked", build_loss_chunked, forward_loss, backward_nothing},
    {"loss head, z-loss", build_loss_z, forward_loss_z, backward_nothing},
};
#define LAYERS (sizeof layers / sizeof *layers)

/* ---- running ---- */

typedef struct pass {
    layer *l;
    const layer_row *row;
} pass;

static ott_status step(exec *cx, void *user) {
    pass *p = user;
    TRY(p->row->forward(cx, p->l));
    return p->row->backward(cx, p->l);
}

static float *host_copy(layer *l, const tensor *t) {
    float *values = malloc((size_t)tensor_count(*t) * sizeof *values);
    harness_get(&l->h, t, values);
    return values;
}

static double loss_of(pass *p) {
    double loss = 0;
    harness_replay(&p->l->h, step, p);
    for (int o = 0; o < p->l->output_count; o++) {
        float *y = host_copy(p->l, &p->l->output[o]), *w = host_copy(p->l, &p->l->weight[o]);
        for (int64_t i = 0; i < tensor_count(p->l->output[o]); i++) loss += (double)y[i] * (double)w[i];
        free(y);
        free(w);
    }
    return loss;
}

/* ---- directions ---- */

/* Makes direction number `index` for a tensor of `count` elements: a vector of length 1. */
static void make_direction(float *d, int64_t count, int64_t index) {
    int64_t singles = count <= SMALL_TENSOR ? count : SINGLES;
    memset(d, 0, (size_t)count * sizeof *d);
    if (index < singles) {
        d[rng_permute(5, (uint64_t)count, (uint64_t)index, (uint64_t)count)] = 1.0f;
        return;
    }
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        d[i] = rng_normal(6, (uint64_t)index, (uint64_t)i);
        squares += (double)d[i] * (double)d[i];
    }
    for (int64_t i = 0; i < count; i++) d[i] = (float)((double)d[i] / sqrt(squares));
}

static int64_t direction_count(int64_t count) {
    return (count <= SMALL_TENSOR ? count : SINGLES) + RANDOM;
}

/* Returns the loss if v is base + distance * d. base: v's original elements; d: a direction. */
static double loss_at(pass *p, const variable *v, const float *base, const float *d, double distance) {
    int64_t count = tensor_count(v->value);
    float *moved = malloc((size_t)count * sizeof *moved);
    for (int64_t i = 0; i < count; i++) moved[i] = (float)((double)base[i] + distance * (double)d[i]);
    harness_put(&p->l->h, &v->value, moved);
    free(moved);
    return loss_of(p);
}

static double numeric_derivative(pass *p, const variable *v, const float *base, const float *d) {
    double near = loss_at(p, v, base, d, STEP) - loss_at(p, v, base, d, -STEP);
    double far = loss_at(p, v, base, d, 2 * STEP) - loss_at(p, v, base, d, -2 * STEP);
    harness_put(&p->l->h, &v->value, base);
    return (8 * near - far) / (12 * STEP);
}

/* ---- the check ---- */

static double dot(const float *a, const float *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Compares the gradient of one variable with finite differences in all directions. Returns the largest
   difference, divided by the allowed one. Above 1 the gradient is wrong. */
static double check_variable(pass *p, const variable *v, const float *grad) {
    int64_t count = tensor_count(v->value);
    float *base = host_copy(p->l, &v->value), *d = malloc((size_t)count * sizeof *d);
    double typical = sqrt(dot(grad, grad, count) / (double)count), worst = 0;
    assert_true(typical > 0);
    for (int64_t i = 0; i < direction_count(count); i++) {
        make_direction(d, count, i);
        double analytic = dot(grad, d, count), numeric = numeric_derivative(p, v, base, d);
        double error = fabs(analytic - numeric) / (BOUND * (typical + fabs(analytic)));
        if (!(error <= worst)) worst = error; /* true for a NaN too */
    }
    free(base);
    free(d);
    return worst;
}

/* A function that makes a gradient wrong, for negative controls; NULL: gradients stay correct. */
typedef void (*spoiler)(float *grad, int64_t count);

static double check_layer(const layer_row *row, spoiler spoil) {
    static layer l;
    l = (layer){0};
    harness_open(&l.h, 1, NULL);
    row->build(&l);
    pass p = {&l, row};
    harness_record(&l.h, step, &p);
    loss_of(&p); /* computes the gradients once, from zero */
    float *grads[VARIABLES_MAX];
    for (int i = 0; i < l.variable_count; i++) {
        grads[i] = host_copy(&l, &l.variables[i].grad);
        if (spoil) spoil(grads[i], tensor_count(l.variables[i].grad));
    }
    double worst = 0;
    for (int i = 0; i < l.variable_count; i++) {
        double error = check_variable(&p, &l.variables[i], grads[i]);
        if (!spoil) print_message("%-28s %-7s %.1e of the bound\n", row->name, l.variables[i].name, error);
        if (!(error <= worst)) worst = error;
        free(grads[i]);
    }
    rope_release(&l.rope, l.h.device);
    harness_close(&l.h);
    return worst;
}

static void layer_agrees(void **state) {
    double error = check_layer(*state, NULL);
    if (!(error <= 1)) fail_msg("gradient off by %g times the bound", error);
}

/* ---- negative controls ---- */

/* Makes one element wrong by a hundredth of a typical element. In large tensors not every element is checked,
   so it is the element that the first direction changes. */
static void spoil_element(float *grad, int64_t count) {
    int64_t i = (int64_t)rng_permute(5, (uint64_t)count, 0, (uint64_t)count);
    grad[i] += (float)(0.01 * (sqrt(dot(grad, grad, count) / (double)count) + fabs((double)grad[i])));
}

static void spoil_scale(float *grad, int64_t count) {
    for (int64_t i = 0; i < count; i++) grad[i] *= 1.01f;
}

static void a_wrong_gradient_is_found(void **state) {
    (void)state;
    for (size_t i = 0; i < LAYERS; i++) {
        if (!(check_layer(&layers[i], spoil_element) > 1))
            fail_msg("%s: one wrong element is not detected", layers[i].name);
        if (!(check_layer(&layers[i], spoil_scale) > 1))
            fail_msg("%s: a wrong scale is not detected", layers[i].name);
    }
}

static void a_wrong_backward_is_found(void **state) {
    (void)state;
    const layer_row wrong[] = {
        {"rope rotated forward twice", build_rope, forward_rope, backward_rope_forwards},
        {"norm without its residual", build_norm_residual, forward_norm_residual, backward_norm},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (!(check_layer(&wrong[i], NULL) > 1)) fail_msg("%s passes", wrong[i].name);
}

/* ---- a decomposed adapter's dropout ---- */

/* Checks DoRA's output under dropout against PEFT's formula: the output is W x + ((m / |V| - 1) W + (m / |V|)
   scale B A) dropout(x). */
static void expect_output(const float *x, const float *w, const float *a, const float *b, const float *m,
                          const float *y) {
    const int32_t token[] = {-5, 3};
    for (int64_t t = 0; t < 11; t++)
        for (int64_t o = 0; o < 7; o++) {
            double base = 0, left = 0, low = 0, squares = 0;
            for (int64_t i = 0; i < 13; i++) {
                uint64_t n = dropout_row(token, t, 0, 13) + (uint64_t)i;
                double kept = (double)x[t * 13 + i] *
                              (double)dropout_factor(rng_philox(5, 9, n / 4), n, 0.3f, 1.0f / 0.7f);
                double product = 0, weight = (double)w[o * 13 + i];
                for (int64_t k = 0; k < 3; k++) product += 2.5 * (double)b[o * 3 + k] * (double)a[k * 13 + i];
                base += weight * (double)x[t * 13 + i];
                left += weight * kept;
                low += product * kept;
                squares += (weight + product) * (weight + product);
            }
            double s = (double)m[o] / sqrt(squares), wanted = base + (s - 1) * left + s * low;
            assert_true(fabs((double)y[t * 7 + o] - wanted) < 1e-5 * (1 + fabs(wanted)));
        }
}

static void a_decomposed_adapter_drops_as_peft(void **state) {
    static const layer_row row = {"", build_dora_dropped, forward_linear, backward_linear};
    static layer l;
    (void)state;
    l = (layer){0};
    harness_open(&l.h, 1, NULL);
    build_dora_dropped(&l);
    pass p = {&l, &row};
    harness_record(&l.h, step, &p);
    harness_replay(&l.h, step, &p);
    const tensor *read[] = {
        &l.x,        &l.linear.weight->value, &l.lora.a->value, &l.lora.b->value, &l.lora.magnitude->value,
        &l.output[0]};
    float *values[6];
    for (int i = 0; i < 6; i++) values[i] = host_copy(&l, read[i]);
    expect_output(values[0], values[1], values[2], values[3], values[4], values[5]);
    for (int i = 0; i < 6; i++) free(values[i]);
    harness_close(&l.h);
}

int main(void) {
    struct CMUnitTest tests[LAYERS + 3];
    for (size_t i = 0; i < LAYERS; i++)
        tests[i] = (struct CMUnitTest){.name = layers[i].name,
                                       .test_func = layer_agrees,
                                       .initial_state = (void *)(uintptr_t)&layers[i]};
    tests[LAYERS] = (struct CMUnitTest)cmocka_unit_test(a_wrong_gradient_is_found);
    tests[LAYERS + 1] = (struct CMUnitTest)cmocka_unit_test(a_wrong_backward_is_found);
    tests[LAYERS + 2] = (struct CMUnitTest)cmocka_unit_test(a_decomposed_adapter_drops_as_peft);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
