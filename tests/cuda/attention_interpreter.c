/* tests/cuda/attention_interpreter: computes a graph's operations with plain loops. */
#include "attention_interpreter.h"
#include "fp8/cast.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Holds the values of all tensors. Each has a dense array in the order of its dims, whatever its strides. */
typedef struct interpreter {
    const graph *g;
    void *const *images;
    const size_t *bytes;
    char error[256];
    float *values[GRAPH_TENSORS_MOST];
} interpreter;

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) abort();
    return memory;
}

static bool fail(interpreter *in, const char *what, int uid) {
    if (!in->error[0]) snprintf(in->error, sizeof in->error, "tensor %d: %s", uid, what);
    return false;
}

/* ---- values ---- */

static int64_t count(const graph_tensor *t) {
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

static int64_t dense(const graph_tensor *t, const int64_t at[4]) {
    return ((at[0] * t->dims[1] + at[1]) * t->dims[2] + at[2]) * t->dims[3] + at[3];
}

/* Advances `at` to the next index in dense order. False after the last index. */
static bool next(const graph_tensor *t, int64_t at[4]) {
    for (int i = 3; i >= 0; i--) {
        if (++at[i] < t->dims[i]) return true;
        at[i] = 0;
    }
    return false;
}

static float *new_values(interpreter *in, int uid) {
    int64_t n = count(&in->g->tensors[uid]);
    free(in->values[uid]);
    float *values = in->values[uid] = allocate((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] = NAN;
    return values;
}

static float rounded(double x, graph_type type) {
    if (type == GRAPH_F16) return cast_from_f16(cast_to_f16((float)x));
    return type == GRAPH_BF16 ? cast_from_bf16(cast_to_bf16((float)x)) : (float)x;
}

/* ---- memory ---- */

/* True if the element at index `at` is within its document at[0]. offsets: the first row of each document. */
static bool inside(const graph_tensor *t, const int64_t *offsets, const int64_t at[4]) {
    if (!t->offsets) return true;
    int axis = t->strides[3] > t->strides[2] ? 3 : 2;
    int64_t elements = (offsets[at[0] + 1] - offsets[at[0]]) * t->offsets_factor;
    return at[axis] * t->strides[axis] < elements;
}

static float load_element(const void *image, graph_type type, int64_t at) {
    switch (type) {
    case GRAPH_BF16: return cast_from_bf16(((const uint16_t *)image)[at]);
    case GRAPH_F16: return cast_from_f16(((const uint16_t *)image)[at]);
    case GRAPH_I32: return (float)((const int32_t *)image)[at];
    default: return ((const float *)image)[at];
    }
}

static const float *load(interpreter *in, int uid) {
    const graph_tensor *t = &in->g->tensors[uid];
    if (t->is_virtual) {
        if (!in->values[uid]) fail(in, "a tensor is used before it is computed", uid);
        return in->values[uid];
    }
    float *values = new_values(in, uid);
    int64_t at[4] = {0};
    do {
        const int64_t *offsets = in->images[t->offsets];
        if (inside(t, offsets, at))
            values[dense(t, at)] =
                load_element(in->images[uid], t->type, attention_graph_element(t, offsets, at));
    } while (next(t, at));
    return values;
}

static bool store(interpreter *in, int uid) {
    const graph_tensor *t = &in->g->tensors[uid];
    if (t->is_virtual) return true;
    int64_t at[4] = {0};
    do {
        const int64_t *offsets = in->images[t->offsets];
        if (!inside(t, offsets, at)) continue;
        int64_t element = attention_graph_element(t, offsets, at);
        if ((size_t)(element + 1) * attention_graph_type_bytes(t->type) > in->bytes[uid])
            return fail(in, "a store outside of the tensor's memory", uid);
        float value = in->values[uid][dense(t, at)];
        if (t->type == GRAPH_BF16)
            ((uint16_t *)in->images[uid])[element] = cast_to_bf16(value);
        else if (t->type == GRAPH_F16)
            ((uint16_t *)in->images[uid])[element] = cast_to_f16(value);
        else
            ((float *)in->images[uid])[element] = value;
    } while (next(t, at));
    return true;
}

/* ---- operations ---- */

/* Returns an element of tensor `uid`, broadcast to the shape of `like`, at index `at` of this shape. Several
   query heads may read one key head. */
static float get(interpreter *in, int uid, const graph_tensor *like, const int64_t at[4]) {
    const graph_tensor *t = &in->g->tensors[uid];
    int64_t from[4];
    for (int i = 0; i < 4; i++) from[i] = at[i] * t->dims[i] / like->dims[i];
    return in->values[uid][dense(t, from)];
}

static double apply(const graph_op *op, const int64_t at[4], double a, double b, double c) {
    switch (op->mode) {
    case GRAPH_MUL: return a * b;
    case GRAPH_ADD: return a + b;
    case GRAPH_SUB: return a - b;
    case GRAPH_DIV: return a / b;
    case GRAPH_EXP: return exp(a);
    case GRAPH_LOG: return log(a);
    case GRAPH_INDEX: return (double)at[op->axis];
    case GRAPH_LESS: return a < b;
    case GRAPH_GREATER: return a > b;
    case GRAPH_GREATER_EQUAL: return a >= b;
    case GRAPH_AND: return a != 0 && b != 0;
    case GRAPH_SELECT: return c != 0 ? a : b;
    default: return a;
    }
}

static void pointwise(interpreter *in, const graph_op *op) {
    const graph_tensor *t = &in->g->tensors[op->out];
    float *out = new_values(in, op->out);
    int64_t at[4] = {0};
    do {
        double a = get(in, op->a, t, at);
        double b = op->b ? get(in, op->b, t, at) : 0, c = op->c ? get(in, op->c, t, at) : 0;
        out[dense(t, at)] = rounded(apply(op, at, a, b, c), t->type);
    } while (next(t, at));
}

static void reduce(interpreter *in, const graph_op *op) {
    const graph_tensor *x = &in->g->tensors[op->a], *t = &in->g->tensors[op->out];
    int64_t n = count(t), at[4] = {0};
    double *sums = allocate((size_t)n * sizeof *sums);
    for (int64_t i = 0; i < n; i++) sums[i] = op->mode == GRAPH_REDUCE_MAX ? -INFINITY : 0;
    do {
        int64_t to[4];
        for (int i = 0; i < 4; i++) to[i] = at[i] * t->dims[i] / x->dims[i];
        double *sum = &sums[dense(t, to)], value = in->values[op->a][dense(x, at)];
        *sum = op->mode == GRAPH_REDUCE_ADD ? *sum + value : value > *sum ? value : *sum;
    } while (next(x, at));
    float *out = new_values(in, op->out);
    for (int64_t i = 0; i < n; i++) out[i] = rounded(sums[i], t->type);
    free(sums);
}

/* Copies op->a to op->out with the axes in another order. Axes with equal strides and sizes correspond. */
static bool reshape(interpreter *in, const graph_op *op) {
    const graph_tensor *x = &in->g->tensors[op->a], *t = &in->g->tensors[op->out];
    int axis[4];
    for (int i = 0; i < 4; i++) {
        axis[i] = 0;
        while (axis[i] < 4 && (x->strides[axis[i]] != t->strides[i] || x->dims[axis[i]] != t->dims[i]))
            axis[i]++;
        if (axis[i] == 4) return fail(in, "a reshape that is not a transpose", op->out);
    }
    float *out = new_values(in, op->out);
    int64_t at[4] = {0};
    do {
        int64_t from[4];
        for (int i = 0; i < 4; i++) from[axis[i]] = at[i];
        out[dense(t, at)] = rounded(in->values[op->a][dense(x, from)], t->type);
    } while (next(t, at));
    return true;
}

static int64_t length(const interpreter *in, int uid, int64_t document, int64_t all) {
    return uid ? ((const int32_t *)in->images[uid])[document] : all;
}

/* Computes the matrix product out[m,n] of one document and one head. */
static void multiply(interpreter *in, const graph_op *op, int64_t document, int64_t head) {
    const graph_tensor *a = &in->g->tensors[op->a], *b = &in->g->tensors[op->b],
                       *t = &in->g->tensors[op->out];
    const float *x =
        in->values[op->a] + dense(a, (int64_t[]){document, head * a->dims[1] / t->dims[1], 0, 0});
    const float *y =
        in->values[op->b] + dense(b, (int64_t[]){document, head * b->dims[1] / t->dims[1], 0, 0});
    float *out = in->values[op->out] + dense(t, (int64_t[]){document, head, 0, 0});
    int64_t rows = length(in, op->m, document, t->dims[2]), columns = length(in, op->n, document, t->dims[3]);
    int64_t inner = length(in, op->k, document, a->dims[3]);
    double *sums = allocate((size_t)t->dims[3] * sizeof *sums);
    for (int64_t m = 0; m < rows; m++) {
        for (int64_t n = 0; n < columns; n++) sums[n] = 0;
        for (int64_t k = 0; k < inner; k++)
            for (int64_t n = 0; n < columns; n++)
                sums[n] += (double)x[m * a->dims[3] + k] * (double)y[k * b->dims[3] + n];
        for (int64_t n = 0; n < columns; n++) out[m * t->dims[3] + n] = rounded(sums[n], t->type);
    }
    free(sums);
}

static void matmul(interpreter *in, const graph_op *op) {
    const graph_tensor *t = &in->g->tensors[op->out];
    new_values(in, op->out);
    for (int64_t document = 0; document < t->dims[0]; document++)
        for (int64_t head = 0; head < t->dims[1]; head++) multiply(in, op, document, head);
}

static bool interpret_op(interpreter *in, const graph_op *op) {
    const int inputs[] = {op->a, op->b, op->c};
    for (int i = 0; i < 3; i++)
        if (inputs[i] && !load(in, inputs[i])) return false;
    switch (op->mode) {
    case GRAPH_MATMUL: matmul(in, op); break;
    case GRAPH_RESHAPE:
        if (!reshape(in, op)) return false;
        break;
    case GRAPH_REDUCE_ADD:
    case GRAPH_REDUCE_MAX: reduce(in, op); break;
    default: pointwise(in, op);
    }
    return store(in, op->out);
}

const char *attention_interpret(const graph *g, void *const data[ATTENTION_NAMED],
                                const size_t bytes[ATTENTION_NAMED]) {
    static interpreter in;
    in = (interpreter){.g = g, .images = data, .bytes = bytes};
    bool good = true;
    for (int i = 0; i < g->op_count && good; i++) good = interpret_op(&in, &g->ops[i]);
    for (int uid = 0; uid < GRAPH_TENSORS_MOST; uid++) free(in.values[uid]);
    return good ? NULL : in.error;
}
