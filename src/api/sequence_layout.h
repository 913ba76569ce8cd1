/* api/sequence_layout: divides a module's input rows into sequences. Internal to this folder. */
#ifndef API_SEQUENCE_LAYOUT_H
#define API_SEQUENCE_LAYOUT_H

#include "api/module.h"
#include "nn/attention.h"

typedef struct sequence_layout {
    int64_t max_positions; /* longest sequence */
    const char *limit;     /* name of the option that sets max_positions; static text */
    int64_t *start;        /* [count] first rows from ott_module_set_sequences, owned; NULL: equal lengths */
    int count;
    sequence_metadata at;
    void *block;          /* device memory of `at` */
    int64_t rows, length; /* arguments that `at` was made for; 0: none yet */
} sequence_layout;

/* Stores the arguments of ott_module_set_sequences; copies them. */
ott_status sequence_layout_set(sequence_layout *p, mem *account, const int64_t *start, int count);
/* Makes p->at, positions and sequence starts, for `rows` rows. Without sequence_layout_set each sequence has
   `length` rows. OTT_ERR_SHAPE if a sequence is too long or begins after the last row. */
ott_status sequence_layout_update(sequence_layout *p, device *d, int64_t rows, int64_t length);
void sequence_layout_release(sequence_layout *p, device *d);

#endif
