/* formats/safetensors_show: names and shapes of files we do not trust, made fit for a message. */
#ifndef FORMATS_SAFETENSORS_SHOW_H
#define FORMATS_SAFETENSORS_SHOW_H

#include "base/str.h"

typedef struct safetensors_shown {
    char text[192]; /* a shape of 8 dimensions fits */
} safetensors_shown;
/* "[2, 3]" */
safetensors_shown safetensors_show_shape(const int64_t *shape, int rank);

/* Looks for the name nearest to one that is absent, over names that come one by one. */
typedef struct safetensors_nearest {
    const char *wanted;
    const char *found; /* borrowed from the names offered; NULL: none is near */
    int distance;      /* a nearer one has less */
    int64_t offers;
} safetensors_nearest;

safetensors_nearest safetensors_nearest_begin(const char *wanted);
void safetensors_nearest_offer(safetensors_nearest *n, const char *name);

#endif
