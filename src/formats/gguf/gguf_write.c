/* formats/gguf/gguf_write: encodes metadata, the header and Q8_0 blocks. */
#include "formats/gguf/gguf_write.h"
#include "base/file/file.h"
#include "fp8/cast.h"
#include <inttypes.h>
#include <stdio.h>

enum {
    VERSION = 3,
    PIECE = 4096,                 /* elements per converted piece */
    BLOCK_BYTES = 2 + GGUF_BLOCK, /* bytes of a Q8_0 block: scale and codes */
    F16_INFINITY = 0x7c00
};

/* ---- metadata ---- */

static void append_string(str *s, const char *text, int64_t bytes) {
    str_append_little(s, (uint64_t)bytes, 8);
    str_append_bytes(s, text, bytes);
}

static void begin_value(gguf_metadata *m, const char *key, gguf_value_type type) {
    append_string(&m->bytes, key, (int64_t)strlen(key));
    str_append_little(&m->bytes, type, 4);
    m->count++;
}

void gguf_metadata_free(gguf_metadata *m) {
    str_free(&m->bytes);
}

void gguf_metadata_count(gguf_metadata *m, const char *key, int64_t value) {
    if ((value < 0 || value > UINT32_MAX) && !*m->bad_key)
        snprintf(m->bad_key, sizeof m->bad_key, "%s = %" PRId64, key, value);
    begin_value(m, key, GGUF_VALUE_U32);
    str_append_little(&m->bytes, (uint64_t)value, 4);
}

void gguf_metadata_real(gguf_metadata *m, const char *key, double value) {
    begin_value(m, key, GGUF_VALUE_F32);
    str_append_little(&m->bytes, fmath_bits((float)value), 4);
}

void gguf_metadata_bool(gguf_metadata *m, const char *key, bool value) {
    begin_value(m, key, GGUF_VALUE_BOOL);
    str_append_little(&m->bytes, value, 1);
}

void gguf_metadata_text(gguf_metadata *m, const char *key, const char *text, int64_t bytes) {
    begin_value(m, key, GGUF_VALUE_TEXT);
    append_string(&m->bytes, text, bytes);
}

void gguf_metadata_list(gguf_metadata *m, const char *key, gguf_list kind, int64_t count) {
    static const gguf_value_type types[] = {[GGUF_LIST_INTEGERS] = GGUF_VALUE_I32,
                                            [GGUF_LIST_REALS] = GGUF_VALUE_F32,
                                            [GGUF_LIST_TEXTS] = GGUF_VALUE_TEXT};
    begin_value(m, key, GGUF_VALUE_LIST);
    str_append_little(&m->bytes, types[kind], 4);
    str_append_little(&m->bytes, (uint64_t)count, 8);
    m->list_remaining += count;
}

void gguf_metadata_add_integer(gguf_metadata *m, int32_t value) {
    str_append_little(&m->bytes, (uint32_t)value, 4);
    m->list_remaining--;
}

void gguf_metadata_add_real(gguf_metadata *m, float value) {
    str_append_little(&m->bytes, fmath_bits(value), 4);
    m->list_remaining--;
}

void gguf_metadata_add_text(gguf_metadata *m, const char *text, int64_t bytes) {
    append_string(&m->bytes, text, bytes);
    m->list_remaining--;
}

/* ---- the header ---- */

struct gguf_writer {
    mem *account;
    file_writer *file;
    const gguf_tensor *tensors; /* [count] tensors of the file */
    int64_t count, current;
    int64_t left; /* elements of tensors[current] that are not appended yet */
    uint16_t halves[PIECE];
    uint8_t blocks[PIECE / GGUF_BLOCK * BLOCK_BYTES];
};

static int64_t element_count(const gguf_tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->shape[i];
    return count;
}

static int64_t padding_after(int64_t bytes) {
    return (GGUF_ALIGNMENT - bytes % GGUF_ALIGNMENT) % GGUF_ALIGNMENT;
}

ott_status gguf_tensor_bytes(const gguf_tensor *t, int64_t *bytes) {
    int64_t width = t->type == GGUF_F32 ? 4 : 2, elements = 1, row = t->shape[t->rank - 1];
    if (t->type == GGUF_Q8_0 && row % GGUF_BLOCK != 0)
        return status_fail(OTT_ERR_ARGUMENT,
                           "tensor '%s': rows of %" PRId64 " elements are not whole blocks of %d", t->name,
                           row, GGUF_BLOCK);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] <= 0 || __builtin_mul_overflow(elements, t->shape[i], &elements) ||
            elements > INT64_MAX / 8)
            return status_fail(OTT_ERR_ARGUMENT, "tensor '%s': dimension %d is %" PRId64 ", which is %s",
                               t->name, i, t->shape[i], t->shape[i] <= 0 ? "not positive" : "too large");
    *bytes = t->type == GGUF_Q8_0 ? elements / GGUF_BLOCK * BLOCK_BYTES : elements * width;
    return OTT_OK;
}

/* Appends a tensor's entry in the header, with the shape in reverse order: row length first. Then adds the
   size of the tensor's data to *offset. */
static ott_status append_tensor_info(str *s, const gguf_tensor *t, int64_t *offset) {
    int64_t bytes;
    append_string(s, t->name, (int64_t)strlen(t->name));
    str_append_little(s, (uint64_t)t->rank, 4);
    for (int i = t->rank; i-- > 0;) str_append_little(s, (uint64_t)t->shape[i], 8);
    str_append_little(s, t->type, 4);
    str_append_little(s, (uint64_t)*offset, 8);
    TRY(gguf_tensor_bytes(t, &bytes));
    if (__builtin_add_overflow(*offset, bytes + padding_after(bytes), offset))
        return status_fail(OTT_ERR_ARGUMENT, "the tensors take more than 2^63 bytes");
    return OTT_OK;
}

