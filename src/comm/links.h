/*
 * comm/links: groups of ranks whose devices have links of their own, as GPUs have by NCCL (device_table.open_group): the ranks
 * find each other through a group that they have already.
 */
#ifndef COMM_LINKS_H
#define COMM_LINKS_H

#include "base/log.h"
#include "tensor/device.h"
#include "tensor/group.h"

/* Do the devices of all ranks go together? Called by all ranks of `control` at the same time, before any group is opened, whatever
   their devices; `log` (NULL: silent) hears which rank has which one of those with links. OTT_ERR_RANK, on all of them: two have the
   same one; only some have links; the versions of their libraries differ; another rank cannot say. */
ott_status links_check(mem *account, const logger *log, device *d, group *control);

typedef struct links_options {
    device *device; /* whose groups; its table has open_group */
    group *
        control; /* of any transport; all its ranks call links_open at the same time, each for its own group */
    const int *ranks; /* [count] of the group, as control numbers them, ascending, this one among them */
    int count;        /* at least 2 */
    const char *name; /* for messages */
    double timeout;   /* seconds, 0: for ever */
    bool messages;    /* COLLECTIVE_SEND and COLLECTIVE_RECEIVE as well, between neighbours */
} links_options;

/* Closed with group_close, before the device is. OTT_ERR_RANK when another rank cannot. */
ott_status links_open(mem *account, const links_options *o, group **out);

#endif
