/*
 * nn/weight/weight: how the weight of a linear layer is stored and read. A weight_kind is a row of functions
 * for one way to store a weight. weight_set chooses the row. GEMMs only call weight_open.
 *
 * | kind     | stored as                                        | what a GEMM reads                       |
 * |----------|--------------------------------------------------|-----------------------------------------|
 * | master   | fp32 or bf16 master; may be expert weights       | copies, made from it once per step      |
 * | sharded  | rows of the master on each data-parallel rank    | copies, gathered by parallel/store      |
 * | frozen   | FP8 codes without a master (nn/linear/frozen.h)  | the codes, or a copy made for each GEMM |
 * | experts  | FP8 codes of expert weights without a master     | a dequantized copy, made for each GEMM  |
 * | composed | master or codes with an adapter (nn/linear/dora) | the composed weight, made for each GEMM |
 * | packed   | only for inference: the output of op_pack        | the packed weight                       |
 */
#ifndef NN_WEIGHT_WEIGHT_H
#define NN_WEIGHT_WEIGHT_H

#include "nn/linear/delayed.h"
#include "nn/linear/dora.h"
#include "nn/linear/frozen.h"

typedef struct weight_source weight_source;

/* How a GEMM uses a weight. All members 0: forward of a layer that does not have expert weights. */
typedef struct weight_use {
    bool columnwise;              /* true: the columnwise use, for grad_input; false: rowwise, for forward */
    const tensor *channel_scales; /* SmoothQuant: activation.channel_scales; NULL: none */
    const tensor *end; /* expert weights: grouped_rows.end if experts without rows are not read; else NULL */
} weight_use;

/* The functions of one way to store a weight. */
typedef struct weight_kind {
    /* Allocates the copies that are kept from one GEMM to the next. `blocks` has the bytes of w->quantized.
       NULL: no copies are kept, or they are allocated elsewhere. */
    ott_status (*allocate)(weight_source *w, device *d, qblocks *blocks);
    /* Makes these copies from the master. NULL: weight_open does not make them. */
    ott_status (*refresh)(exec *cx, const weight_source *w);
    /* weight_open without the refresh. *buffer is PLAN_NONE. */
    ott_status (*open)(exec *cx, const weight_source *w, const weight_use *use, operand *out,
                       plan_buffer *buffer);
    /* In training, once per step: records the amax for delayed scaling, and calls the user's hook. NULL:
       neither. Then delayed scaling becomes current scaling. */
    ott_status (*observe)(exec *cx, const weight_source *w);
    /* Returns what the optimizer step can quantize: codes and scales, or without codes only the amax. The
       spec is high precision if it can quantize nothing. NULL: nothing. */
    qtensor (*fused)(const weight_source *w);
} weight_kind;

extern const weight_kind weight_master, weight_sharded, weight_frozen, weight_experts, weight_composed,
    weight_packed;

/* A weight, the copies of it that are kept, and the step for which they were made. */
struct weight_source {
    /* The layer sets these members before weight_set. All are borrowed. */
    const char *name;             /* the layer's name */
    parameter *parameter;         /* weight [out, in], or expert weights */
    const lora *lora;             /* the layer's adapter; NULL: none */
    tensor_shard shard;           /* how tensor-parallel ranks split the weight */
    const delayed_state *delayed; /* state of the weight's delayed scaling */
    bool grouped_fp8; /* expert weights: each GEMM quantizes what weight_open returns (nn/moe/grouped.h) */
    bool requantizes; /* no columnwise codes are kept: each backward makes them */
    /* weight_set sets these members. */
    const weight_kind *kind;
    ott_dtype high_precision; /* format in which GEMMs read the weight if they do not read FP8 codes */
    qtensor quantized;        /* rows, columns and spec of the weight; if kept: codes and scales */
    tensor copy;              /* the weight in the format high_precision; data NULL: GEMMs read the master */
    operand packed;           /* kind weight_packed: the packed weight */
    void *block;              /* device memory of `copy` and `quantized`; owned */
    int64_t made_step;        /* exec.step of the copies; if the weight is sharded, of its scales; -1: none */
    int64_t optimizer_step;   /* exec.step for which the optimizer has quantized the weight; -1: none */
};

/* ---- setup ---- */

