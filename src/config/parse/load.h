/* config/parse/load: reads a configuration file into a tree. The extension selects TOML or YAML. */
#ifndef CONFIG_PARSE_LOAD_H
#define CONFIG_PARSE_LOAD_H

#include "config/parse/tree.h"

#define LOAD_SIZE_LIMIT (1 << 20) /* largest configuration file, in bytes */

/* Reads the file named b->place into a tree. The arena of b owns *out. Sets b->is_older. */
ott_status load_file(tree_builder *b, node **out);
/* True if the path ends in .toml, .yaml or .yml. */
bool load_is_config(const char *path);

#endif
