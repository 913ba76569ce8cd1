/*
 * Runs row-wise ops and reductions at sizes that several threads divide. Every ISA level and number of
 * threads must give the same bits. (test_ops checks the bits themselves, at smaller sizes.)
 */
#include "arrays.h"
#include "devices.h"

static devices all; /* all.list[0] is scalar code on one thread */

enum { T = 131, D = 150, V = 40, HEAD = 30, BIG = 3 * REDUCE_BLOCK + 77 };

/* All inputs and outputs of the ops. The inputs depend only on the format `act`. */
typedef struct arrays {
    tensor token, position, table, x, delta, dy, weight, cosine, sine, big; /* inputs of the ops */
    tensor y, h, rstd, dx, dweight, dtable, rotated, gated, dgate, dup, column, sums, squares, count;
} arrays;
enum { INPUTS = 10, ARRAYS = sizeof(arrays) / sizeof(tensor) };

static arrays make_arrays(ott_dtype act) {
    int32_t token[T], position[T];
    for (int t = 0; t < T; t++) token[t] = t * 7 % V, position[t] = (t * 5) % V;
    return (arrays){.token = make_integers(token, T),
                    .position = make_integers(position, T),
                    .table = make_random(OTT_F32, V, D, 1.0f, 1),
                    .x = make_random(act, T, D, 2.0f, 2),
                    .delta = make_random(act, T, D, 1.0f, 3),
                    .dy = make_random(act, T, D, 1.0f, 4),
                    .weight = make_random(OTT_F32, 1, D, 1.0f, 5),
                    .cosine = make_random(OTT_F32, V, HEAD / 2, 1.0f, 6),
                    .sine = make_random(OTT_F32, V, HEAD / 2, 1.0f, 7),
                    .big = make_random(OTT_F32, 1, BIG, 1.0f, 8),
                    .y = make_zeros(act, T, D),
                    .h = make_zeros(act, T, D),
                    .rstd = make_zeros(OTT_F32, 1, T),
                    .dx = make_zeros(act, T, D),
                    .dweight = make_random(OTT_F32, 1, D, 1.0f, 9),
                    .dtable = make_random(OTT_F32, V, D, 1.0f, 10),
                    .rotated = make_random(act, T, D, 1.0f, 11),
                    .gated = make_zeros(act, T, D),
                    .dgate = make_zeros(act, T, D),
                    .dup = make_zeros(act, T, D),
                    .column = make_random(OTT_F32, 1, D, 1.0f, 12),
                    .sums = make_zeros(OTT_F32, 1, 2),
                    .squares = make_zeros(OTT_F32, 1, op_reduce_blocks(BIG)),
                    .count = make_zeros(OTT_I32, 1, 1)};
}

static void free_arrays(arrays *a) {
    for (int i = 0; i < (int)ARRAYS; i++) free(((tensor *)a)[i].data);
}

static void run_layers(arrays *a, exec *cx) {
    succeed(op_embedding_forward(
        cx, &(embedding_forward_args){.token = &a->token, .table = &a->table, .y = &a->y}));
    succeed(op_rmsnorm_forward(cx, &(rmsnorm_forward_args){.x = &a->x,
                                                           .delta = &a->y,
                                                           .weight = &a->weight,
                                                           .h = &a->h,
                                                           .y = &a->y,
                                                           .rstd = &a->rstd,
                                                           .eps = 1e-5f}));
    succeed(op_swiglu_forward(cx, &(swiglu_forward_args){.gate = &a->y, .up = &a->delta, .y = &a->gated}));
    succeed(op_swiglu_backward(
        cx, &(swiglu_backward_args){
                .dy = &a->dy, .gate = &a->x, .up = &a->delta, .dgate = &a->dgate, .dup = &a->dup}));
    succeed(op_rmsnorm_backward(cx, &(rmsnorm_backward_args){.dy = &a->dy,
                                                             .h = &a->h,
                                                             .weight = &a->weight,
                                                             .rstd = &a->rstd,
                                                             .dresidual = &a->delta,
                                                             .dx = &a->dx,
                                                             .dweight = &a->dweight}));
    succeed(op_embedding_backward(
        cx, &(embedding_backward_args){.token = &a->token, .dy = &a->dx, .dtable = &a->dtable}));
    succeed(op_rope(cx, &(rope_args){.x = &a->rotated,
                                     .position = &a->position,
                                     .cosine = &a->cosine,
                                     .sine = &a->sine,
                                     .head_dim = HEAD}));
}

static void run_reductions(arrays *a, exec *cx) {
    tensor first = tensor_columns(a->sums, 0, 1), second = tensor_columns(a->sums, 1, 1);
    tensor table = tensor_columns(a->table, 0, D - 9); /* the table's leading dimension exceeds its columns */
    succeed(op_column_sum(cx, &(column_sum_args){.x = &a->dy, .sum = &a->column}));
    succeed(op_sum(cx, &(sum_args){.x = &a->big, .sum = &first}));
    succeed(op_sum(cx, &(sum_args){.x = &table, .sum = &first}));
    succeed(op_block_squares(cx, &(block_squares_args){.x = &a->big, .sums = &a->squares}));
    succeed(op_sum_blocks(cx, &(sum_blocks_args){.sums = &a->squares, .sum = &second}));
    ((float *)a->big.data)[5] = NAN, ((float *)a->big.data)[BIG - 1] = -INFINITY;
    succeed(op_count_nonfinite(cx, &(count_nonfinite_args){.x = &a->big, .count = &a->count}));
}

static void run(arrays *a, device *d) {
    exec cx = {.device = d};
    run_layers(a, &cx);
    run_reductions(a, &cx);
}

static void test_same_bits_everywhere(void **state) {
    static const ott_dtype acts[] = {OTT_F32, OTT_BF16, OTT_F16};
    (void)state;
    for (int n = 0; n < 3; n++) {
        arrays wanted = make_arrays(acts[n]);
        run(&wanted, all.list[0]);
        assert_int_equal(*(int32_t *)wanted.count.data, 2);
        for (int i = 1; i < all.count; i++) {
            arrays got = make_arrays(acts[n]);
            run(&got, all.list[i]);
            for (int k = INPUTS; k < (int)ARRAYS; k++) {
                const tensor *g = (const tensor *)&got + k, *w = (const tensor *)&wanted + k;
                if (memcmp(g->data, w->data, (size_t)tensor_bytes(*w)) != 0)
                    fail_msg("%s, %s: output %d differs from scalar code on one thread", all.list[i]->name,
                             dtype_name(acts[n]), k - INPUTS);
            }
            free_arrays(&got);
        }
        free_arrays(&wanted);
    }
}

static int open_devices(void **state) {
    (void)state;
    all = devices_open();
    return 0;
}
static int close_devices(void **state) {
    (void)state;
    devices_close(&all);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits_everywhere)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
