/*
 * compare_blas: our matrix products beside OpenBLAS's sgemm and oneDNN's matmul in fp32 and bf16 (fp32
 * results), on the same shapes and layouts, taking turns in one process (bench/harness.h).
 *
 *     compare_blas [--threads=N] [--repeats=N] [--shapes=NAME] [--json]
 *
 * Without --threads it runs itself twice: with one thread, and with all cores. The other libraries read the
 * environment when they are loaded, so it first starts itself anew with what they need:
 *   OPENBLAS_CORETYPE  in a virtual machine OpenBLAS takes an AVX-512 processor for one of 2004
 *   OMP_WAIT_POLICY    oneDNN's threads must not spin on the cores while it is another's turn
 * Variables that are already set stay.
 */
#include "cpu/cpu.h"
#include "bench/harness.h"
#include <cblas.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- one product in another library ---- */

typedef struct peer_product {
    bench_product size;
    bool a_transposed, b_transposed; /* as they lie: A [K,M], B [K,N] */
    float *a, *b, *c;
    dnnl_primitive_t matmul;
    dnnl_stream_t stream;
    dnnl_exec_arg_t arguments[3];
} peer_product;

static ott_status run_sgemm(bench *b, void *state) {
    const peer_product *p = state;
    int m = (int)p->size.m, n = (int)p->size.n, k = (int)p->size.k;
    (void)b;
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans,
                p->b_transposed ? CblasNoTrans : CblasTrans, m, n, k, 1.0f, p->a, p->a_transposed ? m : k,
                p->b, p->b_transposed ? n : k, 0.0f, p->c, n);
    return OTT_OK;
}

static ott_status check(dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "oneDNN: %s fails with status %d", what, (int)status);
}

static ott_status run_matmul(bench *b, void *state) {
    const peer_product *p = state;
    (void)b;
    TRY(check(dnnl_primitive_execute(p->matmul, p->stream, 3, p->arguments), "matmul"));
    return check(dnnl_stream_wait(p->stream), "waiting");
}

/* ---- oneDNN's way to one ---- */

/* What its primitives share; lives until the program ends. */
static dnnl_engine_t engine;
static dnnl_stream_t stream;

static ott_status open_dnnl(void) {
    TRY(check(dnnl_engine_create(&engine, dnnl_cpu, 0), "making an engine"));
    return check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "making a stream");
}

typedef struct dnnl_shape {
    dnnl_dims_t size;
    dnnl_format_tag_t order;
    dnnl_data_type_t type;
    void *data;
    int argument;
} dnnl_shape;

#if DNNL_VERSION_MAJOR >= 3
static ott_status describe(const dnnl_shape *s, dnnl_memory_desc_t *out) {
    return check(dnnl_memory_desc_create_with_tag(out, 2, s->size, s->type, s->order), "describing a matrix");
}

static ott_status describe_matmul(dnnl_memory_desc_t of[3], dnnl_primitive_desc_t *out) {
    return check(dnnl_matmul_primitive_desc_create(out, engine, of[0], of[1], NULL, of[2], NULL),
                 "describing a matmul");
}
#define DESCRIPTION(d) (d)
#else
static ott_status describe(const dnnl_shape *s, dnnl_memory_desc_t *out) {
    return check(dnnl_memory_desc_init_by_tag(out, 2, s->size, s->type, s->order), "describing a matrix");
}

static ott_status describe_matmul(dnnl_memory_desc_t of[3], dnnl_primitive_desc_t *out) {
    dnnl_matmul_desc_t wanted;
    TRY(check(dnnl_matmul_desc_init(&wanted, &of[0], &of[1], NULL, &of[2]), "describing a matmul"));
    return check(dnnl_primitive_desc_create(out, &wanted, NULL, engine, NULL), "choosing a matmul");
}
#define DESCRIPTION(d) (&(d))
#endif

static ott_status open_matmul(peer_product *p, const dnnl_shape of[3]) {
    dnnl_memory_desc_t descriptions[3];
    dnnl_primitive_desc_t chosen;
    for (int i = 0; i < 3; i++) {
        TRY(describe(&of[i], &descriptions[i]));
        p->arguments[i].arg = of[i].argument;
        TRY(check(
            dnnl_memory_create(&p->arguments[i].memory, DESCRIPTION(descriptions[i]), engine, of[i].data),
            "wrapping a matrix"));
    }
    TRY(describe_matmul(descriptions, &chosen));
    p->stream = stream;
    return check(dnnl_primitive_create(&p->matmul, chosen), "making a matmul");
}

/* ---- the cases ---- */

enum { SGEMM, DNNL_F32, DNNL_BF16, PEERS };

static const struct {
    const char *name;
    ott_dtype format;
    dnnl_data_type_t type;
} peers[PEERS] = {{"OpenBLAS sgemm", OTT_F32, dnnl_f32},
                  {"oneDNN fp32", OTT_F32, dnnl_f32},
                  {"oneDNN bf16", OTT_BF16, dnnl_bf16}};

static const struct {
    const char *name; /* as bench_gemm calls it */
    bool a_transposed, b_transposed;
} layouts[] = {{"output", false, false}, {"grad_input", false, true}, {"grad_weight", true, true}};

