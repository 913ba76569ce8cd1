/* data/jsonl/row_text: splits a file into rows, a JSON object on each line or one array, and parses a row. */
#ifndef DATA_ROW_TEXT_H
#define DATA_ROW_TEXT_H

#include "base/mem.h"
#include "base/cancellation.h"
#include "data/text_file/text_file.h"
#include "tokenizer/text/text.h"
#include <jansson.h>

typedef struct data_rows {
    const char *at, *end;
    bool array;        /* the text is one array */
    bool begun, ended; /* the array's opening bracket was read; its closing bracket was read */
    int64_t line;      /* line number of the last row, from 1 */
    int64_t newlines;  /* number of newlines before `at` */
} data_rows;

data_rows data_rows_begin(const char *text, int64_t bytes);
/* Returns the text of the next row that is not blank, borrowed and unparsed; .at is NULL after the last row.
   OTT_ERR_FORMAT: the array has no end, or text follows it. */
ott_status data_rows_next(data_rows *r, text_view *out);
/* Parses a row that must be a JSON object; release with json_decref. unit: "row" or "line", for messages. */
ott_status data_row_object(text_view row, const char *unit, json_t **out);

/* Reads the rows of a file, which may be compressed, part by part. */
typedef struct row_file {
    mem *account;
    const char *path; /* borrowed */
    text_file *file;
    char *text; /* [capacity] */
    int64_t capacity;
    bool all;       /* the end of the file is in `text` */
    data_rows rows; /* the text that is left in `text` */
} row_file;

/* OTT_ERR_FORMAT if the file is empty. */
ott_status row_file_open(mem *account, const char *path, row_file *out);
/* Like data_rows_next, but errors also name the file. *row is valid until the next call. */
ott_status row_file_next(row_file *f, text_view *row);
void row_file_close(row_file *f);

#endif
