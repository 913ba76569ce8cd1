/*
 * config/parse/yaml: reads one YAML document into a tree, with libyaml. Supports anchors, aliases, merge
 * keys, and environment variables written ${VAR,default} or ${oc.env:VAR,default}. Plain scalars stay
 * NODE_PLAIN: the schema decides that 1e-5 is a number.
 */
#ifndef CONFIG_PARSE_YAML_H
#define CONFIG_PARSE_YAML_H

#include "config/parse/tree.h"

/* Parses valid UTF-8 text. Errors name b->place (the file), line and column. The arena of b owns *out. */
ott_status yaml_read(tree_builder *b, const char *text, int64_t bytes, node **out);
/* Replaces the ${...} in a scalar. *out is `text` itself if `text` has no ${...}. */
ott_status yaml_interpolate(tree_builder *b, int line, const char *text, const char **out);

#endif
