/* folders/hf/configure: turns config.json of a Hugging Face folder into keys of [model]. */
#include "base/file/file.h"
#include "base/text/number.h"
#include "folders/hf/dequantize.h"
#include "folders/hf/model.h"
#include "formats/hf/config.h"
#include "formats/hf/hub_name.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static ott_status set_int(config *cfg, const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return config_set_default(cfg, key, text);
}

static ott_status set_real(config *cfg, const char *key, double value) {
    char text[32];
    return config_set_default(cfg, key, number_json(value, text));
}

static ott_status set_bool(config *cfg, const char *key, bool value) {
    return config_set_default(cfg, key, value ? "true" : "false");
}

/* Sets a key to a list of numbers: integers, or reals if `integers` is NULL. */
static ott_status set_numbers(mem *account, config *cfg, const char *key, const int32_t *integers,
                              const float *reals, int count) {
    str text = {.account = account};
    char number[32];
    for (int i = 0; i < count; i++) {
        if (integers)
            snprintf(number, sizeof number, "%d", (int)integers[i]);
        else
            number_json((double)reals[i], number);
        str_printf(&text, "%s%s", i ? "," : "", number);
    }
    ott_status status = str_finish(&text);
    if (status == OTT_OK && count > 0) status = config_set_default(cfg, key, text.text);
    str_free(&text);
    return status;
}

/* Sets a key of the rope scaling. Does nothing if the value is 0, which means that config.json lacks it. */
static ott_status set_positive(config *cfg, const char *key, double value) {
    return value > 0 ? set_real(cfg, key, value) : OTT_OK;
}

static ott_status set_rope(mem *account, config *cfg, const hf_config *h) {
    static const char *const words[] = {
        [HF_ROPE_PLAIN] = "none", [HF_ROPE_LLAMA3] = "llama3",     [HF_ROPE_LINEAR] = "linear",
        [HF_ROPE_YARN] = "yarn",  [HF_ROPE_LONGROPE] = "longrope", [HF_ROPE_DYNAMIC] = "dynamic"};
    TRY(set_real(cfg, "model.rope_theta", h->rope_theta));
    TRY(set_real(cfg, "model.rope_local_theta", h->rope_local_theta));
    TRY(set_real(cfg, "model.partial_rotary_factor", h->partial_rotary_factor));
    TRY(config_set_default(cfg, "model.rope_scaling", words[h->rope]));
    TRY(set_positive(cfg, "model.rope_factor", h->rope_factor));
    TRY(set_positive(cfg, "model.rope_low_freq_factor", h->rope_low_freq_factor));
    TRY(set_positive(cfg, "model.rope_high_freq_factor", h->rope_high_freq_factor));
    TRY(set_positive(cfg, "model.rope_beta_fast", h->rope_beta_fast));
    TRY(set_positive(cfg, "model.rope_beta_slow", h->rope_beta_slow));
    TRY(set_positive(cfg, "model.rope_mscale", h->rope_mscale));
    TRY(set_positive(cfg, "model.rope_mscale_all_dim", h->rope_mscale_all_dim));
    TRY(set_positive(cfg, "model.rope_attention_factor", h->rope_attention_factor));
    if (h->rope_original_max_position > 0)
        TRY(set_int(cfg, "model.rope_original_max_position", h->rope_original_max_position));
    TRY(set_numbers(account, cfg, "model.rope_short_factor", NULL, h->rope_short_factor, h->rope_factors));
    return set_numbers(account, cfg, "model.rope_long_factor", NULL, h->rope_long_factor, h->rope_factors);
}

