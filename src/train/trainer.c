/* train/trainer: opens a trainer, converts and loads its model. */
#include "train/trainer_parts.h"
#include "base/text/size.h"
#include "comm/self.h"

/* ---- buffers ---- */

static int64_t tokens_of(const trainer *t) {
    return t->options.batch_size * t->options.seq_len;
}

static int64_t evaluation_tokens(const trainer *t) {
    return t->options.evaluation_batch * t->options.evaluation_length;
}

static ott_status open_resident(trainer *t) {
    t->resident = t->stage ? t->options.grad_accum : 1;
    TRY(mem_alloc_array(t->account, MEM_OTHER, t->resident, sizeof *t->batches, "batches of a step",
                        &t->batches));
    return mem_alloc_array(t->account, MEM_OTHER, t->resident, sizeof *t->losses, "losses of a step",
                           &t->losses);
}

static int64_t loss_bytes(const trainer *t, int64_t tokens) {
    return backend_align(t->device->can, 4 * tokens);
}

/* Bytes of the micro-batches on the device with their losses, or of evaluation's batch if it takes more. */
static int64_t batch_bytes(const trainer *t) {
    const feed *f = &t->feed;
    int64_t training = feed_batch_bytes(f, &f->training) + loss_bytes(t, tokens_of(t));
    int64_t evaluated = feed_batch_bytes(f, &f->evaluation) + loss_bytes(t, evaluation_tokens(t));
    return size_max(t->resident * training, evaluated);
}

static void place_batches(trainer *t) {
    const feed *f = &t->feed;
    int64_t tokens = tokens_of(t);
    char *at = t->device_block, *losses = at + feed_batch_bytes(f, &f->evaluation);
    t->evaluation_batch = feed_batch_at(f, &f->evaluation, at);
    t->evaluation_losses = tensor_vector(losses, OTT_F32, evaluation_tokens(t));
    for (int64_t i = 0; i < t->resident; i++, at += feed_batch_bytes(f, &f->training))
        t->batches[i] = feed_batch_at(f, &f->training, at);
    for (int64_t i = 0; i < t->resident; i++, at += loss_bytes(t, tokens))
        t->losses[i] = tensor_vector(at, OTT_F32, tokens);
}

static ott_status open_step_buffers(trainer *t) {
    enum { EXCHANGE_WORDS = 256, WORDS = SENT_WORDS + 1 };
    int64_t exchange_words = size_max(t->options.data_group->size, t->options.run_group->size),
            head = backend_align(t->device->can, 4 * WORDS);
    if (exchange_words < EXCHANGE_WORDS) exchange_words = EXCHANGE_WORDS;
    TRY(feed_open(&t->feed, t->device,
                  &(feed_options){.train_data = t->train_data,
                                  .validation_data = t->validation_data,
                                  .seed = t->options.data_seed,
                                  .ranks = t->options.data_group,
                                  .batch_size = t->options.batch_size,
                                  .seq_len = t->options.seq_len,
                                  .grad_accum = t->options.grad_accum,
                                  .evaluation_rows = t->options.evaluation_batch,
                                  .evaluation_length = t->options.evaluation_length}));
    TRY(open_resident(t));
    TRY(device_allocate_host(t->device, MEM_DATA, SENT_WORDS * (int64_t)sizeof *t->host_state, "step state",
                             &t->host_state));
    TRY(device_event_open(t->device, &t->state_sent));
    TRY(device_allocate(t->device, MEM_DATA, batch_bytes(t) + head + 4 * exchange_words,
                        "batch and step state", &t->device_block));
    place_batches(t);
    char *at = (char *)t->device_block + batch_bytes(t);
    float *words = (float *)(void *)at;
    t->state = tensor_vector(words, OTT_F32, STEP_STATE_COUNT);
    t->grad_scale = tensor_vector(words + GRAD_SCALE, OTT_F32, 1);
    t->pass_scale = tensor_vector(words + PASS_SCALE, OTT_F32, 1);
    t->nonfinite = tensor_vector(words + SENT_WORDS, OTT_I32, 1);
    if (t->options.z_weight > 0) t->m->loss.z = tensor_columns(t->state, STEP_Z_LOSS, 1);
    t->host_exchange = (group_host){.device = t->device, .buffer = at + head, .bytes = 4 * exchange_words};
    return OTT_OK;
}

/* ---- open and close ---- */

void trainer_set_checkpointing(const trainer_options *o, model *m) {
    for (int64_t i = 0; i < m->options.layers; i++)
        m->blocks[i].checkpointing = i % o->checkpoint_every == 0 ? o->checkpointing : CHECKPOINT_NONE;
}

static ott_status convert_for_training(trainer *t, const recipe *r) {
    convert_options o = t->options.convert;
    o.recipe = t->recipe = r;
    o.log = t->log;
    t->step_gemms.known = false;
    TRY(model_convert(t->m, &o, &t->converted));
    model_fuse_quantize(t->m);
    /* Each micro-batch changes the amax histories. To undo a step, a copy is made before the step. */
    int64_t bytes = t->m->delayed.block_bytes;
    device_release(t->device, t->delayed_before);
    t->delayed_before = NULL;
    if (!t->m->delayed.block) return OTT_OK;
    return device_allocate(t->device, MEM_WEIGHT, bytes, "amax histories before a step", &t->delayed_before);
}

