/*
 * bench/harness: the common part of the benchmarks. A benchmark is a list of cases. A case is a function, and
 * the work that one run of it does. A round measures every case once. There are as many rounds as repeats, so
 * all cases see the same disturbances of a shared machine. An extra round before them warms up. The result is
 * the median over the rounds.
 *
 * Peaks are measured between the cases. A compute unit is a kind of instruction (backend_peak_unit). A case
 * that multiplies matrices is compared with the peak of its unit. Before a case, a short loop of the unit's
 * instructions (a burst) is timed, unless the last burst is less than 0.2 s old. The peak is the speed of the
 * fastest burst, because other programs can only slow a burst down. If a case is faster, its speed is the
 * peak. A GPU's peaks come from its data sheet. After each case that moves bytes, memcpy moves as many bytes.
 * With one thread, times are the CPU time of this thread, which excludes other programs.
 */
#ifndef BENCH_HARNESS_H
#define BENCH_HARNESS_H

#include "base/arena.h"
#include "base/text/str.h"
#include "bench/bench.h"
#include "tensor/exec.h"

#define BENCH_REPEATS_MAX 1001

typedef struct bench bench;

typedef struct bench_case {
    const char *what;    /* "grad_input"; `what` and `shape` name a row of the table */
    char shape[128];     /* size, "2048 x 768 x 3072" */
    const char *variant; /* name of a column, "bf16" */
    double flops;        /* FLOPs of a run; 0: the case moves bytes */
    ott_dtype format;    /* format of its products, which determines the peak */
    double bytes;        /* bytes that a run reads and writes, each byte counted once */
    /* bytes of memory that successive runs go through; 0: every run uses the same bytes */
    int64_t region;
    bool once; /* true: time a single run; false: time as many runs as needed */
    ott_status (*run)(bench *b, void *state);
    void *state;
    /* These members are results. */
    int64_t runs;                   /* runs per measurement */
    double *seconds, *copy_seconds; /* [repeats] seconds per run */
    double *processor;              /* [repeats] CPU time per run, of all threads, in seconds */
} bench_case;

/* The highest speed of a compute unit. */
typedef struct bench_peak {
    const char *unit; /* "fp32 multiply-add"; on a GPU the format: "bf16" */
    double flops;     /* FLOP/s; 0: unknown */
    double measured;  /* clock_seconds() at the last burst */
} bench_peak;

typedef struct bench_entry bench_entry;

enum { BENCH_PEAKS_MOST = OTT_DTYPE_COUNT };

struct bench {
    mem *account;
    const logger *log;
    const bench_options *options;
    const bench_entry *entry;
    exec cx;
    arena *arena;      /* memory of the cases' states */
    bench_case *cases; /* [count] cases of the benchmark */
    int count;
    int64_t capacity;
    double *times; /* memory of the times of all cases */
    bench_peak peak[BENCH_PEAKS_MOST];
    int peaks;
    plan_buffer copy_from, copy_to;
    int64_t copy_bytes; /* bytes of copy_from and of copy_to */
    void *state;        /* state of the benchmark itself, for `close` */
};

/* A benchmark has a list of cases, or one function that does everything. */
struct bench_entry {
    const char *name;
    bool compares_bf16; /* adds a column: speed of the first variant relative to bf16 */
    unsigned accepts;   /* BENCH_ACCEPTS_... flags: its options besides threads, repeats and json */
    ott_status (*add)(bench *b);
    void (*text)(bench *b, str *out); /* writes lines after the table; NULL: none */
    void (*json)(bench *b, str *out); /* writes members after the results, each after a comma; NULL: none */
    void (*close)(bench *b);          /* also called if `add` failed; NULL: nothing to close */
    /* runs a benchmark that has no cases */
    ott_status (*run)(mem *account, const logger *log, const bench_options *o, str *out);
};

enum {
    BENCH_ACCEPTS_SHAPES = 1,
    BENCH_ACCEPTS_MODEL = 2, /* the options preset, precision and recipe */
    BENCH_ACCEPTS_BATCH = 4, /* the options batch_size and seq_len */
    BENCH_ACCEPTS_PATH = 8,
    BENCH_NEEDS_PATH = 16 /* implies BENCH_ACCEPTS_PATH */
};

extern const bench_entry bench_gemm, bench_gemv, bench_quantize, bench_attention, bench_norm, bench_optimizer,
    bench_products, bench_step, bench_generate, bench_load;

/* Like bench_run, without a context. */
ott_status bench_measure(mem *account, const logger *log, const bench_options *options, ott_text_fn write,
                         void *user);
/* Opens the device, adds and measures the cases, and writes the results. */
ott_status bench_cases(mem *account, const logger *log, const bench_entry *entry, const bench_options *o,
                       str *out);

/* ---- cases ---- */

/* Adds a copy of the case to the list. */
ott_status bench_add(bench *b, const bench_case *c);
/* Returns zero-filled memory for the state of a case. The benchmark frees it. */
ott_status bench_alloc(bench *b, int64_t bytes, void **out);
#define bench_alloc(b, bytes, out) bench_alloc(b, bytes, MEM_OUT(out))
/* Makes a device buffer of random values in [-1, 1). */
ott_status bench_tensor(bench *b, ott_dtype d, int64_t rows, int64_t columns, tensor *out);

/* Shape of attention within one document. */
typedef struct bench_attention_shape {
    ott_dtype format;
    int64_t tokens, heads, kv_heads, head_dim;
    int64_t window; /* keys per query; 0: all earlier keys */
} bench_attention_shape;

/* Adds two cases, forward and backward. */
ott_status bench_add_attention(bench *b, const bench_attention_shape *shape);

/* ---- shapes ---- */

typedef struct bench_product {
    int64_t m, n, k; /* C[m,n] = A[m,k] B[n,k]^T */
} bench_product;

typedef struct bench_matrix {
    int64_t rows, columns;
} bench_matrix;

enum { BENCH_SHAPES_MOST = 8 };

/* A named list of sizes: of matrix products, and of matrices for casts and norms. */
typedef struct bench_shapes {
    const char *name;
    int products, matrices;
    bench_product product[BENCH_SHAPES_MOST];
    bench_matrix matrix[BENCH_SHAPES_MOST];
} bench_shapes;

/* Finds the list of sizes that the option `shapes` names, or makes it from the M,K,N in the option.
   OTT_ERR_ARGUMENT if the option is neither. */
ott_status bench_find_shapes(bench *b, const bench_shapes **out);

/* ---- results ---- */

double bench_median(double *values, int count);                      /* returns the median; sorts `values` */
double bench_seconds(const bench *b, const bench_case *c);           /* median seconds of a run */
double bench_processor_seconds(const bench *b, const bench_case *c); /* median CPU time of a run */
void bench_processor(char out[96]);                                  /* name, "Intel(R) Xeon(R) Processor" */
const bench_case *bench_find(const bench *b, const char *what, const char *shape, const char *variant);

#endif
