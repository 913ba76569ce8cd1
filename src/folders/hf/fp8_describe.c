/* folders/hf/fp8_describe: names of scales, and quantization_config. */
#include "folders/hf/fp8.h"

ott_status hf_fp8_declare(const hf_fp8 *f, const hf_fp8_matrix *x, arena *names, const char **name, int *rank,
                          int64_t shape[2]) {
    bool is_own = f->method == HF_METHOD_FP8;
    bool is_scalar = f->granularity == HF_SCALE_TENSOR;
    /* DeepSeek uses the suffix _scale_inv. Both suffixes name a dequantization factor. */
    const char *tail = is_own && !is_scalar ? "_scale_inv" : "_scale";
    *rank = is_scalar ? (is_own ? 0 : 1) : 2;
    shape[0] = x->scale_rows;
    shape[1] = x->scale_columns;
    return arena_printf(names, name, "%s%s", x->name, tail);
}

/* Lists the modules that are not exported in FP8: the head, and some modules of blocks. */
static void append_kept(const hf_fp8 *f, str *json, const char *key) {
    str_printf(json, ", \"%s\": [\"lm_head\"", key);
    for (int64_t i = 0; i < f->unquantized_count; i++) str_printf(json, ", \"%s\"", f->unquantized[i]);
    str_append(json, "]");
}

/* transformers and vLLM read the list of unquantized modules under different keys. */
static void describe_method_fp8(const hf_fp8 *f, str *json) {
    bool blocks = f->granularity == HF_SCALE_BLOCK;
    str_append(json, "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": \"dynamic\"");
    if (blocks) str_append(json, ", \"weight_block_size\": [128, 128]");
    append_kept(f, json, "ignored_layers");
    append_kept(f, json, "modules_to_not_convert");
    str_append(json, "}");
}

/* Serving programs use one activation scale per token or, with block scales, per 128 columns of a token. */
static void describe_method_compressed(const hf_fp8 *f, str *json) {
    static const char *const strategies[] = {
        [HF_SCALE_TENSOR] = "tensor", [HF_SCALE_CHANNEL] = "channel", [HF_SCALE_BLOCK] = "block"};
    static const char *const number = "\"num_bits\": 8, \"type\": \"float\", \"symmetric\": true";
    bool blocks = f->granularity == HF_SCALE_BLOCK;
    str_append(json, "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
                     "\"quantization_status\": \"compressed\", \"kv_cache_scheme\": null");
    append_kept(f, json, "ignore");
    str_append(json, ", \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {");
    str_printf(json, "%s, \"dynamic\": false, \"strategy\": \"%s\", \"block_structure\": %s}", number,
               strategies[f->granularity], blocks ? "[128, 128]" : "null");
    str_printf(json, ", \"input_activations\": {%s, \"dynamic\": true, \"strategy\": \"%s\", ", number,
               blocks ? "group" : "token");
    str_printf(json, "\"group_size\": %s}}}}", blocks ? "128" : "null");
}

void hf_fp8_describe(const hf_fp8 *f, str *json) {
    if (f->method == HF_METHOD_FP8)
        describe_method_fp8(f, json);
    else
        describe_method_compressed(f, json);
}
