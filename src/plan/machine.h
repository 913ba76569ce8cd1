/*
 * plan/machine: the device that is planned for, and how fast it works: a row of machines.def, this machine's CPU as it was
 * measured (plan/measure.h), or either with numbers of the user's own. Says how long an operation takes.
 */
#ifndef PLAN_MACHINE_H
#define PLAN_MACHINE_H

#include "parallel/mesh.h"
#include "plan/work.h"
#include "tensor/device.h"

/* Rates are per second. What a machine's `seconds` has for an operation counts before them. */
typedef struct machine_rates {
    double gib;                /* memory of one device */
    double peak[WORK_FORMATS]; /* FLOP/s of dense products; 0: it has none in this format */
    double gemm[WORK_FORMATS]; /* of large products, that is reached */
    double attention_forward, attention_backward; /* useful FLOP/s */
    double bandwidth;                             /* bytes of memory that kernels read and write */
    double bus;                                   /* of the host's memory, each way */
    double link, network; /* bytes from one device to the others of its node, to other nodes */
    double node;          /* devices of a node */
    double cores;         /* that share a product by tiles; 0: a product is not cut into whole tiles */
    double latency;       /* seconds until a message begins to arrive */
    double launch;        /* seconds of any operation, beside its work */
} machine_rates;

typedef struct machine {
    const char *name; /* "h100" */
    char about[160];  /* where its numbers are from */
    bool is_local;    /* it is this machine, and was measured */
    machine_rates rate;
    /* Measured seconds of an operation for each of its units of work (work_units); 0: not measured. */
    double seconds[OP_COUNT][WORK_FORMATS];
    const device *like; /* what a dry run is opened like: the CPU, or the three below */
    device device;
    op_table ops; /* the CPU's, with the workspaces of the device */
    backend_capabilities can;
} machine;

/* A row of the table, whose dry runs use the operations of `cpu`. OTT_ERR_ARGUMENT names the rows there are. Must not be
   moved once it is opened: it points into itself. */
ott_status machine_open(const char *name, device *cpu, machine *out);
/* "gib=80,fp8_tflops=1400": replaces rates. OTT_ERR_ARGUMENT names the key, and those there are. */
ott_status machine_set_rates(machine *m, const char *text);

/* How long it works on this; a product in a format it has no rate for, as in bf16. */
double machine_seconds(const machine *m, const work *w);

/* Devices that communicate: `ranks` of them, each `stride` after the one before among all. */
typedef struct machine_group {
    int64_t ranks, stride;
} machine_group;

/* The ranks that differ along one dimension of a mesh. */
machine_group machine_group_along(const mesh *m, mesh_dimension d);
/* A collective in which each device receives `bytes`: a ring, which leaves a node over the network's adapters of those of
   its devices that are in it; and, of collectives that are started together, until the first bytes are around. An all-reduce
   of few bytes goes up and down a tree of nodes where that is shorter. */
double machine_ring_seconds(const machine *m, machine_group g, double bytes);
double machine_ring_delay(const machine *m, machine_group g);
double machine_tree_delay(const machine *m, machine_group g);
/* Each device receives `bytes` in all from the others, every one its own part. */
double machine_exchange_seconds(const machine *m, machine_group g, double bytes);
/* From one device to its neighbour in the group. */
double machine_send_seconds(const machine *m, machine_group g, double bytes);
bool machine_has_fp8(const machine *m);

#endif
