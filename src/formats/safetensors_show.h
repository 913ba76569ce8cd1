/* formats/safetensors_show: names and shapes of files we do not trust, made fit for a message. */
#ifndef FORMATS_SAFETENSORS_SHOW_H
#define FORMATS_SAFETENSORS_SHOW_H

#include <stdint.h>

typedef struct shown {
    char text[192]; /* a shape of 8 dimensions fits */
} shown;

/* A text cut to fit, without characters that would steer a terminal. */
shown show(const char *text);
/* "[2, 3]" */
shown show_shape(const int64_t *shape, int rank);

/* Looks for the name nearest to one that is absent, over names that come one by one. */
typedef struct nearest_name {
    const char *wanted;
    const char *found; /* borrowed from the names offered; NULL: none is near */
    int distance;      /* a nearer one has less */
    int64_t offers;
} nearest_name;

nearest_name nearest_begin(const char *wanted);
void nearest_offer(nearest_name *n, const char *name);

#endif
