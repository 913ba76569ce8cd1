/*
 * tests/cuda/test_attention_plans: cuDNN builds a plan of every attention graph that we use, for a Hopper GPU
 * described by a file of cuDNN's JSON (the only argument), with as much workspace as was planned for. Needs
 * no GPU, but libcuda.so.1 to be the stand-in of libcuda.c.
 */
#include "attention_cudnn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attention_device device;
static int failures;

static void read_file(const char *path, char *text, size_t bytes) {
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(2);
    }
    text[fread(text, 1, bytes - 1, f)] = '\0';
    fclose(f);
}

/* ---- the description ---- */

static void test_description(void) {
    char *copy = attention_device_json(&device);
    if (!copy || !strstr(copy, "132")) {
        printf("FAIL the description is not given back: %s\n", copy ? copy : device.error);
        failures++;
    }
    free(copy);
    attention_device wrong;
    if (attention_device_describe(&wrong, "{}") || !wrong.error[0]) {
        printf("FAIL an empty description is taken for a device\n");
        failures++;
    }
    attention_device_close(&wrong);
}

/* ---- plans ---- */

typedef enum pass { FORWARD, BACKWARD, DETERMINISTIC } pass;

static void print_plan(const char *verdict, pass which, const attention_config *c, const attention_plan *p) {
    static const char *const names[] = {"forward", "backward", "deterministic backward"};
    printf("%s %s %s %lld x %lld, heads %lld/%lld x %lld: ", verdict, c->packed ? "packed" : "dense",
           names[which], (long long)c->documents, (long long)c->length, (long long)c->heads,
           (long long)c->kv_heads, (long long)c->head_dim);
    if (p->error[0])
        printf("%s\n", p->error);
    else
        printf("engine %lld (%s), workspace %.1f MB, %.1f s\n", (long long)p->engine, p->notes,
               (double)p->workspace * 1e-6, p->seconds);
}

/* What fills the workspace beside some KB: grouped heads' gradients before their sum, in bf16, unless the
   caller has memory for them; when deterministic, the gradient of every score. */
static double expected_workspace(pass which, const attention_config *c) {
    double queries = (double)(c->documents * c->heads * c->length), bytes = 0;
    if (which == FORWARD) return 0;
    if (!c->packed && c->heads != c->kv_heads) bytes += 2 * 2 * queries * (double)c->head_dim;
    if (which == DETERMINISTIC) bytes += 2 * queries * (double)c->length;
    return bytes;
}

static void test_plan(pass which, attention_config config) {
    static graph g;
    static attention_plan p;
    config.deterministic = which == DETERMINISTIC;
    if (which == FORWARD)
        attention_graph_forward(&g, &config);
    else
        attention_graph_backward(&g, &config);
    double beside =
        attention_plan_build(&p, &device, &g) ? (double)p.workspace - expected_workspace(which, &config) : -1;
    bool good = beside >= 0 && beside <= 64 << 10;
    if (!good) failures++;
    print_plan(good ? "ok  " : "FAIL", which, &config, &p);
    attention_plan_close(&p);
}

static void test_both(attention_config config) {
    test_plan(FORWARD, config);
    test_plan(BACKWARD, config);
}

static attention_config make_config(int64_t documents, int64_t length, int64_t heads, int64_t kv_heads,
                                    int64_t head_dim, bool packed) {
    return (attention_config){.documents = documents,
                              .heads = heads,
                              .kv_heads = kv_heads,
                              .length = length,
                              .head_dim = head_dim,
                              .causal = true,
                              .packed = packed};
}

/* The shapes that models train at. */
static void test_models(void) {
    test_both(make_config(1, 8192, 32, 8, 128, false));
    test_plan(DETERMINISTIC, make_config(1, 8192, 32, 8, 128, false));
    test_both(make_config(1, 8192, 32, 32, 128, false));
    test_both(make_config(4, 2048, 32, 8, 64, false));
    test_both(make_config(64, 8192, 32, 8, 128, true));
    test_both(make_config(64, 8192, 32, 8, 64, true));
    test_plan(BACKWARD, make_config(1, 8192, 32, 8, 96, false));
    test_plan(BACKWARD, make_config(1, 8192, 16, 8, 256, false));
}

/* The shapes that the program checks: some of them, the rest are like these. */
static void test_checks(void) {
    for (int packed = 0; packed < 2; packed++) {
        int64_t documents = packed ? 6 : 2;
        test_both(make_config(documents, 64, 8, 2, 128, packed));
        test_both(make_config(documents, 100, 4, 4, 64, packed));
        test_both(make_config(documents, 333, 8, 2, 64, packed));
        test_plan(DETERMINISTIC, make_config(documents, 128, 8, 2, 64, packed));
    }
}

/* Without a handle a plan is not run; its arguments are accepted. */
static void test_run(void) {
    static graph g;
    static attention_plan p;
    static char memory[16];
    void *data[ATTENTION_NAMED];
    attention_config config = make_config(2, 64, 4, 4, 64, false);
    for (int uid = 0; uid < ATTENTION_NAMED; uid++) data[uid] = memory;
    attention_graph_forward(&g, &config);
    attention_plan_build(&p, &device, &g);
    if (attention_plan_run(&p, &device, data, memory) || strncmp(p.error, "run:", 4) != 0) {
        printf("FAIL a run without a GPU: %s\n", p.error);
        failures++;
    }
    attention_plan_close(&p);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s DEVICEPROP.json\n", argv[0]);
        return 2;
    }
    static char json[8192];
    read_file(argv[1], json, sizeof json);
    if (!attention_device_describe(&device, json)) {
        fprintf(stderr, "%s\n", device.error);
        return 1;
    }
    test_description();
    test_models();
    test_checks();
    test_run();
    attention_device_close(&device);
    if (failures) printf("%d failed\n", failures);
    return failures > 0;
}
