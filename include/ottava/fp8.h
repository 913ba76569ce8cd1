/*
 * Ottava: FP8 by hand: tensors, recipes, quantized tensors, the three matrix products of a linear layer,
 * statistics of a cast, rank groups over the caller's own transport. For a training loop of one's own: see
 * examples/own_loop.c.
 *
 * Recipes say how each tensor of a linear layer Y[M,N] = X[M,K] W[N,K]^T is stored for each of its two uses:
 * rowwise, contracted along its rows, and columnwise, contracted down its columns:
 *
 *     product                   computes      first operand a           second operand b
 *     OTT_GEMM_OUTPUT           Y  = X W^T    input X rowwise           weight W rowwise
 *     OTT_GEMM_GRAD_INPUT       dX = G W      grad_output G rowwise     weight W columnwise
 *     OTT_GEMM_GRAD_WEIGHT      dW = G^T X    grad_output G columnwise  input X columnwise
 *
 * Ownership: what ott_x_open makes, ott_x_close closes (NULL and a closed one are allowed: nothing happens).
 * The memory behind a handle stays known until its context is closed, so a use after close is
 * OTT_ERR_ARGUMENT; of tensors and quantized tensors that holds for the last 1024 closed of each. Closing a
 * context with objects still open gives back all their memory, with a warning in the log; the handles are
 * then invalid.
 *
 * Threads: objects belong to their context, which one thread uses at a time. A call from a second thread at
 * the same moment is OTT_ERR_ARGUMENT ("... in use by another thread"); it never waits. Callbacks run on the
 * calling thread and may call back into the library.
 *
 * Errors: OTT_ERR_ARGUMENT for a handle that is NULL, closed, of another kind or of another context, and for
 * a wrong option; OTT_ERR_DTYPE and OTT_ERR_SHAPE when formats or shapes do not fit, with both named;
 * OTT_ERR_CONFIG for a recipe that does not exist or is inconsistent; OTT_ERR_MEMORY. After an error what was
 * to be written is undefined, everything else as it was.
 */
#ifndef OTTAVA_FP8_H
#define OTTAVA_FP8_H

#include "ottava/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors ---- */

/* rows x columns elements, row after row without gaps, on the context's device (the CPU's memory is the
   host's). */
typedef struct ott_tensor ott_tensor;

/* Zero-filled memory of the library. dtype: OTT_F32, OTT_BF16, OTT_F16, or OTT_I32 for token ids; rows and
   columns: 0 or more. */
OTT_API ott_status ott_tensor_open(ott_context *context, ott_dtype dtype, int64_t rows, int64_t columns,
                                   ott_tensor **out);
/* The caller's memory, borrowed until the tensor is closed: rows * columns elements, aligned for their
   format. It is memory of the context's device: on the CPU the host's, on a GPU what cudaMalloc and its kin gave this process,
   and OTT_ERR_ARGUMENT for any other. data may be NULL only when there are no elements. */
OTT_API ott_status ott_tensor_wrap(ott_context *context, void *data, ott_dtype dtype, int64_t rows,
                                   int64_t columns, ott_tensor **out);
OTT_API void ott_tensor_close(ott_tensor *t);

/* For a NULL or closed tensor OTT_DTYPE_COUNT, -1, -1 and NULL; ott_error_text says why. */
OTT_API ott_dtype ott_tensor_dtype(const ott_tensor *t);
OTT_API int64_t ott_tensor_rows(const ott_tensor *t);
OTT_API int64_t ott_tensor_columns(const ott_tensor *t);
/* The elements, in memory of the context's device. On the CPU that is host memory, which may be read and written
   between calls; elsewhere it is an address for the device, and ott_tensor_read and ott_tensor_write move them. */
OTT_API void *ott_tensor_data(ott_tensor *t);

/* All elements, row by row, as fp32 in host memory, on every device. count must be rows * columns. write rounds to
   nearest even, for OTT_I32 to a whole number. */
OTT_API ott_status ott_tensor_read(const ott_tensor *t, float *out, int64_t count);
OTT_API ott_status ott_tensor_write(ott_tensor *t, const float *values, int64_t count);
/* Every element becomes `value`, rounded as write does. */
OTT_API ott_status ott_tensor_fill(ott_tensor *t, double value);
/* Element i becomes deviation times the i-th standard normal number of `seed`: the same on every machine.
   deviation: 0 or more, finite. Not for OTT_I32. */
