/* formats/metrics: the writer. Each line is one write call, so that a crash can damage only the last line. */
#include "formats/metrics.h"
#include "base/text/number.h"
#include "base/text/str.h"
#include "formats/metrics_lines.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct metrics_writer {
    mem *account;
    char *path;
    int descriptor;
    int64_t bytes; /* bytes of the complete lines in the file */
    str line;      /* buffer, reused for every line */
    bool failed;
};

static ott_status fail_write(const metrics_writer *w) {
    return status_fail(status_from_errno(errno), "%s: cannot write: %s", w->path, strerror(errno));
}

/* flags: additional flags for open(2). */
static ott_status open_at_end(metrics_writer *w, int flags) {
    TRY(file_open_own(w->path, O_RDWR | O_APPEND | flags, &w->descriptor));
    off_t end = lseek(w->descriptor, 0, SEEK_END);
    if (end < 0) return fail_write(w);
    w->bytes = end;
    return OTT_OK;
}

/* *end = file offset after the lines of steps up to last_step. The resumed run overwrites the rest. */
static ott_status find_resume_end(const metrics_writer *w, const logger *log, int64_t last_step,
                                  int64_t *end) {
    metrics_lines lines;
    TRY(metrics_lines_open(w->account, w->path, &lines));
    ott_status status = metrics_lines_end_of(&lines, last_step, end);
    if (status == OTT_OK && lines.damaged > 0)
        log_warning(log, "%s: removed %" PRId64 " damaged lines after step %" PRId64, w->path, lines.damaged,
                    last_step);
    metrics_lines_close(&lines);
    return status;
}

static ott_status open_after(metrics_writer *w, const logger *log, int64_t last_step) {
    int64_t end = 0;
    bool there = file_exists(w->path);
    if (there) TRY(find_resume_end(w, log, last_step, &end));
    TRY(open_at_end(w, 0));
    if (!there || end == w->bytes) return OTT_OK;
    if (ftruncate(w->descriptor, end) != 0) return fail_write(w);
    w->bytes = end;
    return OTT_OK;
}

ott_status metrics_open(mem *account, const logger *log, const char *path, int64_t last_step,
                        metrics_writer **out) {
    metrics_writer *w;
    ott_status status;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(metrics_writer), "a metrics writer", &w));
    *w = (metrics_writer){.account = account, .descriptor = -1, .line = {.account = account}};
    TRY_OUT(mem_strdup(account, path, &w->path));
    TRY_OUT(last_step < 0 ? open_at_end(w, O_TRUNC) : open_after(w, log, last_step));
    *out = w;
out:
    if (status != OTT_OK) metrics_close(w);
    return status;
}

static void append_metric(str *line, const metrics_value *v) {
    char number[32];
    str_append(line, ",");
    str_append_json(line, v->key, (int64_t)strlen(v->key));
    str_append(line, ":");
    switch (v->kind) {
    case METRICS_REAL: str_append(line, number_metric(v->real, number)); break;
    case METRICS_INT: str_printf(line, "%" PRId64, v->integer); break;
    case METRICS_TEXT: str_append_json(line, v->text, (int64_t)strlen(v->text)); break;
    }
}

/* Writes w->line. If that fails, truncates the file to its complete lines. */
static ott_status write_line(metrics_writer *w) {
    int64_t done = 0;
    while (done < w->line.length) {
        ssize_t written = write(w->descriptor, w->line.text + done, (size_t)(w->line.length - done));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            int reason = errno;
            w->failed = true;
            int truncated = ftruncate(w->descriptor, w->bytes);
            return status_fail(OTT_ERR_IO, "%s: cannot write: %s%s", w->path, strerror(reason),
                               truncated == 0 || done == 0 ? "" : "; its last line is incomplete");
        }
        done += written;
    }
    w->bytes += done;
    return OTT_OK;
}

ott_status metrics_write(metrics_writer *w, int64_t step, const metrics_value *values, int count) {
    if (!w) return OTT_OK;
    if (w->failed) return status_fail(OTT_ERR_IO, "%s: cannot write: an earlier write failed", w->path);
    w->line.length = 0;
    str_printf(&w->line, "{\"step\":%" PRId64, step);
    for (int i = 0; i < count; i++) append_metric(&w->line, &values[i]);
    str_append(&w->line, "}\n");
    TRY(str_finish(&w->line));
    return write_line(w);
}

ott_status metrics_sync(metrics_writer *w) {
    if (fdatasync(w->descriptor) == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP) return OTT_OK;
    return status_fail(OTT_ERR_IO, "%s: cannot sync: %s", w->path, strerror(errno));
}

bool metrics_path_is_current(const metrics_writer *w) {
    struct stat named, held;
    return stat(w->path, &named) == 0 && fstat(w->descriptor, &held) == 0 && named.st_dev == held.st_dev &&
           named.st_ino == held.st_ino;
}

static ott_status copy_lines(metrics_writer *w, int from) {
    char buffer[16384];
    for (ssize_t got; (got = pread(from, buffer, sizeof buffer, w->bytes)) != 0; w->bytes += got)
        if (got < 0 || write(w->descriptor, buffer, (size_t)got) != got) return fail_write(w);
    return OTT_OK;
}

ott_status metrics_restore(metrics_writer *w) {
    int before = w->descriptor;
    bool gone = !file_exists(w->path);
    ott_status status = open_at_end(w, 0);
    if (status == OTT_OK && gone) status = copy_lines(w, before);
    w->failed = status != OTT_OK;
    close(before);
    return status;
}

void metrics_close(metrics_writer *w) {
    if (!w) return;
    if (w->descriptor >= 0) close(w->descriptor);
    str_free(&w->line);
    mem_free(w->account, w->path);
    mem_free(w->account, w);
}
