/*
 * op_fixture: what generated cases need beyond the text of ops.def: indices in range, values of scalars,
 * sizes that depend on each other.
 */
#include "backend/op_case.h"
#include "tensor/rules/moment.h"
#include <string.h>

#define SIZE(letter) c->size[(letter) - 'A']
#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

static int32_t *integers(op_case *c, const char *field) {
    return case_at(c, field)->tensor.data;
}
static void set_float(op_case *c, const char *field, float x) {
    case_set(c, field, &x, sizeof x);
}
static void set_bool(op_case *c, const char *field, bool x) {
    case_set(c, field, &x, sizeof x);
}
static void set_integer(op_case *c, const char *field, int64_t x) {
    case_set(c, field, &x, sizeof x);
}

/* Draws every element of an index vector from [0, limit). */
static void draw_indices(op_case *c, const char *field, int64_t limit) {
    for (int64_t i = 0; i < case_at(c, field)->tensor.columns; i++)
        integers(c, field)[i] = (int32_t)case_draw(c, limit);
}

/* ---- quantization specs: torchao's three recipes, only one copy, copies with different specs,
   TransformerEngine's rule, blocks, delayed scaling ---- */

#define TORCHAO(d, granule, pow2)                                                                            \
    {                                                                                                        \
        .format = d, .grain = granule, .scale = {.rule = SCALE_TORCHAO, .power_of_two = pow2 }               \
    }
#define TENSORWISE(d) TORCHAO(d, GRANULARITY_TENSOR, false)
#define ROWWISE       TORCHAO(OTT_E4M3, GRANULARITY_ROW, true)
#define HIGH                                                                                                 \
    { .format = OTT_BF16 }
#define TE(d, granule, overflow)                                                                             \
    {                                                                                                        \
        .format = d, .grain = granule, .mode = overflow, .scale = {                                          \
            .rule = SCALE_TE,                                                                                \
            .epsilon = 0.001f,                                                                               \
            .margin = 1,                                                                                     \
            .infinite = 3.40282347e38f                                                                       \
        }                                                                                                    \
    }

#define BLOCK(d, granule) TE(d, granule, CAST_SATURATE)
#define MX(d)                                                                                                \
    {                                                                                                        \
        .format = d, .grain = GRANULARITY_1X32, .scale = {.rule = SCALE_E8M0 }                               \
    }
#define DELAYED(d)                                                                                           \
    {                                                                                                        \
        .format = d, .grain = GRANULARITY_TENSOR, .scale = {.rule = SCALE_TE}, .policy = AMAX_DELAYED,       \
        .history = 16                                                                                        \
    }

static const quant_spec quant_specs[] = {
    {TENSORWISE(OTT_E4M3), TENSORWISE(OTT_E4M3)},
    {TENSORWISE(OTT_E5M2), TENSORWISE(OTT_E5M2)},
    {ROWWISE, ROWWISE},
    {ROWWISE, HIGH},
    {HIGH, ROWWISE},
    {ROWWISE, TORCHAO(OTT_E4M3, GRANULARITY_TENSOR, true)},
    {TENSORWISE(OTT_E4M3), ROWWISE},
    {TENSORWISE(OTT_E4M3), TENSORWISE(OTT_E5M2)},
    {TE(OTT_E4M3, GRANULARITY_TENSOR, CAST_OVERFLOW), TE(OTT_E4M3, GRANULARITY_TENSOR, CAST_OVERFLOW)},
    {TE(OTT_E5M2, GRANULARITY_ROW, CAST_OVERFLOW), TE(OTT_E5M2, GRANULARITY_ROW, CAST_SATURATE)},
    {BLOCK(OTT_E4M3, GRANULARITY_1X128), BLOCK(OTT_E4M3, GRANULARITY_1X128)},
    {BLOCK(OTT_E4M3, GRANULARITY_128X128), BLOCK(OTT_E4M3, GRANULARITY_128X128)},
    {BLOCK(OTT_E4M3, GRANULARITY_128X128), BLOCK(OTT_E5M2, GRANULARITY_128X128)},
    {MX(OTT_E4M3), MX(OTT_E4M3)},
    {HIGH, MX(OTT_E5M2)},
    {MX(OTT_E4M3), BLOCK(OTT_E4M3, GRANULARITY_128X128)},
    {ROWWISE, BLOCK(OTT_E4M3, GRANULARITY_1X128)},
    {BLOCK(OTT_E4M3, GRANULARITY_128X128), MX(OTT_E4M3)},
    {TENSORWISE(OTT_E4M3), MX(OTT_E4M3)},
    {DELAYED(OTT_E4M3), DELAYED(OTT_E4M3)},
    {DELAYED(OTT_E5M2), HIGH},
};

const quant_spec *fixture_quant_spec(int index, int *count) {
    *count = (int)(sizeof quant_specs / sizeof *quant_specs);
    return &quant_specs[index];
}

/* ---- cast statistics, delayed scaling ---- */

static void statistics_bind(op_case *c) {
    SIZE('S') = STATISTICS_COUNT;
}

/* In a quarter of the cases the recorded amax is 0, as if the tensor had not been used. */
static void amax_update_prepare(op_case *c) {
    cast_spec spec = DELAYED(OTT_E4M3);
    spec.history = (int)SIZE('H');
    spec.format = case_draw(c, 2) ? OTT_E4M3 : OTT_E5M2;
    spec.algorithm = case_draw(c, 2) ? AMAX_MAX : AMAX_MOST_RECENT;
    spec.scale.margin = (int)case_draw(c, 3);
    values_make_positive(c, &c->regions[case_at(c, "seen")->region]);
    values_make_positive(c, &c->regions[case_at(c, "amax_history")->region]);
    if (case_draw(c, 4) == 0) *(float *)case_at(c, "seen")->tensor.data = 0.0f;
    case_set(c, "spec", &spec, sizeof spec);
}

