/*
 * ottava/fp8.h: the parts of FP8 training as separate calls, for your own training loop: tensors, recipes,
 * quantized tensors, the three GEMMs of a linear layer, cast statistics, and process groups over your own
 * transport. examples/own_loop.c uses all of them.
 *
 * A linear layer computes Y[M,N] = X[M,K] W[N,K]^T. A recipe defines how each tensor is quantized for each of
 * its two uses: rowwise (the GEMM contracts along its rows) and columnwise (the GEMM contracts down its
 * columns).
 *
 *     GEMM                      computes      first operand a           second operand b
 *     OTT_GEMM_OUTPUT           Y  = X W^T    input X rowwise           weight W rowwise
 *     OTT_GEMM_GRAD_INPUT       dX = G W      grad_output G rowwise     weight W columnwise
 *     OTT_GEMM_GRAD_WEIGHT      dW = G^T X    grad_output G columnwise  input X columnwise
 *
 * One training step of such a layer; the same calls work under every recipe, "bf16" included:
 *
 *     ott_recipe_open(context, "tensorwise", &recipe);
 *     ott_qtensor_open(context, M, K, recipe, OTT_INPUT, &xq);            // likewise wq[N,K] and gq[M,N]
 *     ott_quantize(xq, x);                                                // likewise wq
 *     ott_operand X = {x, xq}, W = {w, wq}, G = {g, gq};
 *     ott_gemm(recipe, OTT_GEMM_OUTPUT, &X, &W, NULL, 0, y);
 *     ott_quantize(gq, g);                                                // g = d loss / d y
 *     ott_gemm(recipe, OTT_GEMM_GRAD_INPUT, &G, &W, NULL, 0, dx);
 *     ott_gemm(recipe, OTT_GEMM_GRAD_WEIGHT, &G, &X, NULL, 1, dw);        // 1: adds to dw
 *
 * Ownership: close every object with its ott_x_close. Closing NULL or a closed object does nothing. Use after
 * close returns OTT_ERR_ARGUMENT as long as the context is open. (The library remembers the last 1024 closed
 * tensors and the last 1024 closed quantized tensors.) Closing a context frees the memory of all its objects.
 *
 * Threads: one thread at a time may use a context and its objects. A call while another thread is inside a
 * call returns OTT_ERR_ARGUMENT ("... in use by another thread") and never waits. Callbacks run on the
 * calling thread and may call the library.
 *
 * Errors: OTT_ERR_ARGUMENT for a wrong option and for a handle that is NULL, closed, of the wrong kind or of
 * another context. OTT_ERR_DTYPE and OTT_ERR_SHAPE if formats or shapes do not fit; the text names both.
 * OTT_ERR_CONFIG for a recipe that does not exist or is inconsistent. OTT_ERR_MEMORY if memory runs out.
 * After an error the contents of the call's outputs are undefined; nothing else has changed.
 */
#ifndef OTTAVA_FP8_H
#define OTTAVA_FP8_H

#include "ottava/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tensors ---- */

/* A dense row-major matrix [rows, columns] in device memory (on the CPU: host memory). */
typedef struct ott_tensor ott_tensor;

/* Allocates a zero-filled tensor. dtype: OTT_F32, OTT_BF16, OTT_F16, OTT_I32 (token ids). Sizes may be 0. */
OTT_API ott_status ott_tensor_open(ott_context *context, ott_dtype dtype, int64_t rows, int64_t columns,
                                   ott_tensor **out);
/* Makes a tensor that uses your own memory, which must stay valid until the tensor is closed. data: rows *
   columns elements, aligned to their size, in the memory of the context's device; NULL if there are none. For
   a GPU: memory from cudaMalloc or a similar call in this process; other memory is OTT_ERR_ARGUMENT. */
OTT_API ott_status ott_tensor_wrap(ott_context *context, void *data, ott_dtype dtype, int64_t rows,
                                   int64_t columns, ott_tensor **out);
OTT_API void ott_tensor_close(ott_tensor *t);

/* Getters. For a NULL or closed tensor the dtype is OTT_DTYPE_COUNT, the numbers of rows and columns are -1
   and the data is NULL; ott_error_text has the reason. */
