/*
 * model/names: matches texts of a configuration with module names in Hugging Face's, KempnerForge's or
 * torchtitan's spelling, and suggests the nearest name for a text that matches nothing.
 */
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

#include "base/log.h"
#include "model/modules.h"

/* True if `text` matches the name. */
typedef bool (*name_test)(const char *name, const char *text);
bool names_contain(const char *name, const char *text); /* the name contains `text` */
bool names_fit(const char *name, const char *pattern);  /* the pattern matches the full name */
/* The pattern matches the name's last components, like "q_proj" or "self_attn.?_proj". */
bool names_end(const char *name, const char *pattern);
/* True if a spelling of the module's name passes the test. With ROLE_COUNT it has only one name. */
bool names_any(const model_module *m, name_test test, const char *text);

/* Checks a text of float8.filter_fqns: it must be contained in the name of a linear layer. Other modules, and
   parts that only other models have (experts, a vision tower), only give a log line, because published
   configurations list them. Any other text is OTT_ERR_CONFIG. */
ott_status names_check_filter(const module_list *list, const char *text, const logger *log);
/* OTT_ERR_CONFIG, with the nearest name, if a pattern of float8.module matches no linear layer. */
ott_status names_check_rule(const module_list *list, const char *pattern);
/* Returns OTT_ERR_CONFIG for a pattern of `key` that matches no linear layer of a block. */
ott_status names_fail_target(const module_list *list, const char *key, const char *pattern);
/* Returns OTT_ERR_CONFIG, with the nearest name, for a pattern of train.freeze that matches no parameter. */
ott_status names_fail_freeze(const module_list *list, const char *pattern);

#endif
