/*
 * model/names: the modules of a model as a configuration writes them: by Hugging Face's, KempnerForge's or
 * torchtitan's name, in full or in part; and what is near a name that no module has.
 */
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

#include "base/log.h"
#include "model/modules.h"

/* Does `text` say this name? A filter's text is part of it, a rule's pattern fits it. */
typedef bool (*name_test)(const char *name, const char *text);
bool names_contain(const char *name, const char *text);
bool names_fit(const char *name, const char *pattern);
/* The same of its last components, as "q_proj" or "self_attn.?_proj". */
bool names_end(const char *name, const char *pattern);
/* Does one of the module's spellings pass the test? One of no model (ROLE_COUNT) has its name alone. */
bool names_any(const model_module *m, name_test test, const char *text);

/* A filter's text must be in the name of a linear layer. Accepted too, with one line that says so: a module
   that FP8 never reaches, and a part that only other models have (experts, a vision tower), as published
   configurations name them for several models at once. OTT_ERR_CONFIG with the nearest name. */
ott_status names_check_filter(const module_list *list, const char *text, const logger *log);
/* A rule's pattern must fit a linear layer. OTT_ERR_CONFIG with the nearest name. */
ott_status names_check_rule(const module_list *list, const char *pattern);
/* OTT_ERR_CONFIG for a pattern of `key` that names no linear layer of a block, with the nearest name. */
ott_status names_fail_target(const module_list *list, const char *key, const char *pattern);
/* OTT_ERR_CONFIG for a pattern of train.freeze that names no parameter, with the nearest name. */
ott_status names_fail_freeze(const module_list *list, const char *pattern);

#endif