static ott_status make_gguf_header(const gguf_metadata *m, const gguf_tensor *tensors, int64_t count,
                                   str *s) {
    int64_t offset = 0;
    if (*m->bad_key) return status_fail(OTT_ERR_ARGUMENT, "%s does not fit into 32 bits", m->bad_key);
    STATUS_REQUIRE(m->list_remaining == 0);
    str_append(s, "GGUF");
    str_append_little(s, VERSION, 4);
    str_append_little(s, (uint64_t)count, 8);
    str_append_little(s, (uint64_t)m->count, 8);
    str_append_bytes(s, m->bytes.text, m->bytes.length);
    for (int64_t i = 0; i < count; i++) TRY(append_tensor_info(s, &tensors[i], &offset));
    for (int64_t rest = padding_after(s->length); rest > 0; rest--) str_append_little(s, 0, 1);
    TRY(str_finish(&m->bytes));
    return str_finish(s);
}

ott_status gguf_writer_open(mem *account, const char *path, const gguf_metadata *m,
                            const gguf_tensor *tensors, int64_t count, gguf_writer **out) {
    gguf_writer *w;
    str header = {.account = account};
    ott_status status;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(gguf_writer), "a GGUF writer", &w));
    *w = (gguf_writer){.account = account, .tensors = tensors, .count = count};
    TRY_OUT(make_gguf_header(m, tensors, count, &header));
    if (count > 0) w->left = element_count(tensors);
    TRY_OUT(file_writer_open_output(account, path, &w->file));
    TRY_OUT(file_writer_append(w->file, header.text, header.length));
    *out = w;
out:
    if (status != OTT_OK) gguf_writer_abandon(w);
    str_free(&header);
    return status_context(status, "%s", path);
}

/* ---- the data ---- */

int64_t gguf_writer_next(const gguf_writer *w) {
    return w->current < w->count ? w->current : -1;
}

/* Encodes GGUF_BLOCK elements in Q8_0. False if the block has a NaN, an infinity, or a scale beyond f16. */
static bool encode_q8_0(const float *x, uint8_t *out) {
    float amax = 0;
    bool finite = true;
    for (int i = 0; i < GGUF_BLOCK; i++) {
        finite = finite && isfinite(x[i]);
        amax = fmaxf(amax, fabsf(x[i]));
    }
    float scale = amax / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
    uint16_t half = cast_to_f16(scale);
    if (!finite || half >= F16_INFINITY) return false;
    if (!isfinite(inverse)) inverse = 0; /* the scale rounds to 0 in f16 */
    out[0] = (uint8_t)half;
    out[1] = (uint8_t)(half >> 8);
    for (int i = 0; i < GGUF_BLOCK; i++) out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
    return true;
}

static ott_status append_blocks(gguf_writer *w, const float *values, int64_t count) {
    for (int64_t i = 0; i < count / GGUF_BLOCK; i++)
        if (!encode_q8_0(values + i * GGUF_BLOCK, w->blocks + i * BLOCK_BYTES))
            return status_fail(OTT_ERR_FORMAT,
                               "tensor '%s' has a NaN, an infinity or a number beyond 8e6, which Q8_0 cannot "
                               "hold: use another type or an earlier checkpoint",
                               w->tensors[w->current].name);
    return file_writer_append(w->file, w->blocks, count / GGUF_BLOCK * BLOCK_BYTES);
}

static ott_status append_piece(gguf_writer *w, const float *values, int64_t count) {
    gguf_type type = w->tensors[w->current].type;
    if (type == GGUF_F32) return file_writer_append(w->file, values, 4 * count);
    if (type == GGUF_Q8_0) return append_blocks(w, values, count);
    for (int64_t i = 0; i < count; i++)
        w->halves[i] = type == GGUF_F16 ? cast_to_f16(values[i]) : cast_to_bf16(values[i]);
    return file_writer_append(w->file, w->halves, 2 * count);
}

static ott_status finish_tensor(gguf_writer *w) {
    static const uint8_t zeros[GGUF_ALIGNMENT];
    int64_t bytes;
    TRY(gguf_tensor_bytes(&w->tensors[w->current], &bytes));
    if (++w->current < w->count) w->left = element_count(&w->tensors[w->current]);
    return file_writer_append(w->file, zeros, padding_after(bytes));
}

ott_status gguf_writer_append(gguf_writer *w, const float *values, int64_t count) {
    STATUS_REQUIRE(w->current < w->count && count >= 0 && count <= w->left);
    STATUS_REQUIRE(w->tensors[w->current].type != GGUF_Q8_0 || count % GGUF_BLOCK == 0);
    for (int64_t done = 0; done < count; done += PIECE)
        TRY(append_piece(w, values + done, count - done < PIECE ? count - done : PIECE));
    w->left -= count;
    return w->left == 0 ? finish_tensor(w) : OTT_OK;
}

ott_status gguf_writer_commit(gguf_writer *w) {
    bool complete = w->current == w->count;
    if (!complete) file_writer_abandon(w->file);
    ott_status status = complete ? file_writer_commit(w->file) : OTT_OK;
    mem_free(w->account, w);
    STATUS_REQUIRE(complete);
    return status;
}

void gguf_writer_abandon(gguf_writer *w) {
    if (!w) return;
    file_writer_abandon(w->file);
    mem_free(w->account, w);
}
