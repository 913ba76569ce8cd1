/* tensor/ops: a table that describes the ops of ops.def, and calls of ops with checked arguments. */
#include "tensor/dry_run.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- ops.def as data ---- */

/* this_args: the op's argument struct. Each info_ function declares this typedef for its op. */
#define FIELD(kind, optional, name, text) {#name, kind, optional, text, offsetof(this_args, name)},
#define IN(name, text)                    FIELD(OP_IN, false, name, text)
#define IN_OPT(name, text)                FIELD(OP_IN, true, name, text)
#define OUT(name, text)                   FIELD(OP_OUT, false, name, text)
#define OUT_OPT(name, text)               FIELD(OP_OUT, true, name, text)
#define INOUT(name, text)                 FIELD(OP_INOUT, false, name, text)
#define INOUT_OPT(name, text)             FIELD(OP_INOUT, true, name, text)
#define QOUT(name, text)                  FIELD(OP_QOUT, true, name, text)
#define QTENSOR(name, text)               FIELD(OP_QTENSOR, false, name, text)
#define QTENSOR_OPT(name, text)           FIELD(OP_QTENSOR, true, name, text)
#define OPERAND(name, text)               FIELD(OP_OPERAND, false, name, text)
#define SCALAR(type, name)                FIELD(OP_SCALAR, false, name, #type)

#define OP(name, fields)                                                                                     \
    static const op_info *info_##name(void) {                                                                \
        typedef name##_args this_args;                                                                       \
        static const op_field list[] = {fields};                                                             \
        static const op_info info = {#name, list, (int)(sizeof list / sizeof *list), sizeof(this_args)};     \
        return &info;                                                                                        \
    }
#include "tensor/ops.def"
#undef OP

static const op_info *(*const op_infos[])(void) = {
#define OP(name, fields) info_##name,
#include "tensor/ops.def"
#undef OP
};

int op_count(void) {
    return (int)(sizeof op_infos / sizeof *op_infos);
}
const op_info *op_at(int index) {
    return op_infos[index]();
}

const op_info *op_find(const char *name) {
    for (int i = 0; i < op_count(); i++)
        if (strcmp(op_at(i)->name, name) == 0) return op_at(i);
    return NULL;
}

/* Parses a size: a capital letter or a number. Returns the end of the size; NULL if there is no size. */
static const char *parse_size(const char *text, char *letter, int64_t *fixed) {
    *letter = 0;
    *fixed = 0;
    if (*text >= 'A' && *text <= 'Z') {
        *letter = *text;
        return text + 1;
    }
    char *end;
    *fixed = strtol(text, &end, 10);
    return end == text ? NULL : end;
}

bool op_shape_parse(const char *text, op_shape *out) {
    size_t length = strcspn(text, "[");
    if (text[length] != '[' || length >= sizeof out->dtype) return false;
    memset(out, 0, sizeof *out);
    memcpy(out->dtype, text, length);
    const char *rest = parse_size(text + length + 1, &out->columns, &out->columns_fixed);
    out->rows_fixed = 1;
    if (rest && *rest == ',') {
        out->rows = out->columns;
        out->rows_fixed = out->columns_fixed;
        rest = parse_size(rest + 1, &out->columns, &out->columns_fixed);
    }
    return rest && rest[0] == ']' && rest[1] == 0;
}

/* ---- the check ---- */

/* What all fields of a call must agree on: the size that each letter means, and the dtype of act. */
typedef struct binding {
    const op_info *op;
    int64_t size[26];      /* size of each letter; -1: unknown */
    const char *first[26]; /* the field that set the letter's size */
    int act;               /* dtype of all act fields; -1: unknown */
} binding;

static ott_status bind_size(binding *b, const op_field *f, char letter, int64_t fixed, int64_t found,
                            const char *axis) {
    if (!letter) {
        if (found == fixed) return OTT_OK;
        return status_fail(OTT_ERR_SHAPE, "%s: %s has %lld %s, not %lld", b->op->name, f->name,
                           (long long)found, axis, (long long)fixed);
    }
    int i = letter - 'A';
    if (b->size[i] < 0) {
        b->size[i] = found;
        b->first[i] = f->name;
    }
    if (b->size[i] == found) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "%s: %s has %lld %s, but %s has %c = %lld", b->op->name, f->name,
                       (long long)found, axis, b->first[i], letter, (long long)b->size[i]);
}

