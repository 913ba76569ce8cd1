/* api/fp8/recipe: finds recipes by name, and devices that can run a recipe. Internal to this folder. */
#ifndef API_FP8_RECIPE_H
#define API_FP8_RECIPE_H

#include "api/fp8/tensor.h"
#include "backend/backend.h"
#include "tensor/gpus.h"

/* Finds a row of the recipe table by its name, or another framework's name for it (fp8/recipe_names.h). *out:
   NULL for "custom", which has no row. OTT_ERR_CONFIG, with the nearest name, if there is no such recipe. */
ott_status recipe_named(const char *name, const char *function, const recipe **out);
/* name of a GEMM: "output", "grad_input", "grad_weight" */
extern const char *const recipe_product_names[GEMM_COUNT];

#define CAPABILITY_TEXT 96

/* Writes the families of the GPUs that can run the recipe, "H100/H200, B200". Returns the first of these
   GPUs; NULL if no GPU can run it. */
const gpu *capability_gpus(const recipe *r, char names[CAPABILITY_TEXT]);

/* A backend on this machine, to find out which recipes it can run. */
typedef struct capability {
    const backend_row *row;
    bool is_built;                   /* the backend is built in, or its plugin is installed */
    device *device;                  /* the plugin's first device; NULL: none, or the backend is built in */
    const backend_capabilities *can; /* NULL: there is no device */
    char reason[512];                /* the reason why there is no device */
} capability;

typedef struct capability_list {
    mem *account;
    capability *at; /* one for each row of backend_table */
    int count;
} capability_list;

ott_status capability_open(mem *account, capability_list *out);
void capability_close(capability_list *c);
/* Returns why the backend cannot run the recipe; NULL if it can. Valid until the next call that fails. */
const char *capability_refusal(const capability *c, const recipe *r);

#endif
