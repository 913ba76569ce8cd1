/*
 * Pipeline schedules, without a model. Every stage runs every task once, in the order of the micro-batches.
 * The number of micro-batches in flight is bounded. Every send has its receive. The order of sends and
 * receives has no deadlock, even if a send completes only when the receive has been posted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "parallel/pipeline.h"

enum { STAGES_MAX = 8, CHUNKS_MAX = 3, BATCHES_MAX = 24 };

typedef void (*visit)(const pipeline_stage *s, int64_t micro_batches);

static void each_shape(visit look) {
    for (int stages = 2; stages <= STAGES_MAX; stages++)
        for (int chunks = 1; chunks <= CHUNKS_MAX; chunks++)
            for (int64_t n = chunks > 1 ? stages : 1; n <= BATCHES_MAX; n += chunks > 1 ? stages : 1) {
                pipeline_stage s = {chunks > 1 ? PP_INTERLEAVED_1F1B : PP_1F1B, stages, 0, chunks};
                look(&s, n);
                if (chunks > 1) continue;
                s.schedule = PP_GPIPE;
                look(&s, n);
            }
}

/* ---- one stage ---- */

/* Returns the maximum number of forwards of this stage that wait for their backward. A micro-batch counts
   once for each chunk of the model. */
static int64_t in_flight(const pipeline_stage *s, int64_t n) {
    int64_t later = s->stages - 1 - s->rank, all = n * s->chunks;
    int64_t most = s->schedule == PP_GPIPE  ? n
                   : s->schedule == PP_1F1B ? later + 1
                                            : 2 * later + (int64_t)(s->chunks - 1) * s->stages + 1;
    return most < all ? most : all;
}

static void check_tasks(const pipeline_stage *shape, int64_t n) {
    for (int rank = 0; rank < shape->stages; rank++) {
        pipeline_stage s = *shape;
        int64_t forward[CHUNKS_MAX] = {0}, backward[CHUNKS_MAX] = {0}, flying = 0, most = 0;
        s.rank = rank;
        for (int64_t i = 0; i < pipeline_task_count(&s, n); i++) {
            pipeline_task t = pipeline_task_at(&s, n, i);
            int64_t *next = t.backward ? &backward[t.chunk] : &forward[t.chunk];
            assert_int_equal(t.micro_batch, *next); /* each micro-batch once, in order */
            ++*next;
            assert_true(backward[t.chunk] <= forward[t.chunk]);
            flying += t.backward ? -1 : 1;
            if (flying > most) most = flying;
        }
        for (int c = 0; c < s.chunks; c++) assert_true(forward[c] == n && backward[c] == n);
        assert_int_equal(most, in_flight(&s, n));
    }
}

static void tasks_are_in_order(void **state) {
    (void)state;
    each_shape(check_tasks);
}

/* ---- all stages, as train/stage runs them ---- */

typedef struct walker {
    int64_t task;
    int sent; /* number of messages sent so far by the task that ran last: task - 1 */
} walker;

typedef struct simulation {
    pipeline_stage shape;
    int64_t n;
    bool tied;
    walker at[STAGES_MAX];
    /* asked: the receiver has posted the receive of the message; left: the sender has started its send */
    bool asked[PIPELINE_CONTENTS][STAGES_MAX][CHUNKS_MAX][BATCHES_MAX],
        left[PIPELINE_CONTENTS][STAGES_MAX][CHUNKS_MAX][BATCHES_MAX];
    /* [sender][content][slot] sends in flight: pointers to the elements of `asked` for their receives */
    const bool *leaving[STAGES_MAX][PIPELINE_CONTENTS][STAGES_MAX];
    int64_t sent[STAGES_MAX][PIPELINE_CONTENTS];
} simulation;

static pipeline_stage stage_of(const simulation *w, int rank) {
    pipeline_stage s = w->shape;
    s.rank = rank;
    return s;
}

/* Stage `to` posts receives for the messages that stage wanted->peer sends to it, in the order of sending;
   the last of them is the message *wanted. */
static void ask_up_to(simulation *w, int to, const pipeline_message *wanted) {
    pipeline_stage from = stage_of(w, wanted->peer);
    for (int64_t i = 0; i < pipeline_task_count(&from, w->n); i++) {
        pipeline_message sent[PIPELINE_MESSAGES];
        int count = pipeline_messages(&from, w->tied, pipeline_task_at(&from, w->n, i), true, sent);
        for (int j = 0; j < count; j++) {
            if (sent[j].peer != to) continue;
            w->asked[sent[j].content][to][sent[j].chunk][sent[j].micro_batch] = true;
            if (sent[j].content == wanted->content && sent[j].chunk == wanted->chunk &&
                sent[j].micro_batch == wanted->micro_batch)
                return;
        }
    }
    fail_msg("stage %d waits for a message that stage %d never sends", to, wanted->peer);
}

