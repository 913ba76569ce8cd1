/* op_case: makes arguments from the text of ops.def, and compares results. */
#include "backend/op_case.h"
#include "base/rng.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64
/* fills the memory around inputs: a NaN in every float format, so a read outside an input is detected */
#define INPUT_GUARD 0xFF
/* fills outputs before a run: a large number in every format, so adding to an unwritten output is detected */
#define OUTPUT_FILL 0x5A

/* ---- small things ---- */

ott_status case_memory_open(mem *account, op_case *c) {
    unsigned char **blocks[] = {&c->live, &c->pristine, &c->expected};
    for (int i = 0; i < 3; i++) {
        void *block;
        TRY(mem_alloc(account, MEM_OTHER, CASE_BLOCK_BYTES, "op case", &block));
        *blocks[i] = block;
    }
    return OTT_OK;
}

void case_memory_close(mem *account, op_case *c) {
    mem_free(account, c->live);
    mem_free(account, c->pristine);
    mem_free(account, c->expected);
}

/* Random numbers by splitmix64 (Steele, Lea and Flood 2014), which is fast. They depend only on the case. */
int64_t case_draw(op_case *c, int64_t n) {
    uint64_t z = c->number * UINT64_C(0xD1342543DE82EF95) + ++c->draws * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (int64_t)(((z ^ (z >> 31)) >> 32) * (uint64_t)n >> 32);
}

static int field_index(const op_info *op, const char *name) {
    for (int i = 0; i < op->field_count; i++)
        if (strcmp(op->fields[i].name, name) == 0) return i;
    return -1;
}

case_field *case_at(op_case *c, const char *field) {
    return &c->fields[field_index(c->op, field)];
}

static void set_pointer(op_case *c, const op_field *f, const void *pointer) {
    memcpy(c->args + f->offset, &pointer, sizeof pointer);
}

bool case_present(const op_case *c, const char *field) {
    int i = field_index(c->op, field);
    const void *pointer = NULL;
    if (i >= 0) memcpy(&pointer, c->args + c->op->fields[i].offset, sizeof pointer);
    return pointer != NULL;
}

void case_set(op_case *c, const char *field, const void *value, size_t bytes) {
    int i = field_index(c->op, field);
    if (i < 0) abort(); /* the op has no such field */
    memcpy(c->args + c->op->fields[i].offset, value, bytes);
}

/* ---- sizes ---- */

/* Rows and columns of the matrices in cases of ops without own shapes: a single element, sizes near a
   vector's length, several blocks of a reduction, many rows, many columns. */
static const int64_t generic_shapes[][2] = {{1, 1},     {1, 15},  {2, 16},   {3, 17},   {15, 33},
                                            {16, 1},    {17, 64}, {33, 100}, {5, 1025}, {3, 4097},
                                            {1, 36000}, {300, 7}, {61, 260}, {130, 520}};

int case_shapes(const op_info *op) {
    int own = fixture_find(op)->shapes;
    return own ? own : (int)(sizeof generic_shapes / sizeof *generic_shapes);
}

static bool field_shape(const op_field *f, op_shape *shape) {
    return f->kind != OP_SCALAR && f->kind != OP_OPERAND && op_shape_parse(f->text, shape);
}

int case_dtypes(const op_info *op) {
    op_shape s;
    for (int i = 0; i < op->field_count; i++)
        if (field_shape(&op->fields[i], &s) && s.dtype[0] && strcmp(s.dtype, "f32") && strcmp(s.dtype, "i32"))
            return 3;
    return 1;
}

/* The shapes in ops.def are letters, such as [M,N]. Gives each letter a size: the rows of the case's shape if
   the letter counts rows, otherwise the columns. Then `bind` of the op's fixture may change the sizes. */
static void bind_sizes(op_case *c) {
    int64_t rows = 1, columns = 1;
    if (!c->fixture->shapes) {
        rows = generic_shapes[c->shape][0];
        columns = generic_shapes[c->shape][1];
    }
    for (int i = 0; i < 26; i++) c->size[i] = columns;
    for (int i = 0; i < c->op->field_count; i++) {
        op_shape s;
        if (field_shape(&c->op->fields[i], &s) && s.rows) c->size[s.rows - 'A'] = rows;
    }
    if (c->fixture->bind) c->fixture->bind(c);
}

