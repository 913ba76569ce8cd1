/* run/process_group: joins the ranks, opens their groups, and sends control messages between ranks. */
#include "run/process_group.h"
#include "base/pool.h"
#include "comm/launch.h"
#include "comm/links.h"
#include "comm/mpi.h"
#include "comm/self.h"
#include "resolve/resolve.h"
#include "tensor/dry_run.h"
#include "tensor/group/group_host.h"
#include "tensor/host.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CONTROL_BYTES = 1 << 16 };

/* ---- joining ---- */

/* Marks each log line with its rank, as torchtitan's launcher does. */
static void log_marked(void *user, ott_log_level level, const char *text) {
    const process_group *pg = user;
    log_line(pg->parent_log, level, "[rank%d]:%s", pg->rank, text);
}

/* Groups of one rank, until process_group_open. */
static void use_self_groups(process_group *pg) {
    pg->all = pg->control = pg->data = pg->shard = pg->replicate = pg->stages = comm_self();
    pg->tensor = pg->context = pg->savers = pg->experts = pg->expert_shard = comm_self();
}

ott_status process_group_join(mem *account, const logger *log, const config *cfg, process_group *pg) {
    *pg = (process_group){.account = account, .size = 1, .log = log ? *log : (logger){0}};
    use_self_groups(pg);
    pg->threads = (int)cfg->train.threads;
    launch l;
    TRY(launch_read(&l));
    if (l.uses_mpi) {
        TRY(mpi_join(&pg->rank, &pg->size));
        pg->local_rank = l.local_rank;
        pg->local_ranks = l.local_size;
        if (pg->threads == 0)
            pg->threads = launch_threads(&l, pool_cores(), (int)sysconf(_SC_NPROCESSORS_ONLN));
        TRY(launch_check_joined(&l, pg->size));
    }
    pg->parent_log = log;
    pg->log = log ? *log : (logger){0};
    if (cfg->metrics.log_rank == -1 && pg->size > 1)
        pg->log = (logger){.callback = log_marked, .user = pg, .level = pg->log.level};
    else if (cfg->metrics.log_rank != pg->rank && pg->size > 1)
        pg->log = (logger){0};
    return OTT_OK;
}

static ott_status arrange_mesh(process_group *pg, config *cfg) {
    TRY(mesh_resolve(cfg, pg->size, &pg->log, &pg->mesh));
    return config_set_data_ranks(cfg, mesh_group_size(&pg->mesh, MESH_DATA));
}

ott_status process_group_make_mesh(process_group *pg, config *cfg) {
    ott_status status = OTT_OK;
    if (pg->size > 1 && cfg->metrics.log_rank >= pg->size)
        status = status_fail(OTT_ERR_CONFIG, "%s: the run has %d ranks: give 0 to %d, or -1 for all",
                             config_where(cfg, "metrics.log_rank"), pg->size, pg->size - 1);
    TRY(config_collect(cfg, status));
    return config_collect(cfg, arrange_mesh(pg, cfg));
}

/* ---- groups ---- */

/* Opens the group of the ranks (at least two) whose mesh coordinates differ only in `dimensions`. */
typedef ott_status (*group_opener)(const process_group *pg, mesh_set dimensions, const char *name,
                                   group **out);

static ott_status open_mpi(const process_group *pg, mesh_set dimensions, const char *name, group **out) {
    int ranks[pg->size];
    if (out == &pg->all) { /* pg->control has all ranks, too */
        *out = pg->control;
        return OTT_OK;
    }
    mesh_group(&pg->mesh, dimensions, pg->rank, ranks);
    return mpi_group_open(pg->account, ranks, (int)mesh_group_size(&pg->mesh, dimensions), name, pg->timeout,
                          out);
}

