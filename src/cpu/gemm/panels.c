/* cpu/gemm/panels: the op `pack`, which writes packed rows (cpu/gemm/panel.h) once for many GEMMs. */
#include "cpu/gemm/panel.h"

/* Number of terms of a row that are packed before the next row. They fill complete cache lines. */
enum { TERMS = 64 };

/* Packs rows [row, row + PANEL_ROWS). Rows after the last are 0. t: C type of the elements. */
#define PACK_PANEL(t)                                                                                        \
    static void pack_panel_##t(const tensor *x, t *out, int64_t row) {                                       \
        int64_t k = x->columns, there = x->rows - row < PANEL_ROWS ? x->rows - row : PANEL_ROWS;             \
        int64_t length = panel_contraction(x->dtype, k);                                                     \
        if (there < PANEL_ROWS || length > k) memset(out, 0, (size_t)(PANEL_ROWS * length) * sizeof *out);   \
        for (int64_t first = 0; first < k; first += TERMS) {                                                 \
            int64_t terms = k - first < TERMS ? k - first : TERMS;                                           \
            for (int64_t i = 0; i < there; i++) {                                                            \
                const t *from = (const t *)x->data + (row + i) * x->ld + first;                              \
                for (int64_t j = 0; j < terms; j++) out[panel_index(x->dtype, i, first + j, k)] = from[j];   \
            }                                                                                                \
        }                                                                                                    \
    }
PACK_PANEL(uint8_t)
PACK_PANEL(uint16_t)
PACK_PANEL(uint32_t)

static void pack_task(void *argument, int thread, int threads) {
    const pack_args *a = argument;
    const tensor *x = &a->b->t;
    int64_t begin, end, size = dtype_bytes(x->dtype);
    pool_share(x->rows, PANEL_ROWS, thread, threads, &begin, &end);
    for (int64_t row = begin; row < end; row += PANEL_ROWS) {
        void *out = (char *)a->y->data + row * panel_contraction(x->dtype, x->columns) * size;
        if (size == 1)
            pack_panel_uint8_t(x, out, row);
        else if (size == 2)
            pack_panel_uint16_t(x, out, row);
        else
            pack_panel_uint32_t(x, out, row);
    }
}

int64_t ISA(packed_count)(const operand *b) {
    return panel_round(b->t.rows) * panel_contraction(b->t.dtype, b->t.columns);
}

ott_status ISA(pack)(exec *cx, const pack_args *a) {
    if (a->b->packed || a->b->transposed)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "pack: b is %s; the CPU only packs a b with a contiguous contraction dimension",
                           a->b->packed ? "packed already" : "transposed");
    STATUS_REQUIRE(a->y->dtype == a->b->t.dtype && a->y->columns == ISA(packed_count)(a->b));
    cpu_run_sized(cx, tensor_count(*a->y), pack_task, (void *)a);
    return OTT_OK;
}
