/* tiny_model: opens a small decoder with its device, batch and execution context, and runs passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "model/tiny_model.h"

model_options tiny_options(void) {
    return (model_options){.family = family_find("llama"),
                           .dim = 32,
                           .layers = 2,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 8,
                           .hidden = 48,
                           .vocab = 64,
                           .max_positions = 256,
                           .rope = {.kind = ROPE_PLAIN, .theta = 1e4},
                           .norm_epsilon = 1e-5f};
}

void tiny_open(tiny *t, const model_options *o, int threads, const char *isa) {
    *t = (tiny){0};
    harness_open(&t->h, threads, isa);
    int64_t stretch = o->rope.kind == ROPE_DYNAMIC ? (int64_t)o->rope.factor : 1;
    HARNESS_OK(model_open(t->h.device, o, MODEL_TRAINING, o->max_positions * stretch, &t->m));
    HARNESS_OK(model_slot_open(t->m, &t->slot));
}

void tiny_close(tiny *t) {
    model_slot_close(t->m->device, t->slot);
    model_close(t->m);
    harness_close(&t->h);
}

void tiny_randomize(tiny *t) {
    for (int i = 0; i < t->m->parameter_count; i++) {
        const parameter *p = &t->m->parameters[i];
        bool is_embedding = p == t->m->embedding.weight;
        double middle = p->rank == 1 ? 1.0 : 0.0;
        double deviation = p->rank == 1 ? 0.2 : is_embedding ? 0.5 : 1.2 / sqrt((double)p->columns);
        int64_t count = parameter_count(p);
        float *values = malloc((size_t)count * sizeof *values);
        for (int64_t j = 0; j < count; j++)
            values[j] = (float)(middle + deviation * (double)rng_normal(3, (uint64_t)i, (uint64_t)j));
        harness_put(&t->h, &p->value, values);
        free(values);
    }
    model_weights_changed(t->m);
}

convert_summary tiny_convert(tiny *t, const recipe *r, const char *const *filter, const logger *log) {
    convert_summary summary;
    convert_options o = {.recipe = r, .filter = filter, .log = log};
    while (filter && filter[o.filter_count]) o.filter_count++;
    HARNESS_OK(model_convert(t->m, &o, &summary));
    return summary;
}

/* ---- batches ---- */

static void place(tiny *t, int64_t count, int64_t length) {
    int32_t *position = malloc((size_t)(count * length) * sizeof *position);
    int32_t *start = malloc((size_t)(count + 1) * sizeof *start);
    for (int64_t i = 0; i < count * length; i++) position[i] = (int32_t)(i % length);
    for (int64_t i = 0; i <= count; i++) start[i] = (int32_t)(i * length);
    t->batch.at.position = harness_vector_of_int(&t->h, count * length, position);
    t->batch.at.cu_seqlens = harness_vector_of_int(&t->h, count + 1, start);
    free(position);
    free(start);
}

void tiny_batch(tiny *t, int64_t count, int64_t length, const int32_t *token, const int32_t *target) {
    int64_t tokens = count * length, counted = 0;
    for (int64_t i = 0; i < tokens; i++) counted += target[i] >= 0;
    assert_true(counted > 0);
    float scale = 1.0f / (float)counted;
    t->batch = (batch){.count = count, .length = length};
    t->batch.token = harness_vector_of_int(&t->h, tokens, token);
    t->batch.target = harness_vector_of_int(&t->h, tokens, target);
    place(t, count, length);
    t->grad_scale = harness_tensor_of(&t->h, OTT_F32, 1, 1, &scale);
    t->losses = harness_tensor(&t->h, OTT_F32, 1, tokens);
}

void tiny_random_batch(tiny *t, int64_t count, int64_t length) {
    int64_t tokens = count * length;
    uint32_t vocabulary = (uint32_t)t->m->options.vocab;
    int32_t *token = malloc((size_t)tokens * sizeof *token),
            *target = malloc((size_t)tokens * sizeof *target);
    for (int64_t i = 0; i < tokens; i++) {
        token[i] = (int32_t)(rng_u32(4, 0, (uint64_t)i) % vocabulary);
        target[i] = i % 7 == 6 ? -1 : (int32_t)(rng_u32(4, 1, (uint64_t)i) % vocabulary);
    }
    tiny_batch(t, count, length, token, target);
    free(token);
    free(target);
}

/* ---- passes ---- */

static ott_status pass(exec *cx, void *user) {
    tiny *t = user;
    return model_run(cx, t->m, t->slot, &t->batch, t->evaluate ? NULL : &t->grad_scale, &t->losses);
}

