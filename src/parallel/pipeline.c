/* parallel/pipeline: computes layers, tasks and messages of a stage. */
#include "parallel/pipeline.h"

static int64_t count_parts(const pipeline_stage *s) {
    return (int64_t)s->stages * s->chunks;
}

static int64_t part_of_chunk(const pipeline_stage *s, int chunk) {
    return (int64_t)chunk * s->stages + s->rank;
}

ott_status pipeline_check(const pipeline_stage *s, int64_t layers, int64_t micro_batches) {
    STATUS_REQUIRE(s->stages >= 2 && s->rank >= 0 && s->rank < s->stages && s->chunks >= 1);
    if (layers < count_parts(s))
        return status_fail(
            OTT_ERR_CONFIG,
            "model.n_layers (%lld) must be at least distributed.pp (%d)%s: each part of a "
            "pipeline needs a layer",
            (long long)layers, s->stages,
            s->chunks > 1 ? " times 2, as pp_schedule = \"interleaved_1f1b\" has two parts per stage" : "");
    if (s->chunks > 1 && micro_batches % s->stages != 0)
        return status_fail(OTT_ERR_CONFIG,
                           "train.grad_accum_steps (%lld) must be divisible by distributed.pp (%d) with "
                           "pp_schedule = \"interleaved_1f1b\"",
                           (long long)micro_batches, s->stages);
    return OTT_OK;
}

layer_range pipeline_layers(const pipeline_stage *s, int64_t layers, int chunk) {
    int64_t part = part_of_chunk(s, chunk), each = layers / count_parts(s), more = layers % count_parts(s);
    int64_t first = part * each + (part < more ? part : more);
    return (layer_range){first, first + each + (part < more)};
}

bool pipeline_has_layer(const pipeline_stage *s, int64_t layers, int64_t layer) {
    for (int chunk = 0; s && chunk < s->chunks; chunk++) {
        layer_range r = pipeline_layers(s, layers, chunk);
        if (layer >= r.first && layer < r.end) return true;
    }
    return !s;
}

bool pipeline_is_first(const pipeline_stage *s) {
    return !s || s->rank == 0;
}

bool pipeline_is_last(const pipeline_stage *s) {
    return !s || s->rank == s->stages - 1;
}

int64_t pipeline_task_count(const pipeline_stage *s, int64_t micro_batches) {
    return 2 * micro_batches * s->chunks;
}

/* Number of forwards before the first backward. */
static int64_t warm_up_forwards(const pipeline_stage *s, int64_t micro_batches) {
    int64_t all = micro_batches * s->chunks, ahead = s->stages - s->rank - 1;
    if (s->schedule == PP_GPIPE) return all;
    if (s->chunks > 1) ahead = 2 * ahead + (int64_t)(s->chunks - 1) * s->stages;
    return ahead < all ? ahead : all;
}

/* Returns the stage's k-th forward task or k-th backward task. The stage runs `stages` micro-batches through
   its first chunk, then through the next one, and so on. Backward starts with the last chunk. */
static pipeline_task get_task(const pipeline_stage *s, int64_t k, bool backward) {
    int64_t round = count_parts(s);
    int chunk = (int)(k % round / s->stages);
    return (pipeline_task){.backward = backward,
                           .chunk = backward ? s->chunks - 1 - chunk : chunk,
                           .micro_batch = k / round * s->stages + k % s->stages};
}

pipeline_task pipeline_task_at(const pipeline_stage *s, int64_t micro_batches, int64_t i) {
    int64_t all = micro_batches * s->chunks, before = warm_up_forwards(s, micro_batches);
    if (i < before) return get_task(s, i, false);
    if (i >= 2 * all - before) return get_task(s, i - all, true);
    int64_t in_turn = i - before;
    return in_turn % 2 == 0 ? get_task(s, before + in_turn / 2, false) : get_task(s, in_turn / 2, true);
}

int pipeline_messages(const pipeline_stage *s, bool tied, pipeline_task t, bool sent,
                      pipeline_message out[PIPELINE_MESSAGES]) {
    int64_t part = part_of_chunk(s, t.chunk), last = count_parts(s) - 1, step = sent ? 1 : -1;
    int64_t end = sent ? last : 0; /* the stream is not sent after the last part or received before part 0 */
    const struct {
        pipeline_content content;
        int64_t by; /* index of the other part minus `part` */
        bool exists;
    } all[PIPELINE_CONTENTS] = {{PIPELINE_STREAM, step, !t.backward && part != end},
                                {PIPELINE_TABLE, -step * last, t.backward && part == end && tied},
                                {PIPELINE_GRADIENT, -step, t.backward && part != last - end}};
    int count = 0;
    for (int i = 0; i < PIPELINE_CONTENTS; i++) {
        int64_t other = part + all[i].by;
        if (all[i].exists)
            out[count++] = (pipeline_message){.content = all[i].content,
                                              .peer = (int)(other % s->stages),
                                              .chunk = sent ? (int)(other / s->stages) : t.chunk,
                                              .micro_batch = t.micro_batch};
    }
    return count;
}

/* The last stage sends a tied table's gradients up to `stages` micro-batches ahead of the first stage. */
int pipeline_max_in_flight(const pipeline_stage *s, pipeline_content content) {
    return content == PIPELINE_TABLE ? s->stages : 1;
}
