/*
 * Compares the collectives of a transport with plain loops, for 1 to 4 ranks, several formats, and shards of
 * different sizes. Sums are in rank order, bit for bit. Collectives are waited for in another order than they
 * were started. If a rank calls another collective, exits or hangs, the other ranks must not hang.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "comm/collectives.h"
#include "cpu/cpu.h"
#include "fp8/cast.h"
#include "tensor/group/group_host.h"

rank_run collectives_ranks[RANKS_MAX];

static float *take_memory(const rank_run *r, int64_t count) {
    void *memory;
    assert_int_equal(
        device_allocate(r->cx.device, MEM_OTHER, count * (int64_t)sizeof(float), "a test's", &memory),
        OTT_OK);
    assert_int_equal(device_synchronize(r->cx.device), OTT_OK);
    return memory;
}

/* Runs r->body. Then copies its tensors r->in and r->out from the device to the host. */
static ott_status run_body(rank_run *r) {
    r->in = take_memory(r, COLLECTIVES_COUNT);
    r->out = take_memory(r, COLLECTIVES_COUNT);
    TRY(r->body(r));
    TRY(device_copy_out(r->cx.device, r->in_after, r->in, sizeof r->in_after));
    return device_copy_out(r->cx.device, r->out_after, r->out, sizeof r->out_after);
}

void collectives_run_rank(rank_run *r) {
    if (!r->cx.device) {
        assert_int_equal(mem_open(&r->account), OTT_OK);
        assert_int_equal(cpu_open(r->account, 1, "scalar", &r->cx.device), OTT_OK);
    }
    r->status = run_body(r);
    snprintf(r->text, sizeof r->text, "%s", r->status == OTT_OK ? "" : status_text());
    group_close(r->group);
    device_release(r->cx.device, r->in);
    device_release(r->cx.device, r->out);
    device_close(r->cx.device);
    mem_close(r->account);
}

static void expect_success(int size) {
    for (int i = 0; i < size; i++)
        if (collectives_ranks[i].status != OTT_OK)
            fail_msg("rank %d of %d: %s", i, size, collectives_ranks[i].text);
}

/* Returns a value for a rank and an index. The sum of the ranks' values depends on the order of the ranks. */
static float value(int rank, int64_t i) {
    return (rank % 2 ? -1.0f : 1.0f) * (1e7f / (float)(rank + 1) + (float)i / 3.0f);
}

static tensor fill(rank_run *r, float *at, int64_t rows) {
    for (int64_t i = 0; i < rows * COLUMNS; i++) at[i] = value(r->group->rank, i);
    return tensor_matrix(at, OTT_F32, rows, COLUMNS);
}

/* ---- reductions ---- */

static ott_status reduce_sum(rank_run *r) {
    tensor t = fill(r, r->in, 3);
    return group_all_reduce(r->group, &r->cx, &t, REDUCE_SUM);
}

static void sums_are_in_rank_order(void **state) {
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++) {
        collectives_run(size, 30, reduce_sum);
        expect_success(size);
        for (int64_t i = 0; i < 3 * COLUMNS; i++) {
            float sum = value(0, i);
            for (int k = 1; k < size; k++) sum = sum + value(k, i);
            for (int k = 0; k < size; k++)
                assert_memory_equal(&collectives_ranks[k].in_after[i], &sum, sizeof sum);
        }
    }
}

/* Reduces columns 2 and 3 of a row. The other columns must not be read or written. */
static ott_status reduce_columns(rank_run *r) {
    tensor t = fill(r, r->in, 2);
    t = tensor_columns(tensor_rows(t, 1, 1), 2, 2);
    return group_all_reduce(r->group, &r->cx, &t, REDUCE_SUM);
}

static void columns_of_a_row_are_reduced_separately(void **state) {
    (void)state;
    collectives_run(2, 30, reduce_columns);
    expect_success(2);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < ROWS_MAX * COLUMNS; i++) {
            bool reduced = i == COLUMNS + 2 || i == COLUMNS + 3;
            float own = i < 2 * COLUMNS ? value(k, i) : 0;
            assert_true(collectives_ranks[k].in_after[i] == (reduced ? value(0, i) + value(1, i) : own));
        }
}