OTT_API ott_dtype ott_tensor_dtype(const ott_tensor *t);
OTT_API int64_t ott_tensor_rows(const ott_tensor *t);
OTT_API int64_t ott_tensor_columns(const ott_tensor *t);
/* Address of the elements in device memory, valid until the tensor is closed. On the CPU you may read and
   write there between calls. On a GPU use ott_tensor_read and ott_tensor_write. */
OTT_API void *ott_tensor_data(ott_tensor *t);

/* Copy all elements to or from an fp32 array in host memory, row by row. count must be rows * columns.
   Writing rounds to nearest even; values for OTT_I32 are rounded to integers. */
OTT_API ott_status ott_tensor_read(const ott_tensor *t, float *out, int64_t count);
OTT_API ott_status ott_tensor_write(ott_tensor *t, const float *values, int64_t count);
/* Sets every element to `value`, rounded as in ott_tensor_write. */
OTT_API ott_status ott_tensor_fill(ott_tensor *t, double value);
/* Sets element i to deviation times the i-th standard normal number of `seed`; the same numbers on every
   machine. deviation: finite, 0 or more. Not for OTT_I32. */
OTT_API ott_status ott_tensor_fill_normal(ott_tensor *t, uint64_t seed, double deviation);
/* Copies `from` to `to`, rounded to nearest even to the format of `to`. Equal shapes. Not for OTT_I32. */
OTT_API ott_status ott_tensor_convert(const ott_tensor *from, ott_tensor *to);

/* ---- recipes ---- */

/* How the tensors and GEMMs of a linear layer use FP8. Objects that are made with a recipe copy it. */
typedef struct ott_recipe ott_recipe;

/* Your own rules for delayed scaling; NULL: TransformerEngine's rule. Called once per scale update. */
typedef struct ott_delayed_callbacks {
    size_t struct_size;
    /* Returns the amax that determines the scale. amax_history[length]: the last amaxes, the newest last. */
    float (*amax)(void *user, const float *amax_history, int64_t length);
    /* Returns the new scale. It must be finite and above 0; otherwise the update fails with OTT_ERR_ARGUMENT
       and the old scale stays. max: largest value of the FP8 format. margin: as in DelayedScaling. */
    float (*scale)(void *user, float amax, float old_scale, float max, int margin);
    void *user; /* passed to both functions */
} ott_delayed_callbacks;

/*
 * Opens a recipe by name: a row of ott_recipe_table ("tensorwise", "delayed", ...), TransformerEngine's class
 * name for such a row ("DelayedScaling"), or "bf16", "fp32", "fp16", which use no FP8. "custom" is a recipe
 * that you define with ott_recipe_set, keys "input", "weight" and "grad_output"; a tensor without a key stays
 * bf16. An unknown name is OTT_ERR_CONFIG; the error text suggests the nearest name.
 */
OTT_API ott_status ott_recipe_open(ott_context *context, const char *name, ott_recipe **out);
OTT_API void ott_recipe_close(ott_recipe *r);
/* Sets a key of the configuration section [float8], such as "amax_history_len" to "16". Affects only objects
   that are made with the recipe later. Contradictions are reported when the recipe is used. */
OTT_API ott_status ott_recipe_set(ott_recipe *r, const char *key, const char *value);
OTT_API void ott_delayed_callbacks_init(ott_delayed_callbacks *callbacks, size_t size);
#define ott_delayed_callbacks_init(callbacks) ott_delayed_callbacks_init(callbacks, sizeof *(callbacks))
/* Sets your own rules for a recipe with delayed scaling; callbacks NULL: TransformerEngine's rules again.
   They apply to objects made with the recipe later, and to objects that already use its callbacks. The
   functions must stay callable until these objects are closed. OTT_ERR_ARGUMENT without delayed scaling. */
OTT_API ott_status ott_recipe_set_callbacks(ott_recipe *r, const ott_delayed_callbacks *callbacks);
/* Writes the recipe as text: rowwise and columnwise copies, the three GEMMs, where it was published. */
OTT_API ott_status ott_recipe_describe(ott_recipe *r, ott_text_fn write, void *user);
/* Writes all recipes: format, granularity and scale rule of each operand, accumulator of each GEMM, bytes
   kept for backward per input element, devices that can run it, publication. json 1: JSON; 0: a table. */