static bool dtype_allowed(binding *b, const char *wanted, ott_dtype found) {
    if (strcmp(wanted, "f32") == 0) return found == OTT_F32;
    if (strcmp(wanted, "i32") == 0) return found == OTT_I32;
    if (strcmp(wanted, "fp8") == 0) return dtype_is_fp8(found);
    if (strcmp(wanted, "e4m3") == 0) return found == OTT_E4M3;
    if (strcmp(wanted, "state") == 0) return found == OTT_F32 || found == OTT_BF16;
    if (strcmp(wanted, "any") == 0) return dtype_is_fp8(found) || dtype_is_high_precision(found);
    if (strcmp(wanted, "act") != 0) return dtype_is_high_precision(found); /* the dtype "hp" */
    if (b->act < 0) b->act = (int)found;
    return dtype_is_high_precision(found) && b->act == (int)found;
}

static ott_status check_field_tensor(binding *b, const op_field *f, const op_shape *shape, const tensor *t) {
    if (!dtype_allowed(b, shape->dtype, t->dtype))
        return status_fail(OTT_ERR_DTYPE, "%s: %s is %s, expected %s%s%s", b->op->name, f->name,
                           dtype_name(t->dtype), shape->dtype, b->act >= 0 ? "; act is here " : "",
                           b->act >= 0 ? dtype_name((ott_dtype)b->act) : "");
    TRY(bind_size(b, f, shape->rows, shape->rows_fixed, t->rows, "rows"));
    TRY(bind_size(b, f, shape->columns, shape->columns_fixed, t->columns, "columns"));
    if (t->ld < t->columns && t->rows > 1)
        return status_fail(OTT_ERR_SHAPE, "%s: %s has leading dimension %lld below its %lld columns",
                           b->op->name, f->name, (long long)t->ld, (long long)t->columns);
    if (!t->data && tensor_count(*t) > 0)
        return status_fail(OTT_ERR_INTERNAL, "%s: %s has no data", b->op->name, f->name);
    return OTT_OK;
}

static ott_status check_qtensor(binding *b, const op_field *f, const op_shape *shape, const qtensor *q) {
    TRY(bind_size(b, f, shape->rows, shape->rows_fixed, q->rows, "rows"));
    TRY(bind_size(b, f, shape->columns, shape->columns_fixed, q->columns, "columns"));
    const qdata *uses[2] = {&q->rowwise, &q->columnwise};
    const cast_spec *specs[2] = {&q->spec.rowwise, &q->spec.columnwise};
    for (int i = 0; i < 2; i++) {
        const char *use = i ? "columnwise" : "rowwise";
        const qdata *d = uses[i];
        if (!cast_spec_is_fp8(specs[i])) continue;
        bool has_codes = d->data || strcmp(shape->dtype, "scales") == 0;
        bool casts = (d->amax && d->scale) || strcmp(shape->dtype, "codes") == 0;
        if (!(has_codes && casts && d->scale_inv))
            return status_fail(OTT_ERR_INTERNAL, "%s: %s has no buffers for its %s use", b->op->name, f->name,
                               use);
        if (d->transposed ? i == 0 || d->ld < q->rows : d->ld != q->columns)
            return status_fail(OTT_ERR_SHAPE,
                               "%s: %s is [%lld, %lld], but its %s codes%s have leading dimension %lld",
                               b->op->name, f->name, (long long)q->rows, (long long)q->columns, use,
                               d->transposed ? ", transposed," : "", (long long)d->ld);
    }
    return OTT_OK;
}

static ott_status check_qlist(binding *b, const op_field *f, const op_shape *shape, const qlist *list) {
    for (int i = 0; i < list->count; i++) TRY(check_qtensor(b, f, shape, &list->item[i]));
    return OTT_OK;
}

/* The text of an OPERAND field has MN as rows and K as columns, even if the operand is stored transposed. */
static ott_status check_operand(binding *b, const op_field *f, const op_shape *shape, const operand *o) {
    op_shape as_stored = *shape;
    if (o->transposed) {
        as_stored.rows = shape->columns;
        as_stored.columns = shape->rows;
    }
    if (o->packed && (f->name[0] == 'a' || o->transposed || o->t.ld != o->t.columns))
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "%s: %s is packed%s; only a dense b that is not transposed can be packed",
                           b->op->name, f->name, o->transposed ? " and transposed" : "");
    return check_field_tensor(b, f, &as_stored, &o->t);
}

