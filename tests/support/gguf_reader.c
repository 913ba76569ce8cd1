#include "support/gguf_reader.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { COUNT = 4, INTEGER, REAL, BOOL, TEXT, LIST };
enum { F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };

static const unsigned char *read_bytes(gguf_reader *r, int64_t bytes) {
    assert_true(bytes >= 0 && bytes <= r->bytes - r->at);
    r->at += bytes;
    return r->file + r->at - bytes;
}

static uint64_t number(const unsigned char *p, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)p[i] << 8 * i;
    return value;
}

static int64_t take_number(gguf_reader *r, int bytes) {
    return (int64_t)number(read_bytes(r, bytes), bytes);
}

static float real(const unsigned char *p) {
    float x;
    uint32_t bits = (uint32_t)number(p, 4);
    memcpy(&x, &bits, 4);
    return x;
}

static void take_name(gguf_reader *r, char *out, int64_t capacity) {
    int64_t bytes = take_number(r, 8);
    assert_true(bytes > 0 && bytes < capacity);
    memcpy(out, read_bytes(r, bytes), (size_t)bytes);
    out[bytes] = 0;
}

static void take_list(gguf_reader *r, gguf_value *v) {
    v->element_type = (int)take_number(r, 4);
    v->count = take_number(r, 8);
    v->text = (const char *)r->file + r->at;
    assert_true(v->element_type == INTEGER || v->element_type == REAL || v->element_type == TEXT);
    for (int64_t i = 0; i < v->count; i++) read_bytes(r, v->element_type == TEXT ? take_number(r, 8) : 4);
}

static void take_value(gguf_reader *r, gguf_value *v) {
    take_name(r, v->key, sizeof v->key);
    v->type = (int)take_number(r, 4);
    if (v->type == LIST) {
        take_list(r, v);
    } else if (v->type == TEXT) {
        v->bytes = take_number(r, 8);
        v->text = (const char *)read_bytes(r, v->bytes);
    } else {
        assert_true(v->type == COUNT || v->type == REAL || v->type == BOOL);
        const unsigned char *at = read_bytes(r, v->type == BOOL ? 1 : 4);
        v->number = v->type == REAL ? (double)real(at) : (double)number(at, v->type == BOOL ? 1 : 4);
    }
}

static int64_t bytes_of(const gguf_entry *e) {
    if (e->type == Q8_0) assert_int_equal(e->size[0] % 32, 0);
    switch (e->type) {
    case F32: return 4 * e->count;
    case F16:
    case BF16: return 2 * e->count;
    case Q8_0: return e->count / 32 * 34;
    default: fail_msg("%s has the type %d", e->name, e->type);
    }
    return 0;
}

/* Reads the entry of a tensor. Returns the offset of its data. */
static int64_t take_entry(gguf_reader *r, gguf_entry *e) {
    take_name(r, e->name, 64);
    e->rank = (int)take_number(r, 4);
    assert_in_range(e->rank, 1, 4);
    e->count = 1;
    for (int i = 0; i < e->rank; i++) {
        e->size[i] = take_number(r, 8);
        e->count *= e->size[i];
    }
    e->type = (int)take_number(r, 4);
    return take_number(r, 8);
}

static void read_file(gguf_reader *r, const char *path) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    r->bytes = ftell(f);
    rewind(f);
    r->file = malloc((size_t)r->bytes);
    assert_int_equal(fread(r->file, 1, (size_t)r->bytes, f), r->bytes);
    fclose(f);
}

/* Opens the file. The data of each tensor begin at the first multiple of 32 bytes after the tensor before it.
   The last tensor ends where the file ends. */
