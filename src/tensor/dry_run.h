/*
 * tensor/dry_run: a device that counts allocations instead of making them. A model or trainer opened on it
 * makes the same calls as on a real device; afterwards the bytes of each memory kind are known. Plans can be
 * recorded and sealed, but not replayed. If device.dry_run is set, callers need not prepare the data that
 * they copy. A device `d` that is passed to the functions below must be a dry run.
 */
#ifndef TENSOR_DRY_RUN_H
#define TENSOR_DRY_RUN_H

#include "tensor/exec.h"

/* Opens a dry run of device `like`, which must outlive the dry run. Close the dry run with device_close. */
ott_status dry_run_open(mem *account, const device *like, device **out);

/* Callbacks for the ops and collectives that plans record on a dry run, in this order. Shapes and formats are
   real, addresses are not. `collective` may be NULL. */
typedef struct dry_run_listener {
    void (*op)(void *user, const exec *cx, enum op_index op, const void *args);
    /* called only for collectives of several ranks */
    void (*collective)(void *user, const exec *cx, const group *g, const collective *call);
    void *user;
} dry_run_listener;
void dry_run_listen(device *d, const dry_run_listener *l); /* l must stay valid; NULL: no callbacks */
/* Opens a fake group: collectives are checked and reported to the listener, no data moves. On a dry run of a
   GPU, collectives reserve staging memory (tensor/group/group_staging.h). Close the group with
   group_close. */
ott_status dry_run_group_open(mem *account, int rank, int size, group **out);
/* Counts `count` elements of `size` bytes as host memory that is never released. If the dry run imitates a
   CPU, counts them as device memory. */
ott_status dry_run_count_host(device *d, mem_kind kind, int64_t count, int64_t size, const char *what);
/* Counts device memory of kind MEM_COMM for group g. The group needs the largest `bytes` of its calls for
   sends (`messages`), plus the largest `bytes` of its calls for other collectives. */
ott_status dry_run_count_comm(device *d, const group *g, bool messages, int64_t bytes);
/* Returns the peak of the device's memory. Sets bytes_of_kind[] to the bytes of each kind at the peak. */
int64_t dry_run_peak(const device *d, int64_t bytes_of_kind[MEM_KIND_COUNT]);
/* Like dry_run_peak, for a GPU's host memory: staging, mapped memory, dry_run_count_host. 0 for a CPU. */
int64_t dry_run_host_peak(const device *d, int64_t bytes_of_kind[MEM_KIND_COUNT]);
/* True if `data`, an address that a dry run assigned, is in host memory that is mapped into a GPU. */
bool dry_run_is_mapped(const void *data);

#endif
