/*
 * checkpoint/hf_merge: an adapter (nn/lora.h) taken into the weight beside it while that is written: W + scale B A, piece by
 * piece, so that neither a master nor a copy of the weight is needed. Internal to this floor.
 */
#ifndef CHECKPOINT_HF_MERGE_H
#define CHECKPOINT_HF_MERGE_H

#include "model/modules.h"

typedef struct hf_merge {
    mem *account;
    int64_t rank, columns;
    float *a;      /* [rank, columns]; NULL: there is no adapter */
    float *b;      /* [rows, rank], times the adapter's scale */
    float *factor; /* [rows], of a decomposed one: what the sum is multiplied by; NULL: nothing */
} hf_merge;

/* Has this module an adapter? */
static inline bool hf_merge_applies(const model_module *e) {
    return e->lora_a != NULL;
}
/* The factors of a module's adapter, all of which is here. Closed with hf_merge_close, also when this fails. */
ott_status hf_merge_open(device *d, const model_module *e, hf_merge *out);
void hf_merge_close(hf_merge *m);
/* values += those of scale B A, of elements [first, first + count) of the weight, row by row; of a decomposed adapter they are
   then those of the composed weight (nn/dora.h). */
void hf_merge_add(const hf_merge *m, int64_t first, int64_t count, float *values);

#endif
