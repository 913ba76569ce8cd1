/* model/ffn: the kinds of feed-forward. */
#include "model/ffn.h"
#include "model/block.h"

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

/* Only FP8 layers can keep gate's and up's outputs in FP8. */
static void store_mlp_inputs(block *b, bool store) {
    mlp *f = &b->mlp;
    f->stores_fp8 = store && (f->gate_up.weight ? f->gate_up : f->up).spec.fp8;
}

static ott_status connect_mlp(block *b) {
    return mlp_connect(&b->mlp, &b->mlp_input, &b->grad_mlp);
}

static ott_status forward_mlp(exec *cx, block *b, block_saved *s) {
    return mlp_forward(cx, &b->mlp, &s->n2, &s->mlp);
}

static ott_status activate_mlp(exec *cx, block *b, block_saved *s) {
    return mlp_activate(cx, &b->mlp, &s->mlp);
}

static ott_status project_mlp(exec *cx, block *b, block_saved *s, const tensor *out) {
    return mlp_project(cx, &b->mlp, &s->mlp, out);
}

static ott_status keep_mlp(exec *cx, block *b, block_saved *s) {
    return mlp_keep(cx, &b->mlp, &s->mlp);
}

static ott_status keep_mlp_products(exec *cx, block_saved *s) {
    return activation_close(cx, &s->mlp.y);
}

static ott_status discard_mlp(exec *cx, block_saved *s) {
    return mlp_discard(cx, &s->mlp);
}

static ott_status backward_mlp(exec *cx, block *b, block_saved *s, const activation *g, const tensor *dn2) {
    return mlp_backward(cx, &b->mlp, &s->mlp, &s->n2, g, dn2);
}

const ffn_kind ffn_mlp = {.has = has_mlp,
                          .store_inputs = store_mlp_inputs,
                          .connect = connect_mlp,
                          .forward = forward_mlp,
                          .activate = activate_mlp,
                          .project = project_mlp,
                          .keep = keep_mlp,
                          .keep_products = keep_mlp_products,
                          .discard = discard_mlp,
                          .backward = backward_mlp};

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

/* Only the shared experts can keep the outputs of gate and up in FP8 for backward. */
static void store_moe_inputs(block *b, bool store) {
    b->moe.shared.stores_fp8 = store && b->moe.shared.gate.spec.fp8;
}

static ott_status connect_moe(block *b) {
    return moe_connect(&b->moe, &b->mlp_input, &b->grad_mlp);
}

static ott_status forward_moe(exec *cx, block *b, block_saved *s) {
    return moe_forward(cx, &b->moe, &s->n2, &s->moe);
}

static ott_status activate_moe(exec *cx, block *b, block_saved *s) {
    return moe_activate(cx, &b->moe, &s->moe);
}

static ott_status project_moe(exec *cx, block *b, block_saved *s, const tensor *out) {
    return moe_project(cx, &b->moe, &s->moe, out);
}

static ott_status keep_moe(exec *cx, block *b, block_saved *s) {
    return moe_keep(cx, &b->moe, &s->moe);
}

static ott_status keep_moe_products(exec *cx, block_saved *s) {
    return moe_keep_products(cx, &s->moe);
}

static ott_status discard_moe(exec *cx, block_saved *s) {
    return moe_discard(cx, &s->moe);
}

static ott_status backward_moe(exec *cx, block *b, block_saved *s, const activation *g, const tensor *dn2) {
    return moe_backward(cx, &b->moe, &s->moe, &s->n2, g, dn2);
}

const ffn_kind ffn_moe = {.has = has_moe,
                          .store_inputs = store_moe_inputs,
                          .connect = connect_moe,
                          .forward = forward_moe,
                          .activate = activate_moe,
                          .project = project_moe,
                          .keep = keep_moe,
                          .keep_products = keep_moe_products,
                          .discard = discard_moe,
                          .backward = backward_moe};