static ott_status set_experts(mem *account, config *cfg, const hf_config *h) {
    bool sigmoid = h->family->experts == FAMILY_EXPERTS_SIGMOID;
    if (h->experts == 0) return OTT_OK;
    TRY(set_numbers(account, cfg, "model.moe_dense_layers", h->dense, NULL, h->dense_count));
    TRY(set_int(cfg, "model.num_experts", h->experts));
    TRY(set_int(cfg, "model.moe_top_k", h->experts_per_token));
    TRY(set_int(cfg, "model.moe_frequency", h->sparse_step > 0 ? h->sparse_step : 1));
    TRY(set_int(cfg, "model.moe_first_dense_layers", h->first_dense));
    TRY(config_set_default(cfg, "model.moe_router", sigmoid ? "sigmoid_topk" : "softmax_topk"));
    TRY(set_bool(cfg, "model.moe_normalize_weights",
                 h->normalizes_weights || family_is(h->family, FAMILY_MIXTRAL)));
    TRY(set_real(cfg, "model.moe_route_scale", h->route_scale > 0 ? h->route_scale : 1));
    TRY(set_int(cfg, "model.moe_groups", h->expert_groups > 1 ? h->expert_groups : 0));
    TRY(set_int(cfg, "model.moe_top_groups", h->expert_groups > 1 ? h->top_groups : 0));
    TRY(set_int(cfg, "model.moe_shared_experts", h->shared_experts));
    if (h->router_aux_loss_coef >= 0)
        TRY(set_real(cfg, "model.moe_aux_loss_weight", h->router_aux_loss_coef));
    return set_int(cfg, "model.moe_expert_hidden_dim",
                   h->expert_size > 0 ? h->expert_size : h->intermediate_size);
}

static ott_status set_shape(mem *account, config *cfg, const hf_config *h) {
    TRY(config_set_default(cfg, "model.family", h->family->name));
    TRY(set_int(cfg, "model.dim", h->hidden_size));
    TRY(set_int(cfg, "model.n_layers", h->layers));
    TRY(set_int(cfg, "model.n_heads", h->heads));
    TRY(set_int(cfg, "model.n_kv_heads", h->kv_heads));
    TRY(set_int(cfg, "model.head_dim", h->head_dim));
    TRY(set_int(cfg, "model.ffn_hidden_dim", h->intermediate_size));
    TRY(set_int(cfg, "model.vocab_size", h->vocab_size));
    TRY(set_int(cfg, "model.max_seq_len", h->max_position_embeddings));
    TRY(set_int(cfg, "model.sliding_window", h->sliding_window));
    TRY(set_int(cfg, "model.full_attention_every", h->full_attention_every));
    TRY(set_numbers(account, cfg, "model.full_attention_layers", h->full, NULL, h->full_count));
    /* Sets the on/off options that only some families have in config.json. */
    const family *f = h->family;
    if (f->qkv_bias_key || f->biases_key || f->bias_key)
        TRY(set_bool(cfg, "model.attention_bias", h->attention_bias));
    if (f->bias_key) TRY(set_bool(cfg, "model.attention_output_bias", h->attention_bias));
    if (f->mlp_bias_key) TRY(set_bool(cfg, "model.mlp_bias", h->mlp_bias));
    if (f->qk_norm_key) TRY(set_bool(cfg, "model.qk_norm", h->qk_norm));
    if (f->interleave_key) TRY(set_bool(cfg, "model.rope_interleaved", h->rope_interleave));
    if (h->scales_by_layer) TRY(set_bool(cfg, "model.scale_attention_by_layer", true));
    if (h->padding_row >= 0) TRY(set_int(cfg, "model.pad_token_id", h->padding_row));
    static const char *const words[] = {[FAMILY_MLP_GEGLU] = "geglu_tanh",
                                        [FAMILY_MLP_GEGLU_ERF] = "geglu",
                                        [FAMILY_MLP_GELU_ERF] = "gelu",
                                        [FAMILY_MLP_RELU] = "relu"};
    if (h->mlp != h->family->mlp) TRY(config_set_default(cfg, "model.activation", words[h->mlp]));
    TRY(set_real(cfg, "model.norm_eps", h->norm_eps));
    return set_bool(cfg, "model.tie_embeddings", h->tie_word_embeddings);
}

