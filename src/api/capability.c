/* api/capability: which devices can run a recipe, and the reasons why others cannot. */
#include "api/fp8/recipe.h"
#include "base/text/str.h"
#include "tensor/gpus.h"
#include <stdio.h>
#include <string.h>

const gpu *capability_gpus(const recipe *r, char names[CAPABILITY_TEXT]) {
    const gpu *first = NULL;
    const char *last = "";
    size_t used = 0;
    names[0] = '\0';
    for (const gpu *g = gpu_table; g < gpu_table + GPU_COUNT; g++) {
        backend_capabilities can;
        gpu_fill_capabilities(g->capability, g->name, false, &can);
        if (strcmp(last, g->family) == 0 || !backend_can_run(&can, r)) continue;
        if (!first) first = g;
        last = g->family;
        int length = snprintf(names + used, CAPABILITY_TEXT - used, "%s%s", used ? ", " : "", last);
        used += (size_t)length < CAPABILITY_TEXT - used ? (size_t)length : 0;
    }
    return first;
}

static ott_status open_device(mem *account, capability *c) {
    c->is_built = backend_is_built(c->row);
    c->can = c->row->can;
    if (c->can) return OTT_OK;
    ott_status status =
        backend_open(&(backend_choice){.name = c->row->name, .threads = 1}, account, &c->device);
    if (status == OTT_ERR_MEMORY) return status;
    if (status != OTT_OK) snprintf(c->reason, sizeof c->reason, "%s", status_text());
    if (status == OTT_OK) c->can = c->device->can;
    return OTT_OK;
}

ott_status capability_open(mem *account, capability_list *out) {
    const backend_row *rows = backend_table(&out->count);
    void *list;
    TRY(mem_alloc_array(account, MEM_OTHER, out->count, sizeof(capability), "the backends", &list));
    out->at = list;
    out->account = account;
    ott_status status = OTT_OK;
    for (int i = 0; i < out->count; i++) {
        out->at[i] = (capability){.row = &rows[i]};
        if (status == OTT_OK) status = open_device(account, &out->at[i]);
    }
    if (status != OTT_OK) capability_close(out);
    return status;
}

void capability_close(capability_list *c) {
    for (int i = 0; i < c->count; i++) device_close(c->at[i].device);
    mem_free(c->account, c->at);
}

const char *capability_refusal(const capability *c, const recipe *r) {
    if (!c->can) return c->reason;
    return backend_check_recipe(c->can, r) == OTT_OK ? NULL : status_text();
}

/* If a GPU lacks support, adds the GPUs that can run the recipe to the start of the error text. */
static ott_status add_gpu_requirement(ott_status status, const char *device_name, const recipe *r) {
    char names[CAPABILITY_TEXT];
    const backend_row *row = backend_of_name(device_name);
    if (status != OTT_ERR_UNSUPPORTED || !r || !row || !row->is_nvidia) return status;
    const gpu *first = capability_gpus(r, names);
    if (!first) return status;
    return status_context(status, "recipe %s needs compute capability %d.%d on a GPU: %s", r->name,
                          first->capability / 10, first->capability % 10, names);
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