/* Posts the receives of the stage's next task. True if all inputs of this task have been sent. */
static bool may_run(simulation *w, int rank) {
    pipeline_stage s = stage_of(w, rank);
    pipeline_message needs[PIPELINE_MESSAGES];
    int count = pipeline_messages(&s, w->tied, pipeline_task_at(&s, w->n, w->at[rank].task), false, needs);
    bool here = true;
    for (int i = 0; i < count; i++) {
        ask_up_to(w, rank, &needs[i]);
        here = here && w->left[needs[i].content][rank][needs[i].chunk][needs[i].micro_batch];
    }
    return here;
}

/* Sends the outputs of the task that the stage ran last. False if an output must wait, because earlier
   messages of the same content have not been received. */
static bool send(simulation *w, int rank) {
    pipeline_stage s = stage_of(w, rank);
    pipeline_message sends[PIPELINE_MESSAGES];
    walker *a = &w->at[rank];
    if (a->task == 0) return true;
    int count = pipeline_messages(&s, w->tied, pipeline_task_at(&s, w->n, a->task - 1), true, sends);
    for (; a->sent < count; a->sent++) {
        const pipeline_message *m = &sends[a->sent];
        int64_t place = w->sent[rank][m->content] % pipeline_max_in_flight(&s, m->content);
        const bool **before = &w->leaving[rank][m->content][place];
        if (*before && !**before) return false;
        assert_false(w->left[m->content][m->peer][m->chunk][m->micro_batch]);
        w->left[m->content][m->peer][m->chunk][m->micro_batch] = true;
        *before = &w->asked[m->content][m->peer][m->chunk][m->micro_batch];
        w->sent[rank][m->content]++;
    }
    return true;
}

static bool advance(simulation *w, int rank) {
    pipeline_stage s = stage_of(w, rank);
    walker *a = &w->at[rank], before = *a;
    bool done = a->task == pipeline_task_count(&s, w->n);
    bool runs = !done && may_run(w, rank); /* posts receives before the outputs are sent */
    if (!send(w, rank) || !runs) return a->sent != before.sent;
    *a = (walker){.task = a->task + 1};
    return true;
}

static void check_messages(const pipeline_stage *shape, int64_t n) {
    static simulation w;
    for (int tied = 0; tied <= 1; tied++) {
        memset(&w, 0, sizeof w);
        w.shape = *shape;
        w.n = n;
        w.tied = tied;
        for (bool moved = true; moved;) {
            moved = false;
            for (int r = 0; r < shape->stages; r++) moved = advance(&w, r) || moved;
        }
        for (int r = 0; r < shape->stages; r++) {
            pipeline_stage s = stage_of(&w, r);
            if (w.at[r].task != pipeline_task_count(&s, n))
                fail_msg("%d stages, %d parts, %d micro-batches: stage %d waits forever at task %d",
                         shape->stages, shape->chunks, (int)n, r, (int)w.at[r].task);
        }
        /* every sent message was received */
        assert_memory_equal(w.asked, w.left, sizeof w.left);
    }
}

static void nobody_waits_for_ever(void **state) {
    (void)state;
    each_shape(check_messages);
}

/* ---- layers ---- */

static void layers_are_dealt_out(void **state) {
    (void)state;
    pipeline_stage s = {PP_INTERLEAVED_1F1B, 2, 0, 2}, second = s;
    second.rank = 1;
    layer_range ranges[] = {pipeline_layers(&s, 6, 0), pipeline_layers(&second, 6, 0),
                            pipeline_layers(&s, 6, 1), pipeline_layers(&second, 6, 1)};
    const layer_range wanted[] = {{0, 2}, {2, 4}, {4, 5}, {5, 6}};
    assert_memory_equal(ranges, wanted, sizeof wanted);
    for (int64_t layer = 0; layer < 6; layer++)
        assert_true(pipeline_has_layer(&s, 6, layer) != pipeline_has_layer(&second, 6, layer));
    assert_true(pipeline_is_first(&s) && !pipeline_is_last(&s));
    assert_true(pipeline_is_first(NULL) && pipeline_is_last(NULL) && pipeline_has_layer(NULL, 6, 5));
    assert_int_equal(pipeline_check(&s, 6, 4), OTT_OK);
    assert_int_equal(pipeline_check(&s, 3, 4), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "model.n_layers (3)"));
    assert_int_equal(pipeline_check(&s, 6, 3), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "train.grad_accum_steps (3)"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_are_in_order),
        cmocka_unit_test(nobody_waits_for_ever),
        cmocka_unit_test(layers_are_dealt_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
