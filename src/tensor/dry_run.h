/*
 * tensor/dry_run: a device that takes no memory. A model or a trainer opened on it goes through the same
 * calls as on a real one, and what it would have taken is known afterwards, by kind; plans on it can be
 * recorded and sealed, not replayed. Data that would be copied there need not be made: device.dry_run says
 * so.
 */
#ifndef TENSOR_DRY_RUN_H
#define TENSOR_DRY_RUN_H

#include "tensor/exec.h"

/* With the operations of `like`, which must outlive it. Closed with device_close. */
ott_status dry_run_open(mem *account, const device *like, device **out);

/* Hears, in order, what the plans that are recorded on a dry run would do. Shapes and formats are those of the step; there
   is nothing behind the addresses. */
typedef struct dry_run_listener {
    void (*op)(void *user, const exec *cx, enum op_index op, const void *args);
    void (*collective)(void *user, const exec *cx, const group *g,
                       const collective *call); /* of several ranks */
    void *user;
} dry_run_listener;
void dry_run_listen(device *d, const dry_run_listener *l); /* borrowed; NULL: nobody */
/* Ranks that are not there, of which this is one: collectives are checked, and heard of by a listener; nothing moves. Where the
   device is none of the host they take what devices with links take (tensor/group_staging.h). Closed with group_close. */
ott_status dry_run_group_open(mem *account, int rank, int size, group **out);
/* Counts memory of the host, of count elements of `size` bytes each. */
ott_status dry_run_count_host(device *d, mem_kind kind, int64_t count, int64_t size, const char *what);
/* A group needs so many bytes for its collectives, or for messages: MEM_COMM has the most that was said of each. */
ott_status dry_run_count_comm(device *d, const group *g, bool messages, int64_t bytes);
/* The moment when the most would have been taken of the device's memory: bytes by kind; returns their sum. */
int64_t dry_run_peak(const device *d, int64_t of[MEM_KIND_COUNT]);
/* The same of the host's, where the device has memory of its own: staging, and what is mapped. */
int64_t dry_run_host_peak(const device *d, int64_t of[MEM_KIND_COUNT]);
/* Would this lie in mapped memory of the host? Of an address on a dry run of a device that has memory of its own. */
bool dry_run_is_mapped(const void *data);

#endif