/* ---- gemm ---- */

static const int64_t gemm_shapes[][3] = {
    {1, 1, 1},   {1, 17, 33},  {15, 16, 17},  {16, 15, 1},    {33, 31, 65}, {64, 48, 129}, {130, 70, 40},
    {7, 513, 5}, {600, 9, 20}, {9, 1030, 20}, {20, 20, 1030}, {3, 5, 4100}, {32, 48, 272}};

static const ott_dtype gemm_formats[][2] = {{OTT_F32, OTT_F32},   {OTT_BF16, OTT_BF16}, {OTT_F16, OTT_F16},
                                            {OTT_BF16, OTT_F32},  {OTT_E4M3, OTT_E4M3}, {OTT_E5M2, OTT_E4M3},
                                            {OTT_E4M3, OTT_E5M2}, {OTT_E4M3, OTT_E4M3}};

static void gemm_bind(op_case *c) {
    SIZE('M') = gemm_shapes[c->shape][0];
    SIZE('N') = gemm_shapes[c->shape][1];
    SIZE('K') = gemm_shapes[c->shape][2];
    c->note[0] = case_draw(c, sizeof gemm_formats / sizeof *gemm_formats);
}

/* Scale granularities of A and B that FP8 GEMMs accept together: tensor, row, or blocks equal along K. */
static const granularity gemm_grains[][2] = {
    {GRANULARITY_TENSOR, GRANULARITY_TENSOR}, {GRANULARITY_TENSOR, GRANULARITY_ROW},
    {GRANULARITY_ROW, GRANULARITY_TENSOR},    {GRANULARITY_ROW, GRANULARITY_ROW},
    {GRANULARITY_1X128, GRANULARITY_1X128},   {GRANULARITY_1X128, GRANULARITY_128X128},
    {GRANULARITY_128X128, GRANULARITY_1X128}, {GRANULARITY_1X32, GRANULARITY_1X32}};

static void gemm_set_order(operand *o, const qdata *use) {
    o->mn_step = use->mn_step;
    o->k_step = use->k_step;
    o->tiles = use->tiles;
}

/* Sets the strides of an operand's scales. Square blocks may use the scales of the transposed matrix. */
static void gemm_scale_order(op_case *c, operand *o, int64_t mn) {
    qdata use = {0};
    bool shared = o->grain == GRANULARITY_128X128 && case_draw(c, 2);
    int64_t k = SIZE('K');
    qtensor_order(&use, o->grain, granularity_grid(o->grain, shared ? k : mn, shared ? mn : k));
    if (shared) use = qtensor_shared_use(use);
    gemm_set_order(o, &use);
}

/* Makes an operand with mn rows (M or N) and `depth` columns (K), stored transposed or not unless it is
   packed. The operand has as many scales as its granularity requires. */
static operand *gemm_place(op_case *c, const char *field, ott_dtype d, granularity grain, int64_t mn,
                           int64_t depth) {
    operand *o = &case_at(c, field)->operand;
    void *data;
    o->transposed = !o->packed && case_draw(c, 2);
    o->t = tensor_matrix(NULL, d, o->transposed ? depth : mn, o->transposed ? mn : depth);
    region *r = case_region(c, field, d, o->t.rows, o->t.columns, !o->packed, REGION_IN, &data);
    if (r) { /* without space for the array, data stays NULL, which op_check refuses */
        o->t.data = data;
        o->t.ld = r->ld;
    }
    o->grain = grain;
    case_set(c, field, &o, sizeof o);
    return o;
}

static void gemm_scale(op_case *c, operand *o, const char *label, scale_grid grid) {
    void *data;
    ott_dtype format = granularity_scale_format(o->grain);
    int64_t entries = granularity_scale_bytes(o->grain, grid) / dtype_bytes(format);
    if (!dtype_is_fp8(o->t.dtype) || case_draw(c, 4) == 0) return;
    case_region(c, label, format, 1, entries, false, REGION_IN, &data);
    o->scale_inv = data;
}

/* Makes one operand of a GEMM. packed: case_run packs it on the device. */
static void gemm_operand(op_case *c, const char *field, const char *label, int64_t mn, ott_dtype d,
                         granularity grain) {
    case_at(c, field)->operand.packed = field[0] == 'b' && case_draw(c, 3) == 0;
    operand *o = gemm_place(c, field, d, grain, mn, SIZE('K'));
    gemm_scale_order(c, o, mn);
    gemm_scale(c, o, label, granularity_grid(grain, mn, SIZE('K')));
}

static void gemm_prepare(op_case *c) {
    const ott_dtype *formats = gemm_formats[c->note[0]];
    bool fp8 = dtype_is_fp8(formats[0]);
    const granularity *grains = gemm_grains[fp8 ? case_draw(c, COUNT(gemm_grains)) : 0];
    gemm_operand(c, "a", "a.scale_inv", SIZE('M'), formats[0], grains[0]);
    gemm_operand(c, "b", "b.scale_inv", SIZE('N'), formats[1], grains[1]);
    set_bool(c, "accumulate", case_draw(c, 2));
    bool hopper =
        fp8 && case_draw(c, 4) == 0 && SIZE('M') * SIZE('N') * SIZE('K') < 150000; /* slow to emulate */
    accumulate_mode chains = case_draw(c, 3) ? ACCUMULATE_FP32 : ACCUMULATE_TILE32;
    gemm_spec spec = {.accumulate = hopper ? ACCUMULATE_HOPPER_FAST + case_draw(c, 2) : chains,
                      .fast_accumulate = case_draw(c, 2),
                      .order = case_draw(c, 2) ? SCALE_PRODUCT : SCALE_A_THEN_B};
    case_set(c, "spec", &spec, sizeof spec);
}

/* ---- embedding ---- */

