/*
 * config/toml: TOML 1.0 into a tree, through the C++ library toml++. No C++ type and no exception leaves
 * it.
 */
#ifndef CONFIG_TOML_H
#define CONFIG_TOML_H

#ifdef __cplusplus
extern "C" {
#endif

#include "config/tree.h"

/* `text` is UTF-8 (checked before). Errors name b->place, line and column. */
ott_status toml_read(tree_builder *b, const char *text, int64_t bytes, node **out);

#ifdef __cplusplus
}
#endif
#endif
