/* train/memory_check_settings: settings that train/memory_check tries in order to save memory. */
#ifndef TRAIN_MEMORY_CHECK_SETTINGS_H
#define TRAIN_MEMORY_CHECK_SETTINGS_H

#include "train/memory_check.h"

enum { MEMORY_CHECK_FILTERS = 16, MEMORY_CHECK_TEXT = 96 };

/* A modified configuration and its model. */
typedef struct variant {
    config cfg;
    model_options shape;
    const char *filters[MEMORY_CHECK_FILTERS]; /* storage of cfg.float8.filter_fqns, if changed */
} variant;

/* Changes one setting of v and writes it to `text` as in a configuration. Can be called again for a stronger
   change, such as another halving. False if it cannot change any further. */
typedef bool (*setting)(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);

/* Settings that do not change the model; NULL ends the list. */
extern const setting memory_check_settings[];
bool memory_check_exclude_head(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);
bool memory_check_chunk_loss(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);
/* Makes a smaller model of the same family, to try a configuration. */
bool memory_check_reduce_model(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);

#endif
