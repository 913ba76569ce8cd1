/*
 * Runs ops on the emulated GPU with a few small shapes, for builds with a sanitizer and for planted faults.
 * `small [OP...]` runs all ops, or the named ones, and compares the results with the reference bit for bit.
 * The name `lists` means every op that takes lists, with a list of one item. The program exits with 1 at the
 * first difference. All bytes outside of arguments, including row padding, are forbidden to the op
 * (sanitize.h), even for reading. A product that cuBLASLt refuses counts as a difference, because the
 * fallback is correct but slow.
 */
#include "backend/op_case.h"
#include "backend/open.h"
#include "reference/reference_ops.h"
#include "sanitize.h"
#include <stdio.h>
#include <string.h>

/* With the thread sanitizer cases are ten times slower, but few suffice: races do not depend on values. */
#ifdef SANITIZE_ORDER
enum { CASES = 14, CASES_OF_QUANTIZATION = 42, CASES_OF_PRODUCTS = 42 };
#else
enum {
    CASES = 28,
    CASES_OF_QUANTIZATION = 63,
    CASES_OF_PRODUCTS = 250
}; /* enough cases for every quantization spec and every pair of operand formats */
#endif

static op_case c;
static case_device reference, gpu;

static ott_status open_all(mem **account) {
    device *d;
    TRY(mem_open(account));
    TRY(reference_device_open(*account, &d));
    TRY(case_device_open(d, &reference));
    TRY(test_device_open_named("cuda", *account, 0, NULL, &d));
    TRY(case_device_open(d, &gpu));
    return case_memory_open(*account, &c);
}

static void close_all(mem *account) {
    case_device_close(&gpu);
    case_device_close(&reference);
    case_memory_close(account, &c);
    mem_close(account);
}

static void forbid_all_but_arguments(void) {
    memory_forbid(gpu.block, CASE_BLOCK_BYTES);
    for (int i = 0; i < c.region_count; i++) {
        const region *r = &c.regions[i];
        int64_t size = dtype_bytes(r->dtype);
        for (int64_t row = 0; row < r->rows; row++)
            memory_allow((char *)gpu.block + r->offset + row * r->ld * size, (size_t)(r->columns * size));
    }
}

static char warning[400];

static void keep_warning(void *user, ott_log_level level, const char *text) {
    (void)user, (void)level;
    snprintf(warning, sizeof warning, "%s", text);
}

static ott_status call_case(void *user, exec *cx) {
    return case_call(user, cx);
}

static ott_status run_case(void) {
    static const logger log = {.callback = keep_warning, .level = OTT_LOG_WARNING};
    exec cx = {.device = gpu.device, .log = &log};
    TRY(case_expect(&c, &reference));
    TRY(case_load(&c, &gpu, &c.loaded));
    forbid_all_but_arguments();
    TRY(case_in_plan(&cx, call_case, &c));
    TRY(device_synchronize(gpu.device));
    memory_allow(gpu.block, CASE_BLOCK_BYTES);
    TRY(case_store(&c, &gpu));
    if (strstr(warning, "cuBLASLt")) return status_fail(OTT_ERR_INTERNAL, "%s", warning);
    return case_compare(&c) ? OTT_OK : status_fail(OTT_ERR_INTERNAL, "%s", c.message);
}

static int cases_of(const op_info *op) {
    for (int i = 0; i < op->field_count; i++) {
        if (op->fields[i].kind == OP_QTENSOR) return CASES_OF_QUANTIZATION;
        if (op->fields[i].kind == OP_OPERAND) return CASES_OF_PRODUCTS;
    }
    return CASES;
}

/* Runs the cases of an op. Successive cases have successive shapes, formats and kinds of values. After all
   shapes, one format and one kind of values are skipped, so that each shape gets other ones. */
static bool run_op(const op_info *op) {
    static const ott_dtype formats[] = {OTT_F32, OTT_BF16, OTT_F16};
    int shapes = case_shapes(op), dtypes = case_dtypes(op), count = cases_of(op);
    for (int i = 0; i < count; i++) {
        value_kind kind = (value_kind)((i + i / shapes) % VALUE_KINDS);
        bool made = case_make(&c, op, formats[(i + i / shapes) % dtypes], i % shapes, kind, (uint64_t)i);
        if (made && case_is_impossible(&c, gpu.device)) continue;
        if (made && run_case() == OTT_OK) continue;
        char text[1500];
        case_describe(&c, text, sizeof text);
        fprintf(stderr, "small: %s: %s\n", made ? status_text() : "the case does not fit into the memory",
                text);
        return false;
    }
    printf("small: %s: %d cases\n", op->name, count);
    return true;
}

static bool run_lists(void) {
    for (int i = 0; i < op_count(); i++) {
        const op_info *op = op_at(i);
        if (!op_is_for_lists(op)) continue;
        ott_status status = case_run_list(&c, op, &gpu);
        if (status == OTT_OK) status = case_compare_list(&c, op, &gpu, &reference);
        if (status == OTT_OK) continue;
        fprintf(stderr, "small: %s: %s\n", op->name, status_text());
        return false;
    }
    return true;
}

static bool is_named(const char *what, int names, char **name) {
    for (int i = 0; i < names; i++)
        if (strcmp(name[i], what) == 0) return true;
    return names == 0;
}

int main(int argc, char **argv) {
    mem *account;
    bool right = true;
    if (open_all(&account) != OTT_OK) {
        fprintf(stderr, "small: %s\n", status_text());
        return 1;
    }
    for (int i = 0; i < op_count() && right; i++) {
        const op_info *op = op_at(i);
        bool runs = is_named(op->name, argc - 1, argv + 1) && op_is_there(gpu.device->ops, (enum op_index)i);
        if (runs && !fixture_find(op)->opaque) right = run_op(op);
    }
    if (is_named("lists", argc - 1, argv + 1)) right = right && run_lists();
    close_all(account);
    return right ? 0 : 1;
}