OTT_API ott_status ott_recipe_table(ott_context *context, int json, ott_text_fn write, void *user);

/* Returns OTT_OK if the device can run the recipe. device_name: as in ott_context_options; "auto" means the
   CPU. OTT_ERR_UNSUPPORTED if the device cannot, OTT_ERR_DEVICE if there is no such GPU. OTT_ERR_ARGUMENT for
   an unknown device, OTT_ERR_CONFIG for an unknown recipe. *reason (reason may be NULL) becomes "" or the
   error text, valid until the next failing call on this thread. */
OTT_API ott_status ott_supported(ott_context *context, const char *device_name, const char *recipe_name,
                                 const char **reason);

/* ---- process groups ---- */

/* The ranks that share amaxes of delayed scaling. */
typedef struct ott_group ott_group;

typedef enum ott_reduce { OTT_REDUCE_SUM, OTT_REDUCE_MAX } ott_reduce;

/* Your all-reduce: replaces values[count], in host memory, by their sum or maximum over all ranks of the
   group, with the same bits on every rank. It must not return before all values are replaced. If it returns
   an error, the library call that called it fails with that status. */
typedef ott_status (*ott_all_reduce_fn)(void *user, float *values, int64_t count, ott_reduce kind);

typedef struct ott_group_options {
    size_t struct_size;
    int rank, size;               /* 0 <= rank < size; default: rank 0 of 1 */
    ott_all_reduce_fn all_reduce; /* may be NULL if size is 1 */
    void *user;                   /* passed to all_reduce */
} ott_group_options;

OTT_API void ott_group_options_init(ott_group_options *options, size_t size);
#define ott_group_options_init(options) ott_group_options_init(options, sizeof *(options))
/* Makes a group that uses your own transport (MPI, NCCL, sockets, ...). options must not be NULL. */
OTT_API ott_status ott_group_open(ott_context *context, const ott_group_options *options, ott_group **out);
OTT_API void ott_group_close(ott_group *g);

/* ---- quantized tensors ---- */

/* A tensor quantized for its rowwise and its columnwise use: codes, amaxes, scales. */
typedef struct ott_qtensor ott_qtensor;

typedef enum ott_role { OTT_INPUT, OTT_WEIGHT, OTT_GRAD_OUTPUT } ott_role;
typedef enum ott_usage { OTT_ROWWISE, OTT_COLUMNWISE } ott_usage;

/* Opens an empty quantized tensor for a tensor of this shape and role. The recipe is copied. If a GEMM reads
   the tensor in high precision, the copy for this GEMM takes no memory: ott_gemm reads the original tensor.
   rows and columns: 1 or more. OTT_ERR_UNSUPPORTED if the device cannot run the recipe. */
OTT_API ott_status ott_qtensor_open(ott_context *context, int64_t rows, int64_t columns, ott_recipe *r,
                                    ott_role role, ott_qtensor **out);
OTT_API void ott_qtensor_close(ott_qtensor *q);
/* Quantizes x (fp32, bf16 or fp16, the same shape) rowwise and columnwise. Delayed scaling uses its current
   scale and records x's amax for the next update. */
OTT_API ott_status ott_quantize(ott_qtensor *q, const ott_tensor *x);
/* Updates the scale of delayed scaling; call it once per step, after backward. Appends the recorded amax to
   the history, and computes the next scale from the history. g: takes the maximum amax of the group's ranks;
   NULL: this rank's amax. Does nothing for other recipes. */
OTT_API ott_status ott_qtensor_update_scale(ott_qtensor *q, ott_group *g);

/*
 * A view of the rowwise or of the columnwise copy in a quantized tensor. Its pointers are device memory (host
 * memory on the CPU), valid until the quantized tensor is closed; ott_quantize changes the contents. Element
 * (i, j) has this code and scale (rowwise line = i, k = j; columnwise line = j, k = i):
 *
 *     codes[i * row_step + j * column_step]
 *     scale[(line / block_mn) * mn_step + (k / block_depth) * k_step]
 *
 * If scale_inv_format is OTT_F32, scale_inv is an array of floats and has the same index as scale. If it is
 * OTT_E8M0, scale_inv is an array of bytes in another order, and byte b is the factor 2^(b - 127). With
 * a = line / block_mn and c = k / block_depth, the byte has the index
 *
 *     (a / 128 * tiles_along_k + c / 4) * 512 + a % 32 * 16 + a % 128 / 32 * 4 + c % 4
 */
