/* Truncated files and files with changed bytes parse, or fail with a message. */
#include "config/case.h"
#include "base/rng.h"
#include <stdlib.h>

static const char toml[] =
    "[job]\ndump_folder = \"./outputs\"\n[model]\nname = \"llama3\"\nconverters = [\"float8\"]\n"
    "[optimizer]\nlr = 3e-4\nbetas = [0.9, 0.95]\n[training]\nsteps = 1_000\ncompile = true\n"
    "[float8]\nfilter_fqns = ['output', \"lm_\\u00e9\"]\n[lr_scheduler]\ndecay_ratio = 0.5\n"
    "[quantize.linear.mx]\nkernel = \"\"\"tri\nton\"\"\"\n[[float8.module]]\nmatch = \"a.*\"\n"
    "recipe = 'bf16'\n[checkpoint]\ninterval = 500 # x\n";
static const char yaml[] =
    "base: &b {seed: 5, seq_len: ${HOME,7}}\ntrain:\n  <<: *b\n  batch_size: 4\n"
    "optimizer:\n  _target_: torch.optim.Adam\n  betas: [0.9, 0.999]\n  lr: 1.0e-5\n"
    "fp8:\n  enabled: true\n  filter_fqns: [\"lm_head\", 'x']\nfloat8:\n"
    "  input: e4m3 row\n  module: [{match: a, recipe: bf16}, b=fp8]\n  schedule: bf16:1, fp8\nrun:\n  "
    "description: |\n    a\n    b\n"
    "packed_sequence:\n  packed_sequence_size: 64\nmodel: {rope_scaling: {factor: 8.0}}\n";

static void try_bytes(config_case *c, const char *extension, const char *text, int64_t bytes) {
    config *cfg = NULL;
    ott_status status = case_parse_bytes(c, extension, text, bytes, &cfg, NULL);
    if (status == OTT_OK) {
        str out = {.account = c->account};
        assert_int_equal(config_write_toml(cfg, &out), OTT_OK);
        str_free(&out);
    } else {
        assert_null(cfg);
        assert_true(status == OTT_ERR_CONFIG);
        assert_true(status_text()[0]);
    }
    config_close(cfg);
    assert_int_equal(mem_read(c->account).now, 0);
    c->log[0] = '\0';
}

static void try_prefixes(config_case *c, const char *extension, const char *text) {
    for (int64_t bytes = 0; bytes < (int64_t)strlen(text); bytes++) try_bytes(c, extension, text, bytes);
}

static void mutate(config_case *c, const char *extension, const char *text, uint64_t seed) {
    static const char likely[] = "\"'[]{}.,:=#\n\t -&*!|>%@`~$<0e_\\\r\x01\x80\xff";
    char changed[1024];
    int64_t bytes = (int64_t)strlen(text);
    for (uint64_t i = 0; i < 1500; i++) {
        memcpy(changed, text, (size_t)bytes);
        for (uint64_t k = 0; k < 1 + i % 4; k++) {
            uint32_t draw = rng_u32(seed, i, k);
            char byte = draw & 1 ? likely[(draw >> 1) % (sizeof likely - 1)] : (char)(draw >> 8);
            changed[rng_u32(seed, i, 100 + k) % (uint64_t)bytes] = byte;
        }
        try_bytes(c, extension, changed, bytes);
    }
}

static void test_prefixes(void **state) {
    try_prefixes(*state, ".toml", toml);
    try_prefixes(*state, ".yaml", yaml);
}

static void test_mutated(void **state) {
    mutate(*state, ".toml", toml, 1);
    mutate(*state, ".yaml", yaml, 2);
}

static void test_arguments(void **state) {
    config_case *c = *state;
    static const char *const bases[] = {"--optimizer.betas=[0.9,0.95]", "--float8.filter_fqns=['a',\"b\"]",
                                        "--training.no_compile", "--train.mixed_precision=fp8"};
    for (uint64_t i = 0; i < 4000; i++) {
        char argument[64];
        config *cfg = NULL;
        strcpy(argument, bases[i % 4]);
        size_t length = strlen(argument);
        argument[rng_u32(3, i, 0) % length] = (char)(1 + rng_u32(3, i, 1) % 255);
        if (case_arguments(c, &cfg, argument, (char *)NULL) != OTT_OK && strchr(status_text(), 10))
            fail_msg("%s", status_text());
        config_close(cfg);
        c->log[0] = '\0';
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(test_prefixes), CASE(test_mutated), CASE(test_arguments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
