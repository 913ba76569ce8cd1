/* tests/cuda/attention_shim: implements attention_cudnn.h without cuDNN: a plan is its graph, interpreted. */
#include "attention_cudnn.h"
#include "attention_interpreter.h"
#include <stdlib.h>
#include <string.h>

static cudaStream_t shim_stream; /* of the one device that a program opens */

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

bool attention_device_open(attention_device *d, cudaStream_t stream) {
    *d = (attention_device){0};
    shim_stream = stream;
    return true;
}

void attention_device_close(attention_device *d) {
    (void)d;
}

char *attention_device_json(attention_device *d) {
    (void)d;
    return strdup("{}");
}

bool attention_plan_build(attention_plan *p, const attention_device *d, const graph *g) {
    (void)d;
    *p = (attention_plan){.plan = malloc(sizeof *g)};
    if (p->plan) memcpy(p->plan, g, sizeof *g);
    return p->plan != NULL;
}

bool attention_plan_run(attention_plan *p, const attention_device *d, void *const data[ATTENTION_NAMED],
                        void *workspace) {
    (void)d, (void)workspace;
    cudaStreamSynchronize(shim_stream); /* what was given to it before is done */
    const graph *g = p->plan;
    const attention_config *c = &g->config;
    const int64_t *offsets = data[ATTENTION_LSE_OFFSETS];
    int64_t rows = c->packed ? offsets[c->documents] / c->heads : c->documents * c->length;
    size_t bytes[ATTENTION_NAMED];
    for (int uid = 0; uid < ATTENTION_NAMED; uid++) bytes[uid] = graph_tensor_bytes(&g->tensors[uid], rows);
    p->error[0] = '\0';
    return attention_interpret(NULL, g, data, bytes, p->error);
}

void attention_plan_close(attention_plan *p) {
    free(p->plan);
}
