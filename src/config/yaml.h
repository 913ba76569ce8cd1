/*
 * config/yaml: one YAML document into a tree, from libyaml's events: anchors and aliases, merge keys, and
 * environment variables as ${VAR,default} or ${oc.env:VAR,default}. Plain scalars stay plain: the schema
 * decides that 1e-5 is a number.
 */
#ifndef CONFIG_YAML_H
#define CONFIG_YAML_H

#include "config/tree.h"

/* `text` is UTF-8 (checked before). Errors name b->place, line and column. */
ott_status yaml_read(tree_builder *b, const char *text, int64_t bytes, node **out);
/* Replaces ${...} in a scalar; `*out` is `text` itself when there is nothing to replace. */
ott_status yaml_interpolate(tree_builder *b, int line, const char *text, const char **out);

#endif