static ott_status reduce_max(rank_run *r) {
    for (int i = 0; i < 4; i++) r->in[i] = (float)((i + r->group->rank) % 3) - 5.0f;
    if (r->group->rank == 1) r->in[2] = NAN;
    tensor t = tensor_vector(r->in, OTT_F32, 4);
    return group_all_reduce(r->group, &r->cx, &t, REDUCE_MAX);
}

static void a_maximum_keeps_a_nan(void **state) {
    (void)state;
    collectives_run(3, 30, reduce_max);
    expect_success(3);
    for (int k = 0; k < 3; k++) {
        assert_true(collectives_ranks[k].in_after[0] == -3.0f && collectives_ranks[k].in_after[1] == -3.0f &&
                    collectives_ranks[k].in_after[3] == -3.0f);
        assert_true(isnan(collectives_ranks[k].in_after[2]));
    }
}

/* The sum of 1, 2^-8 and 2^-8 is rounded to bf16 once. Rounding each sum would give 1. */
static ott_status reduce_bf16(rank_run *r) {
    uint16_t *x = (uint16_t *)r->in;
    for (int i = 0; i < COLUMNS; i++) x[i] = cast_to_bf16(r->group->rank == 0 ? 1.0f : 0.00390625f);
    tensor t = tensor_vector(x, OTT_BF16, COLUMNS);
    return group_all_reduce(r->group, &r->cx, &t, REDUCE_SUM);
}

static void sums_of_bf16_are_rounded_once(void **state) {
    (void)state;
    collectives_run(3, 30, reduce_bf16);
    expect_success(3);
    for (int k = 0; k < 3; k++)
        assert_true(cast_from_bf16(((uint16_t *)collectives_ranks[k].in_after)[0]) == 1.0078125f);
}

/* Numbers of rows of the ranks' parts. */
static const int64_t uneven[RANKS_MAX] = {0, 2, 3, 4};

static int64_t rows_until(int rank) {
    int64_t rows = 0;
    for (int i = 0; i < rank; i++) rows += uneven[i];
    return rows;
}

static ott_status reduce_scatter(rank_run *r) {
    int rank = r->group->rank, size = r->group->size;
    tensor gathered = fill(r, r->in, rows_until(size));
    tensor part = tensor_matrix(r->out, OTT_F32, uneven[rank], COLUMNS);
    return group_run(
        r->group, &r->cx,
        &(collective){
            .kind = COLLECTIVE_REDUCE_SCATTER, .input = gathered, .output = part, .input_rows = uneven});
}

static void each_rank_gets_its_part_of_the_sum(void **state) {
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++) {
        collectives_run(size, 30, reduce_scatter);
        expect_success(size);
        for (int k = 0; k < size; k++)
            for (int64_t i = 0; i < uneven[k] * COLUMNS; i++) {
                float sum = value(0, rows_until(k) * COLUMNS + i);
                for (int j = 1; j < size; j++) sum = sum + value(j, rows_until(k) * COLUMNS + i);
                assert_memory_equal(&collectives_ranks[k].out_after[i], &sum, sizeof sum);
            }
    }
}

/* ---- data movement ---- */

/* Gathers E4M3 codes: a gather moves elements of any format unchanged. The input is a part of the output. */
static ott_status all_gather(rank_run *r) {
    int rank = r->group->rank, size = r->group->size;
    uint8_t *all = (uint8_t *)r->out;
    tensor gathered = tensor_matrix(all, OTT_E4M3, rows_until(size), COLUMNS);
    tensor part = tensor_rows(gathered, rows_until(rank), uneven[rank]);
    memset(part.data, 16 * (rank + 1), (size_t)tensor_bytes(part));
    return group_run(
        r->group, &r->cx,
        &(collective){
            .kind = COLLECTIVE_ALL_GATHER, .input = part, .output = gathered, .output_rows = uneven});
}

static void all_parts_reach_all_ranks(void **state) {
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++) {
        collectives_run(size, 30, all_gather);
        expect_success(size);
        for (int k = 0; k < size; k++)
            for (int j = 0; j < size; j++)
                for (int64_t i = rows_until(j) * COLUMNS; i < rows_until(j + 1) * COLUMNS; i++)
                    assert_int_equal(((uint8_t *)collectives_ranks[k].out_after)[i], 16 * (j + 1));
    }
}

