/* data/jsonl/row_file: reads the rows of a file, which may be compressed. Memory holds a part of the text. */
#ifndef DATA_ROW_FILE_H
#define DATA_ROW_FILE_H

#include "data/jsonl/row_text.h"
#include "data/packed/packed.h"

#define ROW_LIMIT (INT64_C(1) << 30) /* maximum bytes of a row */

typedef struct row_file {
    mem *account;
    const char *path; /* borrowed */
    packed_file *file;
    char *text; /* [capacity] */
    int64_t held, capacity;
    bool all;       /* the end of the file is in `text` */
    data_rows rows; /* position in `text` */
} row_file;

/* OTT_ERR_FORMAT if the file is empty. */
ott_status row_file_open(mem *account, const char *path, row_file *out);
/* Like data_rows_next, but errors also name the file. *row is valid until the next call. */
ott_status row_file_next(row_file *f, text_view *row);
void row_file_close(row_file *f);

#endif
