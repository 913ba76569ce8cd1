/* cuda/attention/attention_graph: builds the graphs, tensor by tensor and operation by operation. */
#include "cuda/attention/attention_graph.h"
#include <assert.h>
#include <string.h>

/* ---- tensors ---- */

static const int64_t one[4] = {1, 1, 1, 1};

static int add_virtual(graph *g, graph_type type, const int64_t dims[4], const int64_t strides[4]) {
    assert(g->tensor_count < GRAPH_TENSORS_MOST);
    graph_tensor *t = &g->tensors[g->tensor_count];
    *t = (graph_tensor){.type = type, .is_virtual = true};
    memcpy(t->dims, dims, sizeof t->dims);
    memcpy(t->strides, strides, sizeof t->strides);
    return g->tensor_count++;
}

/* One value per query and key: [documents, heads, length, length]. */
static int add_pairs(graph *g, graph_type type) {
    int64_t h = g->config.heads, s = g->config.length;
    return add_virtual(g, type, (int64_t[]){g->config.documents, h, s, s},
                       (int64_t[]){h * s * s, s * s, s, 1});
}

/* Adds a tensor of one value per key and query to the graph: the transpose of a tensor of add_pairs. */
static int add_pairs_transposed(graph *g) {
    int64_t h = g->config.heads, s = g->config.length;
    return add_virtual(g, g->config.type, (int64_t[]){g->config.documents, h, s, s},
                       (int64_t[]){h * s * s, s * s, 1, s});
}

/* One fp32 value per query: [documents, heads, length, 1]. */
static int add_queries(graph *g) {
    int64_t h = g->config.heads, s = g->config.length;
    return add_virtual(g, GRAPH_F32, (int64_t[]){g->config.documents, h, s, 1}, (int64_t[]){h * s, s, 1, 1});
}

static void name(graph *g, attention_name uid, graph_type type, const int64_t dims[4],
                 const int64_t strides[4]) {
    graph_tensor *t = &g->tensors[uid];
    *t = (graph_tensor){.type = type, .offsets_factor = 1};
    memcpy(t->dims, dims, sizeof t->dims);
    memcpy(t->strides, strides, sizeof t->strides);
}

/* Declares a tensor of rows that begin `stride` elements apart and have heads * head_dim elements each. The
   tensor's dimensions are [documents, heads, length, head_dim]. */
static void name_rows(graph *g, attention_name uid, graph_type type, int64_t heads, int64_t stride,
                      int offsets) {
    int64_t s = g->config.length, d = g->config.head_dim;
    name(g, uid, type, (int64_t[]){g->config.documents, heads, s, d}, (int64_t[]){s * stride, d, stride, 1});
    if (g->config.packed) g->tensors[uid].offsets = offsets;
}

static void swap(int64_t *a, int64_t *b) {
    int64_t c = *a;
    *a = *b;
    *b = c;
}

static void transpose(graph_tensor *t) {
    swap(&t->dims[2], &t->dims[3]);
    swap(&t->strides[2], &t->strides[3]);
}

static void name_q(graph *g, attention_name uid, int offsets) {
    name_rows(g, uid, g->config.type, g->config.heads, g->config.stride[uid], offsets);
}

static void name_k(graph *g, attention_name uid) {
    name_rows(g, uid, g->config.type, g->config.kv_heads, g->config.stride[uid], ATTENTION_K_OFFSETS);
}

static void name_lse(graph *g, attention_name uid) {
    const attention_config *c = &g->config;
    name(g, uid, GRAPH_F32, (int64_t[]){c->documents, c->heads, c->length, 1},
         (int64_t[]){c->length, c->stride[ATTENTION_LSE], 1, 1});
    if (c->packed) g->tensors[uid].offsets = ATTENTION_LSE_OFFSETS;
}

static void name_scalar(graph *g, attention_name uid) {
    name(g, uid, GRAPH_F32, one, one);
    g->tensors[uid].by_value = true;
}

static void name_documents(graph *g) {
    if (!g->config.packed) return;
    int64_t b = g->config.documents;
    for (int uid = ATTENTION_Q_LENGTHS; uid <= ATTENTION_K_LENGTHS; uid++)
        name(g, uid, GRAPH_I32, (int64_t[]){b, 1, 1, 1}, one);
    for (int uid = ATTENTION_Q_OFFSETS; uid <= ATTENTION_LSE_OFFSETS; uid++)
        name(g, uid, GRAPH_I64, (int64_t[]){b + 1, 1, 1, 1}, one);
}

