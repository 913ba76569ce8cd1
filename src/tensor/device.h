/*
 * tensor/device: a device's memory, copies, events and graphs: the second table of a backend, next to the op
 * table. An open device is one stream: ops, copies and events run in the order of their calls. On the CPU
 * each call completes before it returns; on a GPU it is queued. Only device_copy_out, device_synchronize,
 * device_event_wait and device_event_seconds wait for queued work.
 */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H

#include "base/limit.h"
#include "base/mem.h"
#include "tensor/backend.h"
#include "tensor/ops.h"

typedef struct device device;
typedef struct device_event device_event; /* event: a point in the stream; the backend defines the struct */
typedef struct device_graph device_graph; /* captured work that can run again */

/* Bytes of a GPU's memory that plans and runs leave free for the driver, libraries, kernels and NCCL. */
#define DEVICE_RESERVED ((int64_t)2 << 30)

typedef struct device_memory {
    int64_t total;      /* bytes of device memory */
    memory_limit limit; /* how many more bytes this process can allocate on the device */
} device_memory;

/* Description of a GPU. Ranks compare their descriptions before they create a group over NCCL. */
typedef struct device_card {
    char name[320];     /* name, such as "cuda:0 NVIDIA H200" */
    char place[64];     /* identifies the physical device: two ranks must not share one */
    char libraries[96]; /* names and versions, which must be the same on all ranks */
} device_card;

/* A rank's connection data (ncclUniqueId). comm/links sends it to all ranks of the new group. */
typedef struct device_link {
    unsigned char bytes[384];
} device_link;

struct group; /* defined in tensor/group/group.h */

/* A process group over NCCL, with one device for each process. */
typedef struct device_group {
    const char *name; /* the group's name in messages */
    int rank, size;
    double timeout; /* seconds to wait for another rank; 0: forever */
    /* true: the group also supports SEND and RECEIVE between ranks r and r + 1 (modulo size) */
    bool messages;
    const device_link *links; /* [size] the links of all ranks (make_link) */
} device_group;

/* A copy within the device. */
typedef struct device_piece {
    void *to;
    const void *from;
    int64_t bytes;
} device_piece;

