/*
 * tests/cuda/attention_shim: cuda/attention_cudnn without cuDNN: a plan is its graph, interpreted
 * (tests/cuda/attention_interpreter).
 */
#ifndef ATTENTION_SHIM_H
#define ATTENTION_SHIM_H

#include <stddef.h>

/* Wrong graphs, which a comparison must see. */
typedef enum attention_fault {
    FAULT_NONE,
    FAULT_OFFSETS, /* the scratch of grouped heads at the offsets of the key heads, unmultiplied */
    FAULT_LENGTHS, /* products over whole rows, the documents' lengths left out */
    FAULT_MASKS    /* every query sees every key */
} attention_fault;

/* The version that a device opened from here on finds; 0: cuDNN is not there. */
extern size_t attention_shim_version;
extern attention_fault attention_shim_fault;
/* Plans built, and runs of them. */
extern int attention_shim_plans, attention_shim_runs;

#endif
