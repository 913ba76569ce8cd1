/* golden: reads the files of tests/golden. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "nn/golden.h"
#include "fp8/cast.h"

#define NAME_MAX_BYTES 160

void golden_open(golden *g, mem *account, const char *file) {
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", TEST_SOURCE_DIR, file);
    g->account = account;
    if (safetensors_open(account, path, &g->file) != OTT_OK) fail_msg("%s", status_text());
}

void golden_close(golden *g) {
    safetensors_close(g->file);
    g->file = NULL;
}

bool golden_has(const golden *g, const char *format, ...) {
    char name[NAME_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    return safetensors_find(g->file, name) != NULL;
}

static const safetensors_entry *find(const golden *g, const char *name) {
    const safetensors_entry *e = safetensors_find(g->file, name);
    if (!e) fail_msg("%s has no %s", safetensors_path(g->file), name);
    assert_in_range(e->rank, 1, 3);
    assert_true(e->dtype != OTT_DTYPE_COUNT);
    return e;
}

golden_tensor golden_read(const golden *g, const char *format, ...) {
    char name[NAME_MAX_BYTES];
    void *data, *values;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    const safetensors_entry *e = find(g, name);
    int64_t rows = 1, columns = e->shape[e->rank - 1];
    /* expert weights [experts, rows, columns] become one matrix with the rows of all experts */
    for (int i = 0; i < e->rank - 1; i++) rows *= e->shape[i];
    assert_int_equal(mem_alloc(g->account, MEM_OTHER, e->bytes, name, &data), OTT_OK);
    assert_int_equal(mem_alloc_array(g->account, MEM_OTHER, rows * columns, sizeof(float), name, &values),
                     OTT_OK);
    if (safetensors_read(g->file, e, 0, e->bytes, data) != OTT_OK) fail_msg("%s", status_text());
    golden_tensor t = {
        .t = tensor_matrix(data, e->dtype, rows, columns), .values = values, .count = rows * columns};
    for (int64_t i = 0; i < t.count; i++) t.values[i] = cast_load(data, e->dtype, i);
    return t;
}

void golden_free(const golden *g, golden_tensor *t) {
    mem_free(g->account, t->t.data);
    mem_free(g->account, t->values);
    *t = (golden_tensor){0};
}