ott_status trainer_convert(trainer *t, const recipe *r) {
    t->is_consistent = false;
    TRY(convert_for_training(t, r));
    TRY(trainer_fit_budget(t));
    TRY(trainer_plan_memory(t));
    t->is_consistent = true;
    return OTT_OK;
}

static ott_status build_trainer(trainer *t, const model_options *shape) {
    model_options own = *shape;
    own.frozen_convert = &t->options.convert;
    TRY(model_open(t->device, &own, MODEL_TRAINING,
                   size_max(t->options.seq_len, t->options.evaluation_length), &t->m));
    t->m->store.options = t->options.store;
    t->m->store.micro_batches = t->options.grad_accum > 1;
    TRY(convert_for_training(t, t->options.convert.recipe));
    t->m->loss.chunk = t->options.chunk;
    t->m->loss.z_weight = t->options.z_weight;
    t->m->loss.caller = t->options.loss;
    if (!t->options.run_group) t->options.run_group = comm_self();
    if (!t->options.data_group) t->options.data_group = comm_self();
    if (!t->options.replica_group) t->options.replica_group = comm_self();
    t->replay.enabled = t->options.graphs && t->options.run_group->size == 1 && !t->options.loss.function;
    trainer_set_checkpointing(&t->options, t->m);
    TRY(shape->stage ? stage_open(t->m, t->options.grad_accum, &t->stage) : model_slot_open(t->m, &t->slot));
    TRY(open_step_buffers(t));
    t->cx = (exec){.device = t->device,
                   .is_first_microbatch = true,
                   .data_group = t->options.data_group,
                   .pass_scale = &t->pass_scale,
                   .log = t->log};
    TRY(plan_create(t->device, &t->train_plan));
    TRY(plan_create(t->device, &t->evaluate_plan));
    TRY(plan_create(t->device, &t->reduce_plan));
    TRY(plan_create(t->device, &t->update_plan));
    TRY(trainer_fit_budget(t));
    return trainer_plan_memory(t);
}

ott_status trainer_open(mem *account, const logger *log, device *d, const model_options *shape,
                        const trainer_options *o, const dataset *train_data, const dataset *validation_data,
                        trainer **out) {
    trainer *t;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(trainer), "trainer", &t));
    *t = (trainer){.options = *o,
                   .log = log,
                   .account = account,
                   .device = d,
                   .train_data = train_data,
                   .validation_data = validation_data,
                   .is_consistent = true,
                   .balance_factor = 1.0,
                   .run.loss_scale = STEP_LOSS_SCALE_START};
    ott_status status = build_trainer(t, shape);
    if (status != OTT_OK) return trainer_close(t), status;
    return *out = t, OTT_OK;
}

void trainer_close(trainer *t) {
    if (!t) return;
    replay_forget(&t->replay, t->device);
    model_slot_close(t->device, t->slot);
    stage_close(t->stage);
    plan_destroy(t->train_plan);
    plan_destroy(t->evaluate_plan);
    plan_destroy(t->reduce_plan);
    plan_destroy(t->update_plan);
    device_release(t->device, t->arena);
    device_release(t->device, t->device_block);
    device_release(t->device, t->delayed_before);
    device_event_close(t->device, t->state_sent);
    device_release_host(t->device, t->host_state);
    feed_close(&t->feed);
    mem_free(t->account, t->batches);
    mem_free(t->account, t->losses);
    model_close(t->m);
    mem_free(t->account, t);
}

ott_status trainer_share_fallbacks(trainer *t) {
    const module_list *all = &t->m->all_modules;
    float fell_back[all->count];
    for (int i = 0; i < all->count; i++) {
        const model_module *e = &all->items[i];
        bool here = e->kind == MODULE_LINEAR && e->linear && e->linear->low_sqnr_count == LINEAR_FELL_BACK;
        fell_back[i] = e->fell_back || here ? 1.0f : 0.0f;
    }
    t->host_exchange.group = t->options.run_group;
    if (t->host_exchange.group->size > 1)
        TRY(group_host_reduce(&t->host_exchange, fell_back, all->count, REDUCE_MAX));
    for (int i = 0; i < all->count; i++) all->items[i].fell_back = fell_back[i] != 0;
    return OTT_OK;
}

ott_status trainer_load(trainer *t, const char *path) {
    return trainer_load_part(t, path, &(checkpoint_exclusions){0});
}

ott_status trainer_load_part(trainer *t, const char *path, const checkpoint_exclusions *exclusions) {
    bool fell_back;
    TRY(checkpoint_load_part(t->m, t->log, t->options.run_group, path, exclusions, &t->run, &fell_back));
    t->cx.step = t->run.step;
    model_weights_changed(t->m);
    TRY(trainer_use_average(t, false)); /* a checkpoint has the averaged weights */
    TRY(trainer_share_fallbacks(t));
    for (int i = 0; i < t->m->all_modules.count; i++) fell_back |= t->m->all_modules.items[i].fell_back;
    return fell_back ? trainer_convert(t, t->recipe) : OTT_OK;
}