/* Rank r sends (r + to) % 3 rows to each rank. */
static ott_status all_to_all(rank_run *r) {
    int rank = r->group->rank, size = r->group->size;
    int64_t send[RANKS_MAX], receive[RANKS_MAX], sent = 0, received = 0;
    for (int i = 0; i < size; i++) {
        send[i] = receive[i] = (rank + i) % 3;
        sent += send[i];
        received += receive[i];
    }
    tensor in = tensor_matrix(r->in, OTT_F32, sent, COLUMNS), out = in;
    for (int64_t i = 0; i < sent * COLUMNS; i++) r->in[i] = (float)(100 * rank + i);
    out.data = r->out;
    out.rows = received;
    return group_run(r->group, &r->cx,
                     &(collective){.kind = COLLECTIVE_ALL_TO_ALL,
                                   .input = in,
                                   .output = out,
                                   .input_rows = send,
                                   .output_rows = receive});
}

static void each_pair_exchanges_its_rows(void **state) {
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++) {
        collectives_run(size, 30, all_to_all);
        expect_success(size);
        for (int k = 0; k < size; k++) {
            int64_t at = 0;
            for (int from = 0; from < size; from++) {
                int64_t first = 0;
                for (int j = 0; j < k; j++) first += (from + j) % 3 * COLUMNS;
                for (int64_t i = 0; i < (from + k) % 3 * COLUMNS; i++)
                    assert_true(collectives_ranks[k].out_after[at++] == (float)(100 * from + first + i));
            }
        }
    }
}

static ott_status broadcast(rank_run *r) {
    tensor t = fill(r, r->in, 2);
    return group_broadcast(r->group, &r->cx, &t, r->group->size - 1);
}

static void all_have_what_the_root_had(void **state) {
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++) {
        collectives_run(size, 30, broadcast);
        expect_success(size);
        for (int k = 0; k < size; k++)
            for (int64_t i = 0; i < 2 * COLUMNS; i++)
                assert_true(collectives_ranks[k].in_after[i] == value(size - 1, i));
    }
}

/* Moves host memory through a staging buffer of 3 floats. Messages are no multiple of its size. */
static ott_status move_host(rank_run *r) {
    float *buffer = r->in + 2 * COLUMNS;
    const group_host h = {r->group, r->cx.device, buffer, 3 * sizeof *buffer};
    fill(r, r->in, 2);
    fill(r, r->out, 2);
    TRY(group_host_broadcast(&h, r->in, 2 * COLUMNS * (int64_t)sizeof(float) - 1, r->group->size - 1));
    return group_host_reduce(&h, r->out, 2 * COLUMNS, REDUCE_MAX);
}

static void host_memory_moves_in_pieces(void **state) {
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++) {
        collectives_run(size, 30, move_host);
        expect_success(size);
        for (int k = 0; k < size; k++)
            for (int64_t i = 0; i < 2 * COLUMNS; i++) {
                float root = value(size - 1, i), own = value(k, i);
                if (i == 2 * COLUMNS - 1) memcpy((char *)&root + 3, (char *)&own + 3, 1);
                assert_memory_equal(&collectives_ranks[k].in_after[i], &root, sizeof root);
                assert_true(collectives_ranks[k].out_after[i] == value(0, i));
            }
    }
}

/* Adds more counts than one reduction takes. fp32 would round them. */
static ott_status count_together(rank_run *r) {
    enum { THREES = 4 };
    const group_host h = {r->group, r->cx.device, r->in, 3 * sizeof *r->in};
    int64_t rank = r->group->rank, size = r->group->size, ranks = size * (size - 1) / 2;
    int64_t counts[3 * THREES];
    for (int i = 0; i < THREES; i++) {
        counts[3 * i] = rank + i;
        counts[3 * i + 1] = (INT64_C(1) << 40) + rank;
        counts[3 * i + 2] = (INT64_C(1) << 24) + 1;
    }
    TRY(group_host_count(&h, counts, 3 * THREES));
    for (int i = 0; i < THREES; i++) {
        STATUS_REQUIRE(counts[3 * i] == ranks + size * i);
        STATUS_REQUIRE(counts[3 * i + 1] == size * (INT64_C(1) << 40) + ranks);
        STATUS_REQUIRE(counts[3 * i + 2] == size * ((INT64_C(1) << 24) + 1));
    }
    return OTT_OK;
}

static void counts_are_exact(void **state) {
    (void)state;
    for (int size = 1; size <= RANKS_MAX; size++) {
        collectives_run(size, 30, count_together);
        expect_success(size);
    }
}

