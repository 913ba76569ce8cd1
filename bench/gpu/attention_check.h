/*
 * bench/gpu/attention_check: compares what runs a graph of attention_graph.h (cuDNN on a GPU, or a test's
 * interpreter on the CPU) with attention_reference.h, on random inputs in images of all tensors.
 */
#ifndef ATTENTION_CHECK_H
#define ATTENTION_CHECK_H

#include "attention_graph.h"

/* Runs a graph once on images[uid], bytes[uid] bytes of host memory of each of its tensors (a scalar's is the
   float). The same graph is run several times in a row. False: says why in `error`. */
typedef bool attention_runner(void *context, const graph *g, void *const images[ATTENTION_NAMED],
                              const size_t bytes[ATTENTION_NAMED], char error[ATTENTION_TEXT]);

typedef struct attention_case {
    attention_config config;
    const int32_t *lengths; /* [documents], packed only; borrowed */
    bool nan_beyond;        /* what lies behind the last row of the inputs: NaN; else zeros */
} attention_case;

enum { ATTENTION_OUTPUTS = 5 };
extern const attention_name attention_outputs[ATTENTION_OUTPUTS];
extern const char *const attention_output_names[ATTENTION_OUTPUTS];

typedef struct attention_checked {
    double errors[ATTENTION_OUTPUTS]; /* relative RMS; infinite where something was not written */
    size_t overrun;                   /* bytes written beyond the last row of an output: must be 0 */
    size_t scratch_overrun;           /* the same of backward's scratch */
    bool same_bits;                   /* a second backward gave the same gradients */
    char text[ATTENTION_TEXT];        /* why there is no result */
} attention_checked;

/* Runs forward once and backward twice. Outputs and scratch are poisoned before. False: out->text. */
bool attention_check(const attention_case *what, attention_runner *run, void *context,
                     attention_checked *out);
/* Whether all errors are at most `bound` and no output was overrun. */
bool attention_checked_good(const attention_checked *c, double bound);

#endif
