/* formats/metrics_lines: reads the lines of a metrics file, forward or backward, through one fixed buffer.
   Counts damaged lines: lines that are not JSON objects with an integer step. Internal to formats/metrics. */
#ifndef FORMATS_METRICS_LINES_H
#define FORMATS_METRICS_LINES_H

#include "base/file/file.h"
#include <jansson.h>

/* Maximum length of a line, including the newline; longer lines are damaged. */
#define METRICS_LINE_BYTES (INT64_C(1) << 16)

typedef struct metrics_lines {
    mem *account;
    file_reader file;
    char *buffer;                   /* [2 * METRICS_LINE_BYTES]: bytes [at, at + held) of the file */
    int64_t at, held, next;         /* next: offset of the next line */
    const char *line;               /* current line without its newline; NULL if it is too long */
    int64_t length, number;         /* length of the current line; its number, counted from 1 */
    int64_t damaged, first_damaged; /* number of damaged lines, and line number of the first */
} metrics_lines;

/* `path` is borrowed. Bytes appended later are not read. */
ott_status metrics_lines_open(mem *account, const char *path, metrics_lines *out);
/* Advances to the next line; *more is false at the end. A last line without a newline is ignored: it was
   interrupted or is being written. */
ott_status metrics_lines_next(metrics_lines *l, bool *more);
/* Parses the current line as a JSON object with a step; the caller frees *object with json_decref. If the
   line is damaged, counts it and sets *object to NULL. */
ott_status metrics_lines_parse(metrics_lines *l, json_t **object, int64_t *step);
/* *end = offset of the first line that has a step after `last_step`. Reads the file backward, because steps
   ascend. Ignores an incomplete last line. Counts damaged lines after *end (first_damaged stays 0). */
ott_status metrics_lines_end_of(metrics_lines *l, int64_t last_step, int64_t *end);
void metrics_lines_close(metrics_lines *l);

#endif