typedef struct ott_qdata {
    size_t struct_size;
    ott_dtype format;     /* OTT_E4M3 or OTT_E5M2; if the copy is not FP8, its high-precision format */
    const uint8_t *codes; /* NULL, and count 0, if the copy is not FP8 */
    int64_t row_step, column_step;
    const float *amax;     /* [count]: largest magnitude of each group */
    const float *scale;    /* [count]: factor from values to codes */
    const void *scale_inv; /* 1 / scale, factor from codes to values, in the format scale_inv_format */
    int64_t count;         /* number of scale groups */
    int64_t mn_step, k_step;
    int64_t block_mn, block_depth; /* size of a scale group along `line` and `k` (above); INT64_MAX: all */
    ott_dtype scale_inv_format;    /* OTT_F32, or OTT_E8M0 for blocks of 32 (MXFP8) */
    int64_t tiles_along_k;         /* OTT_E8M0: number of tiles of 128 x 4 scales along k; OTT_F32: 0 */
} ott_qdata;

OTT_API void ott_qdata_init(ott_qdata *view, size_t size);
#define ott_qdata_init(view) ott_qdata_init(view, sizeof *(view))
/* Fills the view of the copy that `use` names; call ott_qdata_init first. */
OTT_API ott_status ott_qtensor_data(ott_qtensor *q, ott_usage use, ott_qdata *out);
/* Dequantizes the copy that `use` names: out = code * scale_inv, rounded to out's format. Equal shapes.
   OTT_ERR_ARGUMENT if the copy is not FP8 or ott_quantize was not called yet. */
OTT_API ott_status ott_dequantize(ott_qtensor *q, ott_usage use, ott_tensor *out);

typedef struct ott_statistics {
    size_t struct_size;
    double saturated;            /* fraction of elements clamped to the format's largest value, 0 to 1 */
    double underflowed;          /* fraction of elements that were nonzero and became 0 */
    double sqnr_db;              /* signal to quantization noise ratio in dB; infinite if there is no noise */
    double amax;                 /* largest magnitude of x */
    double scale_min, scale_max; /* smallest and largest scale of all scale groups */
} ott_statistics;

OTT_API void ott_statistics_init(ott_statistics *statistics, size_t size);
#define ott_statistics_init(statistics) ott_statistics_init(statistics, sizeof *(statistics))
/* Measures the error of the copy that `use` names, after ott_quantize(q, x). Errors: see ott_dequantize. */
OTT_API ott_status ott_quantize_statistics(ott_qtensor *q, const ott_tensor *x, ott_usage use,
                                           ott_statistics *out);

/* ---- GEMMs ---- */

typedef enum ott_gemm_kind { OTT_GEMM_OUTPUT, OTT_GEMM_GRAD_INPUT, OTT_GEMM_GRAD_WEIGHT } ott_gemm_kind;

/* A tensor and its quantized copy. If the recipe computes the GEMM in FP8, ott_gemm reads `quantized`; else
   `tensor`, which must have the recipe's high-precision format. The one not read may be NULL. */
typedef struct ott_operand {
    const ott_tensor *tensor;
    const ott_qtensor *quantized;
} ott_operand;

/* Computes one of the three GEMMs of a linear layer (table at the top of fp8.h). c: fp32, bf16 or fp16,
   [M,N], [M,K] or [N,K], without overlap with an operand. bias: fp32 [1, columns of c], added to each row, or
   NULL. If accumulate is not 0, adds to c. First quantize the operands with this recipe. */
OTT_API ott_status ott_gemm(ott_recipe *r, ott_gemm_kind which, const ott_operand *a, const ott_operand *b,
                            const ott_tensor *bias, int accumulate, ott_tensor *c);

#ifdef __cplusplus
}
#endif
#endif