/* The backend's functions. device_<name> checks the arguments and then calls the function <name>. */
typedef struct device_table {
    ott_status (*allocate)(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
    void (*release)(device *d, void *data);
    /* NULL: device memory is host memory */
    ott_status (*allocate_mapped)(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
    ott_status (*allocate_host)(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
    void (*release_host)(device *d, void *data);
    ott_status (*copy_in)(device *d, void *to_device, const void *from_host, int64_t bytes);
    ott_status (*copy_in_async)(device *d, void *to_device, const void *staging, int64_t bytes);
    ott_status (*copy_out)(device *d, void *to_host, const void *from_device, int64_t bytes);
    ott_status (*copy)(device *d, void *to, const void *from, int64_t bytes);
    ott_status (*copy_many)(device *d, const device_piece *pieces, int64_t count); /* NULL: one by one */
    ott_status (*zero)(device *d, void *data, int64_t bytes);
    ott_status (*synchronize)(device *d);
    ott_status (*event_open)(device *d, device_event **out);
    void (*event_close)(device *d, device_event *e);
    ott_status (*event_record)(device *d, device_event *e);
    ott_status (*event_wait)(device *d, device_event *e);
    ott_status (*event_seconds)(device *d, device_event *from, device_event *to, double *out);
    mem_stats (*taken)(const device *d);
    void (*read_memory)(const device *d, device_memory *out);
    double (*peak)(device *d, ott_dtype format);               /* NULL: the peak is unknown */
    bool (*holds)(device *d, const void *data, int64_t bytes); /* NULL: device memory is host memory */
    /* the capture_ and graph_ functions are NULL if the device has no graphs */
    ott_status (*capture_begin)(device *d);
    ott_status (*capture_end)(device *d, device_graph **out);
    ott_status (*graph_run)(device *d, device_graph *g);
    void (*graph_close)(device *d, device_graph *g);
    void (*close)(device *d);
    /* For process groups over NCCL. NULL: collectives use host memory. make_link does not read own->links. */
    ott_status (*describe)(device *d, device_card *out);
    ott_status (*make_link)(device *d, const device_group *own, device_link *out);
    ott_status (*open_group)(device *d, const device_group *own, struct group **out);
} device_table;

/* Whether a GPU's ops may sum in an order that changes from run to run (train.deterministic). */
typedef enum device_order {
    DEVICE_ORDERED,   /* true: never */
    DEVICE_WARN,      /* "warn": where a library has no ordered sum; the log then warns once */
    DEVICE_UNORDERED, /* false: wherever it is faster */
} device_order;

/* A device with its device table and its op table. It is the first member of the backend's own struct. */
struct device {
    const device_table *table;
    const op_table *ops;
    const backend_capabilities *can;
    mem *account;
    const char *name;      /* name, such as "cpu avx512, 2 threads" */
    int threads;           /* number of host threads that compute; 0: not a CPU */
    device_order order;    /* set by the caller after opening, before plans are recorded */
    const device *dry_run; /* the device that this dry run imitates (tensor/dry_run.h); NULL: a real device */
    const struct dry_run_listener *listener; /* callbacks of a dry run; NULL: none */
};

/* Allocates zero-filled device memory. `what` names the memory in messages. */
ott_status device_allocate(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
#define device_allocate(d, kind, bytes, what, out) device_allocate(d, kind, bytes, what, MEM_OUT(out))
/* Allocates zero-filled pinned host memory that is mapped into the device (zero-copy). On the CPU it calls
   device_allocate. Do not pass mapped memory to GEMMs or collectives: cuBLASLt and NCCL may not accept it. */
ott_status device_allocate_mapped(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
#define device_allocate_mapped(d, kind, bytes, what, out)                                                    \
    device_allocate_mapped(d, kind, bytes, what, MEM_OUT(out))
void device_release(device *d, void *data); /* releases device or mapped memory; data may be NULL */

/* Device memory for many tensors that are released together, in a few large allocations. A CPU reads large
   allocations faster, because they consist of huge pages. Initialize to 0. */
typedef struct device_arena {
    void **blocks;
    int count;
    char *next;   /* free memory of the shared block */
    int64_t rest; /* bytes from `next` to the end of the shared block */
} device_arena;
/* Returns zero-filled device memory in the arena. */
ott_status device_arena_take(device *d, device_arena *a, mem_kind kind, int64_t bytes, const char *what,
                             void **out);
void device_arena_release(device *d, device_arena *a); /* releases all memory of the arena */
/* Allocates zero-filled pinned host memory for staging, for asynchronous copies. */
ott_status device_allocate_host(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
#define device_allocate_host(d, kind, bytes, what, out)                                                      \
    device_allocate_host(d, kind, bytes, what, MEM_OUT(out))
void device_release_host(device *d, void *data); /* releases staging memory; data may be NULL */

/* Copies from any host memory, which may change as soon as the call returns. */
ott_status device_copy_in(device *d, void *to_device, const void *from_host, int64_t bytes);
/* Copies from staging memory, which must not change until an event recorded after this call is done. */
ott_status device_copy_in_async(device *d, void *to_device, const void *staging, int64_t bytes);
/* Copies to any host memory. Waits for all earlier work and for the copy. */
ott_status device_copy_out(device *d, void *to_host, const void *from_device, int64_t bytes);
/* Copies within the device. The two ranges must not overlap. */
ott_status device_copy(device *d, void *to, const void *from, int64_t bytes);
/* Makes `count` copies, which must not overlap. A GPU makes many copies in one launch. */
ott_status device_copy_many(device *d, const device_piece *pieces, int64_t count);
ott_status device_zero(device *d, void *data, int64_t bytes);
ott_status device_synchronize(device *d); /* waits for all queued work */

ott_status device_event_open(device *d, device_event **out);
void device_event_close(device *d, device_event *e); /* e may be NULL */
/* Records the event: it is done when all earlier work is done. An event may be recorded again. */
ott_status device_event_record(device *d, device_event *e);
/* The host waits until the event is done. Does nothing if the event was never recorded. */
ott_status device_event_wait(device *d, device_event *e);
/* Waits for both events. *out: the seconds from event `from` to event `to`, by the device's clock. */
ott_status device_event_seconds(device *d, device_event *from, device_event *to, double *out);

bool device_has_graphs(const device *d);
/* Starts a capture. Until device_capture_end, ops, copies within the device and zeroing are recorded instead
   of run. Any other call of the device fails and makes the capture fail. */
ott_status device_capture_begin(device *d);
/* Ends a capture, also after a failure. out NULL: discards the captured work. */
ott_status device_capture_end(device *d, device_graph **out);
/* Queues the captured work. All memory that the work uses must still be allocated. */
ott_status device_graph_run(device *d, device_graph *g);
void device_graph_close(device *d, device_graph *g); /* g may be NULL or still running */

mem_stats device_taken(const device *d); /* counts of device memory that this process has allocated */
void device_read_memory(const device *d, device_memory *out);
/* Returns the peak FLOP/s (a multiply-add counts as two) of GEMMs with operands of this format; 0: unknown.
   On the CPU each call measures the peak, for a few milliseconds. */
double device_peak(device *d, ott_dtype format);
/* True if all `bytes` are in device or mapped memory. Always true if the device uses host memory. */
bool device_holds(device *d, const void *data, int64_t bytes);
bool device_is_host(const device *d); /* true if device memory is host memory */
void device_close(device *d);

#endif
