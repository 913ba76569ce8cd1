/* train/admission_settings: settings that reduce the memory of a run, for train/admission to try. */
#ifndef TRAIN_ADMISSION_SETTINGS_H
#define TRAIN_ADMISSION_SETTINGS_H

#include "train/admission.h"

enum { ADMISSION_FILTERS = 16, ADMISSION_TEXT = 96 };

/* A configuration, and the model it makes. */
typedef struct variant {
    config cfg;
    model_options shape;
    const char *filters[ADMISSION_FILTERS]; /* float8.filter_fqns, once a setting has added to it */
} variant;

/* Applies the setting to v and writes it to text; false if it does not apply (any more). */
typedef bool (*setting)(const admission *a, variant *v, char text[ADMISSION_TEXT]);

/* The settings that keep the model as it is; NULL ends the list. */
extern const setting admission_settings[];
bool admission_exclude_head(const admission *a, variant *v, char text[ADMISSION_TEXT]);
bool admission_chunk_loss(const admission *a, variant *v, char text[ADMISSION_TEXT]);
/* For a run that only tries a configuration: the same family, smaller. */
bool admission_reduce_model(const admission *a, variant *v, char text[ADMISSION_TEXT]);

#endif
