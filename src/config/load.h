/*
 * config/load: a configuration file into a tree; its extension says which language it is in.
 */
#ifndef CONFIG_LOAD_H
#define CONFIG_LOAD_H

#include "config/tree.h"

#define LOAD_SIZE_LIMIT (1 << 20) /* bytes of a configuration file */

/* Reads b->place. */
ott_status load_file(tree_builder *b, node **out);
/* True when the path ends as a configuration file does. */
bool load_is_config(const char *path);

#endif
