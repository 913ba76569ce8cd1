/* op_args: finds the addresses in an op's arguments, and the bytes at each address. */
#include "backend/op_args.h"
#include <stdio.h>
#include <string.h>

typedef struct replacing {
    const op_info *op;
    op_args_replace replace;
    void *user;
} replacing;

static ott_status replace_at(const replacing *r, const char *what, void **address, int64_t bytes) {
    if (!*address || bytes == 0) return OTT_OK;
    ott_status status = r->replace(r->user, what, address, bytes);
    if (status == OTT_OK) return OTT_OK;
    return status_context(status, "%s: %s", r->op->name, what);
}

static ott_status replace_member(const replacing *r, const char *field, const char *member, void **address,
                                 int64_t bytes) {
    char what[64];
    snprintf(what, sizeof what, "%s.%s", field, member);
    return replace_at(r, what, address, bytes);
}

static ott_status replace_tensor(const replacing *r, const char *what, tensor *t) {
    int64_t elements = tensor_count(*t) ? (t->rows - 1) * t->ld + t->columns : 0;
    return replace_at(r, what, &t->data, elements * dtype_bytes(t->dtype));
}

/* Size in bytes of an array with a float for each scale, up to the end of its last entry. */
static int64_t floats_bytes(scale_grid grid, int64_t mn_step, int64_t k_step) {
    if (grid.mn * grid.k == 0) return 0;
    return ((grid.mn - 1) * mn_step + (grid.k - 1) * k_step + 1) * (int64_t)sizeof(float);
}

/* Size in bytes of scale_inv, up to the end of its last entry, or of its last tile. */
static int64_t scale_inv_bytes(scale_grid grid, int64_t mn_step, int64_t k_step, scale_tiles t) {
    if (!t.along_k || grid.mn * grid.k == 0) return floats_bytes(grid, mn_step, k_step);
    return ((t.mn + grid.mn - 1) / SCALE_TILE_MN + 1) * t.along_k * SCALE_TILE_BYTES;
}

static ott_status replace_floats(const replacing *r, const char *field, const char *member, float **floats,
                                 int64_t bytes) {
    void *address = *floats;
    TRY(replace_member(r, field, member, &address, bytes));
    *floats = address;
    return OTT_OK;
}

static ott_status replace_use(const replacing *r, const char *field, const cast_spec *spec, int64_t mn,
                              int64_t depth, const qtensor *q, qdata *s) {
    if (!cast_spec_is_fp8(spec)) return OTT_OK;
    int64_t codes = mn * depth > 0 ? qtensor_index(s, q->rows - 1, q->columns - 1) + 1 : 0;
    scale_grid grid = granularity_grid(spec->grain, mn, depth);
    int64_t bytes = floats_bytes(grid, s->mn_step, s->k_step);
    float *next = (float *)(uintptr_t)s->next;
    TRY(replace_member(r, field, "codes", &s->data, codes));
    TRY(replace_floats(r, field, "amax", &s->amax, bytes));
    TRY(replace_floats(r, field, "scale", &s->scale, bytes));
    TRY(replace_member(r, field, "scale_inv", &s->scale_inv,
                       scale_inv_bytes(grid, s->mn_step, s->k_step, s->tiles)));
    TRY(replace_floats(r, field, "next", &next, (int64_t)sizeof(float)));
    s->next = next;
    return OTT_OK;
}

static ott_status replace_qtensor(const replacing *r, const char *what, qtensor *q) {
    char row[48], column[48];
    snprintf(row, sizeof row, "%s.rowwise", what);
    snprintf(column, sizeof column, "%s.columnwise", what);
    TRY(replace_use(r, row, &q->spec.rowwise, q->rows, q->columns, q, &q->rowwise));
    return replace_use(r, column, &q->spec.columnwise, q->columns, q->rows, q, &q->columnwise);
}

static ott_status replace_qlist(const replacing *r, const char *what, qlist *list) {
    for (int i = 0; i < list->count; i++) {
        char item[40];
        snprintf(item, sizeof item, "%s[%d]", what, i);
        TRY(replace_qtensor(r, item, &list->item[i]));
    }
    return OTT_OK;
}

static ott_status replace_operand(const replacing *r, const char *what, operand *o) {
    void *scale_inv = (void *)(uintptr_t)o->scale_inv;
    scale_grid grid = granularity_grid(o->grain, operand_mn(o), operand_k(o));
    TRY(replace_tensor(r, what, &o->t)); /* a packed operand may have more memory than its tensor */
    TRY(replace_member(r, what, "scale_inv", &scale_inv,
                       scale_inv_bytes(grid, o->mn_step, o->k_step, o->tiles)));
    o->scale_inv = scale_inv;
    return OTT_OK;
}

/* COPY(tensor): copies the tensor of the original call to field i of `out`, and replaces its addresses. */
#define COPY(kind) out->field[i].kind = *(const kind *)value, replace_##kind(&r, f->name, &out->field[i].kind)

static ott_status copy_field(replacing r, int i, const void *args, op_args *out) {
    const op_field *f = &r.op->fields[i];
    const void *value, *copy = &out->field[i];
    if (f->kind == OP_SCALAR) return OTT_OK;
    memcpy(&value, (const char *)args + f->offset, sizeof value);
    if (!value) return OTT_OK;
    memcpy(out->args + f->offset, &copy, sizeof copy);
    switch (f->kind) {
    case OP_OPERAND: return COPY(operand);
    case OP_QTENSOR: return COPY(qtensor);
    case OP_QOUT: return COPY(qlist);
    default: return COPY(tensor);
    }
}

ott_status op_args_copy(const op_info *op, const void *args, op_args_replace replace, void *user,
                        op_args *out) {
    replacing r = {op, replace, user};
    STATUS_REQUIRE(op->field_count <= OP_ARGS_FIELDS_MAX && op->args_size <= sizeof out->args);
    memcpy(out->args, args, op->args_size);
    for (int i = 0; i < op->field_count; i++) TRY(copy_field(r, i, args, out));
    return OTT_OK;
}