/* An NCCL group is for one thread. `savers` uses MPI, because another thread writes checkpoints with it. */
static ott_status open_linked(const process_group *pg, mesh_set dimensions, const char *name, group **out) {
    int ranks[pg->size];
    if (out == &pg->savers) return open_mpi(pg, dimensions, name, out);
    mesh_group(&pg->mesh, dimensions, pg->rank, ranks);
    return links_open(pg->account,
                      &(links_options){.device = pg->device,
                                       .control = pg->control,
                                       .ranks = ranks,
                                       .count = (int)mesh_group_size(&pg->mesh, dimensions),
                                       .name = name,
                                       .timeout = pg->timeout,
                                       .messages = dimensions == MESH_SET(PP)},
                      out);
}

static ott_status open_dry_run_group(const process_group *pg, mesh_set dimensions, const char *name,
                                     group **out) {
    (void)name;
    return dry_run_group_open(pg->account, (int)mesh_group_rank(&pg->mesh, dimensions, pg->rank),
                              (int)mesh_group_size(&pg->mesh, dimensions), out);
}

/* All groups, in the order in which every rank opens them. */
static const struct {
    size_t member; /* offset of the group in process_group */
    mesh_set set;
    const char *name;
} groups[] = {{offsetof(process_group, all), MESH_ALL, ""},
              {offsetof(process_group, data), MESH_DATA, "data"},
              {offsetof(process_group, shard), MESH_SHARD, "dp_shard"},
              {offsetof(process_group, replicate), MESH_SET(DP_REPLICATE), "dp_replicate"},
              {offsetof(process_group, stages), MESH_SET(PP), "pp"},
              {offsetof(process_group, tensor), MESH_SET(TP), "tp"},
              {offsetof(process_group, context), MESH_SET(CP), "cp"},
              {offsetof(process_group, savers), MESH_ALL & ~MESH_SET(DP_REPLICATE), "checkpoints"},
              {offsetof(process_group, experts), MESH_SET(EP), "ep"},
              {offsetof(process_group, expert_shard), MESH_SET(DP_SHARD), "dp_shard of experts"}};
enum { GROUPS = sizeof groups / sizeof *groups };

static group **group_at(process_group *pg, int i) {
    return (group **)(void *)((char *)pg + groups[i].member);
}

/* Number of ranks of group i, 1 for a group that is not opened. Without ep, `shard` replaces expert_shard. */
static int64_t size_of_group(const mesh *m, int i) {
    bool of_experts = groups[i].set == MESH_SET(DP_SHARD);
    return of_experts && m->size[MESH_EP] == 1 ? 1 : mesh_group_size(m, groups[i].set);
}

static ott_status open_groups(process_group *pg, group_opener open) {
    for (int i = 0; i < GROUPS; i++)
        if (size_of_group(&pg->mesh, i) > 1) /* every rank opens the same groups */
            TRY(open(pg, groups[i].set, groups[i].name, group_at(pg, i)));
    return OTT_OK;
}

ott_status process_group_open(process_group *pg, device *d, const config *cfg) {
    pg->timeout = (double)cfg->distributed.nccl_timeout_sec;
    pg->device = d;
    pg->host = host_device(pg->account);
    if (pg->size == 1) return OTT_OK;
    TRY(mem_alloc(pg->account, MEM_OTHER, CONTROL_BYTES, "control messages", &pg->control_buffer));
    TRY(open_mpi(pg, MESH_ALL, "", &pg->control));
    TRY(links_check(pg->account, &pg->log, d, pg->control));
    return open_groups(pg, d->table->open_group ? open_linked : open_mpi);
}

ott_status process_group_open_dry_run(mem *account, const mesh *m, int64_t rank, process_group *out) {
    *out = (process_group){.account = account, .mesh = *m, .rank = (int)rank, .size = (int)mesh_ranks(m)};
    use_self_groups(out);
    return open_groups(out, open_dry_run_group);
}

