/*
 * model/names: matches texts of a configuration with module names, as Hugging Face, KempnerForge or
 * torchtitan spell them. Suggests the nearest name for a text that matches nothing.
 */
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

#include "base/log.h"
#include "model/modules.h"

/* A test of a module's name: true if `text` matches the name. */
typedef bool (*name_test)(const char *name, const char *text);
bool names_contain(const char *name, const char *text); /* true if the name contains `text` */
bool names_fit(const char *name, const char *pattern);  /* true if the pattern matches the full name */
/* True if the pattern matches the last components of the name, like "q_proj" or "self_attn.?_proj". */
bool names_end(const char *name, const char *pattern);
/* True if the module's name in any framework passes the test. Without a role (ROLE_COUNT) it has one name. */
bool names_any(const model_module *m, name_test test, const char *text);

/* Checks a text of float8.filter_fqns, which must be in the name of a linear layer. If it is only in the name
   of another module, or of a part of other models (experts, a vision tower), this is only logged: published
   configurations list such parts. OTT_ERR_CONFIG for any other text. */
ott_status names_check_filter(const module_list *list, const char *text, const logger *log);
/* Checks a pattern of float8.module. OTT_ERR_CONFIG, with the nearest name, if no linear layer matches. */
ott_status names_check_rule(const module_list *list, const char *pattern);
/* Returns the error for a pattern of the adapter option `key` that matches no linear layer of a block. */
ott_status names_fail_target(const module_list *list, const char *key, const char *pattern);
/* Returns the error, with the nearest name, for a pattern of train.freeze that matches no parameter. */
ott_status names_fail_freeze(const module_list *list, const char *pattern);

#endif
