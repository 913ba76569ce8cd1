/*
 * folders/hf/merge: merges an adapter (nn/linear/lora.h) into its weight while the weight is written: W +
 * scale B A, piece by piece. Needs no copy of the weight. Internal to src/folders.
 */
#ifndef FOLDERS_HF_MERGE_H
#define FOLDERS_HF_MERGE_H

#include "model/modules.h"

typedef struct hf_merge {
    mem *account;
    int64_t rank, columns;
    float *a;      /* A, [rank, columns]; NULL if there is no adapter */
    float *b;      /* B, [rows, rank], multiplied by the adapter's scale */
    float *factor; /* DoRA: one factor for each row of W + scale B A; NULL for LoRA */
} hf_merge;

/* True if the module has an adapter. */
static inline bool hf_merge_applies(const model_module *e) {
    return e->lora_a != NULL;
}
/* Copies the adapter to the host; this rank must have the full adapter. Close it even after an error. */
ott_status hf_merge_open(device *d, const model_module *e, hf_merge *out);
void hf_merge_close(hf_merge *m);
/* Adds scale B A to elements [first, first + count) of the weight, in row-major order. DoRA: also applies the
   row factors (nn/linear/dora.h). Does nothing if *m is {0} (no adapter). */
void hf_merge_add(const hf_merge *m, int64_t first, int64_t count, float *values);

#endif
