/* model/ffn: the kinds of feed-forward. */
#include "model/ffn.h"
#include "model/model.h"
#include <stddef.h>

/* ---- the dense MLP ---- */

static bool has_mlp(const model_options *o, module_role role) {
    bool gated = family_mlp_is_gated(model_mlp(o));
    switch (role) {
    case ROLE_GATE_UP: return gated && o->fused_gate_up;
    case ROLE_GATE: return gated && !o->fused_gate_up;
    case ROLE_UP: return !gated || !o->fused_gate_up;
    default: return role == ROLE_DOWN;
    }
}

static activate_kind function_of(family_mlp m) {
    if (m == FAMILY_MLP_RELU) return ACTIVATE_RELU;
    return m == FAMILY_MLP_GELU_ERF || m == FAMILY_MLP_GEGLU_ERF ? ACTIVATE_GELU_ERF : ACTIVATE_GELU_TANH;
}

static void prepare_mlp(model *m, ffn_layer f) {
    f.mlp->activates = model_mlp(&m->options) != FAMILY_MLP_SWIGLU;
    f.mlp->function = function_of(model_mlp(&m->options));
}

/* Only FP8 layers can keep gate's and up's outputs in FP8. */
static void store_mlp_inputs(ffn_layer f, bool store) {
    f.mlp->stores_fp8 = store && (f.mlp->gate_up.weight ? f.mlp->gate_up : f.mlp->up).spec.fp8;
}

const ffn_kind ffn_mlp = {.has = has_mlp,
                          .at = {[ROLE_GATE_UP] = offsetof(mlp, gate_up),
                                 [ROLE_GATE] = offsetof(mlp, gate),
                                 [ROLE_UP] = offsetof(mlp, up),
                                 [ROLE_DOWN] = offsetof(mlp, down)},
                          .prepare = prepare_mlp,
                          .store_inputs = store_mlp_inputs,
                          .connect = mlp_connect,
                          .forward = mlp_forward,
                          .activate = mlp_activate,
                          .project = mlp_project,
                          .keep = mlp_keep,
                          .keep_products = mlp_keep_products,
                          .discard = mlp_discard,
                          .backward = mlp_backward};

/* ---- the mixture of experts ---- */

static bool has_moe(const model_options *o, module_role role) {
    switch (role) {
    case ROLE_ROUTER:
    case ROLE_EXPERT_GATE:
    case ROLE_EXPERT_UP:
    case ROLE_EXPERT_DOWN: return true;
    case ROLE_SHARED_GATE:
    case ROLE_SHARED_UP:
    case ROLE_SHARED_DOWN: return o->moe.shared_hidden > 0;
    default: return false;
    }
}

static void prepare_moe(model *m, ffn_layer f) {
    f.moe->options = &m->options.moe;
    f.moe->ranks = m->options.expert_ranks ? &m->expert_ranks : NULL;
    f.moe->token_ranks = m->options.context_ranks;
    f.moe->sequence_ranks = model_tensor_ranks(m);
}

/* Only the shared experts can keep the outputs of gate and up in FP8 for backward. */
static void store_moe_inputs(ffn_layer f, bool store) {
    f.moe->shared.stores_fp8 = store && f.moe->shared.gate.spec.fp8;
}

const ffn_kind ffn_moe = {.has = has_moe,
                          .at = {[ROLE_ROUTER] = offsetof(moe, router),
                                 [ROLE_EXPERT_GATE] = offsetof(moe, gate),
                                 [ROLE_EXPERT_UP] = offsetof(moe, up),
                                 [ROLE_EXPERT_DOWN] = offsetof(moe, down),
                                 [ROLE_SHARED_GATE] = offsetof(moe, shared.gate),
                                 [ROLE_SHARED_UP] = offsetof(moe, shared.up),
                                 [ROLE_SHARED_DOWN] = offsetof(moe, shared.down)},
                          .prepare = prepare_moe,
                          .store_inputs = store_moe_inputs,
                          .connect = moe_connect,
                          .forward = moe_forward,
                          .activate = moe_activate,
                          .project = moe_project,
                          .keep = moe_keep,
                          .keep_products = moe_keep_products,
                          .discard = moe_discard,
                          .backward = moe_backward};
