/*
 * Training steps on the emulated GPU, for builds with sanitizers and planted faults. `steps
 * [bf16|tensorwise|delayed|dp_shard...]` makes the named runs: steps with several micro-batches and
 * stochastically rounded bf16 state. The runs bf16 and delayed use CUDA graphs, which must read the current
 * weights. The program fails if weights or moments differ from a run on the CPU without a planted fault.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "backend/open.h"
#include "cudart.h"
#include "planted.h"
#include "train/mesh_run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

static const char *arguments[] = {"--model.dim=16",
                                  "--model.n_layers=1",
                                  "--model.n_heads=2",
                                  "--model.n_kv_heads=1",
                                  "--model.ffn_hidden_dim=32",
                                  "--train.batch_size=1",
                                  "--train.seq_len=16",
                                  "--train.grad_accum_steps=2",
                                  STATE_IN_BF16,
                                  NULL, /* the key for CUDA graphs */
                                  NULL};
enum { GRAPHS = sizeof arguments / sizeof *arguments - 2 };

/* Copies a rank's shards of all parameters and their optimizer state, without the device's padding. */
static snapshot take_parameters(const rig *r) {
    const model *m = r->t->m;
    snapshot s = {.data = malloc((size_t)(m->block_bytes + m->slot_bytes[0] + m->slot_bytes[1]))};
    for (int i = 0; i < m->parameter_count; i++) {
        const parameter_shard *shard = &m->parameters[i].shard;
        const tensor *const parts[] = {&shard->value, &shard->slot[0], &shard->slot[1]};
        for (int k = 0; k < 3; k++) {
            FIXTURE_OK(device_copy_out(r->device, (char *)s.data + s.bytes, parts[k]->data,
                                       tensor_bytes(*parts[k])));
            s.bytes += tensor_bytes(*parts[k]);
        }
    }
    return s;
}

static snapshot train(const fixture *f, const precision *p, const char *where, int fault) {
    rig r;
    arguments[GRAPHS] = p == &fixture_precisions[TENSORWISE] ? NULL : "--train.compile_mode=reduce-overhead";
    setenv(TEST_DEVICE_VARIABLE, where, 1);
    planted_fault = fault;
    rig_open(&r, f, &(rig_options){.precision = p, .more = arguments});
    for (int i = 0; i < STEPS; i++) rig_step(&r);
    snapshot s = take_parameters(&r);
    rig_close(&r);
    return s;
}

static bool is_right(const fixture *f, const precision *p) {
    int fault = planted_fault;
    snapshot cpu = train(f, p, "", 0), gpu = train(f, p, "cuda", fault);
    bool right = snapshot_equal(&cpu, &gpu);
    if (!right) fprintf(stderr, "steps: %s: weights or moments differ from the CPU's\n", p->name);
    snapshot_free(&cpu);
    snapshot_free(&gpu);
    return right;
}

/* Compares a run on two GPUs with a run of two CPU ranks. The GPUs communicate while they compute. */
static bool ranks_are_right(const fixture *f) {
    mesh_run_options o = {.precision = &fixture_precisions[TENSORWISE],
                          .more = arguments,
                          .layout.size = {[MESH_DP_SHARD] = 2}};
    int fault = planted_fault;
    outcome cpu, gpu;
    char what[160];
    arguments[GRAPHS] = NULL;
    unsetenv(TEST_DEVICE_VARIABLE);
    planted_fault = 0;
    mesh_run(f, &o, &cpu);
    planted_fault = fault;
    o.gpus = true;
    mesh_run(f, &o, &gpu);
    bool right = outcome_equal(&cpu, &gpu, what);
    if (!right) fprintf(stderr, "steps: dp_shard: different %s\n", what);
    outcome_free(&cpu);
    outcome_free(&gpu);
    return right;
}

static bool is_named(const char *what, int names, char **name) {
    for (int i = 0; i < names; i++)
        if (strcmp(name[i], what) == 0) return true;
    return names == 0;
}

int main(int count, char **names) {
    static const int all[] = {BF16, TENSORWISE, DELAYED};
    void *state;
    setenv(CUDART_DEVICES, "2", 1);
    if (fixture_setup(&state) != 0) return 1;
    bool right = true;
    for (int i = 0; i < 3; i++) {
        const precision *p = &fixture_precisions[all[i]];
        if (is_named(p->name, count - 1, names + 1)) right = is_right(state, p) && right;
    }
    if (is_named("dp_shard", count - 1, names + 1)) right = ranks_are_right(state) && right;
    fixture_teardown(&state);
    return right ? 0 : 1;
}
