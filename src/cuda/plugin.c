/*
 * cuda/plugin: the one function that libottava_cuda.so exports, and what it borrows of the library that opened it. (Tests link
 * the backend with the library itself, without this file.)
 */
#include "backend/plugin.h"
#include "cuda/cuda.h"
#include "cuda/inspect.h"
#include "cuda/ops.h"
#include <stdarg.h>
#include <stdio.h>

static const plugin_services *library;

ott_status status_fail(ott_status code, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return library->fail(code, text);
}

const char *status_text(void) {
    return library->text();
}

ott_status mem_alloc(mem *m, mem_kind kind, int64_t bytes, const char *what, void **out) {
    return library->alloc(m, kind, bytes, what, out);
}

void mem_free(mem *m, void *block) {
    library->free(m, block);
}

const char *mem_kind_name(mem_kind kind) {
    static const char *const names[] = {
#define X(name, text) text,
        MEM_KIND_MAP(X)
#undef X
    };
    return (unsigned)kind < MEM_KIND_COUNT ? names[kind] : "?";
}

static ott_status open_device(const plugin_services *services, mem *account, int index, device **out) {
    library = services;
    return cuda_open(account, index, out);
}

__attribute__((visibility("default"))) const plugin *ottava_plugin(void);

const plugin *ottava_plugin(void) {
    static plugin p = {.ops = &cuda_ops, .open = open_device, .inspect = inspect_machine};
    p.abi = plugin_abi();
    return &p;
}
