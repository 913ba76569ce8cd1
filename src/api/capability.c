/* api/capability: which devices can run a recipe, and the reasons why others cannot. */
#include "api/recipe.h"
#include "backend/backend.h"
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int capability;
} gpus[] = {{"A100", 80}, {"L40S/RTX 4090", 89}, {"H100/H200", 90}, {"B200", 100}};
enum { GPUS = sizeof gpus / sizeof *gpus };

#define ANY_LATER 9999

static granularity finest(const recipe *r) {
    const cast_spec *uses[] = {&r->input.rowwise,     &r->input.columnwise,    &r->weight.rowwise,
                               &r->weight.columnwise, &r->grad_output.rowwise, &r->grad_output.columnwise};
    granularity most = GRANULARITY_TENSOR;
    for (int i = 0; i < 6; i++)
        if (cast_spec_is_fp8(uses[i]) && uses[i]->grain > most) most = uses[i]->grain;
    return most;
}

/* FP8 GEMMs need Ada; with row scales they need Hopper or later (torchao). Block scales need Hopper
   (TransformerEngine emulates them with MX on Blackwell). MX needs Blackwell. */
gpu_range capability_gpus(const recipe *r) {
    if (!recipe_gemm_is_fp8(r, GEMM_COUNT)) return (gpu_range){80, ANY_LATER};
    switch (finest(r)) {
    case GRANULARITY_ROW: return (gpu_range){90, ANY_LATER};
    case GRANULARITY_1X128:
    case GRANULARITY_128X128: return (gpu_range){90, 99};
    case GRANULARITY_1X32: return (gpu_range){100, 119};
    default: return (gpu_range){89, ANY_LATER};
    }
}

void capability_gpu_text(gpu_range range, char out[64]) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < GPUS; i++) {
        if (gpus[i].capability < range.from || gpus[i].capability > range.to) continue;
        int length = snprintf(out + used, 64 - used, "%s%s", used ? ", " : "", gpus[i].name);
        used += (size_t)length < 64 - used ? (size_t)length : 0;
    }
}

ott_status capability_open(mem *account, capability *out) {
    *out = (capability){.cuda_built = backend_is_built(backend_of_name("cuda"))};
    ott_status status = backend_open(&(backend_choice){.name = "cuda", .threads = 1}, account, &out->gpu);
    if (status == OTT_ERR_MEMORY) return status;
    if (status != OTT_OK) snprintf(out->reason, sizeof out->reason, "%s", status_text());
    return OTT_OK;
}

void capability_close(capability *c) {
    device_close(c->gpu);
}

const char *capability_cpu_refusal(const recipe *r) {
    return backend_check("cpu", r) == OTT_OK ? NULL : status_text();
}

const char *capability_gpu_refusal(const capability *c, const recipe *r) {
    if (!c->gpu) return c->reason;
    return backend_check_recipe(c->gpu->can, r) == OTT_OK ? NULL : status_text();
}

/* If a GPU lacks support, adds the GPUs that can run the recipe to the start of the error text. */
static ott_status add_gpu_requirement(ott_status status, const char *device_name, const recipe *row) {
    char names[64];
    if (status != OTT_ERR_UNSUPPORTED || !row || !str_starts_with(device_name, "cuda")) return status;
    gpu_range range = capability_gpus(row);
    capability_gpu_text(range, names);
    return status_context(status, "recipe %s needs compute capability %d.%d on a GPU: %s", row->name,
                          range.from / 10, range.from % 10, names);
}

static ott_status check_supported(const char *device_name, const char *recipe_name) {
    const recipe *row;
    TRY(recipe_named(recipe_name, "ott_supported", &row));
    if (row) TRY(recipe_check(row));
    return status_context(add_gpu_requirement(backend_check(device_name, row), device_name, row),
                          "ott_supported");
}

ott_status ott_supported(ott_context *context, const char *device_name, const char *recipe_name,
                         const char **reason) {
    if (reason) *reason = "";
    API_REQUIRE_BOTH(context, device_name);
    API_REQUIRE(recipe_name);
    ott_status status = check_supported(device_name, recipe_name);
    if (reason && status != OTT_OK) *reason = status_text();
    return status;
}
