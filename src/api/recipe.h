/* api/recipe: finds recipes by name, and devices that can run a recipe. Internal to this folder. */
#ifndef API_RECIPE_H
#define API_RECIPE_H

#include "api/tensor.h"

/* Finds a row of the recipe table by its name, or another framework's name for it (fp8/recipe_names.h). *out:
   NULL for "custom", which has no row. OTT_ERR_CONFIG, with the nearest name, if there is no such recipe. */
ott_status recipe_named(const char *name, const char *function, const recipe **out);
/* name of a GEMM: "output", "grad_input", "grad_weight" */
extern const char *const recipe_product_names[GEMM_COUNT];

/* First and last compute capability of the GPUs that can run a recipe, times ten: 90 for 9.0. */
typedef struct gpu_range {
    int from, to;
} gpu_range;

gpu_range capability_gpus(const recipe *r);

/* The devices of this machine, to find out which recipes they can run. */
typedef struct capability {
    bool cuda_built;  /* the CUDA backend is installed */
    device *gpu;      /* the first GPU; NULL: none */
    char reason[512]; /* if `gpu` is NULL: the reason */
} capability;

ott_status capability_open(mem *account, capability *out);
void capability_close(capability *c);
/* Returns why the CPU cannot run the recipe; NULL if it can. Valid until the next call that fails. */
const char *capability_cpu_refusal(const recipe *r);
const char *capability_gpu_refusal(const capability *c, const recipe *r);
/* Writes the names of GPUs with these compute capabilities, "H100/H200, B200". */
void capability_gpu_text(gpu_range range, char out[64]);

#endif
