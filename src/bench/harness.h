/*
 * bench/harness: what the benchmarks share. A benchmark is a list of cases; a case is a function to run
 * and the work that one run does. All cases are measured one after the other, and that as many times as there
 * are repeats, so that every case meets the same disturbances of a shared machine; the first round only warms
 * up. The median of a case's rounds counts.
 *
 * Peaks are measured in turn with the cases. A product's peak is the peak of the unit that computes it (backend_peak_unit), and a
 * burst of that unit runs before its products, several times a second. The best burst counts, and the peak is never less than
 * what a product reached: other programs slow a burst down, and nothing speeds it up. A GPU's peaks are its data sheet's. Right
 * after a case that moves bytes, memcpy moves as many. On one thread, time is the processor time of that thread, which other
 * programs on the machine do not enter.
 */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include "base/arena.h"
#include "base/str.h"
#include "bench/bench.h"
#include "tensor/exec.h"

#define BENCH_REPEATS_MAX 1001

typedef struct bench bench;

typedef struct bench_case {
    const char *what;    /* "grad_input": with the shape, the line of the table */
    char shape[64];      /* "2048 x 768 x 3072" */
    const char *variant; /* "bf16": the column */
    double flops;        /* of one run; 0: its work is bytes */
    ott_dtype format;    /* of its products: the format selects the peak */
    double bytes;        /* of one run: read and written, each byte once */
    int64_t region;      /* bytes that its runs cycle through, memcpy likewise; 0: the same bytes each time */
    bool once;           /* a measurement is one run; else as many as take a while */
    ott_status (*run)(bench *b, void *state);
    void *state;
    /* What was measured. */
    int64_t runs;                   /* of a measurement */
    double *seconds, *copy_seconds; /* [repeats] of a run */
    double *processor;              /* [repeats] processor time of a run, of all threads */
} bench_case;

/* The most that a unit was seen to do. */
typedef struct bench_peak {
    const char *unit; /* "fp32 multiply-add"; of a GPU the format: "bf16" */
    double flops;     /* FLOP/s; 0: not known */
    double measured;  /* clock_seconds of the last burst */
} bench_peak;

typedef struct bench_entry bench_entry;

enum { BENCH_PEAKS_MOST = OTT_DTYPE_COUNT };

struct bench {
    mem *account;
    const logger *log;
    const bench_options *options;
    const bench_entry *entry;
    exec cx;
    arena *arena;      /* of the cases' states */
    bench_case *cases; /* [count] */
    int count, capacity;
    double *times; /* memory of the cases' arrays */
    bench_peak peak[BENCH_PEAKS_MOST];
    int peaks;
    plan_buffer copy_from, copy_to;
    int64_t copy_bytes; /* of each */
    void *state;        /* of the benchmark as a whole, for its close */
};

/* One benchmark: its cases, or, where they are of another kind, a function that does it all. */
struct bench_entry {
    const char *name;
    bool compares_bf16; /* a column: the first variant's speed beside that of the variant bf16 */
    unsigned takes;     /* options beside threads, repeats and json: BENCH_TAKES_... */
    ott_status (*add)(bench *b);
    void (*text)(bench *b, str *out); /* lines below the table; NULL: none */
    void (*json)(bench *b,
                 str *out);  /* members behind the results, each with a comma before it; NULL: none */
    void (*close)(bench *b); /* also when adding failed; NULL: nothing to close */
    ott_status (*run)(mem *account, const logger *log, const bench_options *o, str *out); /* instead */
};

enum {
    BENCH_TAKES_SHAPES = 1,
    BENCH_TAKES_MODEL = 2, /* preset, precision, recipe */
    BENCH_TAKES_BATCH = 4, /* batch_size, seq_len */
    BENCH_TAKES_PATH = 8,
    BENCH_NEEDS_PATH = 16 /* and takes it */
};

extern const bench_entry bench_gemm, bench_gemv, bench_quantize, bench_attention, bench_norm, bench_optimizer,
    bench_products, bench_step, bench_generate, bench_load;

/* bench_run without a context. */
ott_status bench_measure(mem *account, const logger *log, const bench_options *options, ott_text_fn write,
                         void *user);
/* Opens the device, adds the cases, measures them and writes. */
ott_status bench_cases(mem *account, const logger *log, const bench_entry *entry, const bench_options *o,
                       str *out);

/* ---- cases ---- */

/* A copy of the case joins the list. */
ott_status bench_add(bench *b, const bench_case *c);
/* Memory of the benchmark's own, zero-filled: a case's state. */
ott_status bench_alloc(bench *b, int64_t bytes, void **out);
/* A device buffer of random values in [-1, 1). */
ott_status bench_tensor(bench *b, ott_dtype d, int64_t rows, int64_t columns, tensor *out);

/* Attention over one document. */
typedef struct bench_attention_shape {
    ott_dtype format;
    int64_t tokens, heads, kv_heads, head_dim;
    int64_t window; /* 0: none */
} bench_attention_shape;

/* Adds its two cases, forward and backward. */
ott_status bench_add_attention(bench *b, const bench_attention_shape *shape);

/* ---- shapes ---- */

typedef struct bench_product {
    int64_t m, n, k; /* C[m,n] = A[m,k] B[n,k]^T */
} bench_product;

typedef struct bench_matrix {
    int64_t rows, columns;
} bench_matrix;

enum { BENCH_SHAPES_MOST = 8 };

/* A named list: products, and the tensors that are quantized and normalized. */
typedef struct bench_shapes {
    const char *name;
    int products, matrices;
    bench_product product[BENCH_SHAPES_MOST];
    bench_matrix matrix[BENCH_SHAPES_MOST];
} bench_shapes;

/* The list that the options name, or that they spell out as M,K,N of each product. OTT_ERR_ARGUMENT: neither. */
ott_status bench_find_shapes(bench *b, const bench_shapes **out);

/* ---- what was measured ---- */

double bench_median(double *values, int count);                      /* sorts them */
double bench_seconds(const bench *b, const bench_case *c);           /* median of a run */
double bench_processor_seconds(const bench *b, const bench_case *c); /* the same of processor time */
void bench_processor(char out[96]);                                  /* "Intel(R) Xeon(R) Processor" */
const bench_case *bench_find(const bench *b, const char *what, const char *shape, const char *variant);

#endif
