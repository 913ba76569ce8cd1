/* The module list of a model: names and shapes in forward order, for models with different options. A model's
   layers and parameters must match its list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/modules.h"
#include "model/tiny_model.h"
#include "optimizer/optimizer.h"

enum { TEXT = 4096 };

/* Writes a line for each module, such as "model.norm [32]". The shape of a tied weight is in parentheses. A +
   means that there is a bias. */
static void spell(const model_options *o, char out[TEXT]) {
    mem *account;
    arena *memory;
    module_list list;
    size_t length = 0;
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(arena_open(account, MEM_OTHER, &memory), OTT_OK);
    assert_int_equal(modules_make(memory, o, &list), OTT_OK);
    for (int i = 0; i < list.count; i++) {
        const model_module *m = &list.items[i];
        char shape[64];
        snprintf(shape, sizeof shape, m->rank == 1 ? "[%d]" : "[%d, %d]", (int)m->shape[0], (int)m->shape[1]);
        length += (size_t)snprintf(out + length, TEXT - length, m->tied ? "%s (%s)%s\n" : "%s %s%s\n",
                                   m->name, shape, m->has_bias ? "+" : "");
        assert_true(length < TEXT);
    }
    arena_close(memory);
    mem_close(account);
}

static void expect(const model_options *o, const char *wanted) {
    char found[TEXT];
    spell(o, found);
    assert_string_equal(found, wanted);
}

#define LAYER(i, attention, mlp)                                                                             \
    "model.layers." i ".input_layernorm [32]\n" attention "model.layers." i ".self_attn.o_proj [32, 32]\n"   \
    "model.layers." i ".post_attention_layernorm [32]\n" mlp "model.layers." i ".mlp.down_proj [32, 48]\n"
#define APART(i, bias)                                                                                       \
    "model.layers." i ".self_attn.q_proj [32, 32]" bias "\nmodel.layers." i                                  \
    ".self_attn.k_proj [16, 32]" bias "\nmodel.layers." i ".self_attn.v_proj [16, 32]" bias "\n"
#define GATE_UP(i)    "model.layers." i ".mlp.gate_proj [48, 32]\nmodel.layers." i ".mlp.up_proj [48, 32]\n"
#define HEAD_NORMS(i) "model.layers." i ".self_attn.q_norm [8]\nmodel.layers." i ".self_attn.k_norm [8]\n"

static void test_list(void **state) {
    (void)state;
    model_options o = tiny_options();
    expect(&o, "model.embed_tokens [64, 32]\n" LAYER("0", APART("0", ""), GATE_UP("0"))
                   LAYER("1", APART("1", ""), GATE_UP("1")) "model.norm [32]\nlm_head [64, 32]\n");
    o.layers = 1;
    o.tied = o.qkv_bias = o.qk_norm = true;
    expect(&o, "model.embed_tokens [64, 32]\n" LAYER("0", APART("0", "+") HEAD_NORMS("0"),
                                                     GATE_UP("0")) "model.norm [32]\nlm_head ([64, 32])\n");
    o.qk_norm = o.tied = false;
    o.fused_qkv = o.fused_gate_up = true;
    expect(&o, "model.embed_tokens [64, 32]\n" LAYER(
                   "0", "model.layers.0.self_attn.qkv_proj [64, 32]+\n",
                   "model.layers.0.mlp.gate_up_proj [96, 32]\n") "model.norm [32]\nlm_head [64, 32]\n");
}

static const char *layer_name(const model_module *m) {
    if (m->kind == MODULE_LINEAR) return m->linear->name;
    return m->kind == MODULE_NORM ? m->norm->name : m->embedding->name;
}

static const parameter *layer_weight(const model_module *m) {
    if (m->kind == MODULE_LINEAR) return m->linear->weight;
    return m->kind == MODULE_NORM ? m->norm->weight : m->embedding->weight;
}

/* Every parameter is the weight or bias of one module, in the list's order. The module's layer reads it. */
static void test_model_is_its_list(void **state) {
    (void)state;
    tiny t;
    model_options o = tiny_options();
    o.tied = o.qkv_bias = o.qk_norm = true;
    tiny_open(&t, &o, 1, NULL);
    int next = 0;
    for (int i = 0; i < t.m->modules.count; i++) {
        const model_module *m = &t.m->modules.items[i];
        assert_ptr_equal(layer_name(m), m->name);
        assert_ptr_equal(layer_weight(m), m->weight);
        assert_ptr_equal(m->weight, m->tied ? t.m->embedding.weight : &t.m->parameters[next++]);
        assert_int_equal(parameter_count(m->weight), m->rank == 1 ? m->shape[0] : m->shape[0] * m->shape[1]);
        assert_true(m->has_bias == (m->bias != NULL));
        if (!m->bias) continue;
        assert_ptr_equal(m->bias, &t.m->parameters[next++]);
        assert_ptr_equal(m->bias, m->linear->bias);
        assert_int_equal(parameter_count(m->bias), m->shape[0]);
    }
    assert_int_equal(next, t.m->parameter_count);
    assert_ptr_equal(t.m->loss.head.weight, t.m->embedding.weight);
    assert_string_equal(t.m->blocks[1].mlp.up.name, "model.layers.1.mlp.up_proj");
    tiny_close(&t);
}

/* Muon updates the matrices of layers, but not the embedding and the head. */
static void test_muon_decides_by_role(void **state) {
    const optimizer_rule *muon = optimizer_find("muon");
    const model_options o = tiny_options();
    tiny t;
    (void)state;
    tiny_open(&t, &o, 1, NULL);
    for (int i = 0; i < t.m->modules.count; i++) {
        const model_module *m = &t.m->modules.items[i];
        bool is_table = m->role == ROLE_EMBEDDING || m->role == ROLE_HEAD;
        assert_int_equal(muon->applies_to(m->weight), m->rank > 1 && !is_table);
    }
    tiny_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list), cmocka_unit_test(test_model_is_its_list),
                                       cmocka_unit_test(test_muon_decides_by_role)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
