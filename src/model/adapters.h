/*
 * model/adapters: which linear layers of a model have adapters (nn/lora.h). An adapter's
 * parameters are named as PEFT names them, "model.layers.0.self_attn.q_proj.lora_A.weight"; beside them all else is frozen.
 */
#ifndef MODEL_ADAPTERS_H
#define MODEL_ADAPTERS_H

#include "base/arena.h"
#include "model/modules.h"

/* Has this module one? Only a linear layer of a block has: one that fits a target, or any where there are none, and that
   fits nothing excluded. A pattern fits a whole name (* any characters, ? one) or its last components, "q_proj". */
bool adapters_has(const adapter_options *o, const model_module *m);
/* Of the adapter of this module: its rank, its alpha, and the scale of what it adds. */
int64_t adapters_rank(const adapter_options *o, const model_module *m);
double adapters_alpha(const adapter_options *o, const model_module *m);
float adapters_scale(const adapter_options *o, const model_module *m);
/* Does it train whole beside adapters? A pattern fits the name of the module, or of a module around it, or the last components
   of either; or it is the end of Hugging Face's name, as in PEFT. */
bool adapters_is_saved(const adapter_options *o, const model_module *m);
/* OTT_ERR_CONFIG, with the nearest name, when a pattern fits no linear layer of a block, and when no layer has an adapter;
   OTT_ERR_UNSUPPORTED for decomposed ones with dropout of what they add. */
ott_status adapters_check(const model_options *o, const module_list *list);
/* The adapter of a module that has its parameters, in `memory`; `tables` are of those that are decomposed. */
ott_status adapters_make(arena *memory, const model_options *o, const model_module *m, const linear *layer,
                         const dora_tables *tables, lora **out);
/* Fills the host's norms[out] with the norms of the rows of W + scale B A, all of whose local part is here. */
ott_status adapters_norms(exec *cx, const linear *l, float *norms);
/* The same of W alone, with all `ranks` that share it (NULL: none): each reads its own rows, a few at a time. */
ott_status adapters_base_norms(exec *cx, const linear *l, group *ranks, float *norms);

#endif
