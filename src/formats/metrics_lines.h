/*
 * formats/metrics_lines: the lines of a metrics file, forward from its beginning or backward from its end, through
 * one buffer, however long the file is. A line that is no metrics is passed over and counted. Internal to
 * formats/metrics.
 */
#ifndef FORMATS_METRICS_LINES_H
#define FORMATS_METRICS_LINES_H

#include "base/file.h"
#include <jansson.h>

/* Of a line, newline included; a longer one is no metrics. */
#define METRICS_LINE_BYTES (INT64_C(1) << 16)

typedef struct metrics_lines {
    mem *account;
    file_reader file;
    char *buffer;           /* [2 * METRICS_LINE_BYTES]: bytes [at, at + held) of the file */
    int64_t at, held, next; /* next: the byte where the next line begins */
    const char *line;       /* the line at hand, without its newline; NULL: it is too long */
    int64_t length, number;
    int64_t damaged, first_damaged; /* lines passed over, and the number of the first */
} metrics_lines;

/* `path` is borrowed. Bytes that a run appends after this are not seen. */
ott_status metrics_lines_open(mem *account, const char *path, metrics_lines *out);
/* Goes to the next line; *more is false at the end. A last line without newline is one a crash cut off, or
   one being written: it is none. */
ott_status metrics_lines_next(metrics_lines *l, bool *more);
/* The line at hand as a JSON object with a step, to be given back with json_decref; NULL when it is none,
   which is counted. */
ott_status metrics_lines_parse(metrics_lines *l, json_t **object, int64_t *step);
/* Where the lines of steps after `last_step` begin: in a file whose steps ascend, found from its end. What
   lies between them and is no metrics is counted (first_damaged is 0). A last line without newline is left
   out. */
ott_status metrics_lines_end_of(metrics_lines *l, int64_t last_step, int64_t *end);
void metrics_lines_close(metrics_lines *l);

#endif
