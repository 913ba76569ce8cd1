/* api/loss: mean squared error and cross-entropy, with gradients for ott_module_backward. */
#include "api/loss.h"
#include "tensor/ops.h"
#include <stdio.h>

#define IGNORED (-100) /* PyTorch's and Hugging Face's ignore_index */

/* ---- checks ---- */

static ott_status check_gradient(const ott_tensor *input, const char *name, const ott_tensor *gradient,
                                 const char *function) {
    char is[16];
    if (!gradient) return OTT_OK;
    TRY(handle_check_in(gradient, HANDLE_TENSOR, input->handle.context, function, "gradient"));
    if (gradient->t.dtype != input->t.dtype)
        return status_fail(OTT_ERR_DTYPE, "%s: gradient is %s, but %s is %s", function,
                           dtype_name(gradient->t.dtype), name, dtype_name(input->t.dtype));
    snprintf(is, sizeof is, "%s is", name);
    TRY(tensor_check_shape(gradient, input->t.rows, input->t.columns, is, function, "gradient"));
    if (gradient->t.data == input->t.data) return OTT_OK;
    return tensor_check_apart(&gradient->t, "gradient", &input->t, name, function);
}

static ott_status check_not_empty(const ott_tensor *t, const char *name, const char *function) {
    if (tensor_count(t->t) > 0) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "%s: %s is [%lld, %lld]: a mean needs at least one element", function,
                       name, (long long)t->t.rows, (long long)t->t.columns);
}

/* ---- sums on the device ---- */

/* Opens an fp32 buffer and copies `host` into it. If `host` is NULL, the buffer stays uninitialized. */
static ott_status open_loss_buffer(exec *cx, const float *host, int64_t rows, int64_t columns, tensor *t,
                                   plan_buffer *b) {
    TRY(exec_open(cx, "a loss", OTT_F32, rows, columns, t, b));
    return host ? device_copy_in(cx->device, t->data, host, tensor_bytes(*t)) : OTT_OK;
}

static ott_status sum_squares(exec *cx, const tensor *x, const tensor *sum) {
    tensor blocks;
    plan_buffer b;
    TRY(open_loss_buffer(cx, NULL, 1, op_reduce_blocks(tensor_count(*x)), &blocks, &b));
    ott_status status = op_block_squares(cx, &(block_squares_args){.x = x, .sums = &blocks});
    if (status == OTT_OK) status = op_sum_blocks(cx, &(sum_blocks_args){.sums = &blocks, .sum = sum});
    ott_status closed = plan_close(cx->plan, &b);
    return status == OTT_OK ? closed : status;
}

/* Sums x, or its squares, in the order that tensor/ops.def defines. */
static ott_status sum_of(exec *cx, const tensor *x, bool squares, float *out) {
    tensor sum;
    plan_buffer b;
    *out = 0.0f;
    TRY(open_loss_buffer(cx, out, 1, 1, &sum, &b));
    ott_status status = squares ? sum_squares(cx, x, &sum) : op_sum(cx, &(sum_args){.x = x, .sum = &sum});
    if (status == OTT_OK) status = device_copy_out(cx->device, out, sum.data, sizeof *out);
    ott_status closed = plan_close(cx->plan, &b);
    return status == OTT_OK ? closed : status;
}

/* ---- mean squared error ---- */

static ott_status squared_errors(const ott_tensor *output, const float *difference, double *loss) {
    exec cx;
    tensor x;
    plan_buffer b;
    float sum = 0.0f;
    TRY(api_exec(output->handle.context, &cx));
    TRY(open_loss_buffer(&cx, difference, output->t.rows, output->t.columns, &x, &b));
    ott_status status = sum_of(&cx, &x, true, &sum);
    *loss = (double)sum / (double)tensor_count(output->t);
    ott_status closed = plan_close(cx.plan, &b);
    return status == OTT_OK ? closed : status;
}

/* host[2 * count]: workspace. Its first half receives output - target. */
static ott_status mse(const ott_tensor *output, const ott_tensor *target, float *host, double *loss,
                      ott_tensor *gradient) {
    int64_t count = tensor_count(output->t);
    float factor = (float)(2.0 / (double)count), *other = host + count;
    TRY(ott_tensor_read(output, host, count));
    TRY(ott_tensor_read(target, other, count));
    for (int64_t i = 0; i < count; i++) host[i] -= other[i];
    if (loss) TRY(squared_errors(output, host, loss));
    if (!gradient) return OTT_OK;
    for (int64_t i = 0; i < count; i++) host[i] *= factor;
    return ott_tensor_write(gradient, host, count);
}

static ott_status run_mse(const ott_tensor *output, const ott_tensor *target, double *loss,
                          ott_tensor *gradient) {
    void *host;
    mem *account = output->handle.context->account;
    TRY(mem_alloc_array(account, MEM_OTHER, 2 * tensor_count(output->t), sizeof(float), "a loss", &host));
    ott_status status = mse(output, target, host, loss, gradient);
    mem_free(account, host);
    return status;
}

