/* plan/machine: the device that a plan is for, and its speed: a row of tensor/gpus.def or this machine's
   measured CPU (plan/measure.h), with rates that the user may replace. Estimates the time of operations and
   collectives. */
#ifndef PLAN_MACHINE_H
#define PLAN_MACHINE_H

#include "parallel/mesh.h"
#include "plan/work.h"
#include "tensor/device.h"

/* Rates are per second. Measured times in machine.seconds take precedence. */
typedef struct machine_rates {
    double gib;                /* memory of one device, in GiB */
    double peak[WORK_FORMATS]; /* FLOP/s of dense GEMMs by data sheet; 0: format not supported */
    double gemm[WORK_FORMATS]; /* FLOP/s that large GEMMs reach */
    double attention_forward, attention_backward; /* FLOP/s that causal attention reaches */
    double bandwidth;                             /* bytes/s of device memory */
    double bus;                                   /* bytes/s of host memory, each way */
    double link, network;                         /* bytes/s sent: inside a node; to other nodes */
    double node;                                  /* devices per node */
    double cores;   /* cores that compute tiles of a GEMM; 0: do not model tiles */
    double latency; /* seconds until a message begins to arrive */
    double launch;  /* seconds added to every operation */
    /* Of Ottava's kernels on a GPU; 0: unknown. FLOP/s of attention on tensor cores, and without; of grouped
       GEMMs on tensor cores; instructions/s of all threads. */
    double flash_attention, own_attention, grouped, issue;
    bool orders_packed; /* gpu_orders_packed_attention */
    bool adds_row_pass; /* products with scales of rows have a second kernel */
} machine_rates;

typedef struct machine {
    const char *name; /* name in tensor/gpus.def, "h100" */
    char about[160];  /* description, with the source of the rates */
    bool is_local;    /* the machine is this computer's CPU, with measured rates */
    machine_rates rate;
    /* Measured seconds per unit of work (work_units); 0: not measured. */
    double seconds[OP_COUNT][WORK_FORMATS];
    const device *like; /* device for dry runs: the CPU, or `device` below */
    device device;
    op_table ops; /* the CPU's ops, with the GPU's workspace sizes */
    backend_capabilities can;
} machine;

/* Opens a machine of tensor/gpus.def. Dry runs use the ops of `cpu`, which must outlive *out. *out has
   pointers to its own members: do not move or copy it. OTT_ERR_ARGUMENT for an unknown name. */
ott_status machine_open(const char *name, device *cpu, machine *out);
/* Attention's backward may sum in a changing order (train.deterministic=false), which is faster. */
void machine_allow_unordered(machine *m);
/* Replaces rates with text such as "gib=80,fp8_tflops=1400" and deletes measured times, so that the rates are
   used. OTT_ERR_ARGUMENT for an unknown key; the message lists the keys. */
ott_status machine_set_rates(machine *m, const char *text);

/* Seconds of an operation. A GEMM in a format without a rate is timed as bf16. */
double machine_seconds(const machine *m, const work *w);

/* Devices that communicate: `ranks` devices, `stride` apart in rank order. */
typedef struct machine_group {
    int64_t ranks, stride;
} machine_group;

/* The group of ranks along one dimension of a mesh. */
machine_group machine_group_along(const mesh *m, mesh_dimension d);
/* Seconds of a ring collective in which each device receives `bytes`, without the delay of its start. Between
   nodes, all devices of the group use their network adapters. Add one delay for all collectives that start
   together: machine_ring_delay, until the first bytes have gone around the ring. For an all-reduce add
   machine_tree_delay, which uses a tree of nodes if that is faster. */
double machine_ring_seconds(const machine *m, machine_group g, double bytes);
double machine_ring_delay(const machine *m, machine_group g);
double machine_tree_delay(const machine *m, machine_group g);
/* Seconds of an all-to-all in which each device receives `bytes` in total. */
double machine_exchange_seconds(const machine *m, machine_group g, double bytes);
/* Seconds of a message to the next device in the group. */
double machine_send_seconds(const machine *m, machine_group g, double bytes);
bool machine_has_fp8(const machine *m);

#endif
