/* api/recipe: recipes by name and as words, and which GPUs have what they need. Internal to this floor. */
#ifndef API_RECIPE_H
#define API_RECIPE_H

#include "api/tensor.h"

/* The table's row, by its name or another's (fp8/recipe_names.h); NULL for "custom", which has no row.
   OTT_ERR_CONFIG names the nearest when there is no such recipe. */
ott_status recipe_named(const char *name, const char *function, const recipe **out);
/* "output", "grad_input", "grad_weight" */
extern const char *const recipe_product_names[GEMM_COUNT];

/* Compute capability, times ten, from which on GPUs have what the recipe needs, and up to which. */
typedef struct gpu_range {
    int from, to;
} gpu_range;

gpu_range capability_gpus(const recipe *r);

/* What the backends answer for recipes. */
typedef struct capability {
    bool cuda_built;
    device *gpu;      /* the first; NULL: none is here */
    char reason[512]; /* why gpu is NULL */
} capability;

ott_status capability_open(mem *account, capability *out);
void capability_close(capability *c);
/* NULL: the backend runs the recipe; else why not, until the next call that fails. */
const char *capability_cpu_refusal(const recipe *r);
const char *capability_gpu_refusal(const capability *c, const recipe *r);
/* The GPUs of that range as text, "H100/H200, B200". */
void capability_gpu_text(gpu_range range, char out[64]);

#endif