OTT_API ott_status ott_tensor_fill_normal(ott_tensor *t, uint64_t seed, double deviation);
/* to = from, rounded to nearest even to to's format. Equal shapes; neither is OTT_I32. */
OTT_API ott_status ott_tensor_convert(const ott_tensor *from, ott_tensor *to);

/* ---- recipes ---- */

typedef struct ott_recipe ott_recipe;

/* A user's own rules of delayed scaling; a NULL member is the published one. */
typedef struct ott_delayed_callbacks {
    size_t struct_size;
    /* The amax to scale by: amax_history[length], the newest last. */
    float (*amax)(void *user, const float *amax_history, int64_t length);
    /* The new scale, above 0 and finite: any other is OTT_ERR_ARGUMENT, and the old one stays. max: the format's
       largest value. */
    float (*scale)(void *user, float amax, float old_scale, float max, int margin);
    void *user;
} ott_delayed_callbacks;

/* name: a row of ott_recipe_table: "tensorwise", "delayed", ..., or "bf16", "fp32", "fp16", under which
   nothing is FP8; or TransformerEngine's class of that recipe, "DelayedScaling"; or "custom", whose operands
   ott_recipe_set gives ("input", "weight", "grad_output"), those left out staying in bf16. OTT_ERR_CONFIG
   names the nearest. */
OTT_API ott_status ott_recipe_open(ott_context *context, const char *name, ott_recipe **out);
OTT_API void ott_recipe_close(ott_recipe *r);
/* A key of the configuration's [float8] ("amax_history_len", "margin", ...) as text ("16"). Concerns what is
   made with the recipe from then on. Whether the values agree is checked when the recipe is used. */
OTT_API ott_status ott_recipe_set(ott_recipe *r, const char *key, const char *value);
OTT_API void ott_delayed_callbacks_init(ott_delayed_callbacks *callbacks);
/* For all the delayed scaling that is made with the recipe from then on, and what has callbacks already; the
   functions must work until that is closed. callbacks NULL: the published rules again. OTT_ERR_ARGUMENT for a
   recipe that is not delayed. */
OTT_API ott_status ott_recipe_set_callbacks(ott_recipe *r, const ott_delayed_callbacks *callbacks);
/* Writes the recipe as it stands, a few lines: each tensor's two uses, the three products, the source. */
OTT_API ott_status ott_recipe_describe(ott_recipe *r, ott_text_fn write, void *user);
/* Writes all recipes: format, granularity and scale rule of every operand, the accumulator of every product,
   bytes an element of the input takes between forward and backward, the devices, the source. json: one JSON
   object, else a table. */
OTT_API ott_status ott_recipe_table(ott_context *context, int json, ott_text_fn write, void *user);

/* Can a device run a recipe? device_name: as in ott_context_options; "auto" can what the CPU can, which it takes where the GPU
   cannot. OTT_OK; OTT_ERR_UNSUPPORTED with the exact reason; OTT_ERR_ARGUMENT for a device or recipe there is not. *reason (may be
   NULL) is "" or ott_error_text(). */
OTT_API ott_status ott_supported(ott_context *context, const char *device_name, const char *recipe_name,
                                 const char **reason);

/* ---- rank groups ---- */

typedef struct ott_group ott_group;

typedef enum ott_reduce { OTT_REDUCE_SUM, OTT_REDUCE_MAX } ott_reduce;

/* values[count], in host memory, becomes the sum or maximum over all ranks of the group, the same bits on
   every rank. Returns when done. Anything but OTT_OK ends the call it was needed for with that status. */
typedef ott_status (*ott_all_reduce_fn)(void *user, float *values, int64_t count, ott_reduce kind);

typedef struct ott_group_options {
    size_t struct_size;
    int rank, size; /* 0 <= rank < size */
    ott_all_reduce_fn all_reduce;
    void *user; /* given to all_reduce */
} ott_group_options;

/* rank 0 of 1 */
OTT_API void ott_group_options_init(ott_group_options *options);
/* Makes the caller's transport (MPI, NCCL, sockets, ...) known to the library. all_reduce may be NULL when
   size is 1. */
OTT_API ott_status ott_group_open(ott_context *context, const ott_group_options *options, ott_group **out);
OTT_API void ott_group_close(ott_group *g);

/* ---- quantized tensors ---- */

/* A tensor as a recipe stores it for its rowwise and its columnwise use. */
typedef struct ott_qtensor ott_qtensor;

