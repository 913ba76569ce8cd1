/*
 * checkpoint/folder: names, lists and verifies checkpoints. The name step-N makes a folder a checkpoint;
 * state.json and the checksums show whether it is complete.
 */
#include "checkpoint/folder.h"
#include "base/file/file.h"
#include "base/text/size.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 1 << 18 };

/* Parses a decimal number without leading zeros. *end = the text after the number. */
static bool parse_step_number(const char *text, int64_t *number, const char **end) {
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 18 || (digits > 1 && *text == '0')) return false;
    *number = strtoll(text, NULL, 10);
    *end = text + digits;
    return true;
}

bool checkpoint_is_step(const char *name, int64_t *step) {
    const char *end;
    return str_starts_with(name, "step-") && parse_step_number(name + strlen("step-"), step, &end) &&
           *end == '\0';
}

bool checkpoint_is_abandoned(const char *name, int64_t *branch) {
    static const char prefix[] = "abandoned-";
    const char *end;
    int64_t step;
    return str_starts_with(name, prefix) && parse_step_number(name + strlen(prefix), branch, &end) &&
           *end == '-' && checkpoint_is_step(end + 1, &step);
}

static int compare_steps(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* ---- listing ---- */

ott_status checkpoint_mark(mem *account, const char *path, run_mark *out) {
    checkpoint_state s;
    *out = (run_mark){.branch = 1};
    ott_status status = checkpoint_verify(account, path, false, NULL, &s);
    if (status == OTT_OK) *out = s.mark;
    return status == OTT_ERR_MEMORY ? status : OTT_OK;
}

static ott_status keep_steps(mem *account, const char *folder, const run_record *r, const file_list *names,
                             step_list *out) {
    char path[PATH_MAX];
    TRY(mem_alloc_array(account, MEM_OTHER, names->count, sizeof(int64_t), "checkpoints", &out->steps));
    for (int64_t i = 0, step; i < names->count; i++) {
        run_mark mark = {0};
        if (!checkpoint_is_step(names->names[i], &step) || step > r->after) continue;
        TRY(file_join(folder, names->names[i], path));
        if (!file_is_folder(path)) continue;
        if (*r->mark.run) TRY(checkpoint_mark(account, path, &mark));
        if (*mark.run && strcmp(mark.run, r->mark.run) != 0) continue; /* a checkpoint of another run */
        out->steps[out->count++] = step;
    }
    qsort(out->steps, (size_t)out->count, sizeof *out->steps, compare_steps);
    return OTT_OK;
}

ott_status checkpoint_list_of(mem *account, const char *folder, const run_record *r, step_list *out) {
    file_list names;
    *out = (step_list){0};
    if (!file_is_folder(folder)) return OTT_OK;
    TRY(file_list_folder(account, folder, &names));
    ott_status status = keep_steps(account, folder, r, &names, out);
    file_list_free(&names);
    if (status == OTT_OK) return OTT_OK;
    mem_free(account, out->steps);
    *out = (step_list){0};
    return status;
}

ott_status checkpoint_list(mem *account, const char *folder, step_list *out) {
    run_record r;
    *out = (step_list){0};
    TRY(run_record_read(account, folder, &r));
    return checkpoint_list_of(account, folder, &r, out);
}

ott_status checkpoint_has_any(mem *account, const char *folder, bool *any) {
    step_list list;
    ott_status status = checkpoint_list(account, folder, &list);
    *any = status == OTT_OK && list.count > 0;
    if (status == OTT_OK) mem_free(account, list.steps);
    return status;
}

/* ---- verifying ---- */

ott_status checkpoint_measure(const char *path, int share, int shares, void *buffer, int64_t buffer_bytes,
                              const cancellation *w, checkpoint_file *out) {
    file_reader r;
    ott_status status = OTT_OK;
    TRY(file_reader_open(path, &r));
    *out = (checkpoint_file){.bytes = r.bytes};
    int64_t each = (r.bytes + shares - 1) / shares, end = size_min(each * (share + 1), r.bytes);
    for (int64_t at = size_min(each * share, r.bytes), piece; status == OTT_OK && at < end; at += piece) {
        piece = size_min(end - at, buffer_bytes);
        status = cancellation_check(w);
        if (status == OTT_OK) status = file_reader_read(&r, at, buffer, piece);
        if (status == OTT_OK) out->crc = file_crc32c(out->crc, buffer, piece);
    }
    out->crc = file_crc32c_before(out->crc, r.bytes - end);
    file_reader_close(&r);
    return status;
}

/* State of a verification, which checks one file after the other. */
typedef struct verifying {
    const char *folder;
    const cancellation *cancellation;
    void *buffer;        /* BUFFER_BYTES bytes */
    char path[PATH_MAX]; /* path of the current file */
    const checkpoint_state *state;
} verifying;

static ott_status name_file(verifying *v, int id) {
    return file_join(v->folder, checkpoint_file_name((enum checkpoint_file_id)id), v->path);
}

static ott_status check_sizes(verifying *v) {
    for (int i = 0; i < CHECKPOINT_FILE_COUNT; i++) {
        const checkpoint_file *expected = &v->state->files[i];
        int64_t bytes;
        if (expected->absent) continue;
        TRY(name_file(v, i));
        if (!file_exists(v->path)) return status_fail(OTT_ERR_FORMAT, "%s: is missing", v->path);
        TRY(file_size(v->path, &bytes));
        if (bytes != expected->bytes)
            return status_fail(OTT_ERR_FORMAT, "%s: %s: it has %" PRId64 " bytes, expected %" PRId64, v->path,
                               bytes < expected->bytes ? "is truncated" : "has grown", bytes,
                               expected->bytes);
    }
    return OTT_OK;
}

/* crc[i] = contribution of this rank's range of file i to the CRC of file i; 0 if there is no file i */
static ott_status measure_files(verifying *v, int share, int shares, uint32_t crc[CHECKPOINT_FILE_COUNT]) {
    for (int i = 0; i < CHECKPOINT_FILE_COUNT; i++) {
        checkpoint_file found = {0};
        if (!v->state->files[i].absent) {
            TRY(name_file(v, i));
            TRY(checkpoint_measure(v->path, share, shares, v->buffer, BUFFER_BYTES, v->cancellation, &found));
        }
        crc[i] = found.crc;
    }
    return OTT_OK;
}

ott_status checkpoint_file_open(mem *account, const char *folder, enum checkpoint_file_id id,
                                safetensors **out) {
    char path[PATH_MAX];
    TRY(file_join(folder, checkpoint_file_name(id), path));
    return safetensors_open(account, path, out);
}

/* all: memory for CHECKPOINT_FILE_COUNT CRCs of each rank */
static ott_status check_contents(verifying *v, const checkpoint_ranks *ranks, uint32_t *all) {
    uint32_t own[CHECKPOINT_FILE_COUNT];
    TRY(ranks_agree(ranks, measure_files(v, ranks_own_rank(ranks), ranks_size(ranks), own)));
    TRY(ranks_gather(ranks, own, sizeof own, all));
    for (int i = 0; i < CHECKPOINT_FILE_COUNT; i++) {
        uint32_t crc = 0, expected = v->state->files[i].crc;
        for (int r = 0; r < ranks_size(ranks); r++) crc ^= all[r * CHECKPOINT_FILE_COUNT + i];
        if (v->state->files[i].absent || crc == expected) continue;
        TRY(name_file(v, i));
        return status_fail(OTT_ERR_FORMAT,
                           "%s: is damaged: its checksum is %08" PRIx32 ", expected %08" PRIx32, v->path, crc,
                           expected);
    }
    return OTT_OK;
}

static ott_status verify_checkpoint(mem *account, const checkpoint_ranks *ranks, verifying *v,
                                    checkpoint_state *s) {
    enum { CRCS = CHECKPOINT_FILE_COUNT * sizeof(uint32_t) };
    char path[PATH_MAX];
    TRY(file_join(v->folder, CHECKPOINT_STATE_NAME, path));
    if (file_is_folder(v->folder) && !file_exists(path))
        return status_fail(OTT_ERR_FORMAT, "%s: is not a complete checkpoint: it has no %s", v->folder,
                           CHECKPOINT_STATE_NAME);
    TRY(checkpoint_state_read(account, path, s));
    TRY(check_sizes(v));
    if (!ranks) return OTT_OK;
    TRY(mem_alloc(account, MEM_OTHER, BUFFER_BYTES + ranks_size(ranks) * CRCS, "checkpoint buffer",
                  &v->buffer));
    return check_contents(v, ranks, (uint32_t *)v->buffer + BUFFER_BYTES / sizeof(uint32_t));
}

/* Checks the sizes of all files and, unless `ranks` is NULL, their checksums. */
static ott_status verify_files(mem *account, const checkpoint_ranks *ranks, const char *path,
                               const cancellation *w, checkpoint_state *s) {
    verifying v = {.folder = path, .cancellation = w, .state = s};
    ott_status status = verify_checkpoint(account, ranks, &v, s);
    mem_free(account, v.buffer);
    return status;
}

ott_status checkpoint_verify(mem *account, const char *path, bool contents, const cancellation *w,
                             checkpoint_state *s) {
    const checkpoint_ranks no_ranks = {0};
    return verify_files(account, contents ? &no_ranks : NULL, path, w, s);
}

ott_status checkpoint_verify_shared(const checkpoint_ranks *ranks, const char *path, const cancellation *w,
                                    checkpoint_state *s) {
    TRY(ranks_agree(ranks, checkpoint_verify(ranks->device->account, path, false, NULL, s)));
    return verify_files(ranks->device->account, ranks, path, w, s);
}

ott_status checkpoint_config(mem *account, const char *path, config **out) {
    char file[PATH_MAX], option[PATH_MAX + 16];
    const char *arguments[] = {option}; /* --config=PATH: a path alone could look like an option */
    TRY(file_join(path, checkpoint_file_name(CHECKPOINT_CONFIG), file));
    snprintf(option, sizeof option, "--config=%s", file);
    TRY(config_parse(account, NULL, 1, arguments, out));
    /* Old versions had no fused projections and no keys for them. A missing key means false here. */
    static const char *const keys[] = {"model.fused_qkv", "model.fused_gate_up"};
    for (int i = 0; i < 2; i++)
        if (!config_was_set(*out, keys[i])) TRY(config_set(*out, keys[i], "false"));
    return OTT_OK;
}
