/*
 * ottava/types.h: status codes, number formats, log levels and loss functions, for the public API and the
 * library itself. Each list is an X-macro, so that an enum and its texts always agree. Compiles as C11 and as
 * C++17.
 */
#ifndef OTTAVA_TYPES_H
#define OTTAVA_TYPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, exit code, meaning). A program that ends because of a status should exit with its exit code: 0
   done, 1 the run failed, 2 bad input. */
#define OTT_STATUS_MAP(X)                                                                                    \
    X(OK, 0, "done")                                                                                         \
    X(ERR_ARGUMENT, 2, "invalid argument")                                                                   \
    X(ERR_CONFIG, 2, "invalid configuration")                                                                \
    X(ERR_SHAPE, 2, "shapes do not agree")                                                                   \
    X(ERR_DTYPE, 2, "number format not usable here")                                                         \
    X(ERR_FORMAT, 2, "malformed file")                                                                       \
    X(ERR_NOT_FOUND, 2, "not found")                                                                         \
    X(ERR_UNSUPPORTED, 2, "not supported")                                                                   \
    X(ERR_IO, 1, "input or output failed")                                                                   \
    X(ERR_MEMORY, 1, "out of memory")                                                                        \
    X(ERR_DEVICE, 1, "device failed")                                                                        \
    X(ERR_DIVERGED, 1, "training diverged")                                                                  \
    X(ERR_RANK, 1, "another rank failed")                                                                    \
    X(ERR_INTERNAL, 1, "internal error")                                                                     \
    X(ERR_STOPPED, 1, "stopped on request")

typedef enum ott_status {
#define X(name, exit_code, text) OTT_##name,
    OTT_STATUS_MAP(X)
#undef X
} ott_status;

/* Formats of tensor elements. X(constant, name, name in safetensors files, bits, kind, largest finite value).
   Kinds: HIGH: for computing; FP8: codes of quantized values; SCALE: only for scales; INTEGER. E4M3 is OCP's
   "fn" variant, which has no infinity. E8M0 is a power of two: the scale of MX formats. The largest values
   of integer formats are given as fp32, rounded. */
#define OTT_DTYPE_MAP(X)                                                                                     \
    X(F32, "fp32", "F32", 32, HIGH, 0x1.fffffep127f)                                                         \
    X(BF16, "bf16", "BF16", 16, HIGH, 0x1.fep127f)                                                           \
    X(F16, "fp16", "F16", 16, HIGH, 65504.0f)                                                                \
    X(E4M3, "e4m3", "F8_E4M3", 8, FP8, 448.0f)                                                               \
    X(E5M2, "e5m2", "F8_E5M2", 8, FP8, 57344.0f)                                                             \
    X(E8M0, "e8m0", "F8_E8M0", 8, SCALE, 0x1p127f)                                                           \
    X(U8, "u8", "U8", 8, INTEGER, 255.0f)                                                                    \
    X(I32, "i32", "I32", 32, INTEGER, 0x1p31f)                                                               \
    X(I64, "i64", "I64", 64, INTEGER, 0x1p63f)

typedef enum ott_dtype {
#define X(constant, name, safetensors, bits, kind, largest) OTT_##constant,
    OTT_DTYPE_MAP(X)
#undef X
        OTT_DTYPE_COUNT /* number of formats; getters return it for "no format" */
} ott_dtype;

/* X(name, text), most severe first. */
#define OTT_LOG_MAP(X) X(ERROR, "error") X(WARNING, "warning") X(INFO, "info") X(DEBUG, "debug")

typedef enum ott_log_level {
#define X(name, text) OTT_LOG_##name,
    OTT_LOG_MAP(X)
#undef X
} ott_log_level;

/* A micro-batch for a loss function. It has T = sequences * length tokens, one sequence after the other. All
   arrays are in host memory, belong to the library, and are valid during the call. */
typedef struct ott_loss_batch {
    int64_t sequences, length, vocab;
    const int32_t *token;    /* [T] token ids that the model read */
    const int32_t *target;   /* [T] the token to predict; negative: none, the token does not count */
    const int32_t *position; /* [T] position in its document; each document starts with 0 */
    int training;            /* 1: a training pass; 0: an evaluation, which needs no gradient */
    /* [T, vocab]. Input: the logits, after the model's multiplier and softcap. In training the function
       overwrites all of them with the gradient of the sum of `loss`; with 0 for tokens without target. */
    float *logits;
    float *loss; /* [T] output: the loss of each token in nats; all 0 before the call */
} ott_loss_batch;

/*
 * Your loss function, in place of cross-entropy. The library calls it once for each micro-batch, in the order
 * of the micro-batches, on the thread that called ott_train or ott_model_loss. The function may make the
 * library calls that every callback may make. If it returns another status than OTT_OK, ott_train or
 * ott_model_loss ends with this status. The library adds up the losses of all tokens of a step and divides
 * the sum by the number of targets that count. It divides the gradients by the same number.
 */
typedef ott_status (*ott_loss_fn)(void *user, const ott_loss_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