/* Sends two messages to the next rank, which receives the messages in order. */
static ott_status pass_on(rank_run *r) {
    int rank = r->group->rank, size = r->group->size;
    for (int n = 0; n < 2; n++) {
        r->in[n] = (float)(10 * rank + n);
        TRY(group_run(r->group, &r->cx,
                      &(collective){.kind = COLLECTIVE_SEND,
                                    .input = tensor_vector(r->in + n, OTT_F32, 1),
                                    .peer = (rank + 1) % size}));
    }
    for (int n = 0; n < 2; n++)
        TRY(group_run(r->group, &r->cx,
                      &(collective){.kind = COLLECTIVE_RECEIVE,
                                    .output = tensor_vector(r->out + n, OTT_F32, 1),
                                    .peer = (rank + size - 1) % size}));
    return group_barrier(r->group, &r->cx);
}

static void messages_keep_their_order(void **state) {
    (void)state;
    for (int size = 2; size <= RANKS_MAX; size++) {
        collectives_run(size, 30, pass_on);
        expect_success(size);
        for (int k = 0; k < size; k++)
            for (int n = 0; n < 2; n++)
                assert_true(collectives_ranks[k].out_after[n] == (float)(10 * ((k + size - 1) % size) + n));
    }
}

/* ---- data larger than a transport's largest message ---- */

enum { MANY = 1200000, MORE = 3 };

static float large_value(int rank, int64_t i) {
    return (float)((i * 7 + rank * 13) % 1001) / 3.0f;
}

static float large_sum(int size, int64_t i) {
    float sum = large_value(0, i);
    for (int r = 1; r < size; r++) sum = sum + large_value(r, i);
    return sum;
}

/* Reduces all elements, then uneven parts. The second part is empty. */
static ott_status reduce_large(rank_run *r, float *x, float *part) {
    int rank = r->group->rank, size = r->group->size;
    int64_t rows[RANKS_MAX] = {MANY / size + MORE, 0, MANY / 3};
    tensor t = tensor_matrix(x, OTT_F32, MANY, 1);
    for (int64_t i = 0; i < MANY; i++) x[i] = large_value(rank, i);
    rows[size - 1] = 0;
    rows[size - 1] = MANY - group_part_first(rows, MANY, size, size);
    int64_t first = group_part_first(rows, MANY, size, rank);
    collective scatter = {.kind = COLLECTIVE_REDUCE_SCATTER,
                          .input = t,
                          .output = tensor_matrix(part, OTT_F32, rows[rank], 1),
                          .input_rows = rows};
    TRY(group_run(r->group, &r->cx, &scatter));
    TRY(group_all_reduce(r->group, &r->cx, &t, REDUCE_SUM));
    TRY(device_synchronize(r->cx.device));
    for (int64_t i = 0; i < MANY; i++) r->out[0] += x[i] != large_sum(size, i);
    for (int64_t i = 0; i < rows[rank]; i++) r->out[0] += part[i] != large_sum(size, first + i);
    return OTT_OK;
}

/* Each rank sends to the next rank. All ranks send at the same time. */
static ott_status pass_large(rank_run *r, float *x, float *from) {
    int rank = r->group->rank, size = r->group->size, before = (rank + size - 1) % size;
    collective call = {
        .kind = COLLECTIVE_SEND, .input = tensor_vector(x, OTT_F32, MANY), .peer = (rank + 1) % size};
    for (int64_t i = 0; i < MANY; i++) x[i] = large_value(rank, i);
    TRY(group_run(r->group, &r->cx, &call));
    call = (collective){
        .kind = COLLECTIVE_RECEIVE, .output = tensor_vector(from, OTT_F32, MANY), .peer = before};
    TRY(group_run(r->group, &r->cx, &call));
    TRY(device_synchronize(r->cx.device));
    for (int64_t i = 0; i < MANY; i++) r->out[1] += from[i] != large_value(before, i);
    return OTT_OK;
}

static ott_status move_large(rank_run *r) {
    float *x = take_memory(r, 2 * MANY);
    ott_status status = reduce_large(r, x, x + MANY);
    if (status == OTT_OK) status = pass_large(r, x, x + MANY);
    device_release(r->cx.device, x);
    return status;
}

static void large_tensors_arrive_complete(void **state) {
    (void)state;
    for (int size = 2; size <= RANKS_MAX; size++) {
        collectives_run(size, 30, move_large);
        expect_success(size);
        for (int k = 0; k < size; k++)
            assert_true(collectives_ranks[k].out_after[0] == 0 && collectives_ranks[k].out_after[1] == 0);
    }
}

