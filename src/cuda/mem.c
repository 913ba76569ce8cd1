/* cuda/mem: implements base/mem.h in the plugin. Each function calls the library that opened the plugin. */
#include "cuda/library.h"

ott_status(mem_alloc)(mem *m, mem_kind kind, int64_t bytes, const char *what, void **out) {
    return cuda_library->alloc(m, kind, bytes, what, out);
}

void mem_free(mem *m, void *block) {
    cuda_library->free(m, block);
}

const char *mem_kind_name(mem_kind kind) {
    return cuda_library->kind_name(kind);
}
