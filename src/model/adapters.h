/*
 * model/adapters: adapters of a model's linear layers (nn/linear/lora.h): which layers have one, its rank and
 * its scale. Adapter parameters have PEFT's names, "model.layers.0.self_attn.q_proj.lora_A.weight". All other
 * parameters are frozen, except for the parameters of modules in peft.modules_to_save.
 */
#ifndef MODEL_ADAPTERS_H
#define MODEL_ADAPTERS_H

#include "base/arena.h"
#include "model/modules.h"

/* True if this module has an adapter. It must be a linear layer of a block, but not a router, expert weights
   or a layer that trains in full. A pattern of o->targets must match its name (empty list: all match) and no
   pattern of o->excluded. If o->layers lists blocks, its block must be listed, unless a target is its full
   name. A pattern (* any characters, ? one) matches the full name, or its last components ("q_proj"). */
bool adapters_has(const adapter_options *o, const model_module *m);
/* Rank, alpha and scale (factor of B A x) of this module's adapter. */
int64_t adapters_rank(const adapter_options *o, const model_module *m);
double adapters_alpha(const adapter_options *o, const model_module *m);
float adapters_scale(const adapter_options *o, const model_module *m);
/* True if peft.modules_to_save matches the module, which then trains in full. A pattern matches the name of
   the module or of a module that contains it: the full name, or its last components. It also matches the end
   of the module's Hugging Face name, even within a component. */
bool adapters_is_saved(const adapter_options *o, const model_module *m);
/* Checks the options. OTT_ERR_CONFIG if a pattern matches nothing or no layer has an adapter.
   OTT_ERR_UNSUPPORTED for DoRA with output dropout, and for modules that PEFT cannot save. */
ott_status adapters_check(const model_options *o, const module_list *list);
/* Creates the adapter of a module in `memory`. The module's parameters lora_a, lora_b and lora_m must exist.
   `tables` has constants that DoRA adapters read (nn/linear/dora.h); it is borrowed. */
ott_status adapters_make(arena *memory, const model_options *o, const model_module *m, const linear *layer,
                         const dora_tables *tables, lora **out);
/* norms[out] on the host = L2 norms of the rows of W + scale B A. This rank must have all rows of W. */
ott_status adapters_norms(exec *cx, const linear *l, float *norms);
/* norms[out] on the host = L2 norms of W's rows. Collective. ranks: the ranks that shard W, or NULL. */
ott_status adapters_base_norms(exec *cx, const linear *l, group *ranks, float *norms);

#endif