static int64_t bound(const op_case *c, char letter, int64_t fixed) {
    return letter ? c->size[letter - 'A'] : fixed;
}

/* ---- memory ---- */

static void fill_output(op_case *c, const region *r) {
    int64_t size = dtype_bytes(r->dtype);
    for (int64_t i = 0; i < r->rows; i++)
        memset(c->live + r->offset + i * r->ld * size, OUTPUT_FILL, (size_t)(r->columns * size));
}

/* Adds an array to the memory block of the case. It may begin at any element. If `padded`, its leading
   dimension may be larger than its columns. */
region *case_region(op_case *c, const char *label, ott_dtype d, int64_t rows, int64_t columns, bool padded,
                    region_role role, void **data) {
    static const int64_t paddings[] = {0, 0, 16, 1, 5};
    *data = NULL;
    if (c->region_count == CASE_REGIONS_MAX) return NULL;
    region *r = &c->regions[c->region_count++];
    *r = (region){.dtype = d, .role = role, .rows = rows, .columns = columns};
    snprintf(r->label, sizeof r->label, "%s", label);
    int64_t size = dtype_bytes(d), shift = c->tidy ? 0 : case_draw(c, 2) * case_draw(c, 16);
    r->ld = columns + (padded ? paddings[case_draw(c, c->tidy ? 3 : 5)] : 0);
    r->offset = (c->bytes + 63) / 64 * 64 + GUARD + shift * size;
    int64_t end = r->offset + rows * r->ld * size + GUARD;
    if (end > CASE_BLOCK_BYTES) return NULL;
    memset(c->live + c->bytes, INPUT_GUARD, (size_t)(end - c->bytes));
    c->bytes = end;
    *data = c->live + r->offset;
    if (role == REGION_OUT)
        fill_output(c, r);
    else
        values_fill(c, r);
    return r;
}

/* ---- fields ---- */

static ott_dtype draw_dtype(op_case *c, const char *text) {
    static const ott_dtype any[] = {OTT_F32, OTT_BF16, OTT_F16, OTT_E4M3, OTT_E5M2};
    if (strcmp(text, "f32") == 0) return OTT_F32;
    if (strcmp(text, "i32") == 0) return OTT_I32;
    if (strcmp(text, "act") == 0) return c->act;
    if (strcmp(text, "fp8") == 0) return any[3 + case_draw(c, 2)];
    if (strcmp(text, "e4m3") == 0) return OTT_E4M3;
    if (strcmp(text, "state") == 0) return any[c->tidy ? c->act != OTT_F32 : case_draw(c, 2)];
    if (strcmp(text, "any") == 0) return any[case_draw(c, 5)];
    /* any high-precision format: the first such field of a case has the case's format, the others a random
       one */
    if (!c->act_used) {
        c->act_used = true;
        return c->act;
    }
    return any[case_draw(c, 3)];
}

/* Chooses at random if output f shares its memory with an input. Returns the input's region; -1 if not. */
static int draw_alias(op_case *c, const op_field *f) {
    for (int i = 0; i < 2; i++) {
        const char *output = c->fixture->alias[i].output;
        if (output && strcmp(output, f->name) == 0 && case_present(c, c->fixture->alias[i].input))
            return case_draw(c, 3) == 0 ? case_at(c, c->fixture->alias[i].input)->region : -1;
    }
    return -1;
}

static bool make_alias(op_case *c, const op_field *f, case_field *out, int shared) {
    region *r = &c->regions[shared];
    r->role = REGION_INOUT;
    out->region = shared;
    out->tensor = tensor_matrix(c->live + r->offset, r->dtype, r->rows, r->columns);
    out->tensor.ld = r->ld;
    set_pointer(c, f, &out->tensor);
    return true;
}

