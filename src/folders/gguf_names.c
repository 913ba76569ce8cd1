/* folders/gguf_names: the table of names, and changes of elements. */
#include "folders/gguf_names.h"
#include <stdio.h>

static const char *const role_names[ROLE_COUNT] = {[ROLE_EMBEDDING] = "token_embd",
                                                   [ROLE_POSITION_EMBEDDING] = "position_embd",
                                                   [ROLE_ATTENTION_NORM] = "attn_norm",
                                                   [ROLE_QKV] = "attn_qkv",
                                                   [ROLE_Q] = "attn_q",
                                                   [ROLE_K] = "attn_k",
                                                   [ROLE_V] = "attn_v",
                                                   [ROLE_Q_NORM] = "attn_q_norm",
                                                   [ROLE_K_NORM] = "attn_k_norm",
                                                   [ROLE_O] = "attn_output",
                                                   [ROLE_ATTENTION_POST_NORM] = "post_attention_norm",
                                                   [ROLE_MLP_NORM] = "ffn_norm",
                                                   [ROLE_GATE_UP] = "ffn_up",
                                                   [ROLE_GATE] = "ffn_gate",
                                                   [ROLE_UP] = "ffn_up",
                                                   [ROLE_DOWN] = "ffn_down",
                                                   [ROLE_ROUTER] = "ffn_gate_inp",
                                                   [ROLE_EXPERT_GATE] = "ffn_gate_exps",
                                                   [ROLE_EXPERT_UP] = "ffn_up_exps",
                                                   [ROLE_EXPERT_DOWN] = "ffn_down_exps",
                                                   [ROLE_SHARED_GATE] = "ffn_gate_shexp",
                                                   [ROLE_SHARED_UP] = "ffn_up_shexp",
                                                   [ROLE_SHARED_DOWN] = "ffn_down_shexp",
                                                   [ROLE_MLP_POST_NORM] = "post_ffw_norm",
                                                   [ROLE_FINAL_NORM] = "output_norm",
                                                   [ROLE_HEAD] = "output"};

/* Returns the role that names the GGUF tensor of `role`: of the fused tensor if GGUF fuses `role`. */
static module_role role_of_tensor(const gguf_arch *a, module_role role) {
    if (a->fused_qkv && role >= ROLE_Q && role <= ROLE_V) return ROLE_QKV;
    return a->fused_gate_up && role == ROLE_GATE ? ROLE_UP : role;
}

void gguf_tensor_name(const gguf_arch *a, const model_module *m, module_role part, bool is_bias,
                      char out[GGUF_NAME_BYTES]) {
    const char *name = m->balances && is_bias ? "exp_probs_b" : role_names[role_of_tensor(a, part)];
    const char *kind = is_bias ? "bias" : "weight";
    if (m->layer == MODULES_OUTSIDE)
        snprintf(out, GGUF_NAME_BYTES, "%s.%s", name, kind);
    else
        snprintf(out, GGUF_NAME_BYTES, "blk.%d.%s.%s", m->layer, name, kind);
}

int64_t gguf_head_rows(const gguf_arch *a, const model_options *o, module_role role) {
    return a->rotates_pairs && (role == ROLE_Q || role == ROLE_K) ? o->head_dim : 0;
}

bool gguf_has_one(const model_options *o, const model_module *m) {
    return o->family->norm == FAMILY_NORM_RMS_ONE_PLUS && m->kind == MODULE_NORM;
}