static void embedding_bind(op_case *c) {
    SIZE('V') = 1 + case_draw(c, 50);
}
/* The op's table is a range of a larger table's rows. Draws the rows before and after; returns their sum. */
static int64_t draw_more(op_case *c) {
    int64_t before = case_draw(c, 2) ? case_draw(c, 20) : 0, after = case_draw(c, 2) ? case_draw(c, 20) : 0;
    set_integer(c, "before", before);
    set_integer(c, "after", after);
    return before + after;
}
static void embedding_prepare(op_case *c) {
    draw_indices(c, "token", SIZE('V') + draw_more(c));
}
static void embedding_backward_prepare(op_case *c) {
    embedding_prepare(c);
    set_bool(c, "has_padding", case_draw(c, 2));
    set_integer(c, "padding", case_draw(c, (int)SIZE('V')));
}

/* ---- norm ---- */

/* The output h is required if delta is given. Without delta it would equal x. */
static bool rmsnorm_present(const op_case *c, const op_field *f, bool wanted) {
    return wanted || (strcmp(f->name, "h") == 0 && case_present(c, "delta"));
}
static void rmsnorm_prepare(op_case *c) {
    set_float(c, "eps", case_draw(c, 2) ? 1e-5f : 1e-6f);
}
static void rmsnorm_backward_prepare(op_case *c) {
    set_bool(c, "one_plus", case_draw(c, 2));
}
static void rmsnorm_forward_prepare(op_case *c) {
    rmsnorm_prepare(c);
    rmsnorm_backward_prepare(c);
}

static void multiply_prepare(op_case *c) {
    set_float(c, "factor", case_draw(c, 2) ? 12.0f : 0.22f);
}

static void multiply_columns_prepare(op_case *c) {
    set_bool(c, "accumulate", case_draw(c, 2));
}

/* ---- dropout ---- */

static void dropout_prepare(op_case *c) {
    draw_indices(c, "token", case_draw(c, 2) ? 1000 : INT32_MAX);
    set_float(c, "scale", case_draw(c, 2) ? 1.0f / 0.9f : 4.0f);
    set_float(c, "rate", case_draw(c, 2) ? 0.1f : 0.5f);
    set_integer(c, "seed", 0x123456789 + case_draw(c, 1000));
    set_integer(c, "stream", case_draw(c, 1000));
    set_integer(c, "first", case_draw(c, 100));
    set_integer(c, "row_step", SIZE('D') + case_draw(c, 70));
}

/* ---- attention ---- */

/* Each row: tokens, heads, head_dim, positions, number of rotated columns of a head, first of these. */
static const int64_t rope_shapes[][6] = {
    {1, 1, 2, 1, 2},      {3, 2, 16, 7, 16},    {17, 3, 34, 40, 34},   {33, 4, 64, 64, 64},
    {5, 1, 128, 300, 96}, {16, 2, 30, 16, 30},  {2, 5, 8, 3, 8},       {130, 2, 32, 200, 16},
    {9, 2, 24, 11, 24}, /* half of head_dim is not a multiple of the vector length */
    {7, 2, 33, 9, 20},    {6, 3, 24, 9, 8, 16}, {11, 2, 21, 5, 10, 7}, {4, 2, 64, 9, 32, 16}};

static void rope_bind(op_case *c) {
    const int64_t *s = rope_shapes[c->shape];
    SIZE('T') = s[0];
    SIZE('C') = s[1] * s[2];
    SIZE('J') = s[4] / 2;
    SIZE('P') = s[3];
    c->note[0] = s[2];
    c->note[1] = s[5];
}

static void rope_prepare(op_case *c) {
    draw_indices(c, "position", SIZE('P'));
    set_integer(c, "head_dim", c->note[0]);
    set_integer(c, "first", c->note[1]);
    set_bool(c, "interleaved", case_draw(c, 2));
    set_bool(c, "inverse", case_draw(c, 2));
}

/* Each row: tokens; heads of x; heads of tail; columns of a head of x, of tail and of y; the first column and
   the number of columns that y takes from a head of x. */
static const int64_t heads_shapes[][8] = {{1, 1, 1, 1, 1, 2, 0, 1},       {5, 3, 1, 40, 8, 24, 0, 16},
                                          {7, 2, 2, 33, 40, 33, 20, 13},  {33, 4, 1, 24, 16, 40, 8, 16},
                                          {17, 3, 3, 24, 24, 32, 0, 16},  {9, 5, 5, 17, 3, 35, 1, 16},
                                          {130, 2, 1, 64, 32, 96, 0, 64}, {3, 2, 2, 24, 5, 16, 0, 16}};

static void heads_bind(op_case *c) {
    const int64_t *s = heads_shapes[c->shape];
    SIZE('T') = s[0];
    SIZE('A') = s[1] * s[3];
    SIZE('B') = s[2] * s[4];
    SIZE('C') = s[1] * s[5];
}

static void join_heads_prepare(op_case *c) {
    const int64_t *s = heads_shapes[c->shape];
    set_integer(c, "heads", s[1]);
    set_integer(c, "tail_heads", s[2]);
    set_integer(c, "first", s[6]);
    set_integer(c, "count", s[7]);
}

static void sum_heads_bind(op_case *c) {
    heads_bind(c);
    SIZE('B') = heads_shapes[c->shape][7];
}

static void sum_heads_prepare(op_case *c) {
    set_integer(c, "heads", heads_shapes[c->shape][1]);
    set_integer(c, "first", heads_shapes[c->shape][6]);
}

/* Columns: tokens, heads, key heads, head_dim, documents. */
static const int64_t attention_shapes[][5] = {{1, 1, 1, 16, 1},  {7, 1, 1, 1, 7},    {15, 2, 1, 16, 1},
                                              {17, 4, 2, 24, 3}, {33, 3, 3, 33, 2},  {64, 2, 1, 64, 1},
                                              {65, 2, 2, 16, 1}, {20, 1, 1, 128, 2}, {130, 4, 2, 32, 4},
                                              {200, 2, 1, 8, 1}, {150, 6, 2, 15, 2}};