/* ---- requests, plans ---- */

/* The other ranks wait for a reduction, then send messages. Rank 0 waits for the messages first, so the
   reduction must progress before rank 0 waits for it. */
static ott_status continue_without_the_rank(rank_run *r) {
    tensor t = tensor_vector(r->in, OTT_F32, 1), word = tensor_vector(r->out, OTT_F32, 1);
    collective reduce = {.kind = COLLECTIVE_ALL_REDUCE, .input = t, .output = t};
    group_request request;
    TRY(group_start(r->group, &r->cx, &reduce, &request));
    if (r->group->rank > 0) {
        TRY(group_wait(&r->cx, &request));
        return group_run(r->group, &r->cx, &(collective){.kind = COLLECTIVE_SEND, .input = word});
    }
    for (int k = 1; k < r->group->size; k++)
        TRY(group_run(r->group, &r->cx,
                      &(collective){.kind = COLLECTIVE_RECEIVE, .output = word, .peer = k}));
    return group_wait(&r->cx, &request);
}

static void a_collective_progresses_before_the_wait(void **state) {
    (void)state;
    collectives_run(3, 30, continue_without_the_rank);
    expect_success(3);
}

static ott_status two_at_once(rank_run *r) {
    group_request first, second;
    tensor a = tensor_vector(r->in, OTT_F32, 1), b = tensor_vector(r->out, OTT_F32, 1);
    r->in[0] = 1.0f, r->out[0] = 2.0f;
    collective reduce = {.kind = COLLECTIVE_ALL_REDUCE, .input = a, .output = a};
    TRY(group_start(r->group, &r->cx, &reduce, &first));
    reduce.input = reduce.output = b;
    TRY(group_start(r->group, &r->cx, &reduce, &second));
    if (r->group->rank == 0) {
        TRY(group_wait(&r->cx, &second));
        return group_wait(&r->cx, &first);
    }
    TRY(group_wait(&r->cx, &first));
    return group_wait(&r->cx, &second);
}

static void requests_are_waited_for_in_any_order(void **state) {
    (void)state;
    collectives_run(3, 30, two_at_once);
    expect_success(3);
    for (int k = 0; k < 3; k++)
        assert_true(collectives_ranks[k].in_after[0] == 3.0f && collectives_ranks[k].out_after[0] == 6.0f);
}

/* Rank 0 records a collective in a plan, and the other ranks call nothing. So rank 0 must not communicate: it
   would wait forever. */
static ott_status record(rank_run *r) {
    if (r->group->rank > 0) return OTT_OK;
    tensor t = fill(r, r->in, 1);
    TRY(plan_create(r->cx.device, &r->cx.plan));
    plan_record(r->cx.plan);
    ott_status status = group_all_reduce(r->group, &r->cx, &t, REDUCE_SUM);
    plan_destroy(r->cx.plan);
    return status;
}

static void nothing_moves_while_a_plan_is_recorded(void **state) {
    (void)state;
    collectives_run(2, 30, record);
    expect_success(2);
}

/* ---- failures ---- */

static void expect_failure(int size, const char *text) {
    for (int i = 0; i < size; i++) {
        if (collectives_ranks[i].status == OTT_OK) continue;
        assert_int_equal(collectives_ranks[i].status, OTT_ERR_RANK);
        if (!strstr(collectives_ranks[i].text, text))
            fail_msg("rank %d: \"%s\" lacks \"%s\"", i, collectives_ranks[i].text, text);
    }
}

static ott_status disagree(rank_run *r) {
    tensor t = fill(r, r->in, r->group->rank == 2 ? 2 : 3);
    return group_all_reduce(r->group, &r->cx, &t, REDUCE_SUM);
}

static void other_shapes_are_an_error_on_all_ranks(void **state) {
    (void)state;
    collectives_run(3, 30, disagree);
    for (int i = 0; i < 3; i++) assert_int_equal(collectives_ranks[i].status, OTT_ERR_RANK);
    expect_failure(3, "2 x 5 fp32");
    expect_failure(3, "rank 2");
}

static ott_status leave_early(rank_run *r) {
    if (r->group->rank == 1) return OTT_OK;
    return group_barrier(r->group, &r->cx);
}

