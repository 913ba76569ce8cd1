/* train/memory_check_settings: settings that train/memory_check tries in order to save memory. */
#ifndef TRAIN_MEMORY_CHECK_SETTINGS_H
#define TRAIN_MEMORY_CHECK_SETTINGS_H

#include "train/memory_check.h"

enum { MEMORY_CHECK_FILTERS = 16, MEMORY_CHECK_TEXT = 96 };

/* A changed copy of the configuration, and the model options for it. */
typedef struct variant {
    config cfg;
    model_options shape;
    const char *filters[MEMORY_CHECK_FILTERS]; /* storage of cfg.float8.filter_fqns if it was changed */
} variant;

/* Changes one setting of v and writes the setting to `text` as in a configuration. Another call makes a
   stronger change, such as another halving. False if no stronger change is possible. */
typedef bool (*setting)(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);

/* Settings that do not change the model's dimensions; NULL ends the list. */
extern const setting memory_check_settings[];
bool memory_check_exclude_head(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);
bool memory_check_chunk_loss(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);
/* Replaces the model by a smaller one of the same family, with which a user can try a configuration. */
bool memory_check_reduce_model(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);

#endif
