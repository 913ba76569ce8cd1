/* cuda/attention/attention_cudnn: lowers a graph to cuDNN's descriptors, which the plan owns, and chooses an
   engine. */
#include "cuda/attention/attention_cudnn.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef cudnnBackendDescriptor_t descriptor;

/* ---- the library ---- */

static const char remedy[] = ATTENTION_CUDNN_INSTALL;

static ott_status refuse_library(attention_library *l) {
    return status_fail(OTT_ERR_DEVICE, "%s", l->error);
}

static ott_status load_calls(attention_library *l) {
#define X(name)                                                                                              \
    *(void **)&l->calls.name = dlsym(l->file, "cudnn" #name);                                                \
    if (!l->calls.name) {                                                                                    \
        snprintf(l->error, sizeof l->error, "cuDNN has no cudnn" #name ": %s", remedy);                      \
        return refuse_library(l);                                                                            \
    }
    CUDNN_CALLS(X)
#undef X
    return OTT_OK;
}

static ott_status open_library_file(attention_library *l) {
    *l = (attention_library){.file = dlopen(ATTENTION_CUDNN_FILE, RTLD_NOW | RTLD_LOCAL)};
    if (!l->file) {
        snprintf(l->error, sizeof l->error, "cuDNN cannot be opened (%s): %s", dlerror(), remedy);
        return refuse_library(l);
    }
    TRY(load_calls(l));
    l->version = l->calls.GetVersion();
    if (l->version >= ATTENTION_CUDNN_LEAST) return OTT_OK;
    snprintf(l->error, sizeof l->error, "cuDNN %zu.%zu.%zu is older than 9.18.1: %s", l->version / 10000,
             l->version / 100 % 100, l->version % 100, remedy);
    return refuse_library(l);
}

/* Returns false if `status` is an error. Keeps the first error, because later errors follow from it. */
static bool check_cudnn(const attention_library *l, char error[ATTENTION_TEXT], const char *what,
                        cudnnStatus_t status) {
    if (status == CUDNN_STATUS_SUCCESS) return true;
    if (error[0]) return false;
    char details[ATTENTION_TEXT / 2] = "";
    l->calls.GetLastErrorString(details, sizeof details);
    snprintf(error, ATTENTION_TEXT, "%s: %s: %s", what, l->calls.GetErrorString(status), details);
    return false;
}

static ott_status require(attention_library *l, const char *what, cudnnStatus_t status) {
    return check_cudnn(l, l->error, what, status) ? OTT_OK
                                                  : status_fail(OTT_ERR_DEVICE, "cuDNN: %s", l->error);
}

ott_status attention_library_open(attention_library *l, cudaStream_t stream) {
    TRY(open_library_file(l));
    TRY(require(l, "cudnnCreate", l->calls.Create(&l->handle)));
    return require(l, "cudnnSetStream", l->calls.SetStream(l->handle, stream));
}

ott_status attention_library_describe(attention_library *l, const char *json) {
    static const char what[] = "device description";
    TRY(open_library_file(l));
    TRY(require(l, what,
                l->calls.BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &l->properties)));
    TRY(require(l, what,
                l->calls.BackendSetAttribute(l->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                             CUDNN_TYPE_CHAR, (int64_t)strlen(json), json)));
    return require(l, what, l->calls.BackendFinalize(l->properties));
}

void attention_library_close(attention_library *l) {
    if (l->properties) l->calls.BackendDestroyDescriptor(l->properties);
    if (l->handle) l->calls.Destroy(l->handle);
    if (l->file) dlclose(l->file);
}

/* A plan that is being built. */
typedef struct builder {
    const attention_library *cudnn;
    attention_plan *plan;
    char *error; /* points to plan->error */
} builder;

/* ---- descriptors ---- */

static descriptor create(builder *p, cudnnBackendDescriptorType_t type) {
    descriptor d = NULL;
    if (p->plan->descriptor_count == ATTENTION_DESCRIPTORS_MOST)
        check_cudnn(p->cudnn, p->error, "too many descriptors", CUDNN_STATUS_INTERNAL_ERROR);
    else if (check_cudnn(p->cudnn, p->error, "descriptor", p->cudnn->calls.BackendCreateDescriptor(type, &d)))
        p->plan->descriptors[p->plan->descriptor_count++] = d;
    return d;
}

static void set_attribute(builder *p, descriptor d, cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    char what[32];
    snprintf(what, sizeof what, "attribute %d", (int)name);
    if (p->error[0]) return;
    check_cudnn(p->cudnn, p->error, what, p->cudnn->calls.BackendSetAttribute(d, name, type, count, value));
}

static void set_descriptor(builder *p, descriptor d, cudnnBackendAttributeName_t name, descriptor value) {
    set_attribute(p, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(builder *p, descriptor d, cudnnBackendAttributeName_t name, graph_type type) {
    static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF,
                                            CUDNN_DATA_INT32, CUDNN_DATA_INT64,    CUDNN_DATA_BOOLEAN};
    set_attribute(p, d, name, CUDNN_TYPE_DATA_TYPE, 1, &types[type]);
}

static void set_flag(builder *p, descriptor d, cudnnBackendAttributeName_t name) {
    set_attribute(p, d, name, CUDNN_TYPE_BOOLEAN, 1, &(bool){true});
}

static descriptor finalize(builder *p, descriptor d, const char *what) {
    if (!p->error[0]) check_cudnn(p->cudnn, p->error, what, p->cudnn->calls.BackendFinalize(d));
    return d;
}

/* ---- tensors and operations ---- */

/* Descriptors of a graph's tensors, indexed by uid; NULL for uid 0. */
typedef struct lowering {
    builder *builder;
    const graph *graph;
    descriptor tensors[GRAPH_TENSORS_MOST];
} lowering;

static void lower_tensor(lowering *l, int uid) {
    const graph_tensor *t = &l->graph->tensors[uid];
    builder *p = l->builder;
    descriptor d = create(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(p, d, CUDNN_ATTR_TENSOR_DATA_TYPE, t->type);
    set_attribute(p, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dims);
    set_attribute(p, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->strides);
    set_attribute(p, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &(int64_t){uid});
    set_attribute(p, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &(int64_t){16});
    if (t->is_virtual) set_flag(p, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    if (t->by_value) set_flag(p, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    if (t->offsets) set_descriptor(p, d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, l->tensors[t->offsets]);
    l->tensors[uid] = finalize(p, d, "tensor");
}

static bool is_offsets(int uid) {
    return uid >= ATTENTION_Q_OFFSETS && uid <= ATTENTION_LSE_OFFSETS;
}

/* Lowers the offset tensors first, because ragged tensors refer to them. */
static void lower_tensors(lowering *l) {
    attention_plan *p = l->builder->plan;
    for (int uid = 1; uid < l->graph->tensor_count; uid++)
        if (attention_graph_has(l->graph, uid) && is_offsets(uid)) lower_tensor(l, uid);
    for (int uid = 1; uid < l->graph->tensor_count; uid++)
        if (attention_graph_has(l->graph, uid) && !is_offsets(uid)) lower_tensor(l, uid);
    for (int uid = 1; uid < ATTENTION_NAMED; uid++)
        if (attention_graph_has(l->graph, uid)) p->uids[p->uid_count++] = uid;
}

static void set_tensor(lowering *l, descriptor d, cudnnBackendAttributeName_t name, int uid) {
    if (uid) set_descriptor(l->builder, d, name, l->tensors[uid]);
}

static descriptor lower_matmul(lowering *l, const graph_op *op) {
    builder *p = l->builder;
    descriptor kind = create(p, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(p, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, op->compute);
    finalize(p, kind, "matmul");
    descriptor d = create(p, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, op->a);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, op->b);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, op->out);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, op->m);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, op->n);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, op->k);
    return finalize(p, d, "matmul operation");
}

static descriptor lower_reshape(lowering *l, const graph_op *op) {
    descriptor d = create(l->builder, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, op->a);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, op->out);
    return finalize(l->builder, d, "reshape operation");
}

