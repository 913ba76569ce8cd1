/*
 * run/process_group: the process groups of a run. Joins the ranks, arranges them in a mesh, opens one
 * communicator for each parallel dimension, and compares and broadcasts small host values. A single process
 * is a group of one rank and communicates nothing.
 *
 * Every function that communicates is collective: all ranks make the same calls in the same order.
 */
#ifndef RUN_PROCESS_GROUP_H
#define RUN_PROCESS_GROUP_H

#include "base/text/str.h"
#include "config/config.h"
#include "model/options.h"
#include "parallel/mesh.h"
#include "tensor/exec.h"

/* The groups of this rank. A group with only this rank is comm_self() (comm/self.h). */
typedef struct process_group {
    mem *account;
    mesh mesh;
    int rank, size;              /* rank of this process, number of ranks of the run */
    int local_rank, local_ranks; /* rank among the ranks on this machine, their number; 0, 0 if unknown */
    int threads;                 /* train.threads, or this rank's share of the cores; 0: all usable cores */
    group *control;              /* all ranks; sends flags, texts and errors over MPI, from host memory */
    group *all;                  /* all ranks, for device tensors */
    group *data;                 /* ranks that read different rows of the data */
    group *shard;                /* subset of data: ranks that shard one replica of the parameters */
    group *experts;              /* subset of shard: ranks with different experts (expert parallelism) */
    group *expert_shard; /* subset of shard: ranks that shard the same experts; comm_self() if ep is 1 */
    group *replicate;    /* subset of data: ranks of all replicas that have the same shard */
    group *tensor;  /* tensor parallelism: ranks with the same rows of data, different shards of layers */
    group *context; /* context parallelism: ranks with the same rows of data, different tokens */
    group *stages;  /* pipeline stages that train on the same rows of data, in stage order */
    pipeline_stage stage; /* this rank's stage; set by process_group_set_model if there are several stages */
    /* all ranks of one replica, over MPI; they write checkpoints while training uses the other groups */
    group *savers;
    double timeout;       /* time limit of each collective, in seconds; 0: no limit */
    device *device;       /* borrowed */
    device host;          /* the device of control; set by process_group_open */
    void *control_buffer; /* host memory for messages over control; owned; NULL with one rank */
    logger log;           /* this rank's logger; silent if metrics.log_rank selects another rank */
    const logger *parent_log;
} process_group;

/* Joins the ranks that a launcher started, or makes a group of one rank. Sets rank, size, local_rank,
   local_ranks, threads and log. Ranks can communicate only after process_group_open. Do not move *pg
   afterwards. `log` is borrowed. */
ott_status process_group_join(mem *account, const logger *log, const config *cfg, process_group *pg);
/* Arranges the ranks in a mesh by distributed.*. Sets the values of cfg that depend on the number of ranks;
   distributed.fit may change the mesh's sizes. Errors are collected (config_collect): pg->mesh is valid only
   if config_collect_end succeeds. */
ott_status process_group_make_mesh(process_group *pg, config *cfg);
/* Opens the groups of pg->mesh, over NCCL if the device has it (comm/links.h), else over MPI. Borrows d. */
ott_status process_group_open(process_group *pg, device *d, const config *cfg);
/* Bytes of host memory (MEM_COMM) that the groups of one rank need if all groups use MPI (on CPUs). */
int64_t process_group_bytes(const mesh *m);
/* For a dry run: opens fake groups (tensor/dry_run.h) for a rank of the mesh. Use only these groups, without
   `control`, and process_group_set_model. Close with process_group_close. */
ott_status process_group_open_dry_run(mem *account, const mesh *m, int64_t rank, process_group *out);
/* Sets the groups in *shape, which the model's layers and parameter stores use. The groups are borrowed. */
void process_group_set_model(process_group *pg, const config *cfg, model_options *shape);
/* Closes the groups; a zeroed *pg is allowed. Call process_group_abort first if the run failed. */
void process_group_close(process_group *pg);

/* True on rank 0, which writes files and the log for all ranks. */
bool process_group_is_leader(const process_group *pg);
/* True on the ranks of replica 0, which write checkpoints. */
bool process_group_saves_checkpoints(const process_group *pg);
/* Sets *flag on every rank if *flag is set on any rank. */
ott_status process_group_any(process_group *pg, bool *flag);
/* *rank = the lowest rank on which flag is set; -1 if flag is set on no rank. */
ott_status process_group_first_rank(process_group *pg, bool flag, int *rank);
/* Broadcast rank 0's data[bytes] or text to all ranks. The caller sets text->account on every rank. */
ott_status process_group_broadcast(process_group *pg, void *data, int64_t bytes);
ott_status process_group_broadcast_text(process_group *pg, str *text);
/* Compares each rank's configuration with rank 0's. If it differs, the rank returns OTT_ERR_CONFIG; the
   message has the first key that differs. The other ranks return OTT_OK. */
ott_status process_group_check_config(process_group *pg, const config *cfg);
/* Compares `text`, one line per file that the run reads, with rank 0's text. If a rank's text differs, all
   ranks return OTT_ERR_RANK; the message shows the first line that differs, of that rank and of rank 0. */
ott_status process_group_check_files(process_group *pg, const char *text);
ott_status process_group_barrier(process_group *pg);
/* Call it when the run fails. Returns `code` on only one rank, so that the reason is reported once; the error
   text has the rank's number. The other ranks wait in this function until MPI ends them. */
ott_status process_group_abort(process_group *pg, ott_status code);

#endif