static bool make_tensor(op_case *c, const op_field *f, const op_shape *s, case_field *out) {
    int shared = f->kind == OP_OUT ? draw_alias(c, f) : -1;
    if (shared >= 0) return make_alias(c, f, out, shared);
    region_role role = f->kind == OP_IN ? REGION_IN : f->kind == OP_OUT ? REGION_OUT : REGION_INOUT;
    void *data;
    region *r = case_region(c, f->name, draw_dtype(c, s->dtype), bound(c, s->rows, s->rows_fixed),
                            bound(c, s->columns, s->columns_fixed), s->rows != 0, role, &data);
    if (!r) return false;
    out->region = c->region_count - 1;
    out->tensor =
        (tensor){.data = data, .dtype = r->dtype, .rows = r->rows, .columns = r->columns, .ld = r->ld};
    set_pointer(c, f, &out->tensor);
    return true;
}

/* Makes one array of a quantized copy: codes, amax or scales. The op writes it, reads it, or ignores it. */
static void *make_quant_array(op_case *c, const char *label, const char *array, ott_dtype d, int64_t rows,
                              int64_t columns, int bit) {
    char text[40];
    void *data;
    snprintf(text, sizeof text, "%s.%s", label, array);
    region *r =
        case_region(c, text, d, rows, columns, false, c->quant_writes & bit ? REGION_OUT : REGION_IN, &data);
    if (r && !(c->quant_writes & bit)) values_make_positive(c, r);
    return data;
}

/* In two of three cases sets `next`, a scale that delayed scaling uses instead of the stored scale. */
static bool make_next(op_case *c, const char *label, qdata *out) {
    char text[40];
    void *data;
    if (case_draw(c, 3) == 0) return true;
    snprintf(text, sizeof text, "%s.next", label);
    region *r = case_region(c, text, OTT_F32, 1, 1, false, REGION_IN, &data);
    if (r) values_make_positive(c, r);
    out->next = data;
    return r;
}

static bool make_codes(op_case *c, const char *label, const qtensor *q, ott_dtype format, bool transposed,
                       qdata *out) {
    int64_t rows = transposed ? q->columns : q->rows, columns = transposed ? q->rows : q->columns;
    out->transposed = transposed;
    out->ld = columns;
    out->data = make_quant_array(c, label, "codes", format, rows, columns, QUANT_CODES);
    return out->data;
}

static bool make_use(op_case *c, const char *label, const qtensor *q, bool columnwise, bool transposed,
                     qdata *out) {
    const cast_spec *spec = columnwise ? &q->spec.columnwise : &q->spec.rowwise;
    scale_grid grid = qtensor_order_use(out, q, columnwise);
    int64_t groups = grid.mn * grid.k;
    out->amax = make_quant_array(c, label, "amax", OTT_F32, 1, groups, QUANT_AMAX);
    out->scale = make_quant_array(c, label, "scale", OTT_F32, 1, groups, QUANT_SCALE);
    ott_dtype format = granularity_scale_format(spec->grain);
    int64_t entries = granularity_scale_bytes(spec->grain, grid) / dtype_bytes(format);
    out->scale_inv = make_quant_array(c, label, "scale_inv", format, 1, entries, QUANT_SCALE);
    if (out->scale_inv && format == OTT_E8M0) c->regions[c->region_count - 1].grid = grid;
    bool made = out->amax && out->scale && out->scale_inv;
    return made && make_codes(c, label, q, spec->format, transposed, out) &&
           (spec->policy != AMAX_DELAYED || make_next(c, label, out));
}

static bool is_delayed(const quant_spec *s) {
    return s->rowwise.policy == AMAX_DELAYED || s->columnwise.policy == AMAX_DELAYED;
}

/* Makes a quantized tensor. Its columnwise codes are transposed in half of the cases, whichever layout the
   device uses itself, because an op must accept both layouts. */