/* Chooses the kind and lays out a weight of this size for a spec; releases the earlier copies. */
ott_status weight_set(weight_source *w, device *d, int64_t rows, int64_t columns, const linear_spec *spec);
void weight_release(weight_source *w, device *d); /* frees the copies and ends weight_fuse */
/* For inference: packs the weight into memory of `weights`. Then GEMMs do not read the master or stored
   codes, and backward is impossible. Expert weights are converted to the format that GEMMs read, not packed.
   Expert weights that are stored as codes do not change. */
ott_status weight_pack(exec *cx, weight_source *w, device_arena *weights);

/* ---- reading ---- */

/* Opens the weight as a GEMM's operand; first makes the copies for this step if they are out of date. The
   caller closes *buffer. */
ott_status weight_open(exec *cx, weight_source *w, const weight_use *use, operand *out, plan_buffer *buffer);
/* Opens t[out, in] in fp32: the weight without an adapter. The caller closes *buffer. Not for experts. */
ott_status weight_open_values(exec *cx, const weight_source *w, tensor *t, plan_buffer *buffer);

/* How a GEMM reads a weight that is stored as FP8 codes. */
typedef enum weight_codes_use {
    WEIGHT_CODES_DIRECT,      /* the GEMM multiplies the stored codes */
    WEIGHT_CODES_DEQUANTIZED, /* dequantizes the codes to the activation format */
    /* Dequantizes the codes and quantizes them again as the recipe requires, so values are rounded twice. FP8
       GEMMs with expert weights or with a DoRA adapter always do this. */
    WEIGHT_CODES_REQUANTIZED,
    WEIGHT_CODES_USES
} weight_codes_use;
/* How grad_input (columnwise) or forward reads the codes. The parameter must be stored as FP8 codes. */
weight_codes_use weight_get_codes_use(const weight_source *w, bool columnwise);

/* With DoRA and dropout of the layer's input, GEMMs read the weight W. Then this call adds the product with
   the change W' - W (nn/linear/dora.h): to y[T,out] from x[T,in]; columnwise: to dx[T,in], the argument y,
   from g[T,out], the argument x. Without DoRA or dropout, it does nothing. */
ott_status weight_add_change(exec *cx, const weight_source *w, bool columnwise, const tensor *x,
                             const tensor *y);
/* Accumulates the gradients of the DoRA adapter. */
ott_status weight_grad_composed(exec *cx, const weight_source *w, const tensor *x, const tensor *g);

/* ---- steps ---- */

/* Marks the copies as out of date. Call it if anything but the optimizer changed the master. */
void weight_changed(weight_source *w);
/* Marks the copies as made in step `step`. */
void weight_made(weight_source *w, int64_t step);
/* Makes the optimizer step also quantize the weight, until the next weight_set. Call it only if
   optimizer_rule.can_quantize accepts the parameter. Call it after linear_connect and store_set, because it
   copies pointers that they set. No effect for frozen weights, and for kinds that cannot do it. */
void weight_fuse(weight_source *w);
/* Call it after each update: if weight_fuse was called, the optimizer has quantized the weight for `step`. */
void weight_updated(weight_source *w, int64_t step);
/* Call it before a graph replay that makes the copies: marks them as out of date, except copies that never
   change. If the optimizer has not quantized for cx->step, as after loading, quantizes in the same way. */
ott_status weight_prepare_replay(exec *cx, weight_source *w);

/* ---- internal to src/nn/weight ---- */

/* True if the copies are up to date for cx->step; for a sharded weight, if its scales are. */
bool weight_is_fresh(const exec *cx, const weight_source *w);
/* True if the optimizer has quantized the weight for this step. While the plan is recorded, true if the
   optimizer will do so. */
bool weight_is_quantized(const exec *cx, const weight_source *w);
/* kind->open of weight_master and weight_sharded. */
ott_status weight_open_copy(exec *cx, const weight_source *w, const weight_use *use, operand *out,
                            plan_buffer *buffer);
/* Opens *out: x[out, in], quantized with current scaling for one use. */
ott_status weight_open_quantized(exec *cx, const weight_source *w, bool columnwise, const tensor *x,
                                 operand *out, plan_buffer *buffer);
/* For delayed scaling: records the amax of the weight. */
ott_status weight_record_amax(exec *cx, const weight_source *w);

static inline operand weight_operand(bool columnwise, tensor t, const qtensor *q) {
    return columnwise ? operand_columnwise(t, q) : operand_rowwise(t, q);
}

#endif
