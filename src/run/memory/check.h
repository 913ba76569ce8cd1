/* run/memory/check: checks that a run fits in memory, before the run allocates anything large. Opens the
   trainer on a dry run (tensor/dry_run.h) under every recipe of the precision schedule. Compares the bytes
   that the run needs with the bytes that the device has left. Suggests settings if the run needs too many. */
#ifndef RUN_MEMORY_CHECK_H
#define RUN_MEMORY_CHECK_H

#include "base/text/str.h"
#include "tensor/dry_run.h"
#include "run/run.h"

/* The run to check; all pointers are borrowed. */
typedef struct memory_check {
    mem *account;
    const device *device;
    const config *cfg;   /* the resolved configuration */
    const config *asked; /* cfg before model_options_resolve applied model.reduce */
    const model_options *shape;
    caller_loss loss;                            /* function NULL: cross-entropy */
    int64_t step;                                /* first training step of the run */
    const dataset *train_data, *validation_data; /* may be NULL: then a row has train.seq_len tokens */
    const dry_run_listener *listener;            /* receives each op of the first step; may be NULL */
    /* Called with the trainer after the step is recorded; may be NULL. */
    ott_status (*inspect)(void *user, trainer *t);
    void *user;
    int64_t group_bytes;   /* bytes that process groups will take once opened; 0: they are open already */
    bool is_other_machine; /* the plan is for another machine, whose host memory is unknown */
} memory_check;

/* Bytes at the moment when the run uses most memory, including memory taken before the check. */
typedef struct memory_need {
    int64_t total, by_kind[MEM_KIND_COUNT];     /* bytes of device memory */
    int64_t host, host_by_kind[MEM_KIND_COUNT]; /* bytes of host memory if it is separate; else 0 */
    int64_t saved;                              /* bytes of the step arena that forward keeps for backward */
} memory_need;

/* Measures the memory that the run needs; does not compare it with the memory that is left. */
ott_status memory_check_measure(const memory_check *c, memory_need *out);
/* Measures the memory. OTT_ERR_MEMORY if the run does not fit. The message names the largest kinds of memory,
   the limit, and the three settings that save most. It also has the bytes that they save. */
ott_status memory_check_decide(const memory_check *c, memory_need *out);
/* For a run that needs `need` bytes when only `left` are available. Appends the settings that save most and
   the bytes that they save. Then appends the smallest number of ranks on which the run fits. */
ott_status memory_check_suggest(const memory_check *c, int64_t need, int64_t left, str *out);

enum { MEMORY_CHECK_OFFERS = 2, MEMORY_CHECK_FP8_TEXT = 400 };

typedef struct memory_check_offer {
    char text[96]; /* the setting, as written in a configuration */
    int64_t total; /* bytes that the run needs with this setting */
} memory_check_offer;

/* Reports an FP8 run that needs at least 1% and 16 MiB more memory than the same run in bf16. */
typedef struct memory_check_fp8 {
    int64_t excess; /* FP8's bytes minus bf16's; 0: too small to report, no FP8 run, or no bf16 run */
    memory_check_offer offers[MEMORY_CHECK_OFFERS]; /* settings with which the FP8 run needs less */
    int offer_count;
} memory_check_fp8;

/* Compares the FP8 run, which needs `need` bytes, with the same run in bf16. */
ott_status memory_check_compare_fp8(const memory_check *c, int64_t need, memory_check_fp8 *out);
/* Writes one sentence about FP8's additional memory and settings that need less, without a full stop. */
void memory_check_show_fp8(const memory_check_fp8 *c, int64_t need, char out[MEMORY_CHECK_FP8_TEXT]);

#endif
