/*
 * model/adapters: which linear layers of a model have adapters (nn/lora.h), and their ranks and scales.
 * Parameters have PEFT's names, "model.layers.0.self_attn.q_proj.lora_A.weight". All other parameters are
 * frozen, except for peft.modules_to_save.
 */
#ifndef MODEL_ADAPTERS_H
#define MODEL_ADAPTERS_H

#include "base/arena.h"
#include "model/modules.h"

/* True if this module has an adapter. Only linear layers of blocks can: those that match a target (all if
   there are no targets) and no exclusion. Patterns match a full name (* any characters, ? one) or its end,
   "q_proj". */
bool adapters_has(const adapter_options *o, const model_module *m);
/* Rank, alpha and scale (the factor of its output) of this module's adapter. */
int64_t adapters_rank(const adapter_options *o, const model_module *m);
double adapters_alpha(const adapter_options *o, const model_module *m);
float adapters_scale(const adapter_options *o, const model_module *m);
/* True if the module is in peft.modules_to_save: it trains in full. A pattern matches the name, or its last
   components, of the module or a module that contains it; or, as in PEFT, the end of Hugging Face's name. */
bool adapters_is_saved(const adapter_options *o, const model_module *m);
/* Checks the options. OTT_ERR_CONFIG if a pattern matches nothing (the message has the nearest name) or no
   layer has an adapter. OTT_ERR_UNSUPPORTED for DoRA with output dropout, and for modules that PEFT cannot
   save. */
ott_status adapters_check(const model_options *o, const module_list *list);
/* Creates the adapter of a module in `memory`. The module's lora_a, lora_b and lora_m are declared already.
   `tables` is borrowed, and used by decomposed adapters. */
ott_status adapters_make(arena *memory, const model_options *o, const model_module *m, const linear *layer,
                         const dora_tables *tables, lora **out);
/* Writes the row norms of W + scale B A to the host's norms[out]. This rank must hold all of its rows. */
ott_status adapters_norms(exec *cx, const linear *l, float *norms);
/* The same for W alone, which `ranks` may shard (NULL: unsharded). Collective. */
ott_status adapters_base_norms(exec *cx, const linear *l, group *ranks, float *norms);

#endif