static bool make_qtensor(op_case *c, const char *label, const op_shape *s, qtensor *q) {
    int count;
    fixture_quant_spec(0, &count);
    char text[32];
    char groups = c->fixture->groups;
    do *q = (qtensor){.spec = *fixture_quant_spec((int)case_draw(c, count), &count)};
    /* tensors with groups have no delayed scaling, because groups change every step */
    while (groups && is_delayed(&q->spec));
    q->groups = groups ? bound(c, groups, 0) : 0;
    q->rows = bound(c, s->rows, s->rows_fixed);
    q->columns = bound(c, s->columns, s->columns_fixed);
    bool shared = quant_spec_shares_scales(&q->spec), transposed = case_draw(c, 2);
    const cast_spec *rowwise = &q->spec.rowwise, *columnwise = &q->spec.columnwise;
    snprintf(text, sizeof text, "%s.rowwise", label);
    if (cast_spec_is_fp8(rowwise) && !make_use(c, text, q, false, false, &q->rowwise)) return false;
    snprintf(text, sizeof text, "%s.columnwise", label);
    if (shared) q->columnwise = qtensor_shared_use(q->rowwise);
    if (shared) return !transposed || make_codes(c, text, q, columnwise->format, true, &q->columnwise);
    return !cast_spec_is_fp8(columnwise) || make_use(c, text, q, true, transposed, &q->columnwise);
}

/* Makes the list of quantized copies. Two copies at most suffice to run all code paths. */
static bool make_qlist(op_case *c, const op_field *f, const op_shape *s, case_field *out) {
    out->qlist = (qlist){.count = 1 + (int)case_draw(c, 2)};
    for (int i = 0; i < out->qlist.count; i++) {
        char label[24];
        snprintf(label, sizeof label, "%s[%d]", f->name, i);
        if (!make_qtensor(c, label, s, &out->qlist.item[i])) return false;
    }
    set_pointer(c, f, &out->qlist);
    return true;
}

static bool make_field(op_case *c, const op_field *f, case_field *out) {
    op_shape s;
    if (!field_shape(f, &s)) return true; /* no shape: a scalar or operand, which the fixture sets */
    bool wanted = !f->optional || case_draw(c, 3) > 0;
    if (f->optional && c->fixture->present) wanted = c->fixture->present(c, f, wanted);
    if (!wanted) return true;
    c->quant_writes = f->kind == OP_QOUT ? QUANT_ALL : c->fixture->quant_writes;
    if (f->kind == OP_QOUT) return make_qlist(c, f, &s, out);
    if (f->kind != OP_QTENSOR) return make_tensor(c, f, &s, out);
    set_pointer(c, f, &out->qtensor);
    return make_qtensor(c, f->name, &s, &out->qtensor);
}

bool case_make(op_case *c, const op_info *op, ott_dtype act, int shape, value_kind values, uint64_t number) {
    if (op->field_count > OP_ARGS_FIELDS_MAX || op->args_size > sizeof c->args) return false;
    c->op = op;
    c->fixture = fixture_find(op);
    c->act = act;
    c->shape = shape;
    c->values = values;
    c->number = number;
    c->draws = 0;
    c->act_used = false;
    c->region_count = 0;
    c->bytes = 0;
    memset(c->fields, 0, sizeof c->fields);
    memset(c->args, 0, sizeof c->args);
    c->tidy = case_draw(c, 2) == 0;
    bind_sizes(c);
    for (int i = 0; i < op->field_count; i++)
        if (!make_field(c, &op->fields[i], &c->fields[i])) return false;
    if (c->fixture->prepare) c->fixture->prepare(c);
    memcpy(c->pristine, c->live, (size_t)c->bytes);
    return true;
}

/* ---- running and comparing ---- */

ott_status case_device_open(device *d, case_device *out) {
    *out = (case_device){.device = d};
    ott_status status = device_allocate(d, MEM_OTHER, CASE_BLOCK_BYTES, "op case", &out->block);
    if (status != OTT_OK) device_close(d);
    return status;
}

void case_device_close(case_device *d) {
    device_release(d->device, d->block);
    device_close(d->device);
}

static ott_status to_block(void *user, const char *what, void **address, int64_t bytes) {
    const op_case *c = user;
    int64_t offset = (unsigned char *)*address - c->live;
    (void)what;
    STATUS_REQUIRE(offset >= 0 && offset + bytes <= c->bytes);
    *address = c->block + offset;
    return OTT_OK;
}

ott_status case_load(op_case *c, const case_device *d, op_args *loaded) {
    c->block = d->block;
    TRY(device_copy_in(d->device, d->block, c->pristine, c->bytes));
    return op_args_copy(c->op, c->args, to_block, c, loaded);
}

