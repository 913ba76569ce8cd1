/* bench/gpu/attention_cudnn: implements attention_cudnn.h. */
#include "attention_cudnn.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef cudnnBackendDescriptor_t descriptor;

/* Says what failed: the first failure stays, as what follows comes from it. */
static bool check(char error[ATTENTION_TEXT], const char *what, cudnnStatus_t status) {
    if (status == CUDNN_STATUS_SUCCESS) return true;
    if (error[0]) return false;
    char details[ATTENTION_TEXT / 2] = "";
    cudnnGetLastErrorString(details, sizeof details);
    snprintf(error, ATTENTION_TEXT, "%s: %s: %s", what, cudnnGetErrorString(status), details);
    return false;
}

/* ---- the device ---- */

static bool open_properties(attention_device *d, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    return check(d->error, "device description",
                 cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d->properties)) &&
           check(d->error, "device description",
                 cudnnBackendSetAttribute(d->properties, name, type, count, value)) &&
           check(d->error, "device description", cudnnBackendFinalize(d->properties));
}

bool attention_device_open(attention_device *d, cudaStream_t stream) {
    *d = (attention_device){0};
    return check(d->error, "cudnnCreate", cudnnCreate(&d->handle)) &&
           check(d->error, "cudnnSetStream", cudnnSetStream(d->handle, stream));
}

bool attention_device_describe(attention_device *d, const char *json) {
    *d = (attention_device){0};
    return open_properties(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                           (int64_t)strlen(json), json);
}

void attention_device_close(attention_device *d) {
    if (d->properties) cudnnBackendDestroyDescriptor(d->properties);
    if (d->handle) cudnnDestroy(d->handle);
}

char *attention_device_json(attention_device *d) {
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION;
    int64_t bytes = 0;
    if (!d->properties && !open_properties(d, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &d->handle))
        return NULL;
    if (!check(d->error, "size of the device description",
               cudnnBackendGetAttribute(d->properties, name, CUDNN_TYPE_CHAR, 0, &bytes, NULL)))
        return NULL;
    char *json = calloc(1, (size_t)bytes + 1);
    if (json && check(d->error, "device description",
                      cudnnBackendGetAttribute(d->properties, name, CUDNN_TYPE_CHAR, bytes, &bytes, json)))
        return json;
    free(json);
    return NULL;
}

/* ---- descriptors ---- */

static descriptor create(attention_plan *p, cudnnBackendDescriptorType_t type) {
    descriptor d = NULL;
    if (p->descriptor_count == ATTENTION_DESCRIPTORS_MOST)
        check(p->error, "too many descriptors", CUDNN_STATUS_INTERNAL_ERROR);
    else if (check(p->error, "descriptor", cudnnBackendCreateDescriptor(type, &d)))
        p->descriptors[p->descriptor_count++] = d;
    return d;
}

static void set(attention_plan *p, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    char what[32];
    snprintf(what, sizeof what, "attribute %d", (int)name);
    if (!p->error[0]) check(p->error, what, cudnnBackendSetAttribute(d, name, type, count, value));
}

