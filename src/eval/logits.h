/* eval/logits: writes the logits of a text to a safetensors file. Internal to eval/eval. */
#ifndef EVAL_LOGITS_H
#define EVAL_LOGITS_H

#include "eval/eval.h"
#include "formats/safetensors/safetensors.h"

/* State of writing logits. Initialized with {0}, it writes nothing. */
typedef struct eval_logits {
    eval_job *job;
    safetensors_writer *writer; /* NULL: the options name no file */
    eval_batch tokens;          /* the tokens of all windows */
    char *rows;                 /* host memory for a chunk of logits */
    int64_t bytes;              /* bytes of `rows` */
} eval_logits;

/* If the options name a file for the logits, opens it and declares its tensors. Their sizes need the number
   of tokens, so all windows are read once; then `w` is at the first window again. */
ott_status eval_logits_open(eval_job *j, eval_windows *w, eval_logits *out);
/* Sets *storage to a hook for eval_forward and returns it. Returns NULL if nothing is written. */
const hook *eval_logits_hook(eval_logits *l, hook *storage);
/* Completes the file if `status` is OTT_OK and all windows were evaluated. Otherwise discards it. */
ott_status eval_logits_close(eval_logits *l, ott_status status);

#endif