ott_status case_store(op_case *c, const case_device *d) {
    return device_copy_out(d->device, c->live, d->block, c->bytes);
}

/* Packs the case's operand on the device, in separate memory. A case has at most one packed operand. */
static ott_status pack_operands(op_case *c, exec *cx, void **memory) {
    for (int i = 0; i < c->op->field_count; i++) {
        operand *o = &c->loaded.field[i].operand, plain = *o;
        if (c->op->fields[i].kind != OP_OPERAND || !o->packed) continue;
        plain.packed = false;
        tensor packed = tensor_vector(NULL, o->t.dtype, op_packed_count(cx, &plain));
        TRY(device_allocate(cx->device, MEM_OTHER, tensor_bytes(packed), "a packed operand", memory));
        packed.data = o->t.data = *memory;
        TRY(op_call(cx->device->ops, cx, op_find("pack"), &(pack_args){.b = &plain, .y = &packed}));
    }
    return OTT_OK;
}

ott_status case_call(op_case *c, exec *cx) {
    void *packed = NULL;
    op_args plain = c->loaded; /* restored below: each call packs the plain operands */
    ott_status status = pack_operands(c, cx, &packed);
    if (status == OTT_OK) status = op_call(cx->device->ops, cx, c->op, c->loaded.args);
    device_release(cx->device, packed);
    c->loaded = plain;
    return status;
}

ott_status case_run(op_case *c, const case_device *d) {
    exec cx = {.device = d->device};
    TRY(case_load(c, d, &c->loaded));
    TRY(case_call(c, &cx));
    return case_store(c, d);
}

static ott_status replay_in(exec *cx, void *arena, ott_status (*call)(void *user, exec *cx), void *user) {
    unsigned char piece[4096];
    int64_t bytes = plan_bytes(cx->plan);
    memset(piece, INPUT_GUARD, sizeof piece);
    for (int64_t at = 0, left; (left = bytes - at) > 0; at += (int64_t)sizeof piece)
        TRY(device_copy_in(cx->device, (char *)arena + at, piece,
                           left < (int64_t)sizeof piece ? left : (int64_t)sizeof piece));
    plan_bind(cx->plan, arena);
    plan_replay(cx->plan);
    return call(user, cx);
}

ott_status case_in_plan(exec *cx, ott_status (*call)(void *user, exec *cx), void *user) {
    void *arena = NULL;
    TRY(plan_create(cx->device, &cx->plan));
    plan_record(cx->plan);
    ott_status status = call(user, cx);
    if (status == OTT_OK) status = plan_seal(cx->plan);
    if (status == OTT_OK)
        status = device_allocate(cx->device, MEM_STEP, plan_bytes(cx->plan), "a case's plan", &arena);
    if (status == OTT_OK) status = replay_in(cx, arena, call, user);
    device_release(cx->device, arena);
    plan_destroy(cx->plan);
    cx->plan = NULL;
    return status;
}

ott_status case_expect(op_case *c, const case_device *reference) {
    TRY(op_check(c->op, c->args));
    TRY(case_run(c, reference));
    memcpy(c->expected, c->live, (size_t)c->bytes);
    return OTT_OK;
}

/* True if the elements are equal. Any NaN equals any NaN. But FP8 elements must have the same code: a NaN
   always becomes 0x7F (fp8/cast.h). */
static bool same_element(ott_dtype d, const void *x, const void *y, int64_t index) {
    int64_t size = dtype_bytes(d);
    if (memcmp((const char *)x + index * size, (const char *)y + index * size, (size_t)size) == 0)
        return true;
    if (!dtype_is_high_precision(d)) return false;
    return isnan(cast_load(x, d, index)) && isnan(cast_load(y, d, index));
}

static unsigned element_bits(ott_dtype d, const void *x, int64_t index) {
    unsigned bits = 0;
    memcpy(&bits, (const char *)x + index * dtype_bytes(d), (size_t)dtype_bytes(d));
    return bits;
}