static void attention_sizes(op_case *c, const int64_t *s) {
    SIZE('T') = s[0];
    SIZE('H') = s[1];
    SIZE('C') = s[1] * s[3];
    SIZE('E') = s[2] * s[3];
    SIZE('B') = s[4] + 1; /* each document's first token, and the end of the last document */
    c->note[0] = s[3];
}

static void attention_bind(op_case *c) {
    attention_sizes(c, attention_shapes[c->shape]);
}

/* Draws where documents begin: the first at 0, others anywhere. Some are empty. The last one ends at T. */
static void attention_prepare(op_case *c) {
    static const int64_t windows[] = {0, 0, 1, 7, 64, 100};
    int32_t *start = integers(c, "cu_seqlens");
    draw_indices(c, "cu_seqlens", SIZE('T') + 1);
    start[0] = 0;
    start[SIZE('B') - 1] = (int32_t)SIZE('T');
    for (int64_t i = 1; i < SIZE('B'); i++) /* sorts by insertion */
        for (int64_t j = i; start[j - 1] > start[j]; j--) {
            int32_t swap = start[j];
            start[j] = start[j - 1];
            start[j - 1] = swap;
        }
    set_integer(c, "head_dim", c->note[0]);
    set_integer(c, "window", windows[case_draw(c, 6)]);
    set_float(c, "softmax_scale", case_draw(c, 4) ? 0.25f : 0.0883883461f);
    set_float(c, "softcap", case_draw(c, 3) ? 0.0f : 5.0f);
}

/* Tokens that continue a document. Each row: as in attention_shapes, then the number of earlier tokens. */
static const int64_t cached_shapes[][6] = {
    {1, 2, 1, 16, 1, 1},   {1, 4, 2, 24, 1, 63},  {1, 2, 2, 64, 1, 64},
    {1, 3, 1, 33, 1, 150}, {3, 2, 1, 8, 1, 62},   {4, 1, 1, 128, 1, 65},
    {5, 2, 2, 15, 1, 20},  {40, 2, 1, 16, 1, 50}, {70, 4, 2, 32, 1, 130}};

static void attention_forward_bind(op_case *c) {
    int cached = c->shape - COUNT(attention_shapes);
    if (cached < 0)
        attention_bind(c);
    else
        attention_sizes(c, cached_shapes[cached]);
    c->note[1] = cached < 0 ? 0 : cached_shapes[cached][5];
    SIZE('S') = c->note[1] + SIZE('T');
}

static void attention_forward_prepare(op_case *c) {
    attention_prepare(c);
    set_integer(c, "past", c->note[1]);
}

/* ---- MLP ---- */

static void activate_prepare(op_case *c) {
    activate_kind kind = (activate_kind)case_draw(c, ACTIVATE_RELU + 1);
    case_set(c, "kind", &kind, sizeof kind);
}

/* The field dup is present exactly if up is present. */
static bool activate_present(const op_case *c, const op_field *f, bool wanted) {
    return strcmp(f->name, "dup") == 0 ? case_present(c, "up") : wanted;
}

/* ---- loss ---- */

static void softcap_prepare(op_case *c) {
    set_float(c, "cap", case_draw(c, 2) ? 30.0f : 0.5f);
}

/* Draws targets; some have the value that is ignored. */
static void loss_prepare(op_case *c) {
    set_float(c, "z_weight", case_draw(c, 2) ? 0.25f : 0.0f);
    for (int64_t t = 0; t < SIZE('T'); t++)
        if (case_draw(c, 5) == 0) integers(c, "target")[t] = case_draw(c, 2) ? -1 : -100;
}
static void cross_entropy_prepare(op_case *c) {
    draw_indices(c, "target", SIZE('V'));
    loss_prepare(c);
}

static void cross_entropy_part_prepare(op_case *c) {
    draw_indices(c, "target", SIZE('V') + draw_more(c));
}

static void cross_entropy_finish_bind(op_case *c) {
    SIZE('P') = 3 * (1 + case_draw(c, 4));
}
static void cross_entropy_finish_prepare(op_case *c) {
    cross_entropy_part_prepare(c);
    loss_prepare(c);
}

/* The quantized gradient is present only if grad_scale is present. */
static bool cross_entropy_present(const op_case *c, const op_field *f, bool wanted) {
    return wanted && (f->kind != OP_QOUT || case_present(c, "grad_scale"));
}

/* ---- mixture of experts ---- */

/* Each row: tokens, experts, experts per token, columns, expert groups (0: none), chosen groups,
   sequences. */
static const int64_t moe_shapes[][7] = {
    {1, 1, 1, 1, 0, 0, 1},   {1, 8, 2, 16, 0, 0, 1},   {7, 4, 1, 33, 0, 0, 7},
    {15, 3, 3, 17, 0, 0, 1}, {16, 8, 2, 20, 4, 2, 4},  {33, 16, 4, 24, 4, 1, 3},
    {65, 5, 2, 70, 1, 1, 5}, {300, 64, 6, 9, 8, 3, 2}, {40, 2, 2, 130, 0, 0, 8}};

static void moe_bind(op_case *c) {
    const int64_t *s = moe_shapes[c->shape];
    SIZE('T') = s[0];
    SIZE('E') = s[1];
    SIZE('K') = s[2];
    SIZE('R') = s[0] * s[2];
    SIZE('D') = s[3];
    SIZE('S') = s[6];
}

static void moe_rule(op_case *c) {
    const int64_t *s = moe_shapes[c->shape];
    route_rule rule = {.score = case_draw(c, 2) ? ROUTE_SOFTMAX : ROUTE_SIGMOID,
                       .groups = (int)s[4],
                       .chosen_groups = (int)s[5],
                       .group_score_max = case_draw(c, 2),
                       .normalized = case_draw(c, 2),
                       .scale = case_draw(c, 2) ? 1.0f : 2.5f};
    case_set(c, "rule", &rule, sizeof rule);
}

