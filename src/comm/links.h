/* comm/links: process groups that communicate over the devices' own links, such as NCCL between GPUs
   (device_table.open_group). The ranks exchange addresses through an existing group, `control`. */
#ifndef COMM_LINKS_H
#define COMM_LINKS_H

#include "base/log.h"
#include "tensor/device.h"
#include "tensor/group/group.h"

/* Checks that the devices of all ranks can communicate, and logs which rank has which GPU (log NULL: no log).
   All ranks of `control` must call links_check before links_open, also ranks without a GPU. Returns
   OTT_ERR_RANK on all ranks if two ranks share a GPU, if only some ranks have GPUs, if library versions
   differ, or if a rank cannot describe its device. */
ott_status links_check(mem *account, const logger *log, device *d, group *control);

typedef struct links_options {
    device *device;   /* this rank's device; its table has open_group */
    group *control;   /* existing group; all its ranks call links_open, each rank for its own new group */
    const int *ranks; /* [count] the new group's ranks in `control`, ascending, including this rank */
    int count;        /* number of ranks in the new group, at least 2 */
    const char *name; /* the new group's name in error messages */
    double timeout;   /* seconds to wait for another rank; 0: no limit */
    bool messages;    /* also open channels for COLLECTIVE_SEND and COLLECTIVE_RECEIVE between neighbors */
} links_options;

/* Opens a group. Close it with group_close before the device. OTT_ERR_RANK if any rank fails. */
ott_status links_open(mem *account, const links_options *o, group **out);

#endif
