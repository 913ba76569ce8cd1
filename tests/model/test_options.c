/* The shapes that presets stand for: parameters as the published models count them, and the family that comes with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "config/config.h"
#include "model/modules.h"

/* Weights of all modules. */
static int64_t count_parameters(mem *account, const model_options *o) {
    arena *memory;
    module_list list;
    int64_t count = 0;
    assert_int_equal(arena_open(account, MEM_OTHER, &memory), OTT_OK);
    assert_int_equal(modules_make(memory, o, &list), OTT_OK);
    for (int i = 0; i < list.count; i++)
        if (!list.of[i].tied) count += list.of[i].shape[0] * (list.of[i].rank == 2 ? list.of[i].shape[1] : 1);
    arena_close(memory);
    return count;
}

static void check(const char *preset, const char *family_name, int64_t parameters) {
    mem *account;
    config *cfg;
    model_options o;
    const char *arguments[] = {"--model.preset", preset};
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(config_parse(account, NULL, 2, arguments, &cfg), OTT_OK);
    assert_int_equal(model_options_resolve(cfg, &o), OTT_OK);
    assert_string_equal(o.family->name, family_name);
    assert_int_equal(count_parameters(account, &o), parameters);
    bool qwen = strcmp(family_name, "qwen3") == 0;
    assert_true(o.qk_norm == qwen && o.norm_epsilon == (qwen ? 1e-6F : 1e-5F));
    config_close(cfg);
    mem_close(account);
}

static void test_llama(void **state) {
    (void)state;
    check("1B", "llama", 1235814400);
    check("3B", "llama", 3212749824);
    check("8B", "llama", 8030261248);
    check("70B", "llama", 70553706496);
    check("405B", "llama", 405853388800);
}

static void test_qwen3(void **state) {
    (void)state;
    check("qwen3-0.6B", "qwen3", 596049920);
    check("qwen3-1.7B", "qwen3", 1720574976);
    check("qwen3-4B", "qwen3", 4022468096);
    check("qwen3-8B", "qwen3", 8190735360);
    check("qwen3-14B", "qwen3", 14768307200);
    check("qwen3-32B", "qwen3", 32762123264);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_qwen3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