gguf_reader gguf_reader_open(const char *path) {
    gguf_reader r = {0};
    int64_t end = 0;
    read_file(&r, path);
    assert_memory_equal(read_bytes(&r, 4), "GGUF", 4);
    assert_int_equal(take_number(&r, 4), 3);
    r.entry_count = take_number(&r, 8);
    r.value_count = take_number(&r, 8);
    r.value = calloc((size_t)r.value_count + 1, sizeof *r.value);
    r.entry = calloc((size_t)r.entry_count + 1, sizeof *r.entry);
    for (int64_t i = 0; i < r.value_count; i++) {
        take_value(&r, &r.value[i]);
        assert_ptr_equal(gguf_reader_find(&r, r.value[i].key), &r.value[i]);
    }
    for (int64_t i = 0; i < r.entry_count; i++) {
        assert_int_equal(take_entry(&r, &r.entry[i]), end);
        assert_ptr_equal(gguf_reader_tensor(&r, r.entry[i].name), &r.entry[i]);
        end += (bytes_of(&r.entry[i]) + 31) / 32 * 32;
    }
    while (r.at % 32 != 0) assert_int_equal(take_number(&r, 1), 0);
    for (int64_t i = 0; i < r.entry_count; i++) {
        r.entry[i].data = read_bytes(&r, bytes_of(&r.entry[i]));
        while (r.at % 32 != 0) assert_int_equal(take_number(&r, 1), 0);
    }
    assert_int_equal(r.at, r.bytes);
    return r;
}

void gguf_reader_close(gguf_reader *r) {
    free(r->file);
    free(r->value);
    free(r->entry);
}

const gguf_value *gguf_reader_find(const gguf_reader *r, const char *key) {
    for (int64_t i = 0; i < r->value_count; i++)
        if (strcmp(r->value[i].key, key) == 0) return &r->value[i];
    return NULL;
}

double gguf_reader_number(const gguf_reader *r, const char *key) {
    const gguf_value *v = gguf_reader_find(r, key);
    if (!v || v->type > BOOL) fail_msg("%s is missing, or no number", key);
    return v->number;
}

bool gguf_reader_says(const gguf_reader *r, const char *key, const char *text) {
    const gguf_value *v = gguf_reader_find(r, key);
    return v && v->type == TEXT && v->bytes == (int64_t)strlen(text) &&
           memcmp(v->text, text, strlen(text)) == 0;
}

bool gguf_reader_item_is(const gguf_value *list, int64_t index, const char *text) {
    const unsigned char *at = (const unsigned char *)list->text;
    assert_int_equal(list->element_type, TEXT);
    assert_true(index < list->count);
    while (index-- > 0) at += 8 + number(at, 8);
    return number(at, 8) == strlen(text) && memcmp(at + 8, text, strlen(text)) == 0;
}

double gguf_reader_item(const gguf_value *list, int64_t index) {
    const unsigned char *at = (const unsigned char *)list->text + 4 * index;
    assert_true(index < list->count && list->element_type != TEXT);
    return list->element_type == REAL ? (double)real(at) : (double)(int32_t)number(at, 4);
}

const gguf_entry *gguf_reader_tensor(const gguf_reader *r, const char *name) {
    for (int64_t i = 0; i < r->entry_count; i++)
        if (strcmp(r->entry[i].name, name) == 0) return &r->entry[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static float half(uint64_t bits) {
    int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
    float size =
        exponent == 0 ? ldexpf((float)mantissa, -24) : ldexpf((float)(1024 + mantissa), exponent - 25);
    return bits & 0x8000 ? -size : size;
}

float gguf_reader_element(const gguf_entry *e, int64_t index) {
    const unsigned char *block = e->data + index / 32 * 34;
    unsigned char raw[4] = {0};
    assert_true(index < e->count);
    switch (e->type) {
    case F16: return half(number(e->data + 2 * index, 2));
    case BF16: memcpy(raw + 2, e->data + 2 * index, 2); return real(raw);
    case Q8_0: return half(number(block, 2)) * (float)(int8_t)block[2 + index % 32];
    default: return real(e->data + 4 * index);
    }
}