static descriptor lower_reduction(lowering *l, const graph_op *op) {
    builder *p = l->builder;
    cudnnReduceTensorOp_t mode =
        op->mode == GRAPH_REDUCE_ADD ? CUDNN_REDUCE_TENSOR_ADD : CUDNN_REDUCE_TENSOR_MAX;
    descriptor kind = create(p, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set_attribute(p, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set_type(p, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, op->compute);
    finalize(p, kind, "reduction");
    descriptor d = create(p, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, op->a);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, op->out);
    return finalize(p, d, "reduction operation");
}

static cudnnPointwiseMode_t pointwise_mode(graph_mode mode) {
    switch (mode) {
    case GRAPH_MUL: return CUDNN_POINTWISE_MUL;
    case GRAPH_ADD: return CUDNN_POINTWISE_ADD;
    case GRAPH_SUB: return CUDNN_POINTWISE_SUB;
    case GRAPH_DIV: return CUDNN_POINTWISE_DIV;
    case GRAPH_EXP: return CUDNN_POINTWISE_EXP;
    case GRAPH_LOG: return CUDNN_POINTWISE_LOG;
    case GRAPH_INDEX: return CUDNN_POINTWISE_GEN_INDEX;
    case GRAPH_LESS: return CUDNN_POINTWISE_CMP_LT;
    case GRAPH_GREATER: return CUDNN_POINTWISE_CMP_GT;
    case GRAPH_GREATER_EQUAL: return CUDNN_POINTWISE_CMP_GE;
    case GRAPH_AND: return CUDNN_POINTWISE_LOGICAL_AND;
    case GRAPH_SELECT: return CUDNN_POINTWISE_BINARY_SELECT;
    default: return CUDNN_POINTWISE_IDENTITY;
    }
}

static descriptor lower_pointwise(lowering *l, const graph_op *op) {
    builder *p = l->builder;
    cudnnPointwiseMode_t mode = pointwise_mode(op->mode);
    descriptor kind = create(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set_attribute(p, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(p, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, op->compute);
    if (op->mode == GRAPH_INDEX)
        set_attribute(p, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &(int64_t){op->axis});
    finalize(p, kind, "pointwise");
    descriptor d = create(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(p, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op->a);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, op->b);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, op->c);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op->out);
    return finalize(p, d, "pointwise operation");
}

static descriptor lower_op(lowering *l, const graph_op *op) {
    switch (op->mode) {
    case GRAPH_MATMUL: return lower_matmul(l, op);
    case GRAPH_RESHAPE: return lower_reshape(l, op);
    case GRAPH_REDUCE_ADD:
    case GRAPH_REDUCE_MAX: return lower_reduction(l, op);
    default: return lower_pointwise(l, op);
    }
}

static descriptor lower_graph(builder *p, const graph *g) {
    lowering l = {.builder = p, .graph = g};
    cudnnHandle_t handle = p->cudnn->handle;
    descriptor ops[GRAPH_OPS_MOST];
    lower_tensors(&l);
    for (int i = 0; i < g->op_count; i++) ops[i] = lower_op(&l, &g->ops[i]);
    descriptor d = create(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set_attribute(p, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->op_count, ops);
    if (handle) set_attribute(p, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    return finalize(p, d, "graph");
}

/* ---- plans ---- */

static bool finalize_plan(builder *p, descriptor config) {
    cudnnHandle_t handle = p->cudnn->handle;
    descriptor d = create(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (handle) set_attribute(p, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_descriptor(p, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    p->plan->plan = finalize(p, d, "plan");
    int64_t count = 0;
    return !p->error[0] &&
           check_cudnn(p->cudnn, p->error, "workspace",
                       p->cudnn->calls.BackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                           CUDNN_TYPE_INT64, 1, &count, &p->plan->workspace));
}

enum { CONFIGS_MOST = 16 };

/* Returns the engine configurations that the heuristics suggest, best first. */
static int suggest_engines(builder *p, descriptor operations, cudnnBackendHeurMode_t mode,
                           descriptor configs[CONFIGS_MOST]) {
    descriptor d = create(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(p, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
    set_attribute(p, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!p->cudnn->handle) set_descriptor(p, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, p->cudnn->properties);
    finalize(p, d, "heuristics");
    for (int i = 0; i < CONFIGS_MOST; i++) configs[i] = create(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = 0;
    if (p->error[0] || !check_cudnn(p->cudnn, p->error, "heuristics",
                                    p->cudnn->calls.BackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                                        CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                                        CONFIGS_MOST, &count, configs)))
        return 0;
    return count < CONFIGS_MOST ? (int)count : CONFIGS_MOST;
}

/* Clears p->error. `reason` keeps the first error. */
static void take_error(builder *p, char reason[ATTENTION_TEXT]) {
    if (!reason[0]) memcpy(reason, p->error, ATTENTION_TEXT);
    p->error[0] = '\0';
}

/* Builds a plan from the first engine configuration for which cuDNN can build one. If there is none, p->error
   is the error of the first configuration. */
static void choose_engine(builder *p, descriptor operations) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    char reason[ATTENTION_TEXT] = "";
    for (int m = 0; m < 2; m++) {
        descriptor configs[CONFIGS_MOST];
        int count = suggest_engines(p, operations, modes[m], configs);
        for (int i = 0; i < count; i++) {
            if (finalize_plan(p, configs[i])) return;
            take_error(p, reason);
        }
        take_error(p, reason);
    }
    snprintf(p->error, ATTENTION_TEXT, "%s", reason[0] ? reason : "cuDNN suggests no engine");
}

static descriptor choose_knob(builder *p, cudnnBackendKnobType_t type, int64_t value) {
    descriptor d = create(p, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    set_attribute(p, d, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    set_attribute(p, d, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    return finalize(p, d, "knob");
}

static void take_engine(builder *p, descriptor operations, const attention_engine *e) {
    descriptor knobs[ATTENTION_KNOBS_MOST];
    for (int i = 0; i < e->knob_count; i++)
        knobs[i] = choose_knob(p, (cudnnBackendKnobType_t)e->knobs[i].type, e->knobs[i].value);
    descriptor engine = create(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    set_descriptor(p, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, operations);
    set_attribute(p, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e->index);
    if (!p->cudnn->handle) set_descriptor(p, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, p->cudnn->properties);
    finalize(p, engine, "engine");
    descriptor config = create(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    set_descriptor(p, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    set_attribute(p, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, e->knob_count,
                  knobs);
    finalize(p, config, "engine configuration");
    if (!p->error[0]) finalize_plan(p, config);
}

ott_status attention_plan_build(attention_plan *plan, const attention_library *l, const graph *g,
                                const attention_engine *engine) {
    *plan = (attention_plan){0};
    builder p = {.cudnn = l, .plan = plan, .error = plan->error};
    descriptor operations = lower_graph(&p, g);
    if (!plan->error[0] && engine) take_engine(&p, operations, engine);
    if (!plan->error[0] && !engine) choose_engine(&p, operations);
    return plan->error[0] ? status_fail(OTT_ERR_UNSUPPORTED, "cuDNN: %s", plan->error) : OTT_OK;
}

ott_status attention_plan_run(attention_plan *plan, const attention_library *l,
                              void *const data[ATTENTION_NAMED], void *workspace) {
    int64_t uids[ATTENTION_NAMED], count = plan->uid_count;
    void *pointers[ATTENTION_NAMED];
    for (int i = 0; i < count; i++) {
        uids[i] = plan->uids[i];
        pointers[i] = data[plan->uids[i]];
    }
    char error[ATTENTION_TEXT] = "";
    builder p = {.cudnn = l, .plan = plan, .error = error};
    descriptor pack = NULL;
    check_cudnn(l, error, "arguments",
                l->calls.BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    set_attribute(&p, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids);
    set_attribute(&p, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    set_attribute(&p, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(&p, pack, "arguments");
    if (!error[0]) check_cudnn(l, error, "run", l->calls.BackendExecute(l->handle, plan->plan, pack));
    if (pack) l->calls.BackendDestroyDescriptor(pack);
    return error[0] ? status_fail(OTT_ERR_DEVICE, "cuDNN: attention: %s", error) : OTT_OK;
}

void attention_plan_close(attention_plan *p, const attention_library *l) {
    while (p->descriptor_count > 0) l->calls.BackendDestroyDescriptor(p->descriptors[--p->descriptor_count]);
}
