/*
 * Training on several emulated GPUs, one thread per GPU, over the NCCL stand-in (nccl.c), with the trainer of
 * `ottava train`. On every kind of mesh, losses, gradients, weights, moments, scales and histories equal
 * those of the same number of CPU ranks, bit for bit. Ranks send FP8 weights as one byte per element.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/open.h"
#include "cudart.h"
#include "train/mesh_run.h"

enum { MORE = 7 };

typedef struct way {
    const char *name;
    int recipe;
    mesh_layout layout;
    const char *more[MORE + 1]; /* further settings; ends with NULL */
} way;

#define SIZES(...) .layout.size = {__VA_ARGS__}
static const way ways[] = {
    {"dp_replicate", DELAYED, SIZES([MESH_DP_REPLICATE] = 2)},
    {"dp_shard, FP8 all-gather, state in host memory", TENSORWISE, SIZES([MESH_DP_SHARD] = 2),
     .more = {"--train.offload=state"}},
    {"dp_shard of 3, bf16 gradients", ROWWISE, SIZES([MESH_DP_SHARD] = 3),
     .more = {"--distributed.reduce_dtype=bfloat16"}},
    {"pp interleaved_1f1b", TENSORWISE, SIZES([MESH_PP] = 2), .layout.schedule = PP_INTERLEAVED_1F1B},
    {"pp 1f1b of 3, tied embeddings", BF16, SIZES([MESH_PP] = 3), .layout.schedule = PP_1F1B,
     .more = {"--model.tie_embeddings=true"}},
    {"cp", BF16, SIZES([MESH_CP] = 2)},
    {"tp, sequence_parallel", TENSORWISE, SIZES([MESH_TP] = 2), .layout.sequence_parallel = true},
    {"ep, experts in FP8", BLOCK, SIZES([MESH_EP] = 2),
     .more = {"--model.num_experts=4", "--model.moe_expert_hidden_dim=32", "--float8.moe_experts=true",
              "--model.moe_gradient_scale=true"}},
    {"cp, expert capacity", BF16, SIZES([MESH_CP] = 2),
     .more = {"--model.num_experts=4", "--model.moe_expert_hidden_dim=32", "--model.moe_capacity_factor=0.75",
              "--model.moe_gradient_scale=true"}},
    {"cp x tp, latent attention, sequence_parallel", TENSORWISE, SIZES([MESH_CP] = 2, [MESH_TP] = 2),
     .layout.sequence_parallel = true,
     .more = {"--model.family=deepseek_v3", "--model.head_dim=32", "--model.kv_lora_rank=32",
              "--model.q_lora_rank=32", "--model.qk_nope_head_dim=16", "--model.qk_rope_head_dim=16",
              "--model.v_head_dim=16"}},
    {"dp_shard x pp 1f1b x tp", TENSORWISE, SIZES([MESH_PP] = 2, [MESH_DP_SHARD] = 2, [MESH_TP] = 2),
     .layout.schedule = PP_1F1B},
};

static void run(const fixture *f, const way *w, bool gpus, outcome *out) {
    const char *arguments[] = {"--model.n_kv_heads=4",
                               "--model.dim=64",
                               "--model.ffn_hidden_dim=64",
                               "--model.head_dim=16",
                               "--model.n_layers=4",
                               "--model.max_seq_len=32",
                               "--train.seq_len=32",
                               "--train.batch_size=1",
                               "--train.grad_accum_steps=4",
                               w->more[0],
                               w->more[1],
                               w->more[2],
                               w->more[3],
                               w->more[4],
                               w->more[5],
                               w->more[6],
                               NULL};
    mesh_run(f,
             &(mesh_run_options){.precision = &fixture_precisions[w->recipe],
                                 .more = arguments,
                                 .layout = w->layout,
                                 .gpus = gpus},
             out);
}

static void gpus_leave_what_cpu_ranks_leave(void **state) {
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        outcome cpu, gpu;
        char what[160];
        run(*state, &ways[i], false, &cpu);
        run(*state, &ways[i], true, &gpu);
        if (!outcome_equal(&cpu, &gpu, what)) fail_msg("%s: different %s", ways[i].name, what);
        outcome_free(&cpu);
        outcome_free(&gpu);
    }
}

enum { A_FEW = 64 }; /* largest number of bytes that ranks exchange for the losses */

/* Counts the bytes of gathered weights. In an all-gather, each rank sends one shard to every other rank. */
static void fp8_weights_travel_as_codes(void **state) {
    const way codes = {"", TENSORWISE, SIZES([MESH_DP_SHARD] = 2)};
    const way masters = {"", TENSORWISE, SIZES([MESH_DP_SHARD] = 2),
                         .more = {"--float8.enable_fsdp_float8_all_gather=false"}};
    int64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        outcome o;
        nccl_bytes_gathered = 0;
        run(*state, i ? &masters : &codes, true, &o);
        bytes[i] = nccl_bytes_gathered;
        int64_t weights = o.traffic.fp8 + o.traffic.bf16 + o.traffic.f16 + o.traffic.fp32;
        assert_in_range(bytes[i], weights, weights + A_FEW);
        assert_true(i ? o.traffic.fp8 == 0 : o.traffic.fp8 > o.traffic.fp32);
        outcome_free(&o);
    }
    assert_true(bytes[0] < bytes[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_leave_what_cpu_ranks_leave),
        cmocka_unit_test(fp8_weights_travel_as_codes),
    };
    unsetenv(TEST_DEVICE_VARIABLE); /* the test chooses the device itself */
    setenv(CUDART_DEVICES, "8", 1); /* as many GPUs as MESH_RUN_RANKS_MAX */
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