/* Starts a graph with the tensors that forward and backward share. K is transposed, for Q K^T. */
static void start_graph(graph *g, const attention_config *config) {
    *g = (graph){.config = *config, .tensor_count = ATTENTION_NAMED};
    name_documents(g);
    name_q(g, ATTENTION_Q, ATTENTION_Q_OFFSETS);
    name_k(g, ATTENTION_K);
    name_k(g, ATTENTION_V);
    name_q(g, ATTENTION_O, ATTENTION_O_OFFSETS);
    name_lse(g, ATTENTION_LSE);
    transpose(&g->tensors[ATTENTION_K]);
    name_scalar(g, ATTENTION_SCALE);
    name_scalar(g, ATTENTION_MINUS_INFINITY);
    if (config->window > 0) name_scalar(g, ATTENTION_WINDOW);
}

/* ---- operations ---- */

static int add_op(graph *g, graph_op op) {
    assert(g->op_count < GRAPH_OPS_MOST);
    g->ops[g->op_count++] = op;
    return op.out;
}

/* Adds a pointwise operation in fp32 on tensors with one value per query and key, or one value per query. */
static int add_f32(graph *g, graph_mode mode, int a, int b, int out) {
    return add_op(g, (graph_op){.mode = mode, .compute = GRAPH_F32, .a = a, .b = b, .out = out});
}

static int add_index(graph *g, int axis, graph_type compute, int like) {
    return add_op(g, (graph_op){.mode = GRAPH_INDEX,
                                .compute = compute,
                                .axis = axis,
                                .a = like,
                                .out = add_pairs(g, GRAPH_I32)});
}

static int add_predicate(graph *g, graph_mode mode, int a, int b) {
    return add_op(
        g, (graph_op){.mode = mode, .compute = GRAPH_BOOL, .a = a, .b = b, .out = add_pairs(g, GRAPH_BOOL)});
}

/* out = scores where `keep`, minus infinity elsewhere. */
static int add_select(graph *g, int scores, int keep) {
    return add_op(g, (graph_op){.mode = GRAPH_SELECT,
                                .compute = GRAPH_F32,
                                .a = scores,
                                .b = ATTENTION_MINUS_INFINITY,
                                .c = keep,
                                .out = add_pairs(g, GRAPH_F32)});
}

/* Sets scores to minus infinity for keys that a query does not see: beyond the document's end, after the
   query, or before the window. */
static int add_masks(graph *g, int scores) {
    if (g->config.packed) {
        int row = add_index(g, 2, GRAPH_I32, scores), column = add_index(g, 3, GRAPH_I32, scores);
        int row_inside = add_predicate(g, GRAPH_LESS, row, ATTENTION_Q_LENGTHS);
        int column_inside = add_predicate(g, GRAPH_LESS, column, ATTENTION_K_LENGTHS);
        scores = add_select(g, scores, add_predicate(g, GRAPH_AND, row_inside, column_inside));
    }
    int row = add_index(g, 2, GRAPH_F32, scores), column = add_index(g, 3, GRAPH_F32, scores);
    scores = add_select(g, scores, add_predicate(g, GRAPH_GREATER_EQUAL, row, column));
    if (g->config.window == 0) return scores;
    row = add_index(g, 2, GRAPH_F32, scores), column = add_index(g, 3, GRAPH_F32, scores);
    int end = add_f32(g, GRAPH_ADD, column, ATTENTION_WINDOW, add_pairs(g, GRAPH_F32));
    return add_select(g, scores, add_predicate(g, GRAPH_GREATER, end, row));
}

typedef enum extent { NEITHER, QUERIES, KEYS } extent;

static int lengths(const graph *g, extent e) {
    if (!g->config.packed || e == NEITHER) return ATTENTION_NONE;
    return e == QUERIES ? ATTENTION_Q_LENGTHS : ATTENTION_K_LENGTHS;
}

/* out[m,n] = a[m,k] b[k,n]. m, n, k: whether the dimension counts queries, keys or neither. */
static int add_matmul(graph *g, int a, int b, int out, extent m, extent n, extent k) {
    return add_op(g, (graph_op){.mode = GRAPH_MATMUL,
                                .compute = GRAPH_F32,
                                .a = a,
                                .b = b,
                                .out = out,
                                .m = lengths(g, m),
                                .n = lengths(g, n),
                                .k = lengths(g, k)});
}