static ott_status check_field(binding *b, const op_field *f, const void *args) {
    if (f->kind == OP_SCALAR) return OTT_OK;
    const void *value = *(const void *const *)((const char *)args + f->offset);
    if (!value) {
        if (f->optional) return OTT_OK;
        return status_fail(OTT_ERR_INTERNAL, "%s: %s is missing", b->op->name, f->name);
    }
    op_shape shape;
    if (!op_shape_parse(f->text, &shape))
        return status_fail(OTT_ERR_INTERNAL, "%s: %s has the malformed text \"%s\"", b->op->name, f->name,
                           f->text);
    if (f->kind == OP_OPERAND) return check_operand(b, f, &shape, value);
    if (f->kind == OP_QOUT) return check_qlist(b, f, &shape, value);
    if (f->kind == OP_QTENSOR) return check_qtensor(b, f, &shape, value);
    return check_field_tensor(b, f, &shape, value);
}

ott_status op_check(const op_info *op, const void *args) {
    binding b = {.op = op, .act = -1};
    for (int i = 0; i < 26; i++) b.size[i] = -1;
    for (int i = 0; i < op->field_count; i++) TRY(check_field(&b, &op->fields[i], args));
    return OTT_OK;
}

/* ---- the calls ---- */

bool op_is_there(const op_table *table, enum op_index op) {
    switch (op) {
#define OP(name, fields)                                                                                     \
    case OP_INDEX_##name:                                                                                    \
        return table->name != NULL;
#include "tensor/ops.def"
#undef OP
    default: return false;
    }
}

static ott_status dispatch_op(const op_table *table, exec *cx, enum op_index op, const void *args) {
    switch (op) {
#define OP(name, fields)                                                                                     \
    case OP_INDEX_##name:                                                                                    \
        return table->name(cx, args);
#include "tensor/ops.def"
#undef OP
    default: return status_fail(OTT_ERR_INTERNAL, "%d is not an op of this table", (int)op);
    }
}

/* Returns the device that determines the sizes of workspaces: in a dry run, the imitated device. */
static const device *real_device(const exec *cx) {
    return cx->device->dry_run ? cx->device->dry_run : cx->device;
}

/* Opens the op's workspace in the plan, or allocates the workspace if there is no plan. */
static ott_status open_workspace(const op_table *table, exec *cx, enum op_index op, const void *args,
                                 plan_buffer *out) {
    int64_t bytes = table->workspace ? table->workspace(real_device(cx), op, args) : 0;
    *out = PLAN_NONE;
    if (bytes == 0) return OTT_OK;
    if (cx->plan) return plan_open(cx->plan, op_at((int)op)->name, bytes, out);
    return device_allocate(cx->device, MEM_STEP, bytes, op_at((int)op)->name, &out->data);
}

static ott_status close_workspace(exec *cx, plan_buffer *b) {
    if (cx->plan) return plan_close(cx->plan, b);
    device_release(cx->device, b->data);
    return OTT_OK;
}

/* Reports the time of the op that was queued last. */
static ott_status report_time(const exec *cx, enum op_index op, const void *args) {
    const exec_times *t = cx->times;
    device *d = cx->device;
    double began, seconds;
    TRY(device_event_record(d, t->ended));
    TRY(device_event_seconds(d, t->began, t->ended, &seconds));
    TRY(device_event_seconds(d, t->start, t->began, &began));
    t->on_op(t->user, op, args, began, seconds);
    return OTT_OK;
}

static ott_status report_recorded(const exec *cx, enum op_index op, const void *args) {
    const dry_run_listener *l = cx->device->listener;
    if (l) l->op(l->user, cx, op, args);
    return OTT_OK;
}

static ott_status run_op(const op_table *table, exec *cx, enum op_index op, const void *args) {
    plan_buffer workspace;
    if (!op_is_there(table, op))
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: the device %s does not support this operation",
                           op_at((int)op)->name, cx->device->name);
    TRY(open_workspace(table, cx, op, args, &workspace));
    ott_status status = OTT_OK;
    if (plan_recording(cx->plan))
        status = report_recorded(cx, op, args);
    else {
        if (cx->times) status = device_event_record(cx->device, cx->times->began);
        cx->workspace = workspace.data;
        if (status == OTT_OK) status = dispatch_op(table, cx, op, args);
        cx->workspace = NULL;
        if (status == OTT_OK && cx->times) status = report_time(cx, op, args);
    }
    ott_status closed = close_workspace(cx, &workspace);
    return status != OTT_OK ? status : closed;
}