/* Draws distinct experts for each token. In many cases a few experts get most tokens. */
static void draw_experts(op_case *c) {
    const tensor *t = &case_at(c, "expert")->tensor;
    int64_t experts = SIZE('E'), few = case_draw(c, 2) ? experts : SIZE('K');
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t k = 0, first = case_draw(c, few); k < t->columns; k++)
            ((int32_t *)t->data)[i * t->ld + k] = (int32_t)((first + k) % few);
}

static void route_backward_prepare(op_case *c) {
    route_losses losses = {.balance = 0.25f, .sequence_balance = 0.125f, .z = case_draw(c, 2) ? 0.5f : 0.0f};
    draw_experts(c);
    moe_rule(c);
    case_set(c, "losses", &losses, sizeof losses);
}

/* The op sorts a range of the tokens. Draws how many tokens are before and after the range. */
static void route_sort_bind(op_case *c) {
    moe_bind(c);
    c->note[0] = case_draw(c, 2) * case_draw(c, 300);
    SIZE('S') = c->note[0] + SIZE('T') + case_draw(c, 3);
}

static void route_sort_prepare(op_case *c) {
    draw_experts(c);
    set_integer(c, "capacity", case_draw(c, 2) ? 0 : 1 + case_draw(c, SIZE('S')));
    set_integer(c, "first", c->note[0]);
}

/* Draws the row of each assignment (token and expert): any row, or none. */
static void draw_places(op_case *c, const char *field, int64_t limit) {
    const tensor *t = &case_at(c, field)->tensor;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t k = 0; k < t->columns; k++)
            ((int32_t *)t->data)[i * t->ld + k] = (int32_t)(case_draw(c, limit + 2) % (limit + 1)) - 1;
}

static void source_prepare(op_case *c) {
    draw_places(c, "source", SIZE('R'));
}
static void row_prepare(op_case *c) {
    draw_places(c, "row", SIZE('R'));
}

/* Columns: rows, groups, output columns, contracted dimension. */
static const int64_t grouped_shapes[][4] = {{1, 1, 1, 1},    {9, 4, 17, 33},  {40, 3, 16, 15},
                                            {130, 5, 33, 7}, {65, 8, 70, 64}, {64, 2, 48, 130},
                                            {300, 2, 9, 150}};

/* Draws note[0]. 1: the groups are the experts' weight matrices; 0: the groups are ranges of rows. */
static void grouped_quantize_bind(op_case *c) {
    const int64_t *s = grouped_shapes[c->shape];
    c->note[0] = case_draw(c, 2);
    SIZE('E') = s[1];
    SIZE('M') = c->note[0] ? s[1] * s[2] : s[0];
    SIZE('N') = s[3];
}
static bool grouped_quantize_present(const op_case *c, const op_field *f, bool wanted) {
    return strcmp(f->name, "end") == 0 ? !c->note[0] : wanted;
}
static void grouped_bind(op_case *c) {
    const int64_t *s = grouped_shapes[c->shape];
    SIZE('R') = s[0];
    SIZE('E') = s[1];
    SIZE('N') = s[2];
    SIZE('K') = s[3];
    c->note[0] = case_draw(c, sizeof gemm_formats / sizeof *gemm_formats);
}
static void grouped_weight_bind(op_case *c) {
    const int64_t *s = grouped_shapes[c->shape];
    SIZE('R') = s[0];
    SIZE('E') = s[1];
    SIZE('M') = s[3];
    SIZE('N') = s[2];
    SIZE('S') = s[1] * s[3];
    SIZE('P') = 1 + case_draw(c, 3);
    c->note[1] = case_draw(c, 4);
    SIZE('G') = c->note[1] + SIZE('E') + case_draw(c, 4);
    c->note[0] = case_draw(c, sizeof gemm_formats / sizeof *gemm_formats);
}

/* Draws the row at which each group ends. Some groups are empty, and the last group may end before `rows`. */
static void draw_ends(op_case *c, int64_t rows) {
    int64_t left = rows - case_draw(c, 2) * case_draw(c, rows), end = 0;
    for (int64_t e = 0; e < SIZE('E'); e++) {
        int64_t count = case_draw(c, 3) == 0 ? 0 : e == SIZE('E') - 1 ? left : case_draw(c, left + 1);
        left -= count;
        end += count;
        integers(c, "end")[e] = (int32_t)end;
    }
}

static void grouped_quantize_prepare(op_case *c) {
    if (case_present(c, "end")) draw_ends(c, SIZE('M'));
}

/* Makes an operand [rows, columns] with scales for groups. deep: each group is a range of the contraction K,
   and the operand is transposed. Otherwise each group is a range of rows. */
static void grouped_operand(op_case *c, const char *field, const char *label, ott_dtype d, granularity grain,
                            bool deep, int64_t rows, int64_t columns) {
    qtensor q = {.rows = rows, .columns = columns, .groups = SIZE('E')};
    qdata use = {0};
    q.spec.rowwise.grain = q.spec.columnwise.grain = grain;
    scale_grid grid = qtensor_order_use(&use, &q, deep);
    operand *o = gemm_place(c, field, d, grain, deep ? columns : rows, deep ? rows : columns);
    gemm_set_order(o, &use);
    gemm_scale(c, o, label, grid);
}

