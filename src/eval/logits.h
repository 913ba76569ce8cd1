/* eval/logits: the logits of a text in a safetensors file. Internal to eval/eval. */
#ifndef EVAL_LOGITS_H
#define EVAL_LOGITS_H

#include "eval/eval.h"
#include "formats/safetensors.h"

/* Zero-initialise with {0}: nothing is written then. */
typedef struct eval_logits {
    eval_job *job;
    safetensors_writer *writer; /* NULL: no file is asked for */
    eval_batch tokens;          /* of all windows */
    char *rows;                 /* logits on their way */
    int64_t bytes;              /* room there */
} eval_logits;

/* Declares the tensors of the file that the options name. Reads the windows, and rewinds them. */
ott_status eval_logits_open(eval_job *j, eval_windows *w, eval_logits *out);
/* What eval_forward is called with; NULL: nothing to write. */
const hook *eval_logits_hook(eval_logits *l, hook *room);
/* The file is there only if all windows have been evaluated (OTT_OK and j->result complete). */
ott_status eval_logits_close(eval_logits *l, ott_status status);

#endif
