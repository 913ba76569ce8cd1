/* formats/gguf/gguf_arch: the table. */
#include "formats/gguf/gguf_arch.h"
#include <stddef.h>
#include <string.h>

/* How llama.cpp's architecture "llama" rotates, and which rope scalings it supports. */
#define LLAMA_ROPE .rotates_pairs = true, .has_rope_factors = true, .longrope = true

/* Architectures of llama.cpp, from its src/models and its converter of Hugging Face folders. */
static const gguf_arch archs[] = {
    {.family = FAMILY_LLAMA, .name = "llama", .biases = true, LLAMA_ROPE},
    {.family = FAMILY_MISTRAL, .name = "llama", LLAMA_ROPE},
    {.family = FAMILY_MIXTRAL, .name = "llama", LLAMA_ROPE},
    {.family = FAMILY_QWEN2, .name = "qwen2", .square = true},
    {.family = FAMILY_QWEN3, .name = "qwen3"},
    {.family = FAMILY_QWEN3_MOE, .name = "qwen3moe"},
    {.family = FAMILY_PHI3,
     .name = "phi3",
     .fused_qkv = true,
     .fused_gate_up = true,
     .square = true,
     .longrope = true},
    {.family = FAMILY_GRANITE, .name = "granite", .biases = true, LLAMA_ROPE},
    {.family = FAMILY_GLM, .name = "chatglm", .fused_gate_up = true, .square = true},
    {.family = FAMILY_GLM4, .name = "glm4", .fused_gate_up = true},
    {.family = FAMILY_DOTS1, .name = "dots1", .separate = true},
    {.family = FAMILY_OLMO2, .name = "olmo2", .square = true, .separate = true},
    {.family = FAMILY_GEMMA2, .name = "gemma2", .tied = true, .windows = true, .largest_layers = 46},
    {.family = FAMILY_GEMMA3, .name = "gemma3", .windows = true, .largest_layers = 62},
    {.family = FAMILY_COHERE, .name = "command-r", .square = true, .tied = true},
    {.family = FAMILY_COHERE2, .name = "cohere2", .square = true, .tied = true, .windows = true},
    {.family = FAMILY_STARCODER2, .name = "starcoder2", .square = true},
    {.family = FAMILY_GPT2, .name = "gpt2", .fused_qkv = true, .square = true},
};
enum { ARCHS = sizeof archs / sizeof *archs };

const gguf_arch *gguf_arch_at(int index) {
    return index < ARCHS ? &archs[index] : NULL;
}

const gguf_arch *gguf_arch_find(const char *name, const family *f) {
    for (int i = 0; i < ARCHS; i++)
        if (strcmp(archs[i].name, name) == 0 && (!f || family_is(f, archs[i].family))) return &archs[i];
    return NULL;
}
