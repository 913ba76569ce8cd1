/* eval/logits: writes the logits of a text to a safetensors file. Internal to eval/eval. */
#ifndef EVAL_LOGITS_H
#define EVAL_LOGITS_H

#include "eval/eval.h"
#include "formats/safetensors.h"

/* {0}: nothing is written. */
typedef struct eval_logits {
    eval_job *job;
    safetensors_writer *writer; /* NULL: no file is requested */
    eval_batch tokens;          /* of all windows */
    char *rows;                 /* host copy of a chunk of logits */
    int64_t bytes;              /* size of `rows` */
} eval_logits;

/* Opens the file of the options, if any, and declares its tensors. Reads and rewinds the windows. */
ott_status eval_logits_open(eval_job *j, eval_windows *w, eval_logits *out);
/* Fills *storage with the hook for eval_forward and returns it; NULL: nothing is written. */
const hook *eval_logits_hook(eval_logits *l, hook *storage);
/* Completes the file if `status` is OTT_OK and all windows were evaluated, else discards it. */
ott_status eval_logits_close(eval_logits *l, ott_status status);

#endif
