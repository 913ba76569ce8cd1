/*
 * cuda/attention_graph: causal attention, forward and backward, as a graph of tensors and operations: plain data, which
 * cuda/attention_cudnn lowers to cuDNN and a test interprets on the CPU.
 *
 * The operations, their order and the layout of every scratch tensor are those that cuDNN's Hopper engines recognise as one
 * fused kernel: the pattern is documented by NVIDIA's cudnn-frontend (composite SDPA nodes).
 */
#ifndef CUDA_ATTENTION_GRAPH_H
#define CUDA_ATTENTION_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The tensors that a caller provides. They are the uids of every graph; a graph has only those it needs. */
typedef enum attention_name {
    ATTENTION_NONE,
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_O,
    ATTENTION_LSE, /* fp32 [heads, rows], the log-sum-exp of each query's scores */
    ATTENTION_GRAD_O,
    ATTENTION_GRAD_Q,
    ATTENTION_GRAD_K,
    ATTENTION_GRAD_V,
    /* scratch of backward, not initialised by the caller */
    ATTENTION_DELTA,        /* fp32 sum over head_dim of grad_o * o: as LSE */
    ATTENTION_GRAD_Q_SUM,   /* fp32 grad_q before rounding; zeros at first */
    ATTENTION_GRAD_K_HEADS, /* [rows, heads * head_dim]: the gradients of grouped heads before their */
    ATTENTION_GRAD_V_HEADS, /*   sum; only packed (dense ones are inside cuDNN's workspace) */
    /* packed */
    ATTENTION_Q_LENGTHS,   /* int32 [documents] */
    ATTENTION_K_LENGTHS,   /* the same numbers */
    ATTENTION_Q_OFFSETS,   /* int64 [documents + 1]: first element of each document in Q and GRAD_Q */
    ATTENTION_K_OFFSETS,   /* in K, V, GRAD_K and GRAD_V */
    ATTENTION_O_OFFSETS,   /* in O and GRAD_O */
    ATTENTION_LSE_OFFSETS, /* in LSE and DELTA */
    /* fp32 scalars in host memory */
    ATTENTION_SCALE,
    ATTENTION_ONE,
    ATTENTION_MINUS_INFINITY,
    ATTENTION_WINDOW,
    ATTENTION_NAMED
} attention_name;

typedef enum graph_type { GRAPH_F32, GRAPH_BF16, GRAPH_F16, GRAPH_I32, GRAPH_I64, GRAPH_BOOL } graph_type;

/*
 * Queries, outputs and their gradients are [rows, heads * head_dim], keys and values [rows, kv_heads * head_dim]; query head h
 * reads key head h / (heads / kv_heads), a whole number. A head_dim is a multiple of 8 (rows of 16 bytes). A query sees the
 * keys before it, with a window > 0 the last so many and itself among them. Dense: rows = documents * length. Packed:
 * documents of differing lengths (at most `length`, or 0) lie one after the other, and rows is their sum; Q and GRAD_Q, O and
 * GRAD_O, and the four of keys have one stride each.
 */
typedef struct attention_config {
    graph_type type; /* of all but the sums: bf16 or f16 */
    bool packed;
    int64_t documents, heads, kv_heads, length, head_dim, window;
    int64_t stride[ATTENTION_GRAD_V +
                   1]; /* elements from one row to the next; of LSE, from one head to the next */
} attention_config;

/* Tensor dimensions are (document, head, query, key or head_dim); strides are in elements. A ragged tensor
   has, instead of a document stride, the document's offset (of tensor `offsets`) times `offsets_factor`. */
typedef struct graph_tensor {
    graph_type type;
    int64_t dims[4], strides[4];
    bool is_virtual; /* inside the fused kernel, without memory */
    bool by_value;
    int offsets;            /* uid, 0 for none */
    int64_t offsets_factor; /* implied: cuDNN takes it from the strides of the tensor */
} graph_tensor;

typedef enum graph_mode {
    GRAPH_MATMUL, /* out = a b, over the documents' own lengths: m, n, k are uids of lengths, or 0 */
    GRAPH_RESHAPE,
    GRAPH_REDUCE_ADD, /* over the dimensions in which out is smaller; heads in consecutive groups */
    GRAPH_REDUCE_MAX,
    GRAPH_MUL, /* from here on pointwise: a, b, c broadcast to out */
    GRAPH_ADD,
    GRAPH_SUB,
    GRAPH_DIV,
    GRAPH_EXP,
    GRAPH_LOG,
    GRAPH_IDENTITY,
    GRAPH_INDEX, /* the position along `axis` */
    GRAPH_LESS,
    GRAPH_GREATER,
    GRAPH_GREATER_EQUAL,
    GRAPH_AND,
    GRAPH_SELECT /* c ? a : b */
} graph_mode;

typedef struct graph_op {
    graph_mode mode;
    graph_type compute;
    int axis;
    int a, b, c, out; /* uids, 0 for none */
    int m, n, k;
} graph_op;

enum { GRAPH_TENSORS_MOST = 64, GRAPH_OPS_MOST = 48 };

typedef struct graph {
    attention_config config;
    graph_tensor
        tensors[GRAPH_TENSORS_MOST]; /* by uid; a named tensor that is not in the graph has no dims */
    graph_op ops[GRAPH_OPS_MOST];    /* each after those that give its inputs */
    int tensor_count, op_count;
} graph;

/* Q, K, V to O and LSE. */
void attention_graph_forward(graph *g, const attention_config *config);
/* Q, K, V, O, LSE and GRAD_O to GRAD_Q, GRAD_K and GRAD_V. */
void attention_graph_backward(graph *g, const attention_config *config);

bool attention_graph_has(const graph *g, int uid);
size_t attention_graph_type_bytes(graph_type type);
/* Bytes of a tensor's memory where all documents have `rows` rows. */
size_t attention_graph_tensor_bytes(const graph *g, int uid, int64_t rows);
/* The element at index[4] in a tensor's memory; `offsets` are those of its documents, NULL for a dense one. */
int64_t attention_graph_element(const graph_tensor *t, const int64_t *offsets, const int64_t index[4]);

#endif
