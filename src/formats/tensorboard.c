/* formats/tensorboard: event files. A record is a length (8 bytes), a masked CRC of the length, the data (one
   protocol buffer) and a masked CRC of the data. Sources: TensorFlow's core/lib/io/record_writer.cc and
   core/util/event.proto. */
#include "formats/tensorboard.h"
#include "base/clock.h"
#include "base/file/file.h"
#include "base/fmath.h"
#include "base/text/str.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

struct tensorboard_writer {
    mem *account;
    str path;
    int descriptor;
    str queue;                 /* records that are not written yet */
    str event, summary, value; /* buffers of the current record, used again for the next */
    bool failed;
};

/* A field's key in a protocol buffer: the field's number, and how its value is encoded. */
#define FIELD(number, coding) ((number) << 3 | (coding))
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void append_varint(str *s, uint64_t x) {
    for (; x >= 0x80; x >>= 7) str_append_bytes(s, &(char){(char)(x | 0x80)}, 1);
    str_append_bytes(s, &(char){(char)x}, 1);
}

static void append_bytes(str *s, int number, const char *bytes, int64_t count) {
    append_varint(s, FIELD((uint64_t)number, BYTES));
    append_varint(s, (uint64_t)count);
    str_append_bytes(s, bytes, count);
}

static void append_fixed(str *s, int number, uint64_t bits, int bytes) {
    append_varint(s, FIELD((uint64_t)number, bytes == 8 ? FIXED64 : FIXED32));
    str_append_little(s, bits, bytes);
}

static uint32_t masked_crc(const void *data, int64_t bytes) {
    uint32_t crc = file_crc32c(0, data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void append_record(str *s, const str *data) {
    int64_t begin = s->length;
    str_append_little(s, (uint64_t)data->length, 8);
    if (s->failed) return;
    str_append_little(s, masked_crc(s->text + begin, 8), 4);
    str_append_bytes(s, data->text, data->length);
    str_append_little(s, masked_crc(data->text, data->length), 4);
}

static void begin_event(tensorboard_writer *w, int64_t step) {
    double now = clock_wall();
    uint64_t bits;
    memcpy(&bits, &now, sizeof bits);
    w->event.length = 0;
    append_fixed(&w->event, 1, bits, 8);
    if (step == 0) return;
    append_varint(&w->event, FIELD(2, VARINT));
    append_varint(&w->event, (uint64_t)step);
}

static ott_status finish_event(tensorboard_writer *w) {
    TRY(str_finish(&w->event));
    append_record(&w->queue, &w->event);
    return str_finish(&w->queue);
}

/* Creates events.out.tfevents.TIME.HOST.PID; appends a number if the name exists. */
static ott_status make_event_file(tensorboard_writer *w, const char *folder) {
    char host[128];
    if (gethostname(host, sizeof host) != 0) strcpy(host, "localhost");
    host[sizeof host - 1] = '\0';
    str_printf(&w->path, "%s/events.out.tfevents.%010" PRId64 ".%s.%ld", folder, (int64_t)clock_wall(), host,
               (long)getpid());
    int64_t length = w->path.length;
    errno = EEXIST;
    for (int attempt = 0; attempt < 1000 && w->descriptor < 0 && errno == EEXIST; attempt++) {
        w->path.length = length;
        if (attempt > 0) str_printf(&w->path, ".%d", attempt);
        TRY(str_finish(&w->path));
        w->descriptor = open(w->path.text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (w->descriptor >= 0) return OTT_OK;
    return status_fail(status_from_errno(errno), "%s: cannot write: %s", w->path.text, strerror(errno));
}

static ott_status write_preamble(tensorboard_writer *w, int64_t first_step) {
    static const char version[] = "brain.Event:2";
    begin_event(w, 0);
    append_bytes(&w->event, 3, version, sizeof version - 1);
    TRY(finish_event(w));
    if (first_step > 0) {
        /* with this event, TensorBoard discards points of earlier files from first_step on */
        const char start[] = {FIELD(1, VARINT), 1};
        begin_event(w, first_step);
        append_bytes(&w->event, 7, start, sizeof start);
        TRY(finish_event(w));
    }
    return tensorboard_flush(w);
}

ott_status tensorboard_open(mem *account, const char *folder, int64_t first_step, tensorboard_writer **out) {
    tensorboard_writer *w;
    ott_status status;
    *out = NULL;
    TRY(file_make_folder(folder));
    TRY(mem_alloc(account, MEM_OTHER, sizeof(tensorboard_writer), "a TensorBoard writer", &w));
    *w = (tensorboard_writer){.account = account, .descriptor = -1};
    w->path.account = w->queue.account = w->event.account = w->summary.account = w->value.account = account;
    TRY_OUT(make_event_file(w, folder));
    TRY_OUT(write_preamble(w, first_step));
    *out = w;
out:
    if (status != OTT_OK) {
        w->failed = true; /* tensorboard_close then writes nothing */
        tensorboard_close(w);
    }
    return status;
}

static ott_status fail_earlier(const tensorboard_writer *w) {
    return status_fail(OTT_ERR_IO, "%s: cannot write: an earlier write failed", w->path.text);
}

ott_status tensorboard_scalar(tensorboard_writer *w, int64_t step, const char *tag, float value) {
    if (w->failed) return fail_earlier(w);
    w->value.length = w->summary.length = 0;
    append_bytes(&w->value, 1, tag, (int64_t)strlen(tag));
    append_fixed(&w->value, 2, fmath_bits(value), 4);
    TRY(str_finish(&w->value));
    append_bytes(&w->summary, 1, w->value.text, w->value.length);
    TRY(str_finish(&w->summary));
    begin_event(w, step);
    append_bytes(&w->event, 5, w->summary.text, w->summary.length);
    return finish_event(w);
}

ott_status tensorboard_flush(tensorboard_writer *w) {
    if (w->failed) return fail_earlier(w);
    for (int64_t done = 0; done < w->queue.length;) {
        ssize_t written = write(w->descriptor, w->queue.text + done, (size_t)(w->queue.length - done));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            w->failed = true;
            return status_fail(status_from_errno(errno), "%s: cannot write: %s", w->path.text,
                               strerror(errno));
        }
        done += written;
    }
    w->queue.length = 0;
    return OTT_OK;
}

ott_status tensorboard_close(tensorboard_writer *w) {
    if (!w) return OTT_OK;
    ott_status status = w->failed ? OTT_OK : tensorboard_flush(w);
    if (w->descriptor >= 0) close(w->descriptor);
    str_free(&w->path);
    str_free(&w->queue);
    str_free(&w->event);
    str_free(&w->summary);
    str_free(&w->value);
    mem_free(w->account, w);
    return status;
}
