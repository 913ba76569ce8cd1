/* config/command: reads the command-line arguments after the verb (train, ...). Internal to config. */
#ifndef CONFIG_COMMAND_H
#define CONFIG_COMMAND_H

#include "config/state.h"

/* Finds the configuration file among the arguments; NULL if they name none. Fails if they name two. */
ott_status command_find_file(int argc, const char *const *argv, const char **file);
/* Applies the overrides among the arguments, in order. Errors become diagnostics. */
ott_status command_apply(config *cfg, int argc, const char *const *argv);
/* Applies one override, "--key=value". If no value was given, `value` is NULL. `shown` is the option as
   typed, for messages. */
ott_status command_override(config *cfg, const char *key, const char *value, const char *shown);

#endif
