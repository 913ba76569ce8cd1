/* train/optimizer: one update of all parameters. */
#include "train/optimizer.h"

void optimizer_schedule(const optimizer_options *o, double learning_rate, int64_t update, float *host_state) {
    host_state[STEP_LEARNING_RATE] = (float)learning_rate;
    host_state[STEP_CORRECTION1] = (float)(1.0 - pow((double)o->beta1, (double)update));
    host_state[STEP_SQRT_CORRECTION2] = (float)sqrt(1.0 - pow((double)o->beta2, (double)update));
}

static ott_status update_parameter(exec *cx, const optimizer_options *o, const parameter *p,
                                   const tensor *state) {
    return op_adamw(cx, &(adamw_args){.param = &p->value,
                                      .grad = &p->grad,
                                      .moment1 = &p->moment1,
                                      .moment2 = &p->moment2,
                                      .state = state,
                                      .beta1 = o->beta1,
                                      .beta2 = o->beta2,
                                      .epsilon = o->epsilon,
                                      .weight_decay = p->decay ? o->weight_decay : 0.0f});
}

ott_status optimizer_update_parameters(exec *cx, const parameter *parameters, int count,
                                       const optimizer_options *o, const tensor *norms, const tensor *state) {
    int trained = 0;
    for (int i = 0; i < count; i++) {
        if (parameters[i].frozen) continue;
        tensor slot = tensor_columns(*norms, trained++, 1);
        TRY(op_sum_squares(cx, &(sum_squares_args){.x = &parameters[i].grad, .sum = &slot}));
    }
    tensor sums = tensor_columns(*norms, 0, trained);
    TRY(op_grad_norm(cx, &(grad_norm_args){.sum_squares = &sums, .state = state, .max_norm = o->max_norm}));
    for (int i = 0; i < count; i++)
        if (!parameters[i].frozen) TRY(update_parameter(cx, o, &parameters[i], state));
    return OTT_OK;
}

ott_status optimizer_update(exec *cx, model *m, const optimizer_options *o, const tensor *norms,
                            const tensor *state) {
    return optimizer_update_parameters(cx, m->parameters, m->parameter_count, o, norms, state);
}
