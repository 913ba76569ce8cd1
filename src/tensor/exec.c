/* tensor/exec: calls hooks, opens tensors in planned memory, and times ops. */
#include "tensor/exec.h"

ott_status exec_hook(exec *cx, const char *module, const char *what, const tensor *t) {
    if (!cx->hook || !cx->hook->observe || plan_recording(cx->plan)) return OTT_OK;
    return cx->hook->observe(cx->hook->user, cx, module, what, t);
}

ott_status exec_hook_quantized(exec *cx, const char *module, recipe_tensor which, const tensor *t,
                               const qtensor *q) {
    if (!cx->hook || !cx->hook->quantized || plan_recording(cx->plan)) return OTT_OK;
    return cx->hook->quantized(cx->hook->user, cx, module, which, t, q);
}

ott_status exec_open(exec *cx, const char *what, ott_dtype d, int64_t rows, int64_t columns, tensor *t,
                     plan_buffer *b) {
    TRY(plan_open(cx->plan, what, dtype_count_bytes(d, rows * columns), b));
    return *t = tensor_matrix(b->data, d, rows, columns), OTT_OK;
}

ott_status exec_times_open(exec_times *t, device *d) {
    TRY(device_event_open(d, &t->start));
    TRY(device_event_open(d, &t->began));
    TRY(device_event_open(d, &t->ended));
    return exec_times_start(t, d);
}

ott_status exec_times_start(exec_times *t, device *d) {
    return device_event_record(d, t->start);
}

void exec_times_close(exec_times *t, device *d) {
    device_event_close(d, t->start);
    device_event_close(d, t->began);
    device_event_close(d, t->ended);
}
