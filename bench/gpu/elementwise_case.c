/* bench/gpu/elementwise_case: implements elementwise_case.h. */
#include "elementwise_case.h"
#include "fill.h"

static bool is_swiglu(const kernel_case *c) {
    return c->source == SOURCE_SWIGLU || c->source == SOURCE_SWIGLU_BACKWARD;
}

static bool is_computed(const kernel_case *c) {
    return c->source == SOURCE_NORM || is_swiglu(c);
}

int64_t case_value_columns(const kernel_case *c, int64_t columns) {
    return c->source == SOURCE_SWIGLU_BACKWARD ? 2 * columns : columns;
}

const void *case_values(const kernel_case *c, const elementwise_args *a) {
    return is_computed(c) ? a->y : a->x;
}

/* ---- arrays ---- */

static const void *input(gpu *g, ott_dtype format, int64_t count, uint64_t seed) {
    void *data = gpu_alloc((size_t)count * (format == OTT_F32 ? 4 : 2));
    GPU_CHECK(fill_normal(data, format, (size_t)count, 1, seed, g->stream));
    return data;
}

/* A scale under which some of the numbers saturate. */
static const float *given_scale(gpu *g, ott_dtype format) {
    float scale = format == OTT_E4M3 ? 200.0f : 30000.0f, *data = gpu_alloc(sizeof scale);
    gpu_write(g, data, &scale, sizeof scale);
    return data;
}

static void open_inputs(gpu *g, const kernel_case *c, uint64_t seed, elementwise_args *a) {
    int64_t count = a->rows * a->columns;
    a->x = input(g, c->source == SOURCE_WEIGHT ? OTT_F32 : OTT_BF16, is_swiglu(c) ? 2 * count : count, seed);
    if (c->source == SOURCE_NORM || c->source == SOURCE_SWIGLU_BACKWARD)
        a->second = input(g, OTT_BF16, count, seed + 100);
    if (c->source == SOURCE_NORM) a->weight = input(g, OTT_F32, a->columns, seed + 200);
    if (c->grain == GRANULARITY_TENSOR) a->scale = given_scale(g, c->format);
}

typedef struct output {
    void **data;
    int64_t bytes; /* 0: not written */
    int start;     /* what its bytes are before a run */
} output;

enum { OUTPUTS = 9 };

static void list_outputs(const kernel_case *c, elementwise_args *a, output list[OUTPUTS]) {
    int64_t rows = a->rows, columns = case_value_columns(c, a->columns), count = rows * columns;
    bool y = c->writes & WRITES_Y, q = c->writes & WRITES_Q, qt = c->writes & WRITES_QT;
    bool norm = c->source == SOURCE_NORM, scales = c->grain != GRANULARITY_TENSOR;
    const output outputs[OUTPUTS] = {
        {(void **)&a->y, y || is_computed(c) ? 2 * count : 0, 0xff},
        {(void **)&a->residual, norm ? 2 * count : 0, 0xff},
        {(void **)&a->rstd, norm ? 4 * rows : 0, 0xff},
        {(void **)&a->q, q ? count : 0, 0xff},
        {(void **)&a->qt, qt ? count : 0, 0xff},
        {(void **)&a->inverse, q && scales ? 4 * granularity_groups(c->grain, rows, columns) : 0, 0xff},
        {(void **)&a->inverse_t, qt && scales ? 4 * granularity_groups(c->grain, columns, rows) : 0, 0xff},
        {(void **)&a->amax, c->writes & WRITES_AMAX ? 4 : 0, 0},
        {(void **)&a->column_amax, c->writes & WRITES_COLUMN_AMAX ? 4 * columns : 0, 0},
    };
    for (int i = 0; i < OUTPUTS; i++) list[i] = outputs[i];
}

void case_open(gpu *g, const kernel_case *c, int64_t rows, int64_t columns, uint64_t seed,
               elementwise_args *a) {
    *a = (elementwise_args){
        .rows = rows, .columns = columns, .epsilon = 1e-5f, .format = c->format, .rule = c->rule};
    open_inputs(g, c, seed, a);
    output list[OUTPUTS];
    list_outputs(c, a, list);
    for (int i = 0; i < OUTPUTS; i++)
        if (list[i].bytes) *list[i].data = gpu_alloc((size_t)list[i].bytes);
    case_poison(g, c, a);
}

void case_close(elementwise_args *a) {
    void *const all[] = {(void *)a->x,  (void *)a->second, (void *)a->weight, (void *)a->scale,
                         a->y,          a->residual,       a->rstd,           a->q,
                         a->qt,         a->inverse,        a->inverse_t,      a->amax,
                         a->column_amax};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) gpu_free(all[i]);
}

void case_poison(gpu *g, const kernel_case *c, const elementwise_args *a) {
    elementwise_args copy = *a;
    output list[OUTPUTS];
    list_outputs(c, &copy, list);
    for (int i = 0; i < OUTPUTS; i++)
        if (list[i].bytes)
            GPU_CHECK(cudaMemsetAsync(*list[i].data, list[i].start, (size_t)list[i].bytes, g->stream));
}

/* ---- running ---- */

cudaError_t case_prepare(gpu *g, const kernel_case *c, const elementwise_args *a) {
    return c->before ? c->before(a, g->stream) : cudaSuccess;
}

cudaError_t case_run(gpu *g, const kernel_case *c, const elementwise_args *a) {
    cudaError_t status = cudaSuccess;
    if (a->column_amax && !c->before)
        status = cudaMemsetAsync(a->column_amax, 0, (size_t)a->columns * sizeof(float), g->stream);
    if (a->amax && status == cudaSuccess) status = cudaMemsetAsync(a->amax, 0, sizeof(float), g->stream);
    if (status == cudaSuccess) status = c->kernel(a, g->stream);
    return status == cudaSuccess && c->then ? c->then(a, g->stream) : status;
}