/* Calls the op's function for a list of calls. Returns false if the table has no such function. */
static bool dispatch_many(const op_table *table, exec *cx, enum op_index op, const void *items, int64_t count,
                          ott_status *status) {
    switch (op) {
#define OP(name, fields)
#define MANY(name)                                                                                           \
    case OP_INDEX_##name:                                                                                    \
        if (!table->name##_many) return false;                                                               \
        *status = table->name##_many(cx, items, count);                                                      \
        return true;
#include "tensor/ops.def"
#undef OP
    default: return false;
    }
}

/* Runs a list of calls of one op, one by one if a plan is recorded or ops are timed. */
static ott_status run_many(const op_table *table, exec *cx, enum op_index op, const void *items,
                           int64_t count) {
    bool one_by_one = cx->times || plan_recording(cx->plan);
    ott_status status = OTT_OK;
    if (count == 0 || (!one_by_one && dispatch_many(table, cx, op, items, count, &status))) return status;
    for (int64_t i = 0; i < count; i++)
        TRY(run_op(table, cx, op, (const char *)items + (size_t)i * op_at((int)op)->args_size));
    return OTT_OK;
}

static ott_status check_many(const op_info *op, const void *items, int64_t count) {
    for (int64_t i = 0; i < count; i++) TRY(op_check(op, (const char *)items + (size_t)i * op->args_size));
    return OTT_OK;
}

int64_t op_packed_count(const exec *cx, const operand *b) {
    const op_table *table = cx->device->ops;
    return table->packed_count ? table->packed_count(real_device(cx), b) : tensor_count(b->t);
}

ott_status op_call(const op_table *table, exec *cx, const op_info *op, const void *args) {
    for (int i = 0; i < OP_COUNT; i++)
        if (op_at(i) == op) return run_op(table, cx, (enum op_index)i, args);
    return status_fail(OTT_ERR_INTERNAL, "%s is not an op of this table", op->name);
}

bool op_is_for_lists(const op_info *op) {
#define OP(name, fields)
#define MANY(name)                                                                                           \
    if (op == info_##name()) return true;
#include "tensor/ops.def"
#undef OP
    return false;
}

ott_status op_call_many(const op_table *table, exec *cx, const op_info *op, const void *items,
                        int64_t count) {
    for (int i = 0; i < OP_COUNT; i++)
        if (op_at(i) == op) return run_many(table, cx, (enum op_index)i, items, count);
    return status_fail(OTT_ERR_INTERNAL, "%s is not an op of this table", op->name);
}

/* Checks the arguments, then runs or records the op. */
#define OP(name, fields)                                                                                     \
    ott_status op_##name(exec *cx, const name##_args *a) {                                                   \
        TRY(op_check(info_##name(), a));                                                                     \
        return run_op(cx->device->ops, cx, OP_INDEX_##name, a);                                              \
    }
#define MANY(name)                                                                                           \
    ott_status op_##name##_many(exec *cx, const name##_args *items, int64_t count) {                         \
        TRY(check_many(info_##name(), items, count));                                                        \
        return run_many(cx->device->ops, cx, OP_INDEX_##name, items, count);                                 \
    }
#include "tensor/ops.def"
#undef OP

/* ---- GEMMs that are counted ---- */

static ott_status may_begin(const exec *cx) {
    return plan_recording(cx->plan) ? OTT_OK : cancellation_check(cx->cancellation);
}

static void count_gemm(exec *cx, recipe_gemm role, const operand *a, const operand *b) {
    bool fp8 = dtype_is_fp8(a->t.dtype) && dtype_is_fp8(b->t.dtype);
    cx->gemms[role][fp8] += !plan_recording(cx->plan);
}

ott_status op_counted_gemm(exec *cx, recipe_gemm role, const gemm_args *args) {
    TRY(may_begin(cx));
    TRY(op_gemm(cx, args));
    count_gemm(cx, role, args->a, args->b);
    return OTT_OK;
}

ott_status op_counted_grouped_gemm(exec *cx, recipe_gemm role, const grouped_gemm_args *args) {
    TRY(may_begin(cx));
    TRY(op_grouped_gemm(cx, args));
    count_gemm(cx, role, args->a, args->b);
    return OTT_OK;
}

ott_status op_counted_grouped_gemm_weight(exec *cx, const grouped_gemm_weight_args *args) {
    TRY(may_begin(cx));
    TRY(op_grouped_gemm_weight(cx, args));
    count_gemm(cx, GEMM_GRAD_WEIGHT, args->a, args->b);
    return OTT_OK;
}