static int add_transpose(graph *g, int a, int out) {
    return add_op(g, (graph_op){.mode = GRAPH_RESHAPE, .a = a, .out = out});
}

static int add_scores(graph *g) {
    int products = add_matmul(g, ATTENTION_Q, ATTENTION_K, add_pairs(g, GRAPH_F32), QUERIES, KEYS, NEITHER);
    return add_f32(g, GRAPH_MUL, products, ATTENTION_SCALE, add_pairs(g, GRAPH_F32));
}

/* ---- forward ---- */

/* Adds the softmax of each query's scores, rounded to the graph's type, and computes LSE. */
static int add_softmax(graph *g, int scores) {
    int largest = add_f32(g, GRAPH_REDUCE_MAX, scores, 0, add_queries(g));
    int shifted = add_f32(g, GRAPH_SUB, scores, largest, add_pairs(g, GRAPH_F32));
    int exponential = add_f32(g, GRAPH_EXP, shifted, 0, add_pairs(g, GRAPH_F32));
    int sum = add_f32(g, GRAPH_REDUCE_ADD, exponential, 0, add_queries(g));
    int log_sum = add_f32(g, GRAPH_LOG, sum, 0, add_queries(g));
    add_f32(g, GRAPH_ADD, largest, log_sum, ATTENTION_LSE);
    return add_f32(g, GRAPH_DIV, exponential, sum, add_pairs(g, g->config.type));
}

void attention_graph_forward(graph *g, const attention_config *config) {
    start_graph(g, config);
    int probabilities = add_softmax(g, add_masks(g, add_scores(g)));
    add_matmul(g, probabilities, ATTENTION_V, ATTENTION_O, QUERIES, NEITHER, KEYS);
}

/* ---- backward ---- */

static void name_gradients(graph *g) {
    const attention_config *c = &g->config;
    int64_t h = c->heads, s = c->length, d = c->head_dim;
    transpose(&g->tensors[ATTENTION_V]);
    name_q(g, ATTENTION_GRAD_O, ATTENTION_O_OFFSETS);
    name_q(g, ATTENTION_GRAD_Q, ATTENTION_Q_OFFSETS);
    name_k(g, ATTENTION_GRAD_K);
    name_k(g, ATTENTION_GRAD_V);
    name_lse(g, ATTENTION_DELTA);
    name_scalar(g, ATTENTION_ONE);
    if (c->direct) return;
    if (c->packed)
        name_rows(g, ATTENTION_GRAD_Q_SUM, GRAPH_F32, h, c->stride[ATTENTION_GRAD_Q], ATTENTION_Q_OFFSETS);
    else
        name(g, ATTENTION_GRAD_Q_SUM, GRAPH_F32, (int64_t[]){c->documents, h, s, d},
             (int64_t[]){h * s * d, s * d, d, 1});
}

/* DELTA[query] = ONE * (sum of grad_o * o over head_dim). cuDNN requires a dropout scale there: 1 here. */
static void add_delta(graph *g) {
    int64_t h = g->config.heads, s = g->config.length, d = g->config.head_dim;
    int product = add_virtual(g, GRAPH_F32, (int64_t[]){g->config.documents, h, s, d},
                              (int64_t[]){h * s * d, s * d, h * d, 1});
    add_f32(g, GRAPH_MUL, ATTENTION_GRAD_O, ATTENTION_O, product);
    int sum = add_f32(g, GRAPH_REDUCE_ADD, product, 0, add_queries(g));
    add_f32(g, GRAPH_MUL, sum, ATTENTION_ONE, ATTENTION_DELTA);
}

/* probabilities = exp(scores - LSE). */
static int add_probabilities(graph *g) {
    int scores = add_masks(g, add_scores(g));
    int shifted = add_f32(g, GRAPH_SUB, scores, ATTENTION_LSE, add_pairs(g, GRAPH_F32));
    return add_f32(g, GRAPH_EXP, shifted, 0, add_pairs(g, GRAPH_F32));
}

/* Adds the gradient of K (or V) for each query head. For packed documents this is a tensor in the caller's
   memory, because cuDNN would need a workspace of documents * length rows. Each of its offsets is K's offset
   times heads / kv_heads. */