/* Draws formats for both operands of a grouped product, and granularities with equal blocks along K. */
static const granularity *grouped_grains(op_case *c, const ott_dtype **formats) {
    *formats = gemm_formats[c->note[0]];
    return gemm_grains[dtype_is_fp8((*formats)[0]) ? case_draw(c, COUNT(gemm_grains)) : 0];
}
static void grouped_finish(op_case *c) {
    gemm_spec spec = {.accumulate = case_draw(c, 3) ? ACCUMULATE_FP32 : ACCUMULATE_TILE32,
                      .order = case_draw(c, 2) ? SCALE_PRODUCT : SCALE_A_THEN_B};
    draw_ends(c, SIZE('R'));
    case_set(c, "spec", &spec, sizeof spec);
}

static void grouped_prepare(op_case *c) {
    const ott_dtype *formats;
    const granularity *grains = grouped_grains(c, &formats);
    bool deep = case_draw(c, 2);
    int64_t rows = SIZE('E') * (deep ? SIZE('K') : SIZE('N')), columns = deep ? SIZE('N') : SIZE('K');
    grouped_operand(c, "a", "a.scale_inv", formats[0], grains[0], false, SIZE('R'), SIZE('K'));
    grouped_operand(c, "b", "b.scale_inv", formats[1], grains[1], deep, rows, columns);
    set_bool(c, "accumulate", case_draw(c, 2));
    grouped_finish(c);
}
/* Draws end[p, g], the row at which group g ends on rank p. No group is empty. */
static void draw_ends_of_all(op_case *c, const tensor *all) {
    for (int64_t p = 0; p < all->rows; p++)
        for (int64_t g = 0; g < all->columns; g++)
            ((int32_t *)all->data)[p * all->ld + g] = (int32_t)(1 + 7 * g + case_draw(c, 7));
}
static void grouped_weight_prepare(op_case *c) {
    const ott_dtype *formats;
    const granularity *grains = grouped_grains(c, &formats);
    grouped_operand(c, "a", "a.scale_inv", formats[0], grains[0], true, SIZE('R'), SIZE('M'));
    grouped_operand(c, "b", "b.scale_inv", formats[1], grains[1], true, SIZE('R'), SIZE('N'));
    if (case_present(c, "all")) draw_ends_of_all(c, &case_at(c, "all")->tensor);
    set_integer(c, "first", c->note[1]);
    grouped_finish(c);
}

static void dot_prepare(op_case *c) {
    set_float(c, "scale", 0.375f);
}

/* ---- reductions ---- */

static void block_squares_bind(op_case *c) {
    SIZE('B') = op_reduce_blocks(SIZE('M') * SIZE('N'));
}

/* ---- optimizer ---- */

static void state_bind(op_case *c) {
    SIZE('S') = STEP_STATE_COUNT;
}

static void fill_state(op_case *c) {
    static const float good_steps[] = {0, 5, STEP_GROWTH_INTERVAL - 2, STEP_GROWTH_INTERVAL - 1};
    float *state = case_at(c, "state")->tensor.data;
    bool scaling = case_draw(c, 2);
    for (int i = 0; i < STEP_STATE_COUNT; i++) state[i] = 0.5f;
    state[STEP_LEARNING_RATE] = 3e-4f;
    state[STEP_CORRECTION1] = 0.271f;
    state[STEP_SQRT_CORRECTION2] = 0.0547f;
    state[STEP_TOKENS] = 1000;
    state[STEP_LOSS_SCALING] = scaling;
    state[STEP_LOSS_SCALE] = scaling ? STEP_LOSS_SCALE_START : 1.0f;
    state[STEP_GOOD_STEPS] = good_steps[case_draw(c, 4)];
    step_state_set_update(state, case_draw(c, 2) ? 3 : ((uint64_t)5 << 33) + 0xffffff);
    state[STEP_CLIP] = case_draw(c, 2) ? 0.7f : 1.0f;
    state[STEP_SKIP] = case_draw(c, 8) == 0;
}

static void grad_norm_prepare(op_case *c) {
    static const float norms[] = {0.5f, 1.0f, 1000.0f};
    fill_state(c);
    values_make_positive(c, &c->regions[case_at(c, "sum_squares")->region]);
    set_float(c, "max_norm", norms[case_draw(c, 3)]);
}

/* Draws the scalars that give an element's position in its parameter. */
static void draw_scalars(op_case *c) {
    set_integer(c, "seed", 0x123456789 + case_draw(c, 1000));
    int64_t unit = c->tidy ? 8 : 1;
    set_integer(c, "first", case_draw(c, 2) ? unit * case_draw(c, 1000) : (int64_t)1 << 33);
    set_integer(c, "row_step", SIZE('N') + (c->tidy || case_draw(c, 2)) * unit * case_draw(c, 70));
}

static void adamw_scalars(op_case *c) {
    fill_state(c);
    set_float(c, "beta1", 0.9f);
    set_float(c, "beta2", case_draw(c, 2) ? 0.95f : 0.999f);
    set_float(c, "epsilon", 1e-8f);
    set_float(c, "weight_decay", case_draw(c, 2) ? 0.1f : 0.0f);
    draw_scalars(c);
}

static void adamw_prepare(op_case *c) {
    adamw_scalars(c);
    values_make_positive(c, &c->regions[case_at(c, "moment2")->region]);
}

static void adamw_fp8_bind(op_case *c) {
    state_bind(c);
    SIZE('G') = moment_scale_count(SIZE('N'));
}
static void adamw_fp8_prepare(op_case *c) {
    adamw_scalars(c);
    values_make_positive(c, &c->regions[case_at(c, "group_scales1")->region]);
    values_make_positive(c, &c->regions[case_at(c, "group_scales2")->region]);
    values_make_positive(c, &c->regions[case_at(c, "moment2")->region]);
}

