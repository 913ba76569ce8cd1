/*
 * cuda/attention/attention_graph: causal attention, forward and backward, as a graph of tensors and
 * operations. The graph is plain data: cuda/attention/attention_cudnn lowers it to cuDNN, and a test
 * interprets it on the CPU.
 *
 * cuDNN's Hopper engines recognize exactly these operations, in this order and with these scratch layouts, as
 * one fused kernel. NVIDIA's cudnn-frontend documents the pattern (composite SDPA nodes).
 */
#ifndef CUDA_ATTENTION_ATTENTION_GRAPH_H
#define CUDA_ATTENTION_ATTENTION_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The uids of tensors that a caller provides. A graph uses only some of these tensors. */
typedef enum attention_name {
    ATTENTION_NONE,
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_O,
    ATTENTION_LSE, /* fp32 [heads, rows]: log-sum-exp of each query's scores */
    ATTENTION_GRAD_O,
    ATTENTION_GRAD_Q,
    ATTENTION_GRAD_K,
    ATTENTION_GRAD_V,
    /* scratch of backward; the caller initializes only GRAD_Q_SUM */
    ATTENTION_DELTA,        /* fp32 [heads, rows]: sum of grad_o * o over head_dim */
    ATTENTION_GRAD_Q_SUM,   /* not if `direct`: fp32 grad_q before rounding; the caller sets it to 0 */
    ATTENTION_GRAD_K_HEADS, /* packed only: grad_k of each query head, [rows, heads * head_dim] */
    ATTENTION_GRAD_V_HEADS, /* packed only: grad_v of each query head, [rows, heads * head_dim] */
    /* only for packed documents */
    ATTENTION_Q_LENGTHS,   /* int32 [documents]: tokens of each document */
    ATTENTION_K_LENGTHS,   /* int32 [documents]: the values of Q_LENGTHS */
    ATTENTION_Q_OFFSETS,   /* int64 [documents + 1]: first element of each document in Q and GRAD_Q */
    ATTENTION_K_OFFSETS,   /* int64 [documents + 1]: first elements in K, V, GRAD_K and GRAD_V */
    ATTENTION_O_OFFSETS,   /* int64 [documents + 1]: first elements in O and GRAD_O */
    ATTENTION_LSE_OFFSETS, /* int64 [documents + 1]: first elements in LSE and DELTA */
    /* fp32 scalars in host memory */
    ATTENTION_SCALE,
    ATTENTION_ONE,
    ATTENTION_MINUS_INFINITY,
    ATTENTION_WINDOW,
    ATTENTION_NAMED
} attention_name;

typedef enum graph_type { GRAPH_F32, GRAPH_BF16, GRAPH_F16, GRAPH_I32, GRAPH_I64, GRAPH_BOOL } graph_type;

/* Q, O and their gradients are [rows, heads * head_dim]. K, V and their gradients are [rows, kv_heads *
   head_dim]. Query head h reads key head h / (heads / kv_heads); kv_heads divides heads. head_dim is a
   multiple of 8 (rows of 16 bytes). A query sees the keys of its document up to its own position; if window >
   0, only the last `window` of these keys. Dense: rows = documents * length. Packed: documents of 0 to
   `length` tokens follow each other, and `rows` is the sum of their lengths. These packed tensors must have
   equal strides: Q and GRAD_Q; O and GRAD_O; K, V, GRAD_K and GRAD_V. */
typedef struct attention_config {
    graph_type type; /* format of all tensors except the fp32 sums: bf16 or f16 */
    bool packed;
    /* backward only: the graph has no GRAD_Q_SUM. cuDNN then stores the gradients of all scores in its
       workspace, and sums grad_q in a fixed order. */
    bool direct;
    int64_t documents, heads, kv_heads, length, head_dim, window;
    int64_t rows; /* of all documents together */
    /* stride[name]: elements from one row to the next; for ATTENTION_LSE, from one head to the next */
    int64_t stride[ATTENTION_GRAD_V + 1];
} attention_config;

/* dims: documents, heads, and two of queries, keys and head_dim. Strides are in elements. A ragged tensor has
   no document stride: its document i begins at element offsets_factor * (value i of the offsets tensor). */
typedef struct graph_tensor {
    graph_type type;
    int64_t dims[4], strides[4];
    bool is_virtual; /* exists only inside the fused kernel, without memory */
    bool by_value;
    int offsets;            /* uid of the offsets tensor; 0: not ragged */
    int64_t offsets_factor; /* 1, or heads / kv_heads; cuDNN derives it from the strides */
} graph_tensor;

typedef enum graph_mode {
    /* out = a b; m, n, k: ATTENTION_Q_LENGTHS or K_LENGTHS if the dimension is ragged, else 0 */
    GRAPH_MATMUL,
    GRAPH_RESHAPE,
    GRAPH_REDUCE_ADD, /* sums a over dimensions in which out has size 1; heads: over groups of a's heads */
    GRAPH_REDUCE_MAX,
    GRAPH_MUL, /* this and all later modes are pointwise: a, b, c are broadcast to out's shape */
    GRAPH_ADD,
    GRAPH_SUB,
    GRAPH_DIV,
    GRAPH_EXP,
    GRAPH_LOG,
    GRAPH_IDENTITY,
    GRAPH_INDEX, /* out = position along `axis` */
    GRAPH_LESS,
    GRAPH_GREATER,
    GRAPH_GREATER_EQUAL,
    GRAPH_AND,
    GRAPH_SELECT /* out = c ? a : b */
} graph_mode;

typedef struct graph_op {
    graph_mode mode;
    graph_type compute;
    int axis;
    int a, b, c, out; /* uids of inputs and output; 0: none */
    int m, n, k;
} graph_op;

enum { GRAPH_TENSORS_MOST = 64, GRAPH_OPS_MOST = 48 };

typedef struct graph {
    attention_config config;
    /* indexed by uid; dims are 0 if the graph does not use the tensor */
    graph_tensor tensors[GRAPH_TENSORS_MOST];
    graph_op ops[GRAPH_OPS_MOST]; /* operations in execution order */
    int tensor_count, op_count;
} graph;

/* Computes O and LSE from Q, K and V. */
void attention_graph_forward(graph *g, const attention_config *config);
/* Computes GRAD_Q, GRAD_K and GRAD_V from Q, K, V, O, LSE and GRAD_O. */
void attention_graph_backward(graph *g, const attention_config *config);

bool attention_graph_has(const graph *g, int uid);
size_t attention_graph_type_bytes(graph_type type);
/* Bytes of a tensor's memory. rows: rows of all documents together. */
size_t attention_graph_tensor_bytes(const graph *g, int uid, int64_t rows);
/* Returns the offset, in elements, of element index[4] of t in its memory. offsets: the contents of t's
   offsets tensor; NULL if t is not ragged. */
int64_t attention_graph_element(const graph_tensor *t, const int64_t *offsets, const int64_t index[4]);

#endif