static int add_heads(graph *g, attention_name uid) {
    const attention_config *c = &g->config;
    int64_t h = c->heads, s = c->length, d = c->head_dim;
    if (!c->packed)
        return add_virtual(g, c->type, (int64_t[]){c->documents, h, s, d},
                           (int64_t[]){h * s * d, s * d, d, 1});
    int64_t sharing = h / c->kv_heads;
    name_rows(g, uid, c->type, h, sharing * c->stride[ATTENTION_GRAD_K], ATTENTION_K_OFFSETS);
    g->tensors[uid].offsets_factor = sharing;
    return uid;
}

/* gradient[key] = sum of pairs[query, key] * rows[query] over all queries of the key head's query heads. */
static void add_key_gradient(graph *g, int pairs, int rows, attention_name heads, attention_name gradient) {
    int transposed = add_transpose(g, pairs, add_pairs_transposed(g));
    if (g->config.heads == g->config.kv_heads) {
        add_matmul(g, transposed, rows, gradient, KEYS, NEITHER, QUERIES);
    } else {
        int all = add_matmul(g, transposed, rows, add_heads(g, heads), KEYS, NEITHER, QUERIES);
        add_f32(g, GRAPH_REDUCE_ADD, all, 0, gradient);
    }
}

/* ds = probabilities * (grad_o V^T - DELTA) * scale, rounded to the graph's type. */
static int add_score_gradient(graph *g, int probabilities) {
    int gradient =
        add_matmul(g, ATTENTION_GRAD_O, ATTENTION_V, add_pairs(g, GRAPH_F32), QUERIES, KEYS, NEITHER);
    int centred = add_f32(g, GRAPH_SUB, gradient, ATTENTION_DELTA, add_pairs(g, GRAPH_F32));
    int weighted = add_f32(g, GRAPH_MUL, centred, probabilities, add_pairs(g, GRAPH_F32));
    return add_f32(g, GRAPH_MUL, weighted, ATTENTION_SCALE, add_pairs(g, g->config.type));
}

static void add_query_gradient(graph *g, int scores) {
    graph_tensor k = g->tensors[ATTENTION_K];
    transpose(&k);
    int keys = add_virtual(g, g->config.type, k.dims, k.strides);
    g->tensors[keys].offsets = k.offsets;
    g->tensors[keys].offsets_factor = 1;
    add_transpose(g, ATTENTION_K, keys);
    bool direct = g->config.direct;
    add_matmul(g, scores, keys, direct ? ATTENTION_GRAD_Q : ATTENTION_GRAD_Q_SUM, QUERIES, NEITHER, KEYS);
    if (!direct) add_f32(g, GRAPH_IDENTITY, ATTENTION_GRAD_Q_SUM, 0, ATTENTION_GRAD_Q);
}

void attention_graph_backward(graph *g, const attention_config *config) {
    start_graph(g, config);
    name_gradients(g);
    add_delta(g);
    int probabilities = add_probabilities(g);
    add_key_gradient(g, probabilities, ATTENTION_GRAD_O, ATTENTION_GRAD_V_HEADS, ATTENTION_GRAD_V);
    int scores = add_score_gradient(g, probabilities);
    add_key_gradient(g, scores, ATTENTION_Q, ATTENTION_GRAD_K_HEADS, ATTENTION_GRAD_K);
    add_query_gradient(g, scores);
}

/* ---- memory ---- */

bool attention_graph_has(const graph *g, int uid) {
    return uid > 0 && uid < g->tensor_count && g->tensors[uid].dims[0] > 0;
}

size_t attention_graph_type_bytes(graph_type type) {
    static const size_t bytes[] = {4, 2, 2, 4, 8, 1};
    return bytes[type];
}

size_t attention_graph_tensor_bytes(const graph *g, int uid, int64_t rows) {
    const graph_tensor *t = &g->tensors[uid];
    int64_t row = t->strides[2] > t->strides[3] ? t->strides[2] : t->strides[3], count = rows * row;
    if (row == 1) count = t->dims[1] * t->strides[1]; /* LSE: heads are the outer dimension */
    for (int i = 0; i < 4 && !t->offsets; i++)
        if (t->dims[i] * t->strides[i] > count) count = t->dims[i] * t->strides[i];
    return (size_t)count * attention_graph_type_bytes(t->type);
}

int64_t attention_graph_element(const graph_tensor *t, const int64_t *offsets, const int64_t index[4]) {
    int64_t at = t->offsets ? offsets[index[0]] * t->offsets_factor : index[0] * t->strides[0];
    for (int i = 1; i < 4; i++) at += index[i] * t->strides[i];
    return at;
}
