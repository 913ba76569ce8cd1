/*
 * checkpoint/gguf_describe: what llama.cpp calls a model, and what a GGUF file says of it. Internal to this floor.
 */
#ifndef CHECKPOINT_GGUF_DESCRIBE_H
#define CHECKPOINT_GGUF_DESCRIBE_H

#include "config/family.h"
#include "formats/gguf_write.h"
#include "model/options.h"

/* An architecture of llama.cpp: how it wants the models of a family, and what it lacks. */
typedef struct gguf_arch {
    family_index family;
    const char *name; /* what keys begin with */
    /* of a head, where the family's rotary embedding turns halves: rows of q and k are put so */
    bool rotates_pairs;
    bool fused_qkv, fused_gate_up;
    bool square; /* the heads are as wide as the model */
    bool tied;   /* the head is the embedding; separate: it is not */
    bool separate;
    bool windows; /* has layers with a sliding window */
    bool biases;  /* may have ones of attention's output and of the feed-forward, where the family need not */
    bool has_rope_factors; /* reads factors of frequencies from tensors, of Llama 3's rule */
    bool longrope;         /* and of longrope */
} gguf_arch;

/* OTT_ERR_UNSUPPORTED: llama.cpp has nothing that computes what the model does; says what is in the way. */
ott_status gguf_describe_arch(const model_options *o, const gguf_arch **out);
/* general.*, and all that the architecture's own keys say; type: of the matrices. */
void gguf_describe(const model_options *o, const gguf_arch *arch, gguf_type type, gguf_metadata *m);

#endif