static bool differ(op_case *c, const region *r, int64_t i, int64_t j) {
    const void *got = c->live + r->offset, *stored = c->expected + r->offset;
    int64_t index = i * r->ld + j;
    bool integer = r->dtype == OTT_I32;
    snprintf(c->message, sizeof c->message, "%s[%lld,%lld] (%s) is %.9g (0x%x), expected %.9g (0x%x)",
             r->label, (long long)i, (long long)j, dtype_name(r->dtype),
             integer ? (double)((const int32_t *)got)[index] : (double)cast_load(got, r->dtype, index),
             element_bits(r->dtype, got, index),
             integer ? (double)((const int32_t *)stored)[index] : (double)cast_load(stored, r->dtype, index),
             element_bits(r->dtype, stored, index));
    return false;
}

/* Padding of E8M0 scales may be written or not. Makes it equal to the expected padding. */
static bool check_padding(op_case *c, const region *r) {
    const scale_tiles t = granularity_tiles(GRANULARITY_1X32, r->grid);
    for (int64_t mn = 0; mn < r->columns / t.along_k / SCALE_TILE_K; mn++)
        for (int64_t k = 0; k < t.along_k * SCALE_TILE_K; k++) {
            int64_t at = scale_tiles_index(t, mn, k);
            uint8_t *code = c->live + r->offset + at;
            if (mn < r->grid.mn && k < r->grid.k) continue;
            if (*code != OUTPUT_FILL && *code != SCALE_TILE_PADDING) return differ(c, r, 0, at);
            *code = c->expected[r->offset + at];
        }
    return true;
}

/* Compares the rows of an output with the expected rows. Overwrites equal rows with their original bytes, so
   that case_compare can then compare all bytes of the block with the original block. */
static bool compare_output(op_case *c, const region *r) {
    int64_t size = dtype_bytes(r->dtype);
    if (r->grid.mn > 0 && !check_padding(c, r)) return false;
    for (int64_t i = 0; i < r->rows; i++) {
        int64_t at = r->offset + i * r->ld * size;
        size_t bytes = (size_t)(r->columns * size);
        bool equal = memcmp(c->live + at, c->expected + at, bytes) == 0;
        for (int64_t j = 0; !equal && j < r->columns; j++)
            if (!same_element(r->dtype, c->live + at, c->expected + at, j)) return differ(c, r, i, j);
        memcpy(c->live + at, c->pristine + at, bytes);
    }
    return true;
}

static const region *nearest_region(const op_case *c, int64_t byte) {
    const region *nearest = &c->regions[0];
    for (int i = 0; i < c->region_count; i++)
        if (c->regions[i].offset - GUARD / 2 <= byte) nearest = &c->regions[i];
    return nearest;
}

bool case_compare(op_case *c) {
    for (int i = 0; i < c->region_count; i++)
        if (c->regions[i].role != REGION_IN && !compare_output(c, &c->regions[i])) return false;
    if (memcmp(c->live, c->pristine, (size_t)c->bytes) == 0) return true;
    int64_t byte = 0;
    while (c->live[byte] == c->pristine[byte]) byte++;
    const region *r = nearest_region(c, byte);
    snprintf(
        c->message, sizeof c->message,
        "byte %lld after the start of %s changed (%s of %lld x %lld, leading dimension %lld, an %s): inputs, "
        "padding and neighbors must not change",
        (long long)(byte - r->offset), r->label, dtype_name(r->dtype), (long long)r->rows,
        (long long)r->columns, (long long)r->ld, r->role == REGION_IN ? "input" : "output");
    return false;
}

/* Returns the relative error of an output, over the elements that are finite in both results. */
static double output_error(const op_case *c, const region *r) {
    const void *got = c->live + r->offset, *stored = c->expected + r->offset;
    double error = 0, sum = 0;
    for (int64_t i = 0; i < r->rows; i++)
        for (int64_t j = 0; j < r->columns; j++) {
            double x = (double)cast_load(got, r->dtype, i * r->ld + j);
            double y = (double)cast_load(stored, r->dtype, i * r->ld + j);
            if (!isfinite(x) || !isfinite(y)) continue;
            error += (x - y) * (x - y);
            sum += y * y;
        }
    return error == 0 ? 0 : sqrt(error / sum);
}

