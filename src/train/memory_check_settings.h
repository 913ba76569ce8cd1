/* train/memory_check_settings: settings that reduce the memory of a run, for train/memory_check to try. */
#ifndef TRAIN_MEMORY_CHECK_SETTINGS_H
#define TRAIN_MEMORY_CHECK_SETTINGS_H

#include "train/memory_check.h"

enum { MEMORY_CHECK_FILTERS = 16, MEMORY_CHECK_TEXT = 96 };

/* A configuration, and the model it makes. */
typedef struct variant {
    config cfg;
    model_options shape;
    const char *filters[MEMORY_CHECK_FILTERS]; /* float8.filter_fqns, once a setting has added to it */
} variant;

/* Applies the setting to v and writes it to text; false if it does not apply (any more). */
typedef bool (*setting)(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);

/* The settings that keep the model as it is; NULL ends the list. */
extern const setting memory_check_settings[];
bool memory_check_exclude_head(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);
bool memory_check_chunk_loss(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);
/* For a run that only tries a configuration: the same family, smaller. */
bool memory_check_reduce_model(const memory_check *c, variant *v, char text[MEMORY_CHECK_TEXT]);

#endif
