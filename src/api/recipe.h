/* api/recipe: finding recipes by name, and which devices can run a recipe. Internal to this folder. */
#ifndef API_RECIPE_H
#define API_RECIPE_H

#include "api/tensor.h"

/* Finds a row of the recipe table by its name or another framework's (fp8/recipe_names.h). *out is NULL for
   "custom", which has no row. OTT_ERR_CONFIG, with the nearest name, if there is no such recipe. */
ott_status recipe_named(const char *name, const char *function, const recipe **out);
/* "output", "grad_input", "grad_weight" */
extern const char *const recipe_product_names[GEMM_COUNT];

/* First and last compute capability, times ten, of the GPUs that can run a recipe. */
typedef struct gpu_range {
    int from, to;
} gpu_range;

gpu_range capability_gpus(const recipe *r);

/* The devices of this machine, for checking recipes. */
typedef struct capability {
    bool cuda_built;  /* the CUDA backend is installed */
    device *gpu;      /* the first GPU; NULL: none */
    char reason[512]; /* why gpu is NULL */
} capability;

ott_status capability_open(mem *account, capability *out);
void capability_close(capability *c);
/* Why the device cannot run the recipe; NULL if it can. Valid until the next call that fails. */
const char *capability_cpu_refusal(const recipe *r);
const char *capability_gpu_refusal(const capability *c, const recipe *r);
/* Writes the GPUs in the range, "H100/H200, B200". */
void capability_gpu_text(gpu_range range, char out[64]);

#endif
