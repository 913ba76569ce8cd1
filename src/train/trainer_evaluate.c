/* train/trainer_evaluate: runs an evaluation. */
#include "train/trainer_parts.h"

/* Evaluates batch `first` + r on each rank r. Adds the losses to *total in batch order, as on one rank. A
   rank that has no batch left repeats the last batch, because collectives need all ranks. The repeated
   batch's loss is not added. */
static ott_status evaluate_round(trainer *t, int64_t first, evaluation *e, float *total) {
    const group *g = t->cx.data_group;
    int64_t own = first + g->rank, taken = own < e->batches ? own : e->batches - 1;
    tensor sum = tensor_columns(t->state, STEP_LOSS, 1);
    float loss, losses[g->size];
    TRY(feed_evaluation(&t->feed, taken * t->options.evaluation_batch));
    TRY(trainer_plan_documents(t));
    TRY(feed_send(&t->feed, FEED_EVALUATION, 0, &t->evaluation_batch));
    t->cx.plan = t->evaluate_plan;
    plan_replay(t->evaluate_plan);
    TRY(device_zero(t->device, sum.data, sizeof(float)));
    TRY(trainer_evaluate_pass(t));
    TRY(trainer_sum_same_rows(t, &sum));
    TRY(device_copy_out(t->device, &loss, sum.data, sizeof loss));
    if (taken == own) e->labels += t->feed.sets[FEED_EVALUATION].labels;
    TRY(trainer_gather_values(t, t->cx.data_group, loss, losses));
    for (int64_t i = 0; i < g->size && first + i < e->batches; i++) *total += losses[i];
    return OTT_OK;
}

static ott_status evaluate_batches(trainer *t, int64_t batches, evaluation *out) {
    int64_t available = dataset_rows(t->validation_data) / t->options.evaluation_batch;
    float total = 0;
    *out = (evaluation){.batches = available < batches ? available : batches};
    for (int64_t i = 0; i < out->batches; i += t->cx.data_group->size) TRY(evaluate_round(t, i, out, &total));
    TRY(trainer_sum_counts(t, t->cx.data_group, &out->labels, 1));
    out->tokens = out->batches * t->evaluation_losses.columns;
    if (out->labels == 0)
        return status_fail(OTT_ERR_CONFIG, "%s: no token of the first %lld batches has a label to evaluate",
                           dataset_name(t->validation_data), (long long)out->batches);
    out->loss = (double)total / (double)out->labels;
    return trainer_count_gemms(t);
}

/* Also restores the training weights after a failure or stop, because the run may be saved then. */
ott_status trainer_evaluate(trainer *t, int64_t batches, evaluation *out) {
    TRY(trainer_use_average(t, true));
    ott_status status = evaluate_batches(t, batches, out);
    TRY(trainer_use_average(t, false));
    return status;
}
