/*
 * checkpoint/snapshot_write: writes the files of a checkpoint. All ranks write their slices at the same time
 * (folders/tensors_write.c); then rank 0 writes the remaining files.
 */
#include "base/file/file.h"
#include "base/staging.h"
#include "base/text/size.h"
#include "checkpoint/folder.h"
#include "checkpoint/run_history.h"
#include "checkpoint/run_sources.h"
#include "checkpoint/snapshot.h"
#include <inttypes.h>
#include <string.h>

enum { BUFFER_BYTES = 1 << 18, BUFFER_ELEMENTS = BUFFER_BYTES / sizeof(float) };

typedef struct file_set {
    mem *account;
    const checkpoint_snapshot *from;
    const char *folder;
    char path[PATH_MAX]; /* path of the current file */
    char *buffer;        /* BUFFER_BYTES bytes */
    checkpoint_state state;
} file_set;

/* A set that was not opened has no file. */
static ott_status write_sets(file_set *s) {
    for (int id = 0; id < CHECKPOINT_CONFIG; id++) {
        const tensor_set *set = &s->from->sets[id];
        s->state.files[id].absent = !set->memory;
        if (!set->memory) continue;
        TRY(file_join(s->folder, checkpoint_file_name((enum checkpoint_file_id)id), s->path));
        TRY(tensors_write(s->account, &s->from->ranks, set, s->path));
    }
    return OTT_OK;
}

/* The bytes of a file that one rank wrote. */
typedef struct written_part {
    int64_t bytes;
    uint32_t crc; /* contribution to the file's CRC */
} written_part;

static void join_piece(written_part *to, const void *data, int64_t bytes, int64_t after) {
    to->bytes += bytes;
    to->crc ^= file_crc32c_before(file_crc32c(0, data, bytes), after);
}

/* A file of tensors after all ranks wrote it. */
typedef struct written_file {
    safetensors *file;
    int64_t data; /* bytes of all tensor data */
    written_part part;
} written_file;

/* Computes the checksum of a tensor's bytes in the file on disk, not of the bytes in memory. */
static ott_status measure_tensor(const file_set *s, written_file *f, const safetensors_tensor *t,
                                 const tensor_slice *p) {
    int64_t total = tensor_slice_elements(p), size = dtype_bytes(t->dtype), bytes;
    const safetensors_entry *e = safetensors_find(f->file, t->name);
    parameter_run run;
    for (int64_t at = 0; at < total; at += run.count) {
        run = parameter_run_at(&p->part, tensor_set_columns(t), at, size_min(total - at, BUFFER_ELEMENTS));
        bytes = run.count * size;
        TRY(safetensors_read(f->file, e, run.first * size, bytes, s->buffer));
        join_piece(&f->part, s->buffer, bytes, f->data - e->begin - run.first * size - bytes);
    }
    return OTT_OK;
}

static ott_status measure_header(const file_set *s, written_file *f) {
    file_reader r;
    TRY(file_reader_open(s->path, &r));
    ott_status status = OTT_OK;
    int64_t header = r.bytes - f->data;
    for (int64_t at = 0, bytes; status == OTT_OK && at < header; at += bytes) {
        bytes = header - at < BUFFER_BYTES ? header - at : BUFFER_BYTES;
        status = file_reader_read(&r, at, s->buffer, bytes);
        if (status == OTT_OK) join_piece(&f->part, s->buffer, bytes, r.bytes - at - bytes);
    }
    file_reader_close(&r);
    return status;
}

static ott_status measure_tensors(const file_set *s, const tensor_set *set, written_file *f) {
    int64_t last = safetensors_count(f->file) - 1;
    const safetensors_entry *e = last < 0 ? NULL : safetensors_at(f->file, last);
    f->data = e ? e->begin + e->bytes : 0;
    if (ranks_own_rank(&s->from->ranks) == 0) TRY(measure_header(s, f));
    for (int64_t i = 0; i < set->count; i++) TRY(measure_tensor(s, f, &set->declared[i], &set->slices[i]));
    return OTT_OK;
}