void tiny_run(tiny *t) {
    HARNESS_OK(device_zero(t->h.device, t->m->grads, t->m->trained_bytes));
    memset(t->h.cx.gemms, 0, sizeof t->h.cx.gemms);
    harness_record(&t->h, pass, t);
    harness_replay(&t->h, pass, t);
}

void tiny_again(tiny *t) {
    harness_replay(&t->h, pass, t);
}

/* ---- results ---- */

float *tiny_losses(tiny *t) {
    float *losses = malloc((size_t)t->losses.columns * sizeof *losses);
    harness_get(&t->h, &t->losses, losses);
    return losses;
}

int64_t tiny_gradient_count(const tiny *t) {
    return t->m->trained_bytes / (int64_t)sizeof(float);
}

float *tiny_gradients(tiny *t) {
    tensor all = tensor_vector(t->m->grads, OTT_F32, tiny_gradient_count(t));
    float *grads = malloc((size_t)all.columns * sizeof *grads);
    harness_get(&t->h, &all, grads);
    return grads;
}

double tiny_loss(tiny *t) {
    float *losses = tiny_losses(t), scale;
    double sum = 0;
    for (int64_t i = 0; i < t->losses.columns; i++) sum += (double)losses[i];
    harness_get(&t->h, &t->grad_scale, &scale);
    free(losses);
    return sum * (double)scale;
}

parameter *tiny_parameter(tiny *t, const char *name) {
    for (int i = 0; i < t->m->parameter_count; i++)
        if (strcmp(t->m->parameters[i].name, name) == 0) return &t->m->parameters[i];
    fail_msg("the model has no parameter %s", name);
    return NULL;
}

/* ---- checks ---- */

/* Returns the loss after adding `by` to element `at` of a parameter. Restores the element. */
static double loss_near(tiny *t, const parameter *p, int64_t at, float by) {
    float value, moved;
    char *place = (char *)p->value.data + 4 * at;
    HARNESS_OK(device_copy_out(t->h.device, &value, place, 4));
    moved = value + by;
    HARNESS_OK(device_copy_in(t->h.device, place, &moved, 4));
    tiny_again(t);
    HARNESS_OK(device_copy_in(t->h.device, place, &value, 4));
    return tiny_loss(t);
}

void tiny_check_gradients(tiny *t, const char *const *names) {
    for (; *names; names++) {
        const parameter *p = tiny_parameter(t, *names);
        HARNESS_OK(device_zero(t->h.device, t->m->grads, t->m->trained_bytes));
        tiny_again(t);
        float *grad = calloc((size_t)parameter_count(p), sizeof *grad);
        harness_get(&t->h, &p->grad, grad);
        int64_t best = 0;
        for (int64_t j = 0; j < parameter_count(p); j++)
            if (fabsf(grad[j]) > fabsf(grad[best])) best = j;
        double difference = (loss_near(t, p, best, 1e-2f) - loss_near(t, p, best, -1e-2f)) / 2e-2;
        if (!(fabs(difference - (double)grad[best]) < 0.02 * fabs((double)grad[best])))
            fail_msg("%s: gradient %g, difference %g", *names, (double)grad[best], difference);
        free(grad);
    }
}

/* Runs a pass with this checkpointing in all blocks. The caller frees the losses and gradients. */
static void run_checkpointed(tiny *t, checkpointing mode, float **losses, float **grads) {
    for (int64_t i = 0; i < t->m->options.layers; i++) t->m->blocks[i].checkpointing = mode;
    tiny_run(t);
    *losses = tiny_losses(t);
    *grads = tiny_gradients(t);
}

void tiny_check_recomputation(void (*open_model)(tiny *t, const char *recipe_name)) {
    static const char *const recipes[] = {"bf16", "tensorwise"};
    static const checkpointing modes[] = {CHECKPOINT_SELECTIVE, CHECKPOINT_OP, CHECKPOINT_FULL};
    for (int r = 0; r < 2; r++) {
        tiny t;
        float *losses, *grads, *losses_again, *grads_again;
        open_model(&t, recipes[r]);
        run_checkpointed(&t, CHECKPOINT_NONE, &losses, &grads);
        tiny_close(&t);
        for (int i = 0; i < 3; i++) {
            open_model(&t, recipes[r]);
            run_checkpointed(&t, modes[i], &losses_again, &grads_again);
            assert_memory_equal(losses, losses_again, (size_t)t.losses.columns * sizeof *losses);
            assert_memory_equal(grads, grads_again, (size_t)tiny_gradient_count(&t) * sizeof *grads);
            tiny_close(&t);
            free(losses_again);
            free(grads_again);
        }
        free(losses);
        free(grads);
    }
}
