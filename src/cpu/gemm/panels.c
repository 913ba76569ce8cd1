/* cpu/gemm/panels: lines into packed ones (tensor/tensor.h), once for all products that will read them. */
#include "cpu/gemm/gemm.h"

/* Terms at a time, so that what is read of a line is used up while it is there. */
enum { TERMS = 64 };

/* Lines [line, line + PANEL_LINES), those there are, for an element of type `t`. */
#define PACK_PANEL(t)                                                                                        \
    static void pack_panel_##t(const tensor *x, t *out, int64_t line) {                                      \
        int64_t k = x->columns, there = x->rows - line < PANEL_LINES ? x->rows - line : PANEL_LINES;         \
        if (there < PANEL_LINES) memset(out, 0, (size_t)(PANEL_LINES * k) * sizeof *out);                    \
        for (int64_t first = 0; first < k; first += TERMS) {                                                 \
            int64_t terms = k - first < TERMS ? k - first : TERMS;                                           \
            for (int64_t i = 0; i < there; i++) {                                                            \
                const t *from = (const t *)x->data + (line + i) * x->ld + first;                             \
                t *to = out + panel_index(i, first, k);                                                      \
                for (int64_t j = 0; j < terms; j++) to[j * PANEL_LINES] = from[j];                           \
            }                                                                                                \
        }                                                                                                    \
    }
PACK_PANEL(uint8_t)
PACK_PANEL(uint16_t)
PACK_PANEL(uint32_t)

static void pack_task(void *argument, int thread, int threads) {
    const pack_args *a = argument;
    int64_t begin, end, size = dtype_bytes(a->x->dtype);
    pool_share(a->x->rows, PANEL_LINES, thread, threads, &begin, &end);
    for (int64_t line = begin; line < end; line += PANEL_LINES) {
        void *out = (char *)a->y->data + line * a->x->columns * size;
        if (size == 1)
            pack_panel_uint8_t(a->x, out, line);
        else if (size == 2)
            pack_panel_uint16_t(a->x, out, line);
        else
            pack_panel_uint32_t(a->x, out, line);
    }
}

ott_status ISA(pack)(exec *cx, const pack_args *a) {
    STATUS_REQUIRE(a->y->dtype == a->x->dtype && a->y->ld == a->y->columns &&
                   a->y->rows == panel_round(a->x->rows));
    cpu_run_sized(cx, tensor_count(*a->y), pack_task, (void *)a);
    return OTT_OK;
}
