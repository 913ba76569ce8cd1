/*
 * train/memory_check: is there memory for this run? Decided before anything large is taken: the trainer is
 * opened on a dry run (tensor/dry_run.h), under every recipe of the precision schedule, and what it would
 * take is compared with what the device has left.
 */
#ifndef TRAIN_MEMORY_CHECK_H
#define TRAIN_MEMORY_CHECK_H

#include "base/str.h"
#include "tensor/dry_run.h"
#include "train/run.h"

/* What a run is made of; all borrowed. */
typedef struct memory_check {
    mem *account;
    const device *device;
    const config *cfg;   /* resolved */
    const config *asked; /* as it was before model_options_resolve made the reduced model of it */
    const model_options *shape;
    int64_t step;                                /* the run starts with */
    const dataset *train_data, *validation_data; /* NULL: rows of train.seq_len tokens */
    const dry_run_listener *listener; /* called for each operation of the first step; may be NULL */
    ott_status (*inspect)(void *user,
                          trainer *t); /* called with the trainer after the step is recorded; may be NULL */
    void *user;
    int64_t group_bytes;   /* of groups of ranks that are not open yet */
    bool is_other_machine; /* the run is planned for another machine, whose host's memory is not known */
} memory_check;

/* Bytes, by kind, at the moment when a run needs the most; with what is already taken. */
typedef struct memory_need {
    int64_t total, by_kind[MEM_KIND_COUNT];     /* of the device's memory */
    int64_t host, host_by_kind[MEM_KIND_COUNT]; /* of the host's, where that is another */
    int64_t saved;                              /* of the step arena: what forward leaves for backward */
} memory_need;

/* What the run needs, whatever there is. */
ott_status memory_check_measure(const memory_check *c, memory_need *out);
/* OTT_ERR_MEMORY when it is more than what is left: then it names the kinds that are large, whose limit it
 * is, and the three settings that would save most, with how much. */
ott_status memory_check_decide(const memory_check *c, memory_need *out);
/* The run needs `need` bytes, and `left` are left. Appends the settings that save most, with their savings, and the fewest
   ranks on which the run fits. */
ott_status memory_check_suggest(const memory_check *c, int64_t need, int64_t left, str *out);

enum { MEMORY_CHECK_OFFERS = 2, MEMORY_CHECK_FP8_TEXT = 400 };

typedef struct memory_check_offer {
    char text[96]; /* the setting */
    int64_t total; /* bytes that the run needs with it */
} memory_check_offer;

/* An FP8 run that needs at least 1% and 16 MiB more memory than the same run in bf16. */
typedef struct memory_check_fp8 {
    int64_t excess; /* bytes; 0: it does not, or the run is not in FP8 or cannot be in bf16 */
    memory_check_offer offers[MEMORY_CHECK_OFFERS]; /* settings with which it needs less */
    int offer_count;
} memory_check_fp8;

/* need: bytes that the run needs in FP8. */
ott_status memory_check_compare_fp8(const memory_check *c, int64_t need, memory_check_fp8 *out);
/* One sentence, without its full stop. */
void memory_check_show_fp8(const memory_check_fp8 *c, int64_t need, char out[MEMORY_CHECK_FP8_TEXT]);

#endif
