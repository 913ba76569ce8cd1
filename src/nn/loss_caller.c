/* nn/loss_caller: the loss_kind of a caller's function, which reads and writes host memory. */
#include "nn/loss.h"

enum { LOGITS, LOSSES, TOKENS, TARGETS, POSITIONS, ARRAYS };

/* Sets host[i] to the host memory of arrays[i]: the array itself if the device's memory is host memory, else
   a part of h->staging. Recording a plan allocates h->staging, so that no step allocates. */
static ott_status find_host(device *d, loss_head *h, const tensor *const arrays[ARRAYS], void *host[ARRAYS]) {
    int64_t bytes = 0, first = 0; /* first: the first byte of arrays[i] in h->staging */
    for (int i = 0; i < ARRAYS; i++) bytes += tensor_bytes(*arrays[i]);
    if (!device_is_host(d) && bytes > h->staging_bytes) {
        loss_release(h, d);
        TRY(device_allocate_host(d, MEM_STEP, bytes, "logits of a loss function", &h->staging));
        h->staging_bytes = bytes;
    }
    for (int i = 0; i < ARRAYS; i++) {
        host[i] = h->staging ? (char *)h->staging + first : arrays[i]->data;
        first += tensor_bytes(*arrays[i]);
    }
    return OTT_OK;
}

static ott_status call_function(const caller_loss *c, const ott_loss_batch *batch) {
    ott_status status = c->function(c->user, batch);
    if (status == OTT_OK) return OTT_OK;
    return status_fail(status, "the loss function failed for %lld tokens: %s",
                       (long long)(batch->sequences * batch->length), status_meaning(status));
}

/* Calls the function with the arrays in host memory. Copies the losses, and the gradient in training, back to
   the device. */
static ott_status call_on_host(device *d, const caller_loss *c, const tensor *const arrays[ARRAYS],
                               void *const host[ARRAYS], int64_t length, bool trains) {
    const tensor *logits = arrays[LOGITS];
    const ott_loss_batch batch = {.sequences = logits->rows / length,
                                  .length = length,
                                  .vocab = logits->columns,
                                  .token = host[TOKENS],
                                  .target = host[TARGETS],
                                  .position = host[POSITIONS],
                                  .training = trains,
                                  .logits = host[LOGITS],
                                  .loss = host[LOSSES]};
    TRY(device_zero(d, arrays[LOSSES]->data, tensor_bytes(*arrays[LOSSES])));
    for (int i = 0; i < ARRAYS; i++)
        if (host[i] != arrays[i]->data)
            TRY(device_copy_out(d, host[i], arrays[i]->data, tensor_bytes(*arrays[i])));
    TRY(call_function(c, &batch));
    for (int i = trains ? LOGITS : LOSSES; i <= LOSSES; i++)
        if (host[i] != arrays[i]->data)
            TRY(device_copy_in(d, arrays[i]->data, host[i], tensor_bytes(*arrays[i])));
    return OTT_OK;
}

/* Writes the gradient that the function computed in fp32, times grad_scale, to the logits. */
static ott_status write_gradient(exec *cx, const tensor *gradient, const cross_entropy_args *a) {
    float scale = 0;
    if (!plan_recording(cx->plan))
        TRY(device_copy_out(cx->device, &scale, a->grad_scale->data, sizeof scale));
    TRY(op_multiply(cx, &(multiply_args){.x = gradient, .y = gradient, .factor = scale}));
    return op_convert(cx, &(convert_args){.x = gradient, .y = a->logits});
}

static ott_status run_function(exec *cx, loss_head *h, const loss_input *in, const cross_entropy_args *a) {
    tensor logits;
    plan_buffer buffer;
    void *host[ARRAYS];
    TRY(exec_open(cx, "logits in fp32", OTT_F32, a->logits->rows, a->logits->columns, &logits, &buffer));
    TRY(op_convert(cx, &(convert_args){.x = a->logits, .y = &logits}));
    const tensor *const arrays[] = {&logits, a->loss, &in->token, &in->target, &in->position};
    TRY(find_host(cx->device, h, arrays, host));
    if (!plan_recording(cx->plan))
        TRY(call_on_host(cx->device, &h->caller, arrays, host, in->length, a->grad_scale));
    if (a->grad_scale) TRY(write_gradient(cx, &logits, a));
    return plan_close(cx->plan, &buffer);
}

const loss_kind loss_of_caller = {.run = run_function, .takes_all = true};

void loss_release(loss_head *h, device *d) {
    device_release_host(d, h->staging);
    h->staging = NULL;
    h->staging_bytes = 0;
}
