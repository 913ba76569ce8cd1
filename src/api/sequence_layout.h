/* api/sequence_layout: divides the input rows of a module into sequences. Internal to this folder. */
#ifndef API_SEQUENCE_LAYOUT_H
#define API_SEQUENCE_LAYOUT_H

#include "api/module/module.h"
#include "nn/sequence.h"

typedef struct sequence_layout {
    int64_t max_positions; /* maximum rows of a sequence */
    const char *limit;     /* name of the option that sets max_positions; static text */
    int64_t *start;        /* [count] first rows of sequences, owned; NULL: all sequences have equal length */
    int count;
    sequence_metadata at;
    void *block;          /* device memory that `at` points to */
    int64_t rows, length; /* arguments that `at` was made with; 0: not made yet */
} sequence_layout;

/* Copies the arguments of ott_module_set_sequences. */
ott_status sequence_layout_set(sequence_layout *p, mem *account, const int64_t *start, int count);
/* Makes p->at (positions and first rows of the sequences) for `rows` rows. Without sequence_layout_set each
   sequence has `length` rows. OTT_ERR_SHAPE if a sequence is too long or begins after the last row. */
ott_status sequence_layout_update(sequence_layout *p, device *d, int64_t rows, int64_t length);
void sequence_layout_release(sequence_layout *p, device *d);

#endif
