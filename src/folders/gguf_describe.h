/* folders/gguf_describe: llama.cpp's architectures and GGUF metadata. Internal to src/folders. */
#ifndef FOLDERS_GGUF_DESCRIBE_H
#define FOLDERS_GGUF_DESCRIBE_H

#include "kinds/family.h"
#include "formats/gguf_write.h"
#include "model/options.h"

/* An architecture of llama.cpp: the tensor layout that it expects for a model family, and its limits. */
typedef struct gguf_arch {
    family_index family;
    const char *name; /* name of the architecture, and prefix of its metadata keys */
    /* llama.cpp applies RoPE to pairs of neighbouring columns, but the family's Hugging Face models pair the
       two halves of a head. So the rows of q and k are reordered. */
    bool rotates_pairs;
    bool fused_qkv, fused_gate_up; /* q, k, v are stored as one tensor; so are gate and up */
    bool square;                   /* llama.cpp requires heads * head_dim = model width */
    bool tied;                     /* llama.cpp requires a tied output head */
    bool separate;                 /* llama.cpp requires an untied output head */
    bool windows;                  /* llama.cpp supports sliding windows in some layers */
    bool biases; /* llama.cpp supports biases of attention output and MLP, even if the family has none */
    bool has_rope_factors; /* llama.cpp reads rope frequency factors from a tensor (Llama 3 scaling) */
    bool longrope;         /* llama.cpp supports longrope */
} gguf_arch;

/* Finds the architecture for a model. OTT_ERR_UNSUPPORTED, with the reason, if llama.cpp has none. */
ott_status gguf_describe_arch(const model_options *o, const gguf_arch **out);
/* Appends the metadata: general.* and the architecture's keys. `type` is the format of the matrices. */
void gguf_describe(const model_options *o, const gguf_arch *arch, gguf_type type, gguf_metadata *m);

#endif
