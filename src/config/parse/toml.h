/* config/parse/toml: reads TOML 1.0 into a tree with the C++ library toml++. The interface is plain C and
   throws nothing. */
#ifndef CONFIG_PARSE_TOML_H
#define CONFIG_PARSE_TOML_H

#ifdef __cplusplus
extern "C" {
#endif

#include "config/parse/tree.h"

/* Parses valid UTF-8 text. Errors name b->place (the file), line and column. The arena of b owns *out. */
ott_status toml_read(tree_builder *b, const char *text, int64_t bytes, node **out);

#ifdef __cplusplus
}
#endif
#endif