/* Sets the scalars of optimizer rules that this op has. */
static void rule_prepare(op_case *c) {
    static const struct {
        const char *name;
        float values[2];
    } scalars[] = {{"beta1", {0.9f, 0.95f}},       {"beta2", {0.95f, 0.999f}}, {"epsilon", {1e-8f, 1e-6f}},
                   {"weight_decay", {0.1f, 0.0f}}, {"factor", {0.95f, 0.0f}},  {"scale", {1.0f, 1.7f}}};
    fill_state(c);
    float *state = case_at(c, "state")->tensor.data;
    state[STEP_AVERAGE] = case_draw(c, 2) ? 1.0f : 0.07f;
    if (case_draw(c, 2)) step_state_set_update(state, 1);
    if (case_present(c, "moment2")) values_make_positive(c, &c->regions[case_at(c, "moment2")->region]);
    bool rounds = false; /* the op rounds stochastically */
    for (int i = 0; i < c->op->field_count; i++) {
        rounds = rounds || strcmp(c->op->fields[i].name, "seed") == 0;
        for (int k = 0; k < COUNT(scalars); k++)
            if (strcmp(c->op->fields[i].name, scalars[k].name) == 0)
                set_float(c, scalars[k].name, scalars[k].values[case_draw(c, 2)]);
    }
    if (strcmp(c->op->name, "sgd") == 0) set_bool(c, "nesterov", case_draw(c, 2));
    if (rounds) draw_scalars(c);
}

static void lerp_prepare(op_case *c) {
    set_float(c, "weight", case_draw(c, 2) ? 0.9f : 1.0f);
}
static void muon_normalize_prepare(op_case *c) {
    values_make_positive(c, &c->regions[case_at(c, "sum_squares")->region]);
}

static void balance_bias_bind(op_case *c) {
    SIZE('S') = STEP_STATE_COUNT;
    SIZE('E') = 1 + case_draw(c, 40);
    SIZE('N') = 1 + case_draw(c, SIZE('E'));
}
static void balance_bias_prepare(op_case *c) {
    fill_state(c);
    values_make_positive(c, &c->regions[case_at(c, "count")->region]);
    set_float(c, "rate", 0.001f);
    set_bool(c, "by_sign", case_draw(c, 2));
    set_integer(c, "first", case_draw(c, SIZE('E') - SIZE('N') + 1));
}

/* ---- the table ---- */

