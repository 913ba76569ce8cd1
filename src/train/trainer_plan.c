/* train/trainer_plan: the passes and the update of a step, and recording them to plan memory. */
#include "train/budget.h"
#include "train/trainer_parts.h"

/* Adds the losses of a pass to STEP_LOSS. With a pipeline only the last stage has losses. */
static ott_status sum_losses(trainer *t, const tensor *losses, int64_t count) {
    tensor sum = tensor_columns(t->state, STEP_LOSS, 1);
    for (int64_t i = 0; i < count && pipeline_is_last(t->m->options.stage); i++) {
        tensor own = model_own_tokens(t->m, losses[i]);
        TRY(op_sum(&t->cx, &(sum_args){.x = &own, .sum = &sum}));
    }
    return OTT_OK;
}

ott_status trainer_train_pass(trainer *t) {
    TRY(t->stage ? stage_train(&t->cx, t->stage, t->batches, &t->grad_scale, t->losses)
                 : model_run(&t->cx, t->m, t->slot, t->batches, &t->grad_scale, t->losses));
    return sum_losses(t, t->losses, t->resident);
}

ott_status trainer_evaluate_pass(trainer *t) {
    const batch *b = &t->evaluation_batch;
    const tensor *losses = &t->evaluation_losses;
    TRY(t->stage ? stage_evaluate(&t->cx, t->stage, b, losses)
                 : model_run(&t->cx, t->m, t->slot, b, NULL, losses));
    return sum_losses(t, losses, 1);
}

static ott_status record_plan(trainer *t, plan *p, ott_status (*pass)(trainer *t)) {
    plan_record(p);
    t->cx.plan = p;
    TRY(pass(t));
    return plan_seal(p);
}

static ott_status update_parameters(trainer *t) {
    const optimizer_ranks ranks = {.shard = t->m->store.ranks,
                                   .tensor = t->m->options.tensor_ranks,
                                   .experts = t->m->options.expert_ranks,
                                   .stages = t->m->options.stage_ranks,
                                   .trained = t->m->trained_count};
    t->cx.plan = t->update_plan;
    TRY(optimizer_update(&t->cx, t->m->options.optimizer, &t->options.optimizer, t->m->parameters,
                         t->m->parameter_count, &ranks, &t->state));
    return balance_update(&t->cx, t->m, &t->state);
}

ott_status trainer_run_update(trainer *t) {
    plan_replay(t->update_plan);
    return update_parameters(t);
}

ott_status trainer_reduce(trainer *t) {
    t->cx.plan = t->reduce_plan;
    t->cx.part = PART_REDUCTION;
    TRY(store_reduce_once(&t->cx, &t->m->store));
    return t->stage ? stage_share_gradients(&t->cx, t->stage) : OTT_OK;
}

ott_status trainer_plan_memory(trainer *t) {
    enum { PLANS = 4 };
    replay_forget(&t->replay, t->device); /* the arena may move, and graphs have its address */
    TRY(record_plan(t, t->train_plan, trainer_train_pass));
    TRY(record_plan(t, t->evaluate_plan, trainer_evaluate_pass));
    TRY(record_plan(t, t->reduce_plan, trainer_reduce));
    TRY(record_plan(t, t->update_plan, update_parameters));
    plan *plans[PLANS] = {t->train_plan, t->evaluate_plan, t->reduce_plan, t->update_plan};
    int64_t bytes = 0;
    for (int i = 0; i < PLANS; i++)
        if (plan_bytes(plans[i]) > bytes) bytes = plan_bytes(plans[i]);
    device_release(t->device, t->arena);
    t->arena = NULL;
    int64_t planned = device_taken(t->device).now + bytes;
    if (planned > t->planned_bytes) t->planned_bytes = planned;
    TRY(device_allocate(t->device, MEM_STEP, bytes, "activations and workspace of a step", &t->arena));
    for (int i = 0; i < PLANS; i++) plan_bind(plans[i], t->arena);
    return OTT_OK;
}

static ott_status measure_step(void *user, int64_t *bytes) {
    trainer *t = user;
    TRY(record_plan(t, t->train_plan, trainer_train_pass));
    return *bytes = plan_bytes(t->train_plan), OTT_OK;
}

ott_status trainer_fit_budget(trainer *t) {
    if (!t->options.budgeted) return OTT_OK;
    t->host_exchange.group = t->options.run_group;
    return budget_fit(&(budget){.share = t->options.memory_budget,
                                .measure = measure_step,
                                .user = t,
                                .host_exchange = t->device->dry_run ? NULL : &t->host_exchange,
                                .log = t->log},
                      t->m);
}

ott_status trainer_plan_documents(trainer *t) {
    int64_t training = t->feed.training.document_capacity + 1,
            evaluated = t->feed.evaluation.document_capacity + 1;
    if (t->batches[0].at.cu_seqlens.columns == training &&
        t->evaluation_batch.at.cu_seqlens.columns == evaluated)
        return OTT_OK;
    for (int64_t i = 0; i < t->resident; i++) t->batches[i].at.cu_seqlens.columns = training;
    t->evaluation_batch.at.cu_seqlens.columns = evaluated;
    return trainer_plan_memory(t);
}
