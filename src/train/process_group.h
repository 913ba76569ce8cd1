/*
 * train/process_group: the ranks of a run: how they came together, the groups of their mesh, and what they must agree on. One
 * process alone is a world of one rank, in which nothing is said.
 *
 * Every rank makes the same calls in the same order.
 */
#ifndef TRAIN_PROCESS_GROUP_H
#define TRAIN_PROCESS_GROUP_H

#include "base/str.h"
#include "config/config.h"
#include "model/options.h"
#include "parallel/mesh.h"
#include "tensor/exec.h"

typedef struct process_group {
    mem *account;
    mesh mesh;
    int rank, size;
    int local_rank, local_ranks; /* which of how many on this machine; 0 of 0: the launcher does not say */
    int threads;    /* of this rank: train.threads, or its part of the machine's; 0: all that it may use */
    group *control; /* every rank, through which they tell each other something, in the host's memory */
    group *all;     /* every rank; of one rank alone like the others comm_self */
    group *data;    /* ranks that read other rows */
    group *shard;   /* of them those that share one copy of the parameters */
    group *experts; /* of these those that divide the experts among them, */
    group *expert_shard;  /* and those that have the same experts */
    group *replicate;     /* and those that hold the same part of other copies */
    group *tensor;        /* that run the same rows together, each a part of every layer */
    group *context;       /* that have different tokens of the same rows */
    group *stages;        /* of the pipeline, in their order, that train on the same rows */
    pipeline_stage stage; /* this rank's, where there are several */
    group *savers;  /* those of the first copy of the model, which write it down, beside what else goes on */
    double timeout; /* seconds */
    device *device;
    device host;
    void *control_buffer; /* what goes through control */
    logger log;           /* this rank's */
    const logger *parent_log;
} process_group;

/* Joins the ranks that a launcher started. w->log passes to `log` what metrics.log_rank lets through. */
ott_status process_group_join(mem *account, const logger *log, const config *cfg, process_group *pg);
/* Arranges the ranks in a mesh (distributed.fit may change cfg), and gives cfg what follows from how many there are. What does not
   fit is collected (config_collect): w->mesh counts only if config_collect_end finds nothing. */
ott_status process_group_make_mesh(process_group *pg, config *cfg);
/* The groups: over the device's own links where it has some (comm/links.h), else by MPI. device is borrowed. */
ott_status process_group_open(process_group *pg, device *d, const config *cfg);
/* What the groups of a rank take (MEM_COMM) where MPI carries them. */
int64_t process_group_bytes(const mesh *m);
/* The groups of one rank of a mesh of ranks that are not there, for a dry run; nothing is agreed on among them. */
ott_status process_group_open_dry_run(mem *account, const mesh *m, int64_t rank, process_group *out);
/* The groups that hold the model between them; the shape borrows them. */
void process_group_set_model(process_group *pg, const config *cfg, model_options *shape);
/* A run that fails gives up before: then the others are told why and not that it left. An all-zero one is allowed. */
void process_group_close(process_group *pg);

/* Does this rank write what one rank writes? */
bool process_group_is_leader(const process_group *pg);
/* Is it one of the first copy of the model? */
bool process_group_saves_checkpoints(const process_group *pg);
/* *flag on any rank? */
ott_status process_group_any(process_group *pg, bool *flag);
/* The lowest rank that gives a set flag; -1: no rank does. Every rank calls it. */
ott_status process_group_first_rank(process_group *pg, bool flag, int *rank);
/* The leader's bytes, and its text. */
ott_status process_group_broadcast(process_group *pg, void *data, int64_t bytes);
ott_status process_group_broadcast_text(process_group *pg, str *text);
/* Is the configuration that of rank 0? */
ott_status process_group_check_config(process_group *pg, const config *cfg);
/* Are the lines of `text`, one for each file that a run reads, rank 0's? OTT_ERR_RANK on every rank if one rank's are not;
   the message has that rank's first other line, and rank 0's. */
ott_status process_group_check_files(process_group *pg, const char *text);
ott_status process_group_barrier(process_group *pg);
/* The run has failed with this status: what it returns says so on one rank; the others wait here to be ended. */
ott_status process_group_abort(process_group *pg, ott_status code);

#endif