static void take_expected(op_case *c, const region *r) {
    int64_t size = dtype_bytes(r->dtype);
    for (int64_t i = 0; i < r->rows; i++) {
        int64_t at = r->offset + i * r->ld * size;
        memcpy(c->live + at, c->expected + at, (size_t)(r->columns * size));
    }
}

bool case_compare_within(op_case *c, double most) {
    for (int i = 0; i < c->region_count; i++) {
        const region *r = &c->regions[i];
        if (r->role == REGION_IN) continue;
        if (r->grid.mn > 0 && !check_padding(c, r)) return false;
        double error = output_error(c, r);
        if (error > most) {
            snprintf(c->message, sizeof c->message,
                     "%s has an error of %.3g of its root mean square, more than %.3g", r->label, error,
                     most);
            return false;
        }
        take_expected(c, r);
    }
    return case_compare(c);
}

bool case_is_impossible(const op_case *c, const device *d) {
    const void *args = c->args;
    const gemm_spec *spec = NULL;
    if (strcmp(c->op->name, "gemm") == 0) spec = &((const gemm_args *)args)->spec;
    if (strcmp(c->op->name, "grouped_gemm") == 0) spec = &((const grouped_gemm_args *)args)->spec;
    if (strcmp(c->op->name, "grouped_gemm_weight") == 0)
        spec = &((const grouped_gemm_weight_args *)args)->spec;
    return spec && d->can->no_accumulate[spec->accumulate];
}

void case_describe(const op_case *c, char *text, size_t bytes) {
    static const char *const kinds[] = {"normal", "zeros", "extreme", "nonfinite"};
    int n = snprintf(text, bytes, "%s, act %s, shape %d, %s values, case %llu:", c->op->name,
                     dtype_name(c->act), c->shape, kinds[c->values], (unsigned long long)c->number);
    for (int i = 0; i < c->region_count && n > 0 && (size_t)n < bytes; i++)
        n += snprintf(text + n, bytes - (size_t)n, " %s %s[%lld,%lld]", c->regions[i].label,
                      dtype_name(c->regions[i].dtype), (long long)c->regions[i].rows,
                      (long long)c->regions[i].columns);
}

/* ---- lists ---- */

/* Makes call `number` of a list. If its shape needs too much of the memory block, uses the smallest one. */
static ott_status make_item(op_case *c, const op_info *op, int number) {
    for (int shape = number % case_shapes(op);; shape = 0) {
        if (!case_make(c, op, OTT_F32, shape, (value_kind)(number % VALUE_KINDS), (uint64_t)number))
            return status_fail(OTT_ERR_INTERNAL, "%s: the case does not fit", op->name);
        if (c->bytes <= CASE_LIST_PLACE) return OTT_OK;
    }
}

static case_device place_of(const case_device *d, int number) {
    return (case_device){.device = d->device,
                         .block = (char *)d->block + (ptrdiff_t)number * CASE_LIST_PLACE};
}

ott_status case_run_list(op_case *c, const op_info *op, const case_device *d) {
    static op_args loaded[CASE_LIST_CALLS]; /* the arguments that the list's items point at */
    static _Alignas(16) char items[CASE_LIST_CALLS * OP_ARGS_BYTES_MAX];
    exec cx = {.device = d->device};
    for (int i = 0; i < CASE_LIST_CALLS; i++) {
        case_device place = place_of(d, i);
        TRY(make_item(c, op, i));
        TRY(case_load(c, &place, &loaded[i]));
        memcpy(items + (size_t)i * op->args_size, loaded[i].args, op->args_size);
    }
    return op_call_many(d->device->ops, &cx, op, items, CASE_LIST_CALLS);
}

ott_status case_compare_list(op_case *c, const op_info *op, const case_device *d,
                             const case_device *reference) {
    for (int i = 0; i < CASE_LIST_CALLS; i++) {
        case_device place = place_of(d, i);
        TRY(make_item(c, op, i));
        TRY(case_expect(c, reference));
        TRY(case_store(c, &place));
        if (!case_compare(c))
            return status_fail(OTT_ERR_INTERNAL, "%s, call %d: %s", op->name, i, c->message);
    }
    return OTT_OK;
}
