/* backend/plugin: the interface to a backend in a shared library, which exports one function, plugin_entry.
   The interface consists of tables and structs. plugin_abi() is a hash of their layout: a library that was
   built from other sources is refused. */
#ifndef BACKEND_PLUGIN_H
#define BACKEND_PLUGIN_H

#include "tensor/device.h"
#include "tensor/exec.h"
#include "tensor/group/group.h"

/* Functions of the library that the plugin calls, so that plugin and library share errors and accounts. */
typedef struct plugin_services {
    ott_status (*fail)(ott_status code, const char *text);    /* the library's status_fail */
    ott_status (*context)(ott_status code, const char *text); /* the library's status_context */
    ott_status (*alloc)(mem *m, mem_kind kind, int64_t bytes, const char *what, void **out); /* mem_alloc */
    const char *(*kind_name)(mem_kind kind); /* the library's mem_kind_name */
    void (*free)(mem *m, void *block);       /* the library's mem_free */
} plugin_services;

/* Called once for each check of this machine. what: the thing checked. found: the result. good: false if the
   user must do something. way_out: what to do; NULL: nothing. The texts are valid during the call. */
typedef void (*plugin_finding)(void *user, bool good, const char *what, const char *found,
                               const char *way_out);

typedef struct plugin {
    uint64_t abi;        /* plugin_abi() when the plugin was built */
    const op_table *ops; /* op table of all its devices */
    /* Counts the devices. OTT_ERR_DEVICE, with the reason, if there are none. `services` must stay valid
       while the plugin is used. */
    ott_status (*count)(const plugin_services *services, int *out);
    /* Opens the device with this index. emulates: see backend_choice (backend/backend.h). */
    ott_status (*open)(const plugin_services *services, mem *account, int index, bool emulates, device **out);
    /* Reports drivers, devices and libraries. */
    void (*inspect)(plugin_finding report, void *user);
} plugin;

/* The function that the library exports; it returns a const plugin *. */
const void *plugin_entry(void);
#define PLUGIN_SYMBOL "plugin_entry"

static inline uint64_t plugin_mix(uint64_t hash, uint64_t value) {
    return (hash ^ value) * UINT64_C(0x100000001b3); /* a step of the FNV-1a hash */
}

/* Returns a hash of all ops with their arguments, and of the sizes of all shared structs. */
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
