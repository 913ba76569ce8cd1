/* config/command: the arguments after the verb. Internal to this floor. */
#ifndef CONFIG_COMMAND_H
#define CONFIG_COMMAND_H

#include "config/state.h"

/* The one configuration file the arguments name, or NULL. */
ott_status command_find_file(int argc, const char *const *argv, const char **file);
/* Applies the overrides among the arguments, in their order. */
ott_status command_apply(config *cfg, int argc, const char *const *argv);
/* One override: "--key=value" (value NULL: a switch). `shown` is the option as typed. */
ott_status command_override(config *cfg, const char *key, const char *value, const char *shown);

#endif
