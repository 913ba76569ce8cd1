/*
 * checkpoint/snapshot_write: the files of a checkpoint. Tensors stream from where they are to their file through one
 * small buffer, so that writing a checkpoint needs no memory worth planning.
 */
#include "base/file.h"
#include "base/staging.h"
#include "checkpoint/folder.h"
#include "checkpoint/run_history.h"
#include "checkpoint/run_sources.h"
#include "checkpoint/snapshot.h"
#include <string.h>

enum { BUFFER_BYTES = 1 << 18 };

typedef struct file_set {
    mem *account;
    const checkpoint_snapshot *from;
    const char *folder;
    str path;     /* of the file at hand */
    void *buffer; /* [BUFFER_BYTES] */
    checkpoint_state state;
} file_set;

static ott_status name_file(file_set *s, const char *name) {
    s->path.length = 0;
    str_printf(&s->path, "%s/%s", s->folder, name);
    return str_finish(&s->path);
}

static ott_status stream_out(file_set *s, safetensors_writer *w, const tensor_place *p) {
    if (p->on_host) return safetensors_writer_append(w, p->data, p->bytes);
    for (int64_t at = 0, piece; at < p->bytes; at += piece) {
        piece = p->bytes - at < BUFFER_BYTES ? p->bytes - at : BUFFER_BYTES;
        TRY(device_copy_out(s->from->device, s->buffer, (const char *)p->data + at, piece));
        TRY(safetensors_writer_append(w, s->buffer, piece));
    }
    return OTT_OK;
}

static ott_status write_set(file_set *s, const tensor_set *set) {
    safetensors_writer *w;
    TRY(safetensors_writer_open(s->account, s->path.text, set->declared, set->count, set->metadata,
                                set->metadata_count, &w));
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;) {
        ott_status status = stream_out(s, w, &set->places[next]);
        if (status == OTT_OK) continue;
        safetensors_writer_abandon(w);
        return status;
    }
    return safetensors_writer_commit(w);
}

/* A set that was not opened, and no configuration, have no file. */
static ott_status write_file(file_set *s, enum checkpoint_file_id id) {
    const checkpoint_snapshot *from = s->from;
    checkpoint_file *file = &s->state.files[id];
    file->absent = id == CHECKPOINT_CONFIG ? from->config.length == 0 : !from->sets[id].memory;
    if (file->absent) return OTT_OK;
    TRY(name_file(s, checkpoint_file_name(id)));
    if (id == CHECKPOINT_CONFIG)
        TRY(file_write_atomic(s->path.text, from->config.text, from->config.length));
    else
        TRY(write_set(s, &from->sets[id]));
    /* What lies on disk is what gets a checksum, not what was meant to. */
    return checkpoint_measure(s->path.text, s->buffer, BUFFER_BYTES, NULL, file);
}

/* A file that training does not need. */
static ott_status write_extra(file_set *s, const char *name, const char *text, int64_t bytes) {
    if (bytes == 0) return OTT_OK;
    TRY(name_file(s, name));
    return file_write_atomic(s->path.text, text, bytes);
}

static ott_status write_all(file_set *s) {
    void *buffer;
    TRY(mem_alloc(s->account, MEM_OTHER, BUFFER_BYTES, "checkpoint buffer", &buffer));
    s->buffer = buffer;
    for (int id = 0; id < CHECKPOINT_FILE_COUNT; id++) TRY(write_file(s, (enum checkpoint_file_id)id));
    TRY(write_extra(s, RUN_HISTORY_NAME, s->from->history.text, s->from->history.length));
    if (s->from->sources)
        TRY(write_extra(s, RUN_SOURCES_NAME, s->from->sources, (int64_t)strlen(s->from->sources)));
    TRY(name_file(s, CHECKPOINT_STATE_NAME));
    return checkpoint_state_write(s->account, s->path.text, &s->state);
}

ott_status checkpoint_snapshot_fill(const checkpoint_snapshot *from, const run_mark *mark,
                                    const char *folder) {
    file_set s = {.account = from->account,
                  .from = from,
                  .folder = folder,
                  .path.account = from->account,
                  .state = from->state};
    s.state.mark = *mark;
    ott_status status = write_all(&s);
    str_free(&s.path);
    mem_free(s.account, s.buffer);
    return status;
}

ott_status checkpoint_snapshot_put(const checkpoint_snapshot *from, const char *path) {
    staging at;
    TRY(staging_open(from->account, path, &at));
    return staging_end(&at, checkpoint_snapshot_fill(from, &(run_mark){.branch = 1}, at.path.text));
}
