/* formats/gguf/gguf_arch: the table of llama.cpp's architectures that Ottava can write and read. */
#ifndef FORMATS_GGUF_GGUF_ARCH_H
#define FORMATS_GGUF_GGUF_ARCH_H

#include "kinds/family.h"

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
    /* Gemma: llama.cpp divides q k^T by sqrt(dim / heads) in models with this number of layers, which are the
       family's largest, and by sqrt(head_dim) in others */
    int largest_layers;
} gguf_arch;

/* Row `index` of the table; NULL after the last one. Several families may share a name. */
const gguf_arch *gguf_arch_at(int index);
/* The row with this name, and this family unless it is NULL; NULL if there is none. */
const gguf_arch *gguf_arch_find(const char *name, const family *f);

#endif