ott_status ott_mse_loss(const ott_tensor *output, const ott_tensor *target, double *loss,
                        ott_tensor *gradient) {
    API_HANDLE(output, TENSOR);
    API_HANDLE_IN(target, TENSOR, output->handle.context);
    TRY(tensor_check_number(output, __func__, "output"));
    TRY(tensor_check_number(target, __func__, "target"));
    TRY(check_not_empty(output, "output", __func__));
    TRY(tensor_check_shape(target, output->t.rows, output->t.columns, "output is", __func__, "target"));
    TRY(check_gradient(output, "output", gradient, __func__));
    return API_INSIDE(output->handle.context, run_mse(output, target, loss, gradient));
}

/* ---- cross-entropy ---- */

static ott_status check_targets(const int32_t *target, int64_t count, int64_t classes, const char *function,
                                int64_t *counted) {
    *counted = 0;
    for (int64_t i = 0; i < count; i++) {
        if (target[i] == IGNORED) continue;
        if (target[i] < 0 || target[i] >= classes)
            return status_fail(
                OTT_ERR_ARGUMENT,
                "%s: target[%lld] is %d: give 0 to %lld, a column of logits, or %d to ignore the row",
                function, (long long)i, (int)target[i], (long long)classes - 1, IGNORED);
        (*counted)++;
    }
    if (*counted > 0) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: every target is %d: a mean needs at least one element",
                       function, IGNORED);
}

ott_status loss_count_targets(const ott_tensor *target, int64_t classes, const char *function,
                              int64_t *counted) {
    void *host;
    mem *account = target->handle.context->account;
    TRY(mem_alloc(account, MEM_OTHER, tensor_bytes(target->t), "targets of a loss", &host));
    ott_status status =
        device_copy_out(target->handle.context->device, host, target->t.data, tensor_bytes(target->t));
    if (status == OTT_OK) status = check_targets(host, tensor_count(target->t), classes, function, counted);
    mem_free(account, host);
    return status;
}

/* Computes losses[M], the loss of each row. gradient: may be the logits' tensor; NULL: not needed. */
static ott_status row_losses(exec *cx, const ott_tensor *logits, const ott_tensor *target, float scale,
                             ott_tensor *gradient, const tensor *losses) {
    tensor factor, ids = tensor_vector(target->t.data, OTT_I32, tensor_count(target->t));
    plan_buffer b;
    const ott_tensor *x = gradient ? gradient : logits;
    if (gradient && gradient->t.data != logits->t.data)
        TRY(op_convert(cx, &(convert_args){.x = &logits->t, .y = &gradient->t}));
    TRY(open_loss_buffer(cx, &scale, 1, 1, &factor, &b));
    ott_status status = op_cross_entropy(
        cx, &(cross_entropy_args){
                .logits = &x->t, .target = &ids, .grad_scale = gradient ? &factor : NULL, .loss = losses});
    ott_status closed = plan_close(cx->plan, &b);
    return status == OTT_OK ? closed : status;
}

static ott_status run_cross_entropy(const ott_tensor *logits, const ott_tensor *target, double *loss,
                                    ott_tensor *gradient) {
    exec cx;
    tensor losses;
    plan_buffer b;
    int64_t counted;
    float sum = 0.0f;
    TRY(api_exec(logits->handle.context, &cx));
    TRY(loss_count_targets(target, logits->t.columns, "ott_cross_entropy_loss", &counted));
    TRY(open_loss_buffer(&cx, NULL, 1, logits->t.rows, &losses, &b));
    ott_status status = row_losses(&cx, logits, target, (float)(1.0 / (double)counted), gradient, &losses);
    if (status == OTT_OK) status = sum_of(&cx, &losses, false, &sum);
    if (status == OTT_OK && loss) *loss = (double)sum / (double)counted;
    ott_status closed = plan_close(cx.plan, &b);
    return status == OTT_OK ? closed : status;
}

static ott_status check_target(const ott_tensor *logits, const ott_tensor *target, const char *function) {
    if (target->t.dtype != OTT_I32)
        return status_fail(OTT_ERR_DTYPE, "%s: target is %s; give i32", function,
                           dtype_name(target->t.dtype));
    bool vector = target->t.rows == 1 || target->t.columns == 1;
    if (vector && tensor_count(target->t) == logits->t.rows) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE,
                       "%s: target is [%lld, %lld], but the %lld rows of logits need [1, %lld]", function,
                       (long long)target->t.rows, (long long)target->t.columns, (long long)logits->t.rows,
                       (long long)logits->t.rows);
}

ott_status ott_cross_entropy_loss(const ott_tensor *logits, const ott_tensor *target, double *loss,
                                  ott_tensor *gradient) {
    API_HANDLE(logits, TENSOR);
    API_HANDLE_IN(target, TENSOR, logits->handle.context);
    TRY(tensor_check_number(logits, __func__, "logits"));
    TRY(check_not_empty(logits, "logits", __func__));
    TRY(check_target(logits, target, __func__));
    TRY(check_gradient(logits, "logits", gradient, __func__));
    return API_INSIDE(logits->handle.context, run_cross_entropy(logits, target, loss, gradient));
}