void process_group_set_model(process_group *pg, const config *cfg, model_options *shape) {
    config_pp_schedule schedule = cfg->distributed.pp_schedule;
    shape->shard_ranks = pg->shard->size > 1 ? pg->shard : NULL;
    shape->expert_ranks = pg->experts->size > 1 ? pg->experts : NULL;
    shape->expert_shard_ranks = pg->expert_shard->size > 1 ? pg->expert_shard : NULL;
    shape->tensor_ranks = pg->tensor;
    shape->sequence_parallel = cfg->distributed.sequence_parallel;
    shape->context_ranks = pg->context;
    if (pg->stages->size == 1) return;
    pg->stage = (pipeline_stage){schedule, pg->stages->size, pg->stages->rank,
                                 schedule == PP_INTERLEAVED_1F1B ? PIPELINE_INTERLEAVED_CHUNKS : 1};
    shape->stage = &pg->stage;
    shape->stage_ranks = pg->stages;
}

int64_t process_group_bytes(const mesh *m) {
    int64_t sum = 0, size;
    for (int i = 0; i < GROUPS; i++)
        if ((size = size_of_group(m, i)) > 1) sum += mpi_group_bytes((int)size);
    return sum;
}

void process_group_close(process_group *pg) {
    if (pg->size <= 1) return;
    for (int i = 0; i < GROUPS; i++)
        if (*group_at(pg, i) != comm_self()) group_close(*group_at(pg, i));
    if (pg->control != pg->all && pg->control != comm_self()) group_close(pg->control);
    mem_free(pg->account, pg->control_buffer);
}

/* ---- control messages ---- */

bool process_group_is_leader(const process_group *pg) {
    return pg->rank == 0;
}

bool process_group_saves_checkpoints(const process_group *pg) {
    return mesh_group_rank(&pg->mesh, MESH_SET(DP_REPLICATE), pg->rank) == 0;
}

static group_host control_exchange(process_group *pg) {
    return (group_host){pg->control, &pg->host, pg->control_buffer, CONTROL_BYTES};
}

ott_status process_group_any(process_group *pg, bool *flag) {
    float value = *flag ? 1.0f : 0.0f;
    group_host exchange = control_exchange(pg);
    if (pg->size == 1) return OTT_OK;
    TRY(group_host_reduce(&exchange, &value, 1, REDUCE_MAX));
    return *flag = value != 0.0f, OTT_OK;
}

ott_status process_group_first_rank(process_group *pg, bool flag, int *rank) {
    float place = flag ? (float)(pg->size - pg->rank) : 0.0f;
    group_host exchange = control_exchange(pg);
    if (pg->size > 1) TRY(group_host_reduce(&exchange, &place, 1, REDUCE_MAX));
    *rank = place > 0 ? pg->size - (int)place : -1;
    return OTT_OK;
}

ott_status process_group_broadcast(process_group *pg, void *data, int64_t bytes) {
    group_host exchange = control_exchange(pg);
    return pg->size == 1 ? OTT_OK : group_host_broadcast(&exchange, data, bytes, 0);
}

ott_status process_group_broadcast_text(process_group *pg, str *text) {
    int64_t length = text->length;
    void *copy;
    if (pg->size == 1) return OTT_OK;
    TRY(process_group_broadcast(pg, &length, sizeof length));
    TRY(mem_alloc(pg->account, MEM_OTHER, length + 1, "broadcast text", &copy));
    if (process_group_is_leader(pg) && length > 0) memcpy(copy, text->text, (size_t)length);
    ott_status status = process_group_broadcast(pg, copy, length);
    if (status == OTT_OK && !process_group_is_leader(pg)) {
        str_free(text);
        str_append_bytes(text, copy, length);
        status = str_finish(text);
    }
    mem_free(pg->account, copy);
    return status;
}

static ott_status share_copy(process_group *pg, const char *text, str *leaders) {
    str_append(leaders, text);
    TRY(str_finish(leaders));
    return process_group_broadcast_text(pg, leaders);
}

/* Returns on every rank the error of the lowest rank that failed, so that all ranks end. */
static ott_status share_failure(process_group *pg, ott_status own) {
    char text[1024] = "";
    group_host exchange = control_exchange(pg);
    float first = own == OTT_OK ? 0.0f : (float)(pg->size - pg->rank);
    if (own != OTT_OK) snprintf(text, sizeof text, "%s", status_text());
    TRY(group_host_reduce(&exchange, &first, 1, REDUCE_MAX));
    if (first == 0.0f) return OTT_OK;
    TRY(group_host_broadcast(&exchange, text, sizeof text, pg->size - (int)first));
    return status_fail(OTT_ERR_RANK, "%s", text);
}

