/* formats/safetensors/show: formats names and shapes of untrusted files for messages. */
#ifndef FORMATS_SAFETENSORS_SHOW_H
#define FORMATS_SAFETENSORS_SHOW_H

#include "base/text/str.h"

typedef struct safetensors_shown {
    char text[192]; /* large enough for a shape of 8 dimensions */
} safetensors_shown;
/* Formats a shape as "[2, 3]". */
safetensors_shown safetensors_show_shape(const int64_t *shape, int rank);

/* Finds the known name that is most like a missing name. Call safetensors_nearest_begin with the missing
   name, then safetensors_nearest_offer with each known name. */
typedef struct safetensors_nearest {
    const char *wanted;
    const char *found; /* borrowed from the offered names; NULL if none is near */
    int distance;      /* edit distance of `found`; while NULL, names need a smaller distance */
    int64_t offers;    /* number of names offered so far */
} safetensors_nearest;

safetensors_nearest safetensors_nearest_begin(const char *wanted);
void safetensors_nearest_offer(safetensors_nearest *n, const char *name);
/* Fails with OTT_ERR_NOT_FOUND: "PATH: has no tensor 'a'; the nearest is 'b'". */
ott_status safetensors_nearest_fail(const safetensors_nearest *n, const char *path);

#endif