static const op_fixture fixtures[] = {
    {.op = "quantize", .sets = "q", .quant_writes = QUANT_ALL},
    {.op = "amax", .sets = "q", .quant_writes = QUANT_AMAX},
    {.op = "scale", .sets = "q", .quant_writes = QUANT_SCALE},
    {.op = "cast", .sets = "q", .quant_writes = QUANT_CODES},
    {.op = "quantize_statistics", .sets = "q", .bind = statistics_bind},
    {.op = "amax_record", .sets = "q"},
    {.op = "dequantize", .sets = "q"},
    {.op = "amax_update", .sets = "spec", .prepare = amax_update_prepare},
    {.op = "multiply", .sets = "factor", .prepare = multiply_prepare, .alias = {{"y", "x"}}},
    {.op = "multiply_columns", .sets = "accumulate", .prepare = multiply_columns_prepare},
    {.op = "gemm",
     .sets = "a b accumulate spec",
     .shapes = COUNT(gemm_shapes),
     .bind = gemm_bind,
     .prepare = gemm_prepare},
    {.op = "pack", .opaque = true},
    {.op = "embedding_forward",
     .sets = "token before after",
     .bind = embedding_bind,
     .prepare = embedding_prepare},
    {.op = "embedding_backward",
     .sets = "token has_padding padding before after",
     .bind = embedding_bind,
     .prepare = embedding_backward_prepare},
    {.op = "rmsnorm_forward",
     .sets = "eps one_plus",
     .prepare = rmsnorm_forward_prepare,
     .present = rmsnorm_present,
     .alias = {{"h", "x"}}},
    {.op = "rmsnorm_backward",
     .sets = "one_plus",
     .prepare = rmsnorm_backward_prepare,
     .alias = {{"dx", "dresidual"}}},
    {.op = "layernorm_forward",
     .sets = "eps",
     .prepare = rmsnorm_prepare,
     .present = rmsnorm_present,
     .alias = {{"h", "x"}}},
    {.op = "dropout",
     .sets = "token scale rate seed stream first row_step",
     .prepare = dropout_prepare,
     .alias = {{"y", "x"}}},
    {.op = "layernorm_backward", .sets = "", .alias = {{"dx", "dresidual"}}},
    {.op = "rope",
     .sets = "position head_dim first interleaved inverse",
     .shapes = COUNT(rope_shapes),
     .bind = rope_bind,
     .prepare = rope_prepare},
    {.op = "join_heads",
     .sets = "heads tail_heads first count",
     .shapes = COUNT(heads_shapes),
     .bind = heads_bind,
     .prepare = join_heads_prepare},
    {.op = "sum_heads",
     .sets = "heads first",
     .shapes = COUNT(heads_shapes),
     .bind = sum_heads_bind,
     .prepare = sum_heads_prepare},
    {.op = "attention_forward",
     .sets = "cu_seqlens head_dim window past softmax_scale softcap",
     .shapes = COUNT(attention_shapes) + COUNT(cached_shapes),
     .bind = attention_forward_bind,
     .prepare = attention_forward_prepare},
    {.op = "attention_backward",
     .sets = "cu_seqlens head_dim window softmax_scale softcap",
     .shapes = COUNT(attention_shapes),
     .bind = attention_bind,
     .prepare = attention_prepare},
    {.op = "swiglu_backward", .sets = "", .alias = {{"dgate", "gate"}, {"dup", "up"}}},
    {.op = "activate_forward", .sets = "kind", .prepare = activate_prepare},
    {.op = "activate_backward",
     .sets = "kind",
     .prepare = activate_prepare,
     .present = activate_present,
     .alias = {{"dgate", "gate"}, {"dup", "up"}}},
    {.op = "softcap_forward", .sets = "cap", .prepare = softcap_prepare, .alias = {{"y", "x"}}},
    {.op = "softcap_backward", .sets = "cap", .prepare = softcap_prepare, .alias = {{"dx", "dy"}}},
    {.op = "cross_entropy",
     .sets = "target z_weight",
     .prepare = cross_entropy_prepare,
     .present = cross_entropy_present},
    {.op = "cross_entropy_part", .sets = "target before after", .prepare = cross_entropy_part_prepare},
    {.op = "cross_entropy_finish",
     .sets = "target z_weight before after",
     .bind = cross_entropy_finish_bind,
     .prepare = cross_entropy_finish_prepare,
     .present = cross_entropy_present},
    {.op = "route", .sets = "rule", .shapes = COUNT(moe_shapes), .bind = moe_bind, .prepare = moe_rule},
    {.op = "route_balance",
     .sets = "expert",
     .shapes = COUNT(moe_shapes),
     .bind = moe_bind,
     .prepare = draw_experts},
    {.op = "route_backward",
     .sets = "expert rule losses",
     .shapes = COUNT(moe_shapes),
     .bind = moe_bind,
     .prepare = route_backward_prepare},
    {.op = "route_sort",
     .sets = "expert capacity first",
     .shapes = COUNT(moe_shapes),
     .bind = route_sort_bind,
     .prepare = route_sort_prepare},
    {.op = "permute",
     .sets = "source",
     .shapes = COUNT(moe_shapes),
     .bind = moe_bind,
     .prepare = source_prepare},
    {.op = "unpermute",
     .sets = "row",
     .shapes = COUNT(moe_shapes),
     .bind = moe_bind,
     .prepare = row_prepare,
     .alias = {{"x", "plus"}}},
    {.op = "weigh",
     .sets = "source",
     .shapes = COUNT(moe_shapes),
     .bind = moe_bind,
     .prepare = source_prepare,
     .alias = {{"y", "x"}}},
    {.op = "weigh_backward",
     .sets = "row",
     .shapes = COUNT(moe_shapes),
     .bind = moe_bind,
     .prepare = row_prepare},
    {.op = "grouped_quantize",
     .sets = "end q",
     .groups = 'E',
     .quant_writes = QUANT_ALL,
     .shapes = COUNT(grouped_shapes),
     .bind = grouped_quantize_bind,
     .prepare = grouped_quantize_prepare,
     .present = grouped_quantize_present},
    {.op = "grouped_gemm",
     .sets = "a b end accumulate spec",
     .shapes = COUNT(grouped_shapes),
     .bind = grouped_bind,
     .prepare = grouped_prepare},
    {.op = "grouped_gemm_weight",
     .sets = "a b end all spec first",
     .shapes = COUNT(grouped_shapes),
     .bind = grouped_weight_bind,
     .prepare = grouped_weight_prepare},
    {.op = "dot", .sets = "scale", .prepare = dot_prepare},
    {.op = "balance_bias",
     .sets = "rate by_sign first",
     .bind = balance_bias_bind,
     .prepare = balance_bias_prepare},
    {.op = "block_squares", .bind = block_squares_bind},
    {.op = "grad_norm", .sets = "max_norm", .bind = state_bind, .prepare = grad_norm_prepare},
    {.op = "adamw",
     .sets = "beta1 beta2 epsilon weight_decay seed first row_step q",
     .quant_writes = QUANT_ALL,
     .bind = state_bind,
     .prepare = adamw_prepare},
    {.op = "adamw_fp8",
     .sets = "beta1 beta2 epsilon weight_decay seed first row_step",
     .bind = adamw_fp8_bind,
     .prepare = adamw_fp8_prepare},
    {.op = "lion",
     .sets = "beta1 beta2 weight_decay seed first row_step",
     .bind = state_bind,
     .prepare = rule_prepare},
    {.op = "sgd",
     .sets = "factor weight_decay nesterov seed first row_step",
     .bind = state_bind,
     .prepare = rule_prepare},
    {.op = "adam",
     .sets = "beta1 beta2 epsilon weight_decay seed first row_step",
     .bind = state_bind,
     .prepare = rule_prepare},
    {.op = "schedule_free",
     .sets = "beta1 beta2 epsilon weight_decay seed first row_step",
     .bind = state_bind,
     .prepare = rule_prepare},
    {.op = "lerp", .sets = "weight", .prepare = lerp_prepare, .alias = {{"y", "from"}, {"y", "to"}}},
    {.op = "muon_momentum",
     .sets = "factor seed first row_step",
     .bind = state_bind,
     .prepare = rule_prepare},
    {.op = "muon_direction", .sets = "factor", .bind = state_bind, .prepare = rule_prepare},
    {.op = "muon_normalize", .prepare = muon_normalize_prepare},
    {.op = "muon",
     .sets = "scale weight_decay seed first row_step",
     .bind = state_bind,
     .prepare = rule_prepare},
};

const op_fixture *fixture_find(const op_info *op) {
    static const op_fixture none = {.sets = ""};
    for (int i = 0; i < COUNT(fixtures); i++)
        if (strcmp(fixtures[i].op, op->name) == 0) return &fixtures[i];
    return &none;
}

/* True when `word` is one of the words of `list`. */
static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *p = strstr(list, word); p; p = strstr(p + 1, word))
        if ((p == list || p[-1] == ' ') && (p[length] == ' ' || p[length] == 0)) return true;
    return false;
}

const op_field *fixture_missing(const op_info *op) {
    const char *sets = fixture_find(op)->sets;
    for (int i = 0; i < op->field_count; i++) {
        const op_field *f = &op->fields[i];
        bool index = (f->kind == OP_IN || f->kind == OP_INOUT) && strncmp(f->text, "i32", 3) == 0;
        bool special = index || f->kind == OP_SCALAR || f->kind == OP_OPERAND || f->kind == OP_QTENSOR;
        if (special && !has_word(sets, f->name)) return f;
    }
    return NULL;
}
