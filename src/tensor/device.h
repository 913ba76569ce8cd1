/*
 * tensor/device: memory and order of work on a device: the small table beside the op table. An opened device is one
 * stream: ops, copies and events are done in the order in which they are given. On the CPU every call completes before it
 * returns; on a GPU it is queued. Only device_copy_out, the two waits and device_event_seconds wait for what is queued.
 */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H

#include "base/limit.h"
#include "base/mem.h"
#include "tensor/backend.h"
#include "tensor/ops.h"

typedef struct device device;
typedef struct device_event device_event; /* a moment in the order of work; the backend's own */
typedef struct device_graph device_graph; /* work recorded to be given again as a whole; the backend's own */

/* Bytes of a GPU's memory that plans and runs leave to others: the driver's context, the libraries' handles and kernels, the
   transport's buffers. */
#define DEVICE_RESERVED ((int64_t)2 << 30)

typedef struct device_memory {
    int64_t total;     /* bytes it has */
    memory_limit room; /* what of them, or of what this process may have, is left */
} device_memory;

/* A device that has links of its own, as all ranks hear of it before they make groups. */
typedef struct device_card {
    char name[320];     /* "cuda:0 NVIDIA H200" */
    char place[64];     /* which it is of all there are: no two ranks can share one */
    char libraries[96]; /* with their versions, which must be those of all ranks */
} device_card;

/* What a rank says of itself to the others of a group over the devices' own links. */
typedef struct device_link {
    unsigned char bytes[384];
} device_link;

struct group; /* tensor/group.h */

/* A group of devices, each of another process, and which of them this is. */
typedef struct device_group {
    const char *name; /* for messages */
    int rank, size;
    double timeout; /* seconds that a rank waits for another one, 0: for ever */
    bool messages;  /* neighbours, of which the first and the last are two, send each other tensors as well */
    const device_link *links; /* [size], as each has made its own */
} device_group;

/* The calls below, without their checks. */
typedef struct device_table {
    ott_status (*allocate)(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
    void (*release)(device *d, void *data);
    ott_status (*allocate_mapped)(device *d, mem_kind kind, int64_t bytes, const char *what,
                                  void **out); /* NULL: its memory is the host's */
    ott_status (*allocate_host)(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
    void (*release_host)(device *d, void *data);
    ott_status (*copy_in)(device *d, void *to_device, const void *from_host, int64_t bytes);
    ott_status (*copy_in_async)(device *d, void *to_device, const void *staging, int64_t bytes);
    ott_status (*copy_out)(device *d, void *to_host, const void *from_device, int64_t bytes);
    ott_status (*copy)(device *d, void *to, const void *from, int64_t bytes);
    ott_status (*zero)(device *d, void *data, int64_t bytes);
    ott_status (*synchronize)(device *d);
    ott_status (*event_open)(device *d, device_event **out);
    void (*event_close)(device *d, device_event *e);
    ott_status (*event_record)(device *d, device_event *e);
    ott_status (*event_wait)(device *d, device_event *e);
    ott_status (*event_seconds)(device *d, device_event *from, device_event *to, double *out);
    mem_stats (*taken)(const device *d);
    void (*read_memory)(const device *d, device_memory *out);
    double (*peak)(device *d, ott_dtype format);               /* NULL: nothing is known */
    bool (*holds)(device *d, const void *data, int64_t bytes); /* NULL: its memory is the host's */
    ott_status (*capture_begin)(device *d); /* this and the three below NULL: it records nothing */
    ott_status (*capture_end)(device *d, device_graph **out);
    ott_status (*graph_run)(device *d, device_graph *g);
    void (*graph_close)(device *d, device_graph *g);
    void (*close)(device *d);
    /* Groups over links of its own (comm/links.h); NULL: what ranks tell each other goes through the host. make_link is told
       no links yet. */
    ott_status (*describe)(device *d, device_card *out);
    ott_status (*make_link)(device *d, const device_group *own, device_link *out);
    ott_status (*open_group)(device *d, const device_group *own, struct group **out);
} device_table;

/* A device with its two tables; a backend makes one with its own state behind it. */
struct device {
    const device_table *table;
    const op_table *ops;
    const backend_capabilities *can;
    mem *account;
    const char *name; /* "cpu avx512, 2 threads" */
    int threads;      /* of the host that compute; 0: it is no part of the host */
    /* The device it stands in for, with nothing behind its memory (tensor/dry_run.h); NULL: a real one. */
    const device *dry_run;
    const struct dry_run_listener *listener; /* NULL: nobody hears of what is recorded on it */
};

ott_status device_allocate(device *d, mem_kind kind, int64_t bytes, const char *what,
                           void **out); /* zero-filled */
/* Memory of the host, zero-filled, which the device's own operations and copies read and write in place, over its bus: of the
   device's memory it takes none. Where that is the host's, as device_allocate. No operand of a matrix product, and nothing that
   ranks tell each other, lies there: these are others' code. */
ott_status device_allocate_mapped(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
void device_release(device *d, void *data); /* of either; NULL is allowed */
/* Staging memory of the host, zero-filled, which the device copies from and to without the host's help. */
ott_status device_allocate_host(device *d, mem_kind kind, int64_t bytes, const char *what, void **out);
void device_release_host(device *d, void *data); /* NULL is allowed */

/* From any memory of the host, which may change as soon as the call returns. */
ott_status device_copy_in(device *d, void *to_device, const void *from_host, int64_t bytes);
/* From staging memory, which must not change until an event recorded behind it has happened. */
ott_status device_copy_in_async(device *d, void *to_device, const void *staging, int64_t bytes);
/* To any memory of the host, when all before it is done. */
ott_status device_copy_out(device *d, void *to_host, const void *from_device, int64_t bytes);
/* From one place of the device to another; they do not overlap. */
ott_status device_copy(device *d, void *to, const void *from, int64_t bytes);
ott_status device_zero(device *d, void *data, int64_t bytes);
/* Waits for all that was given to it. */
ott_status device_synchronize(device *d);

ott_status device_event_open(device *d, device_event **out);
void device_event_close(device *d, device_event *e); /* NULL is allowed */
/* It happens when all that was given to the device before is done. It may be recorded again. */
ott_status device_event_record(device *d, device_event *e);
ott_status device_event_wait(device *d, device_event *e); /* the host waits; at once for one never recorded */
/* Waits for both; seconds by the device's clock. */
ott_status device_event_seconds(device *d, device_event *from, device_event *to, double *out);

bool device_has_graphs(const device *d);
/* From here to device_capture_end what is given to the device is not done but recorded: ops, copies within it, zeroing.
   Anything else fails, and the recording with it. */
ott_status device_capture_begin(device *d);
/* Ends it after a failure too; out NULL: it is thrown away. */
ott_status device_capture_end(device *d, device_graph **out);
/* Gives it what was recorded. Where that reads and writes must still be there. */
ott_status device_graph_run(device *d, device_graph *g);
void device_graph_close(device *d, device_graph *g); /* NULL is allowed; the device may still be at it */

mem_stats device_taken(const device *d); /* of its memory, by this process's account */
void device_read_memory(const device *d, device_memory *out);
/* The most FLOP/s (a multiply-add is two) that its products of operands of this format can reach, or 0 where that is
   not known. The CPU measures it at each call, for some milliseconds (cpu_peak_unit). */
double device_peak(device *d, ott_dtype format);
/* Do all `bytes` lie in its memory, or in what it was given of the host's? Said of the host's without looking. */
bool device_holds(device *d, const void *data, int64_t bytes);
void device_close(device *d);

#endif
