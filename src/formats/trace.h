/*
 * formats/trace: a Chrome trace: JSON that chrome://tracing and Perfetto open. One process (a rank), a thread for each
 * track; a slice lies inside another of its track when its time does. Slices go to the file as they come, through one
 * buffer.
 */
#ifndef FORMATS_TRACE_H
#define FORMATS_TRACE_H

#include "base/mem.h"

typedef struct trace_writer trace_writer;

/* Writes under a staging name; nothing is visible at `path` before trace_commit. `process` names the rank for the viewer. */
ott_status trace_open(mem *account, const char *path, const char *process, trace_writer **out);
/* A slice of `seconds` that began at clock_seconds() = began. `arguments`: a JSON object. Takes no memory.
   Names, categories and arguments are the program's own: they need no escaping, and have at most
   TRACE_EVENT_MAX bytes together. */
#define TRACE_EVENT_MAX 1500
ott_status trace_slice(trace_writer *w, int track, const char *name, const char *category, double began,
                       double seconds, const char *arguments);
/* How the viewer calls a track. */
ott_status trace_name_track(trace_writer *w, int track, const char *name);
ott_status trace_commit(trace_writer *w); /* closes w whatever happens */
void trace_abandon(trace_writer *w);      /* removes what was written; NULL is allowed */

#endif
