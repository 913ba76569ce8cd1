/* formats/trace: writes a Chrome trace, JSON for chrome://tracing and Perfetto, through one small buffer. The
   viewer shows a rank as a process and a track as a thread. A slice is shown under the slice that contains
   its time. */
#ifndef FORMATS_TRACE_H
#define FORMATS_TRACE_H

#include "base/mem.h"

typedef struct trace_writer trace_writer;

/* Writes to a temporary file; `path` is created by trace_commit. process: name of the rank in the viewer. */
ott_status trace_open(mem *account, const char *path, const char *process, trace_writer **out);
/* Adds a slice that began at clock_seconds() = `began` and took `seconds`. arguments: a JSON object.
   Allocates nothing. Texts are not escaped, and have at most TRACE_EVENT_MAX bytes in total. */
#define TRACE_EVENT_MAX 1500
ott_status trace_slice(trace_writer *w, int track, const char *name, const char *category, double began,
                       double seconds, const char *arguments);
/* Names a track in the viewer. */
ott_status trace_name_track(trace_writer *w, int track, const char *name);
ott_status trace_commit(trace_writer *w); /* closes w, also after an error */
void trace_abandon(trace_writer *w);      /* deletes the temporary file; NULL is allowed */

#endif
