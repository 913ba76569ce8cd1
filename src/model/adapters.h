/*
 * model/adapters: decides which linear layers of a model have adapters (nn/lora.h), with which rank and
 * scale. Adapter parameters have PEFT's names, "model.layers.0.self_attn.q_proj.lora_A.weight". All other
 * parameters are frozen, except for the parameters of modules in peft.modules_to_save.
 */
#ifndef MODEL_ADAPTERS_H
#define MODEL_ADAPTERS_H

#include "base/arena.h"
#include "model/modules.h"

/* True if this module has an adapter: a linear layer of a block, but not a router, expert weights or a layer
   that trains in full. A target must match its name (no targets: all match), and no exclusion may match.
   o->layers, if it is not empty, must contain its block, unless a target is its full name. A pattern (* any
   characters, ? one) matches the full name, or the name's last components ("q_proj"). */
bool adapters_has(const adapter_options *o, const model_module *m);
/* Rank, alpha and scale (factor of B A x) of this module's adapter. */
int64_t adapters_rank(const adapter_options *o, const model_module *m);
double adapters_alpha(const adapter_options *o, const model_module *m);
float adapters_scale(const adapter_options *o, const model_module *m);
/* True if peft.modules_to_save matches the module, which then trains in full. A pattern matches the name, or
   its last components, of the module or of a module that contains it; or any end of the Hugging Face name. */
bool adapters_is_saved(const adapter_options *o, const model_module *m);
/* Checks the options. OTT_ERR_CONFIG, with the nearest name, if a pattern matches nothing or no layer has an
   adapter. OTT_ERR_UNSUPPORTED for DoRA with output dropout, and for modules that PEFT cannot save. */
ott_status adapters_check(const model_options *o, const module_list *list);
/* Creates the adapter of a module in `memory`. The module's lora_a, lora_b and lora_m must be declared.
   `tables` is borrowed; only DoRA adapters read it. */
ott_status adapters_make(arena *memory, const model_options *o, const model_module *m, const linear *layer,
                         const dora_tables *tables, lora **out);
/* Writes the row norms of W + scale B A to norms[out] on the host. This rank must have all rows of W. */
ott_status adapters_norms(exec *cx, const linear *l, float *norms);
/* Writes the row norms of W alone; a collective call. ranks: data-parallel ranks that shard W; NULL: none. */
ott_status adapters_base_norms(exec *cx, const linear *l, group *ranks, float *norms);

#endif
