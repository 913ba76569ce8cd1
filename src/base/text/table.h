/* base/text/table: a text table whose columns have equal widths. */
#ifndef BASE_TEXT_TABLE_H
#define BASE_TEXT_TABLE_H

#include "base/text/str.h"

/* Cells are added row by row. The first row is the heading. Set the other members, then append the text of
   each cell to `cells`, and call text_table_end_cell after each. */
typedef struct text_table {
    int columns;
    const char *gap;  /* text between cells, "  " */
    const char *rule; /* text between cells of the rule below the heading, "-+-"; NULL: no rule */
    bool right;       /* aligns all columns except the first to the right; false: to the left */
    str cells;        /* texts of the cells, each followed by a NUL; initialize with {.account = m} */
} text_table;

void text_table_end_cell(text_table *t);
void text_table_cell(text_table *t, const char *text); /* adds a cell with this text */
/* Appends the table to `out`, and frees the cells. The last cell of a row gets no padding on its right. */
ott_status text_table_write(text_table *t, str *out);

#endif