static ott_status check_quantization(const char *folder, const hf_config *h) {
    static const char *const methods[] = {"", "fp8", "compressed-tensors"};
    static const char *const formats[] = {"", "float-quantized", "naive-quantized"};
    bool method = false, format = false;
    for (int i = 0; i < 3; i++) {
        method = method || strcmp(h->quantization, methods[i]) == 0;
        format = format || strcmp(h->quantization_format, formats[i]) == 0;
    }
    if (!method || !format)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "%s/%s: the weights are quantized (%s%s%s): supported are F32, BF16, F16, and FP8 "
                           "with the methods fp8 and compressed-tensors (float-quantized) and a scale per "
                           "matrix, row or block of 128x128; use the unquantized folder",
                           folder, HF_CONFIG_NAME, h->quantization, h->quantization_format[0] ? ", " : "",
                           h->quantization_format);
    for (int i = 0; i < 2; i++)
        if (h->quantization_block[i] != 0 && h->quantization_block[i] != HF_BLOCK)
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "%s/%s: the weights are quantized (%s) in blocks of %" PRId64 "x%" PRId64
                               ": only %dx%d is supported",
                               folder, HF_CONFIG_NAME, h->quantization, h->quantization_block[0],
                               h->quantization_block[1], HF_BLOCK, HF_BLOCK);
    return OTT_OK;
}

ott_status hf_model_configure(mem *account, config *cfg, hf_model_notes *notes) {
    hf_config h;
    if (notes) *notes = (hf_model_notes){.router_aux_loss_coef = -1};
    if (!*cfg->model.hf_path) return OTT_OK;
    TRY(hub_name_resolve_key(cfg, "model.hf_path", cfg->model.hf_path));
    const char *folder = cfg->model.hf_path;
    ott_status status = hf_config_read(account, folder, &h, NULL);
    if (status == OTT_OK) status = check_quantization(folder, &h);
    if (status != OTT_OK) return status_context(status, "model.hf_path");
    if (notes) {
        snprintf(notes->dropout, sizeof notes->dropout, "%s", h.dropout);
        notes->router_aux_loss_coef = h.router_aux_loss_coef;
        snprintf(notes->quantization, sizeof notes->quantization, "%s", h.quantization);
    }
    TRY(set_shape(account, cfg, &h));
    if (h.family->latent) {
        TRY(set_int(cfg, "model.kv_lora_rank", h.kv_lora_rank));
        TRY(set_int(cfg, "model.q_lora_rank", h.q_lora_rank));
        TRY(set_int(cfg, "model.qk_nope_head_dim", h.qk_nope_head_dim));
        TRY(set_int(cfg, "model.qk_rope_head_dim", h.qk_rope_head_dim));
        TRY(set_int(cfg, "model.v_head_dim", h.v_head_dim));
    }
    /* Weights that stay in FP8 get the scale granularity of the folder. */
    const char *grain = h.quantization_block[0] ? "block" : h.quantization_by_row ? "channel" : "tensor";
    if (*h.quantization && cfg->train.frozen_dtype == FROZEN_FP8)
        TRY(config_set_default(cfg, "train.frozen_granularity", grain));
    TRY(set_experts(account, cfg, &h));
    double scalar = (double)h.query_pre_attn_scalar;
    TRY(set_real(cfg, "model.embedding_multiplier", h.embedding_multiplier));
    TRY(set_real(cfg, "model.residual_multiplier", h.residual_multiplier));
    TRY(set_real(cfg, "model.attention_multiplier", scalar > 0 ? 1 / sqrt(scalar) : h.attention_multiplier));
    TRY(set_real(cfg, "model.logits_scaling", h.logits_scaling / h.logit_scale));
    TRY(set_real(cfg, "model.attention_softcap", h.attention_softcap));
    TRY(set_real(cfg, "model.final_logit_softcap", h.logit_softcap));
    return set_rope(account, cfg, &h);
}