static void set_descriptor(attention_plan *p, descriptor d, cudnnBackendAttributeName_t name,
                           descriptor value) {
    set(p, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(attention_plan *p, descriptor d, cudnnBackendAttributeName_t name, graph_type type) {
    static const cudnnDataType_t types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_INT32,
                                            CUDNN_DATA_INT64, CUDNN_DATA_BOOLEAN};
    set(p, d, name, CUDNN_TYPE_DATA_TYPE, 1, &types[type]);
}

static void set_flag(attention_plan *p, descriptor d, cudnnBackendAttributeName_t name) {
    set(p, d, name, CUDNN_TYPE_BOOLEAN, 1, &(bool){true});
}

static descriptor finalize(attention_plan *p, descriptor d, const char *what) {
    if (!p->error[0]) check(p->error, what, cudnnBackendFinalize(d));
    return d;
}

/* ---- tensors and operations ---- */

/* A graph's tensors by uid; NULL for uid 0. */
typedef struct lowering {
    attention_plan *plan;
    const graph *graph;
    descriptor tensors[GRAPH_TENSORS_MOST];
} lowering;

static void lower_tensor(lowering *l, int uid) {
    const graph_tensor *t = &l->graph->tensors[uid];
    attention_plan *p = l->plan;
    descriptor d = create(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_type(p, d, CUDNN_ATTR_TENSOR_DATA_TYPE, t->type);
    set(p, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->dims);
    set(p, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->strides);
    set(p, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &(int64_t){uid});
    set(p, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &(int64_t){16});
    if (t->is_virtual) set_flag(p, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    if (t->by_value) set_flag(p, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    if (t->offsets) set_descriptor(p, d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, l->tensors[t->offsets]);
    l->tensors[uid] = finalize(p, d, "tensor");
}

static bool is_offsets(int uid) {
    return uid >= ATTENTION_Q_OFFSETS && uid <= ATTENTION_LSE_OFFSETS;
}

/* Offsets first: the ragged tensors refer to them. */
static void lower_tensors(lowering *l) {
    for (int uid = 1; uid < l->graph->tensor_count; uid++)
        if (graph_has(l->graph, uid) && is_offsets(uid)) lower_tensor(l, uid);
    for (int uid = 1; uid < l->graph->tensor_count; uid++)
        if (graph_has(l->graph, uid) && !is_offsets(uid)) lower_tensor(l, uid);
    for (int uid = 1; uid < ATTENTION_NAMED; uid++)
        if (graph_has(l->graph, uid)) l->plan->uids[l->plan->uid_count++] = uid;
}

static void set_tensor(lowering *l, descriptor d, cudnnBackendAttributeName_t name, int uid) {
    if (uid) set_descriptor(l->plan, d, name, l->tensors[uid]);
}

static descriptor lower_matmul(lowering *l, const graph_op *op) {
    attention_plan *p = l->plan;
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
    descriptor d = create(l->plan, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, op->a);
    set_tensor(l, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, op->out);
    return finalize(l->plan, d, "reshape operation");
}

static descriptor lower_reduction(lowering *l, const graph_op *op) {
    attention_plan *p = l->plan;
    cudnnReduceTensorOp_t mode =
        op->mode == GRAPH_REDUCE_ADD ? CUDNN_REDUCE_TENSOR_ADD : CUDNN_REDUCE_TENSOR_MAX;
    descriptor kind = create(p, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(p, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
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
    case GRAPH_GREATER_EQUAL: return CUDNN_POINTWISE_CMP_GE;
    case GRAPH_AND: return CUDNN_POINTWISE_LOGICAL_AND;
    case GRAPH_SELECT: return CUDNN_POINTWISE_BINARY_SELECT;
    default: return CUDNN_POINTWISE_IDENTITY;
    }
}

static descriptor lower_pointwise(lowering *l, const graph_op *op) {
    attention_plan *p = l->plan;
    cudnnPointwiseMode_t mode = pointwise_mode(op->mode);
    descriptor kind = create(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(p, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(p, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, op->compute);
    if (op->mode == GRAPH_INDEX)
        set(p, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &(int64_t){op->axis});
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

static descriptor lower_graph(attention_plan *p, const attention_device *device, const graph *g) {
    lowering l = {.plan = p, .graph = g};
    descriptor ops[GRAPH_OPS_MOST];
    lower_tensors(&l);
    for (int i = 0; i < g->op_count; i++) ops[i] = lower_op(&l, &g->ops[i]);
    descriptor d = create(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(p, d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->op_count, ops);
    if (device->handle) set(p, d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &device->handle);
    return finalize(p, d, "graph");
}

/* ---- plans ---- */

enum { CONFIGS_MOST = 16 };

/* The engine configurations that heuristics suggest, best first. */
static int suggest(attention_plan *p, const attention_device *device, descriptor operations,
                   cudnnBackendHeurMode_t mode, descriptor configs[CONFIGS_MOST]) {
    descriptor d = create(p, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(p, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations);
    set(p, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!device->handle) set_descriptor(p, d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device->properties);
    finalize(p, d, "heuristics");
    for (int i = 0; i < CONFIGS_MOST; i++) configs[i] = create(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = 0;
    if (p->error[0] ||
        !check(p->error, "heuristics",
               cudnnBackendGetAttribute(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        CONFIGS_MOST, &count, configs)))
        return 0;
    return count < CONFIGS_MOST ? (int)count : CONFIGS_MOST;
}

static bool finalize_plan(attention_plan *p, const attention_device *device, descriptor config) {
    descriptor d = create(p, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (device->handle) set(p, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &device->handle);
    set_descriptor(p, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    p->plan = finalize(p, d, "plan");
    return !p->error[0];
}

static void append_note(attention_plan *p, const char *note) {
    size_t used = strlen(p->notes);
    snprintf(p->notes + used, sizeof p->notes - used, "%s%s", used ? " " : "", note);
}

/* Those that matter to us. */
static void read_notes(attention_plan *p, descriptor engine) {
    cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                             CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, behavior);
    for (int64_t i = 0; i < count; i++) {
        if (behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) append_note(p, "compiled");
        if (behavior[i] == CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API) append_note(p, "cuda_graph");
    }
    count = 0;
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, numerical);
    for (int64_t i = 0; i < count; i++)
        if (numerical[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) append_note(p, "nondeterministic");
}

static void read_plan(attention_plan *p, descriptor config) {
    int64_t count = 0, workspace = 0;
    if (!check(p->error, "workspace",
               cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                        1, &count, &workspace)))
        return;
    p->workspace = (size_t)workspace;
    descriptor engine = create(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!check(p->error, "engine",
               cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                        &count, &engine)) ||
        !check(p->error, "engine",
               cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                                        &p->engine)))
        return;
    read_notes(p, engine);
}

/* Clears the plan's error; the first one is kept as the reason. */
static void take_error(attention_plan *p, char reason[ATTENTION_TEXT]) {
    if (!reason[0]) memcpy(reason, p->error, ATTENTION_TEXT);
    p->error[0] = '\0';
}

/* Builds the first configuration that can be built. When none can, the best one's reason stays. */
static bool choose(attention_plan *p, const attention_device *device, descriptor operations) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    char reason[ATTENTION_TEXT] = "";
    for (int m = 0; m < 2; m++) {
        descriptor configs[CONFIGS_MOST];
        int count = suggest(p, device, operations, modes[m], configs);
        for (int i = 0; i < count; i++) {
            if (finalize_plan(p, device, configs[i])) {
                read_plan(p, configs[i]);
                return !p->error[0];
            }
            take_error(p, reason);
        }
        take_error(p, reason);
    }
    snprintf(p->error, sizeof p->error, "%s", reason[0] ? reason : "cuDNN suggests no engine");
    return false;
}

bool attention_plan_build(attention_plan *p, const attention_device *d, const graph *g) {
    *p = (attention_plan){.engine = -1};
    double start = clock_seconds();
    descriptor operations = lower_graph(p, d, g);
    bool built = !p->error[0] && choose(p, d, operations);
    p->seconds = clock_seconds() - start;
    return built;
}

bool attention_plan_run(attention_plan *p, const attention_device *d, void *const data[ATTENTION_NAMED],
                        void *workspace) {
    int64_t uids[ATTENTION_NAMED];
    void *pointers[ATTENTION_NAMED];
    for (int i = 0; i < p->uid_count; i++) {
        uids[i] = p->uids[i];
        pointers[i] = data[p->uids[i]];
    }
    descriptor pack = NULL;
    p->error[0] = '\0';
    check(p->error, "arguments", cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    set(p, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, p->uid_count, uids);
    set(p, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, p->uid_count, pointers);
    set(p, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(p, pack, "arguments");
    if (!p->error[0]) check(p->error, "run", cudnnBackendExecute(d->handle, p->plan, pack));
    if (pack) cudnnBackendDestroyDescriptor(pack);
    return !p->error[0];
}

void attention_plan_close(attention_plan *p) {
    while (p->descriptor_count > 0) cudnnBackendDestroyDescriptor(p->descriptors[--p->descriptor_count]);
}
