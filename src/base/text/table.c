/* base/text/table: a text table whose columns have equal widths. */
#include "base/text/table.h"
#include <string.h>

enum { COLUMNS_MOST = 16 };

void text_table_end_cell(text_table *t) {
    str_append_bytes(&t->cells, "", 1);
}

void text_table_cell(text_table *t, const char *text) {
    str_append(&t->cells, text);
    text_table_end_cell(t);
}

/* Width on a terminal: the number of characters, not of bytes. */
static int width_of(const char *text) {
    int width = 0;
    for (; *text; text++) width += (*text & 0xc0) != 0x80;
    return width;
}

static void append_many(str *out, const char *text, int count) {
    for (int i = 0; i < count; i++) str_append(out, text);
}

static void append_table_rows(const text_table *t, str *out) {
    const char *end = t->cells.text + t->cells.length, *cell;
    int width[COLUMNS_MOST] = {0}, c = 0;
    for (cell = t->cells.text; cell < end; cell += strlen(cell) + 1, c = (c + 1) % t->columns)
        if (width_of(cell) > width[c]) width[c] = width_of(cell);
    bool heading = true;
    for (cell = t->cells.text; cell < end; cell += strlen(cell) + 1, c = (c + 1) % t->columns) {
        bool last = c == t->columns - 1, right = t->right && c > 0;
        int padding = width[c] - width_of(cell);
        append_many(out, " ", right ? padding : 0);
        str_append(out, cell);
        append_many(out, " ", right || last ? 0 : padding);
        str_append(out, last ? "\n" : t->gap);
        if (last && heading && t->rule) {
            for (int i = 0; i < t->columns; i++) {
                if (i > 0) str_append(out, t->rule);
                append_many(out, "-", width[i]);
            }
            str_append(out, "\n");
        }
        heading = heading && !last;
    }
}

ott_status text_table_write(text_table *t, str *out) {
    ott_status status = str_finish(&t->cells);
    STATUS_REQUIRE(t->columns > 0 && t->columns <= COLUMNS_MOST);
    if (status == OTT_OK && t->cells.length > 0) append_table_rows(t, out);
    str_free(&t->cells);
    return status;
}
