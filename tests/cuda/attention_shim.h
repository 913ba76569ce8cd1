/*
 * tests/cuda/attention_shim: a stand-in for cuda/attention/attention_cudnn that needs no cuDNN. A plan keeps
 * its graph, and tests/cuda/attention_interpreter runs the graph.
 */
#ifndef ATTENTION_SHIM_H
#define ATTENTION_SHIM_H

#include <stddef.h>

/* Wrong graphs that the comparison with the host must detect. */
typedef enum attention_fault {
    FAULT_NONE,
    FAULT_OFFSETS, /* GRAD_K_HEADS, GRAD_V_HEADS: offsets not multiplied by heads / kv_heads */
    FAULT_LENGTHS, /* products ignore the documents' lengths */
    FAULT_MASKS    /* every query sees every key */
} attention_fault;

/* The version of cuDNN that a device finds when the device is opened; 0: cuDNN is missing. */
extern size_t attention_shim_version;
extern attention_fault attention_shim_fault;
/* How many plans were built, and how often plans ran. */
extern int attention_shim_plans, attention_shim_runs;

#endif
