/* api/sequence_layout: where tokens stand: the sequences among the rows that run, and positions in them. Internal to this floor. */
#ifndef API_SEQUENCE_LAYOUT_H
#define API_SEQUENCE_LAYOUT_H

#include "api/module.h"
#include "nn/attention.h"

typedef struct sequence_layout {
    int64_t max_positions; /* the longest a sequence may be */
    const char *limit;     /* the option that says so; static */
    int64_t *start;        /* [count] as the caller gave it, owned; NULL: sequences of one length */
    int count;
    sequence_metadata at;
    void *block;          /* device memory of `at` */
    int64_t rows, length; /* that `at` is for; 0: none */
} sequence_layout;

/* What ott_module_set_sequences gives; copied. */
ott_status sequence_layout_set(sequence_layout *p, mem *account, const int64_t *start, int count);
/* Makes p->at that of so many rows, sequences of `length` each where sequence_layout_set gave none. OTT_ERR_SHAPE for a sequence
   that is too long, or begins behind the rows. */
ott_status sequence_layout_update(sequence_layout *p, device *d, int64_t rows, int64_t length);
void sequence_layout_release(sequence_layout *p, device *d);

#endif
