/* formats/trace: writes complete events ("ph": "X") with times in microseconds since trace_open. */
#include "formats/trace.h"
#include "base/clock.h"
#include "base/file/file.h"
#include "base/text/str.h"
#include "base/text/text.h"
#include <string.h>

struct trace_writer {
    mem *account;
    file_writer *file;
    double origin;
};

static ott_status write_trace_head(trace_writer *w, const char *process) {
    str text = {.account = w->account};
    str_append(&text, "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,\"args\":{\"name\":");
    str_append_json(&text, process, (int64_t)strlen(process));
    str_append(&text, "}}");
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = file_writer_append(w->file, text.text, text.length);
    str_free(&text);
    return status;
}

ott_status trace_open(mem *account, const char *path, const char *process, trace_writer **out) {
    trace_writer *w;
    ott_status status;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(trace_writer), "a trace", &w));
    *w = (trace_writer){.account = account, .origin = clock_seconds()};
    TRY_OUT(file_writer_open(account, path, &w->file));
    TRY_OUT(write_trace_head(w, process));
    *out = w;
    return OTT_OK;
out:
    trace_abandon(w);
    return status;
}

ott_status trace_name_track(trace_writer *w, int track, const char *name) {
    char line[TRACE_EVENT_MAX];
    int length = text_format(
        line, sizeof line,
        ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"%s\"}}", track,
        name);
    STATUS_REQUIRE(length > 0 && (size_t)length < sizeof line);
    return file_writer_append(w->file, line, length);
}

ott_status trace_slice(trace_writer *w, int track, const char *name, const char *category, double began,
                       double seconds, const char *arguments) {
    char line[TRACE_EVENT_MAX + 200];
    int length =
        text_format(line, sizeof line,
                    ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":0,\"tid\":%d,\"ts\":%.3f,"
                    "\"dur\":%.3f,\"args\":%s}",
                    category, name, track, (began - w->origin) * 1e6, seconds * 1e6, arguments);
    STATUS_REQUIRE(length > 0 && (size_t)length < sizeof line);
    return file_writer_append(w->file, line, length);
}

ott_status trace_commit(trace_writer *w) {
    static const char end[] = "\n]}\n";
    ott_status status = file_writer_append(w->file, end, sizeof end - 1);
    if (status != OTT_OK) return trace_abandon(w), status;
    status = file_writer_commit(w->file);
    mem_free(w->account, w);
    return status;
}

void trace_abandon(trace_writer *w) {
    if (!w) return;
    file_writer_abandon(w->file);
    mem_free(w->account, w);
}
