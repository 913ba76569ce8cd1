/* run/memory/settings: settings that run/memory/check tries in order to save memory. */
#ifndef RUN_MEMORY_SETTINGS_H
#define RUN_MEMORY_SETTINGS_H

#include "run/memory/check.h"

enum { MEMORY_CHECK_FILTERS = 16, MEMORY_CHECK_TEXT = 96 };

/* A copy of the configuration with changed settings, and the model options that follow from it. */
typedef struct variant {
    config cfg;
    model_options shape;
    const char *filters[MEMORY_CHECK_FILTERS]; /* storage of cfg.float8.filter_fqns if it was changed */
} variant;

/* Changes one setting of v and writes it to `text` as in a configuration. Each further call changes it more,
   for example halves it again. False if no further change is possible. */
typedef bool (*setting)(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);

/* Settings that keep the model's dimensions. The list ends with NULL. */
extern const setting memory_check_settings[];
bool memory_check_exclude_head(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);
bool memory_check_chunk_loss(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);
/* Replaces the model by a smaller one of the same family, with which a user can try a configuration. */
bool memory_check_reduce_model(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);

#endif
