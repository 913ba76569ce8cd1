/*
 * The FP8 state of a model in a safetensors file: histories of amaxes, and scales. Input: the file. A model
 * with delayed scaling reads it. Then the tensors that this model would write are listed.
 */
#include "fuzz.h"
#include "model/convert.h"
#include "checkpoint/float8.h"
#include "reference/reference_ops.h"

static model *open_model(device *d) {
    const model_options o = {.family = family_find("llama"),
                             .dim = 16,
                             .layers = 1,
                             .heads = 2,
                             .kv_heads = 1,
                             .head_dim = 8,
                             .hidden = 16,
                             .vocab = 16,
                             .max_positions = 16,
                             .rope = {.kind = ROPE_PLAIN, .theta = 1e4},
                             .norm_epsilon = 1e-5f,
                             .init_style = INIT_HF,
                             .init_std = 0.02};
    model *m;
    convert_summary s;
    FUZZ_REQUIRE(model_open(d, &o, MODEL_TRAINING, 8, &m) == OTT_OK);
    FUZZ_REQUIRE(model_convert(m, &(convert_options){.recipe = recipe_find("delayed")}, &s) == OTT_OK);
    FUZZ_REQUIRE(s.converted > 0);
    return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static mem *account;
    static device *d;
    static model *m; /* the model stays open, so each input replaces the histories of the previous input */
    if (!m) {
        account = fuzz_account();
        FUZZ_REQUIRE(reference_device_open(account, &d) == OTT_OK);
        m = open_model(d);
    }
    bool fell_back;
    tensor_set set = {0};
    safetensors *f;
    int64_t held = mem_read(account).now;
    if (safetensors_open(account, fuzz_file("float8.safetensors", data, bytes), &f) == OTT_OK) {
        if (checkpoint_float8_read(m, NULL, f, &fell_back) == OTT_OK) {
            FUZZ_REQUIRE(checkpoint_float8_describe(m, "delayed", false, &set) == OTT_OK);
            tensor_set_close(&set);
        }
        safetensors_close(f);
    }
    FUZZ_REQUIRE(mem_read(account).now == held);
    return 0;
}
