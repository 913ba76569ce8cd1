/* backend/plugin: the boundary to a backend in a shared library of its own, which is found when it is asked
   for. The library exports one function, plugin_entry. It is of this very build of the source, or it is
   refused: what passes the boundary are tables and structs, and plugin_abi() is a number of their layout. */
#ifndef BACKEND_PLUGIN_H
#define BACKEND_PLUGIN_H

#include "tensor/device.h"
#include "tensor/exec.h"
#include "tensor/group.h"

/* What it needs of the library that opens it: errors and memory, which are that library's own. */
typedef struct plugin_services {
    ott_status (*fail)(ott_status code, const char *text);    /* status_fail */
    ott_status (*context)(ott_status code, const char *text); /* status_context */
    ott_status (*alloc)(mem *m, mem_kind kind, int64_t bytes, const char *what, void **out); /* mem_alloc */
    const char *(*kind_name)(mem_kind kind); /* mem_kind_name */
    void (*free)(mem *m, void *block);       /* mem_free */
} plugin_services;

/* A finding about this machine: what was looked for, whether it is as it should be, what was found, and, where it is not, the
   way out. Texts are valid during the call. */
typedef void (*plugin_finding)(void *user, bool good, const char *what, const char *found,
                               const char *way_out);

typedef struct plugin {
    uint64_t abi;        /* plugin_abi() as the plugin was built */
    const op_table *ops; /* of every device it opens */
    /* How many devices there are. OTT_ERR_DEVICE: none, and why. `services` stay valid, here and below. */
    ott_status (*count)(const plugin_services *services, int *out);
    /* The device of that index; emulates: as backend_choice has it (backend/backend.h). */
    ott_status (*open)(const plugin_services *services, mem *account, int index, bool emulates, device **out);
    /* Drivers, devices and libraries. */
    void (*inspect)(plugin_finding report, void *user);
} plugin;

/* What the library exports. */
const plugin *plugin_entry(void);
#define PLUGIN_SYMBOL "plugin_entry"

static inline uint64_t plugin_mix(uint64_t hash, uint64_t value) {
    return (hash ^ value) * UINT64_C(0x100000001b3); /* FNV-1a */
}

/* The same for builds whose ops and structs are the same. */
static inline uint64_t plugin_abi(void) {
    static const char ops[] =
#define OP(name, ...) #name "(" #__VA_ARGS__ ")"
#define MANY(name)    "*"
#include "tensor/ops.def"
#undef OP
        ;
    static const size_t sizes[] = {sizeof(op_table),
                                   sizeof(device_table),
                                   sizeof(device),
                                   sizeof(device_memory),
                                   sizeof(device_card),
                                   sizeof(device_link),
                                   sizeof(device_group),
                                   sizeof(group_table),
                                   sizeof(group),
                                   sizeof(group_request),
                                   sizeof(backend_capabilities),
                                   sizeof(exec),
                                   sizeof(qtensor),
                                   sizeof(operand),
                                   sizeof(mem_stats),
                                   sizeof(plugin_services),
                                   sizeof(plugin)};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i + 1 < sizeof ops; i++) hash = plugin_mix(hash, (unsigned char)ops[i]);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) hash = plugin_mix(hash, sizes[i]);
    return hash;
}

#endif
