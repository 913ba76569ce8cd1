/*
 * train/announce: what a run says before its first step: precision, model, device, memory plan, and what of
 * its request it does not do.
 */
#ifndef TRAIN_ANNOUNCE_H
#define TRAIN_ANNOUNCE_H

#include "checkpoint/hf_model.h"
#include "parallel/mesh.h"
#include "train/admission.h"

/* All borrowed. */
typedef struct announcement {
    const logger *log;
    const mesh *mesh;
    const config *cfg;
    const precision_plan *precision;
    const hf_model_notes *notes; /* of model.hf_path */
    const trainer *trainer;      /* as it is before the first step */
    const admission_need *need;
    const admission_fp8 *need_fp8;
    double peak_flops;
} announcement;

void announce_start(const announcement *a);
/* How many layers the recipe in force has converted; nothing under a high-precision one. */
void announce_conversion(const logger *log, const trainer *t);

#endif