static void a_rank_that_leaves_ends_those_who_wait(void **state) {
    (void)state;
    collectives_run(3, 30, leave_early);
    assert_int_equal(collectives_ranks[0].status, OTT_ERR_RANK);
    assert_int_equal(collectives_ranks[2].status, OTT_ERR_RANK);
    expect_failure(3, "barrier, collective number 0: rank 1 has left");
}

static ott_status hang(rank_run *r) {
    tensor t = tensor_vector(r->out, OTT_F32, 1);
    if (r->group->rank == 0) return group_barrier(r->group, &r->cx);
    return group_run(r->group, &r->cx, &(collective){.kind = COLLECTIVE_RECEIVE, .output = t, .peer = 0});
}

static void a_rank_that_hangs_is_named(void **state) {
    (void)state;
    collectives_run(2, 0.05, hang);
    assert_int_equal(collectives_ranks[0].status, OTT_ERR_RANK);
    assert_int_equal(collectives_ranks[1].status, OTT_ERR_RANK);
    expect_failure(2, "did not join in time");
}

static ott_status wrong_message(rank_run *r) {
    tensor t = tensor_vector(r->out, OTT_F32, r->group->rank ? 2 : 3);
    if (r->group->rank == 0)
        return group_run(r->group, &r->cx, &(collective){.kind = COLLECTIVE_SEND, .input = t, .peer = 1});
    return group_run(r->group, &r->cx, &(collective){.kind = COLLECTIVE_RECEIVE, .output = t, .peer = 0});
}

static void a_message_of_another_shape_is_refused(void **state) {
    (void)state;
    collectives_run(2, 30, wrong_message);
    assert_int_equal(collectives_ranks[1].status, OTT_ERR_RANK);
    expect_failure(2, "rank 0 sends 1 x 3 fp32, rank 1 expects 1 x 2 fp32");
}

static void calls_are_checked(void **state) {
    (void)state;
    group fake = {.rank = 0, .size = 2};
    exec cx = {0};
    float x[8] = {0};
    tensor t = tensor_matrix(x, OTT_F32, 4, 2), codes = tensor_matrix(x, OTT_E4M3, 4, 2);
    assert_int_equal(group_all_reduce(&fake, &cx, &codes, REDUCE_SUM), OTT_ERR_DTYPE);
    collective gather = {.kind = COLLECTIVE_ALL_GATHER,
                         .input = tensor_rows(t, 0, 3),
                         .output = t,
                         .output_rows = (const int64_t[]){2, 2}};
    assert_int_equal(group_run(&fake, &cx, &gather), OTT_ERR_SHAPE);
    gather.output_rows = (const int64_t[]){3, 2};
    assert_int_equal(group_run(&fake, &cx, &gather), OTT_ERR_SHAPE);
    assert_int_equal(group_broadcast(&fake, &cx, &t, 2), OTT_ERR_INTERNAL);
}

#define MOVES                                                                                                \
    cmocka_unit_test(sums_are_in_rank_order), cmocka_unit_test(columns_of_a_row_are_reduced_separately),     \
        cmocka_unit_test(a_maximum_keeps_a_nan), cmocka_unit_test(sums_of_bf16_are_rounded_once),            \
        cmocka_unit_test(each_rank_gets_its_part_of_the_sum), cmocka_unit_test(all_parts_reach_all_ranks),   \
        cmocka_unit_test(each_pair_exchanges_its_rows), cmocka_unit_test(all_have_what_the_root_had),        \
        cmocka_unit_test(host_memory_moves_in_pieces), cmocka_unit_test(counts_are_exact),                   \
        cmocka_unit_test(messages_keep_their_order), cmocka_unit_test(large_tensors_arrive_complete),        \
        cmocka_unit_test(a_collective_progresses_before_the_wait),                                           \
        cmocka_unit_test(requests_are_waited_for_in_any_order),                                              \
        cmocka_unit_test(nothing_moves_while_a_plan_is_recorded)

int collectives_test(void) {
    const struct CMUnitTest tests[] = {
        MOVES,
        cmocka_unit_test(other_shapes_are_an_error_on_all_ranks),
        cmocka_unit_test(a_rank_that_leaves_ends_those_who_wait),
        cmocka_unit_test(a_rank_that_hangs_is_named),
        cmocka_unit_test(a_message_of_another_shape_is_refused),
        cmocka_unit_test(calls_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int collectives_test_moves(void) {
    const struct CMUnitTest tests[] = {MOVES};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