static ott_status open_peer(bench *b, int peer, peer_product *p) {
    bench_product s = p->size;
    tensor x, y, z;
    TRY(bench_tensor(b, peers[peer].format, s.m, s.k, &x));
    TRY(bench_tensor(b, peers[peer].format, s.n, s.k, &y));
    TRY(bench_tensor(b, OTT_F32, s.m, s.n, &z));
    p->a = x.data;
    p->b = y.data;
    p->c = z.data;
    if (peer == SGEMM) return OTT_OK;
    const dnnl_shape of[3] = {
        {{s.m, s.k}, p->a_transposed ? dnnl_ba : dnnl_ab, peers[peer].type, x.data, DNNL_ARG_SRC},
        {{s.k, s.n}, p->b_transposed ? dnnl_ab : dnnl_ba, peers[peer].type, y.data, DNNL_ARG_WEIGHTS},
        {{s.m, s.n}, dnnl_ab, dnnl_f32, z.data, DNNL_ARG_DST}};
    return open_matmul(p, of);
}

static ott_status add_peer(bench *b, const bench_product *size, int layout, int peer) {
    void *memory;
    TRY(bench_alloc(b, sizeof(peer_product), &memory));
    peer_product *p = memory;
    p->size = *size;
    p->a_transposed = layouts[layout].a_transposed;
    p->b_transposed = layouts[layout].b_transposed;
    TRY(open_peer(b, peer, p));
    bench_case c = {.what = layouts[layout].name,
                    .variant = peers[peer].name,
                    .flops = 2.0 * (double)(size->m * size->n * size->k),
                    .run = peer == SGEMM ? run_sgemm : run_matmul,
                    .state = p};
    snprintf(c.shape, sizeof c.shape, "%lld x %lld x %lld", (long long)size->m, (long long)size->n,
             (long long)size->k);
    return bench_add(b, &c);
}

static bool same_line(const bench_case *x, const bench_case *y) {
    return strcmp(x->what, y->what) == 0 && strcmp(x->shape, y->shape) == 0;
}

/* Puts what is compared one behind the other in time, too. */
static void gather_lines(bench *b) {
    for (int i = 0, end; i < b->count; i = end) {
        end = i + 1;
        for (int j = end; j < b->count; j++) {
            if (!same_line(&b->cases[i], &b->cases[j])) continue;
            bench_case moved = b->cases[j];
            memmove(&b->cases[end + 1], &b->cases[end], (size_t)(j - end) * sizeof moved);
            b->cases[end++] = moved;
        }
    }
}

static ott_status add_all(bench *b) {
    const bench_shapes *s;
    TRY(bench_find_shapes(b->options, &s));
    TRY(open_dnnl());
    TRY(bench_gemm.add(b));
    for (int i = 0; i < s->products; i++)
        for (int l = 0; l < 3; l++)
            for (int p = 0; p < PEERS; p++) TRY(add_peer(b, &s->product[i], l, p));
    gather_lines(b);
    return OTT_OK;
}

static void write_ratios(bench *b, str *out) {
    static const char *const ours[] = {"e4m3 x e4m3", "e5m2 x e4m3", "bf16", "fp32"};
    str_printf(out, "\nratios of the geometric means%18s", "");
    for (int p = 0; p < PEERS; p++) str_printf(out, " %17s", peers[p].name);
    str_append(out, "\n");
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        str_printf(out, "  %-45s", ours[i]);
        for (int p = 0; p < PEERS; p++)
            str_printf(out, " %17.3f",
                       bench_geometric_mean(b, ours[i], bench_rate) /
                           bench_geometric_mean(b, peers[p].name, bench_rate));
        str_append(out, "\n");
    }
}

static const bench_entry comparison = {.name = "compare_blas", .add = add_all, .text = write_ratios};

/* ---- the program ---- */

static int fail(const char *what) {
    fprintf(stderr, "compare_blas: %s\n", what);
    return 2;
}

static int compare(const bench_options *o) {
    mem *account;
    if (o->repeats < 1 || o->repeats > BENCH_REPEATS_MAX) return fail("--repeats is out of range");
    if (mem_open(&account) != OTT_OK) return fail(status_text());
    str text = {.account = account};
    openblas_set_num_threads(o->threads);
    ott_status status = bench_cases(account, NULL, &comparison, o, &text);
    if (status == OTT_OK) status = str_finish(&text);
    if (status == OTT_OK) fputs(text.text, stdout);
    str_free(&text);
    mem_close(account);
    return status == OTT_OK ? 0 : fail(status_text());
}

static int cores(void) {
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* This program anew, with an environment and a number of threads. */
static int start(int argc, char **argv, int threads) {
    char option[32], count[16];
    char *arguments[16];
    if (argc > 12) return fail("too many arguments");
    pid_t child = fork();
    if (child == 0) {
        snprintf(count, sizeof count, "%d", threads);
        snprintf(option, sizeof option, "--threads=%d", threads);
        memcpy(arguments, argv, (size_t)argc * sizeof *argv);
        arguments[argc] = option;
        arguments[argc + 1] = NULL;
        setenv("COMPARE_BLAS_STARTED", "1", 1);
        setenv("OMP_WAIT_POLICY", "passive", 0);
        setenv("OMP_NUM_THREADS", count, 1);
        if (__builtin_cpu_supports("avx512f")) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 1;
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    bench_options o = {.repeats = 5};
    for (int i = 1; i < argc; i++) {
        if (sscanf(argv[i], "--threads=%d", &o.threads) == 1 && o.threads > 0) continue;
        if (sscanf(argv[i], "--repeats=%d", &o.repeats) == 1) continue;
        if (strcmp(argv[i], "--json") == 0) {
            o.json = 1;
            continue;
        }
        if (strncmp(argv[i], "--shapes=", 9) != 0)
            return fail("takes --threads=N, --repeats=N, --shapes=NAME and --json");
        o.shapes = argv[i] + 9;
    }
    if (getenv("COMPARE_BLAS_STARTED")) return compare(&o);
    if (o.threads > 0) return start(argc, argv, o.threads);
    int code = start(argc, argv, 1);
    return code == 0 && cores() > 1 ? start(argc, argv, cores()) : code;
}