typedef enum ott_role { OTT_INPUT, OTT_WEIGHT, OTT_GRAD_OUTPUT } ott_role;
typedef enum ott_usage { OTT_ROWWISE, OTT_COLUMNWISE } ott_usage;

/* For a tensor of that shape and role under the recipe, which may be closed or changed later. A recipe that
   keeps a use in high precision needs nothing for it: the products then take the tensor itself. */
OTT_API ott_status ott_qtensor_open(ott_context *context, int64_t rows, int64_t columns, ott_recipe *r,
                                    ott_role role, ott_qtensor **out);
OTT_API void ott_qtensor_close(ott_qtensor *q);
/* Casts x (fp32, bf16 or fp16, of the same shape) for both uses. Delayed scaling casts with the scale it has,
   and remembers x's amax for the next update. */
OTT_API ott_status ott_quantize(ott_qtensor *q, const ott_tensor *x);
/* Delayed scaling, once a step, after backward: what was seen enters the history and gives the next scale.
   g: the largest amax of its ranks counts; NULL: of this one. Nothing to do for other recipes. */
OTT_API ott_status ott_qtensor_update_scale(ott_qtensor *q, ott_group *g);

/* One use of a quantized tensor. The pointers are the quantized tensor's own, in memory of the context's device (on the
   CPU host memory), valid until it is closed; their contents change with ott_quantize. Group index of the element at (line, k), k along the contraction:
   line / block_mn * mn_step + k / block_depth * k_step; a line is a row of the rowwise use, a column
   of the columnwise one. */
typedef struct ott_qdata {
    size_t struct_size;
    ott_dtype format;     /* OTT_E4M3, OTT_E5M2, or the high-precision format of a use that is not FP8 */
    const uint8_t *codes; /* NULL and count 0 when the use is not FP8 */
    int64_t row_step, column_step; /* the code of row i, column j is codes[i * row_step + j * column_step] */
    const float *amax;             /* [count]: largest magnitude of each group */
    const float *scale;            /* [count]: multiplied on the way to FP8 */
    const float *scale_inv;        /* [count]: 1 / scale, multiplied on the way back */
    int64_t count;                 /* groups */
    int64_t mn_step, k_step;
    int64_t block_mn, block_depth; /* elements that share a scale; INT64_MAX: all */
} ott_qdata;

OTT_API void ott_qdata_init(ott_qdata *view);
OTT_API ott_status ott_qtensor_data(ott_qtensor *q, ott_usage use, ott_qdata *out);
/* out = code * scale_inv, one fp32 multiplication, rounded to out's format; of the same shape. OTT_ERR_ARGUMENT
   when that use is not FP8 or nothing has been quantized yet. */
OTT_API ott_status ott_dequantize(ott_qtensor *q, ott_usage use, ott_tensor *out);

typedef struct ott_statistics {
    size_t struct_size;
    double saturated;   /* share of elements cut to the format's largest value, 0 to 1 */
    double underflowed; /* share of elements that were not 0 and became 0 */
    double sqnr_db;     /* signal to quantization noise, 10 log10; infinite without noise */
    double amax;        /* largest magnitude */
    double scale_min, scale_max;
} ott_statistics;

OTT_API void ott_statistics_init(ott_statistics *statistics);
/* What the last ott_quantize of x did to one use of it. x: as it was given there. */
OTT_API ott_status ott_quantize_statistics(ott_qtensor *q, const ott_tensor *x, ott_usage use,
                                           ott_statistics *out);

/* ---- matrix products ---- */

typedef enum ott_gemm_kind { OTT_GEMM_OUTPUT, OTT_GEMM_GRAD_INPUT, OTT_GEMM_GRAD_WEIGHT } ott_gemm_kind;

/* A tensor and what ott_quantize made of it. The product takes the FP8 form where its recipe has one, else
   the tensor, which must then have the recipe's high-precision format; the other may be NULL. */
typedef struct ott_operand {
    const ott_tensor *tensor;
    const ott_qtensor *quantized;
} ott_operand;

/* c = the product of the table above, plus bias[j] to column j, plus c itself when accumulate is not 0.
   c: fp32, bf16 or fp16, [M,N], [M,K] or [N,K]; it must not overlap an operand. bias: fp32 [1, columns of c]
   or NULL. The recipe must be the one that the operands were quantized by. */
OTT_API ott_status ott_gemm(ott_recipe *r, ott_gemm_kind which, const ott_operand *a, const ott_operand *b,
                            const ott_tensor *bias, int accumulate, ott_tensor *c);

#ifdef __cplusplus
}
#endif
#endif