static ott_status compare_lines(const process_group *pg, const char *own, const char *leaders) {
    while (*own && *leaders) {
        size_t length = strcspn(own, "\n"), other = strcspn(leaders, "\n");
        if (length != other || memcmp(own, leaders, length) != 0) break;
        own += length + (own[length] == '\n');
        leaders += other + (leaders[other] == '\n');
    }
    if (!*own && !*leaders) return OTT_OK;
    return status_fail(OTT_ERR_RANK,
                       "rank %d reads %.*s, and rank 0 reads %.*s: all ranks need the same files", pg->rank,
                       *own ? (int)strcspn(own, "\n") : 12, *own ? own : "no such file",
                       *leaders ? (int)strcspn(leaders, "\n") : 12, *leaders ? leaders : "no such file");
}

ott_status process_group_check_files(process_group *pg, const char *text) {
    str leaders = {.account = pg->account};
    if (pg->size == 1) return OTT_OK;
    ott_status status = share_copy(pg, text, &leaders);
    if (status == OTT_OK) status = compare_lines(pg, text, leaders.text ? leaders.text : "");
    str_free(&leaders);
    return share_failure(pg, status);
}

/* A "key = value" line of a TOML text, without its comment, and the section that it is in. */
typedef struct toml_line {
    const char *section, *text;
    int section_length, length;
} toml_line;

/* Finds the next "key = value" line and advances *text. False at the end of the text. */
static bool next_line(const char **text, toml_line *out) {
    while (**text) {
        const char *line = *text, *comment = strstr(line, "  # ");
        int length = (int)strcspn(line, "\n");
        *text += length + (line[length] == '\n');
        if (*line == '[') {
            out->section = line + 1;
            out->section_length = (int)strcspn(line + 1, "]");
        } else if (length > 0 && *line != '#') {
            out->text = line;
            out->length = comment && comment < line + length ? (int)(comment - line) : length;
            return true;
        }
    }
    return false;
}

/* Both configurations list all keys in the same order, so their lines can be compared one by one. */
static ott_status compare_values(const char *own, const char *leaders) {
    toml_line a = {.section = ""}, b = a;
    while (next_line(&own, &a) && next_line(&leaders, &b))
        if (a.length != b.length || memcmp(a.text, b.text, (size_t)a.length) != 0)
            return status_fail(
                OTT_ERR_CONFIG, "%.*s.%.*s, and on rank 0 %.*s.%.*s: all ranks need the same configuration",
                a.section_length, a.section, a.length, a.text, b.section_length, b.section, b.length, b.text);
    return OTT_OK;
}

ott_status process_group_check_config(process_group *pg, const config *cfg) {
    str own = {.account = pg->account}, leaders = {.account = pg->account};
    ott_status status;
    if (pg->size == 1) return OTT_OK;
    TRY_OUT(config_write_toml(cfg, &own));
    TRY_OUT(share_copy(pg, own.text, &leaders));
    TRY_OUT(compare_values(own.text, leaders.text));
out:
    str_free(&own);
    str_free(&leaders);
    return status;
}

ott_status process_group_barrier(process_group *pg) {
    exec cx = {.device = &pg->host};
    return pg->size == 1 ? OTT_OK : group_barrier(pg->control, &cx);
}

ott_status process_group_abort(process_group *pg, ott_status code) {
    if (pg->size == 1) return code;
    if (code != OTT_ERR_RANK) status_context(code, "rank %d", pg->rank); /* an OTT_ERR_RANK names a rank */
    mpi_give_up(code, status_text());
    for (int i = 0; i < GROUPS; i++)
        if (*group_at(pg, i)) group_abandon(*group_at(pg, i));
    return code;
}