static ott_status measure_sets(file_set *s, written_part *own) {
    for (int id = 0; id < CHECKPOINT_CONFIG; id++) {
        const tensor_set *set = &s->from->sets[id];
        written_file f = {0};
        own[id] = f.part;
        if (!set->memory) continue;
        TRY(file_join(s->folder, checkpoint_file_name((enum checkpoint_file_id)id), s->path));
        TRY(safetensors_open(s->account, s->path, &f.file));
        ott_status status = measure_tensors(s, set, &f);
        safetensors_close(f.file);
        own[id] = f.part;
        TRY(status);
        TRY(file_size(s->path, &s->state.files[id].bytes));
    }
    return OTT_OK;
}

/* Sums the bytes that the ranks wrote to each file, and XORs their CRCs. Fails if some bytes are missing. */
static ott_status join_written_parts(file_set *s, const written_part *all) {
    for (int id = 0; id < CHECKPOINT_CONFIG; id++) {
        checkpoint_file *file = &s->state.files[id];
        int64_t bytes = 0;
        file->crc = 0;
        for (int r = 0; r < ranks_size(&s->from->ranks); r++) {
            bytes += all[r * CHECKPOINT_CONFIG + id].bytes;
            file->crc ^= all[r * CHECKPOINT_CONFIG + id].crc;
        }
        if (bytes != file->bytes)
            return status_fail(OTT_ERR_RANK,
                               "%s: the ranks wrote %" PRId64 " of its %" PRId64
                               " bytes: their shards are not parts of one model",
                               checkpoint_file_name((enum checkpoint_file_id)id), bytes, file->bytes);
    }
    return OTT_OK;
}

static ott_status measure_all(file_set *s) {
    const checkpoint_ranks *ranks = &s->from->ranks;
    written_part own[CHECKPOINT_CONFIG] = {0};
    void *all;
    TRY(ranks_agree(ranks, measure_sets(s, own)));
    TRY(mem_alloc_array(s->account, MEM_OTHER, ranks_size(ranks), sizeof own, "sizes per rank", &all));
    ott_status status = ranks_gather(ranks, own, sizeof own, all);
    if (status == OTT_OK) status = join_written_parts(s, all);
    mem_free(s->account, all);
    return status;
}

/* Writes a file that resuming does not need. */
static ott_status write_extra(file_set *s, const char *name, const char *text, int64_t bytes) {
    if (bytes == 0) return OTT_OK;
    TRY(file_join(s->folder, name, s->path));
    return file_write_atomic(s->path, text, bytes);
}

static ott_status write_remaining(file_set *s) {
    const checkpoint_snapshot *from = s->from;
    checkpoint_file *file = &s->state.files[CHECKPOINT_CONFIG];
    file->absent = from->config.length == 0;
    if (!file->absent) {
        TRY(file_join(s->folder, checkpoint_file_name(CHECKPOINT_CONFIG), s->path));
        TRY(file_write_atomic(s->path, from->config.text, from->config.length));
        TRY(checkpoint_measure(s->path, 0, 1, s->buffer, BUFFER_BYTES, NULL, file));
    }
    TRY(write_extra(s, RUN_HISTORY_NAME, s->from->history.text, s->from->history.length));
    if (s->from->sources)
        TRY(write_extra(s, RUN_SOURCES_NAME, s->from->sources, (int64_t)strlen(s->from->sources)));
    TRY(file_join(s->folder, CHECKPOINT_STATE_NAME, s->path));
    return checkpoint_state_write(s->account, s->path, &s->state);
}

static ott_status write_checkpoint(file_set *s) {
    ott_status status = write_sets(s);
    if (status == OTT_OK)
        status = mem_alloc(s->account, MEM_OTHER, BUFFER_BYTES, "checkpoint buffer", &s->buffer);
    TRY(ranks_agree(&s->from->ranks, status));
    TRY(measure_all(s));
    return ranks_own_rank(&s->from->ranks) == 0 ? write_remaining(s) : OTT_OK;
}

ott_status checkpoint_snapshot_fill(const checkpoint_snapshot *from, const run_mark *mark,
                                    const char *folder) {
    file_set s = {.account = from->account, .from = from, .folder = folder, .state = from->state};
    s.state.mark = *mark;
    STATUS_REQUIRE(!from->excludes_base || from->state.base.files > 0);
    ott_status status = write_checkpoint(&s);
    mem_free(s.account, s.buffer);
    return status;
}

ott_status checkpoint_snapshot_put(const checkpoint_snapshot *from, const char *path) {
    staging at;
    TRY(staging_open(from->account, path, &at));
    return staging_end(&at, checkpoint_snapshot_fill(from, &(run_mark){.branch = 1}, at.path.text));
}
