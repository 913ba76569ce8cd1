/* data/row_text: the rows of a file: a JSON object on each line, or one array of objects. Internal to this floor. */
#ifndef DATA_ROW_TEXT_H
#define DATA_ROW_TEXT_H

#include "base/mem.h"
#include "base/cancellation.h"
#include "tokenizer/text.h"

typedef struct data_rows {
    const char *at, *end;
    bool array;        /* the text is one array */
    bool begun, ended; /* array: its brackets were read */
    int64_t line;      /* of the last row, from 1 */
    int64_t newlines;  /* before `at` */
} data_rows;

data_rows data_rows_begin(const char *text, int64_t bytes);
/* The text of the next row that is not blank, borrowed and not yet parsed; .at is NULL after the last row. OTT_ERR_FORMAT: the
   array has no end, or text after its end. */
ott_status data_rows_next(data_rows *r, text_view *out);
/* Is it the beginning of an array? */
bool data_rows_is_array(const char *text, int64_t bytes);
/* The end of the JSON value that begins at `at`, found by its quotes and brackets; NULL: the value is incomplete at `end`. */
const char *data_rows_value_end(const char *at, const char *end);

#endif
