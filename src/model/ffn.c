/* model/ffn: the kinds of feed-forward. */
#include "model/ffn.h"
#include "model/block.h"

/* ---- the dense MLP ---- */

static bool has_mlp(const model_options *o, module_role role) {
    switch (role) {
    case ROLE_GATE_UP: return o->fused_gate_up;
    case ROLE_GATE:
    case ROLE_UP: return !o->fused_gate_up;
    default: return role == ROLE_DOWN;
    }
}

/* Where gate and up are made in high precision they wait in it. */
static void store_mlp_inputs(block *b, bool store) {
    mlp *f = &b->mlp;
    f->stores_fp8 = store && (f->gate_up.weight ? f->gate_up : f->gate).spec.fp8;
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
