/* nn/parameter: parts of parameters and where their elements are in the full parameter. */
#include "nn/parameter.h"

parameter_run parameter_rows_at(const parameter_part *part, int64_t at, int64_t most) {
    parameter_run run = {at, most};
    for (int i = 0; i < PARAMETER_SECTIONS - 1; i++) {
        const parameter_gap *gap = &part->gap[i];
        if (at >= gap->after)
            run.first += gap->skipped;
        else if (gap->after - at < run.count)
            run.count = gap->after - at;
    }
    return run;
}

/* The result of parameter_run_at for a part of several rows and not all columns: a run is inside one row. */
static parameter_run run_in_row(const parameter_part *part, int64_t columns, int64_t at, int64_t most) {
    int64_t row = at / part->columns, column = at % part->columns, left = part->columns - column;
    return (parameter_run){(part->row + row) * columns + part->column + column, left < most ? left : most};
}

parameter_run parameter_run_at(const parameter_part *part, int64_t columns, int64_t at, int64_t most) {
    if (part->columns != columns && part->rows > 1) return run_in_row(part, columns, at, most);
    int64_t each = part->rows > 1 ? columns : 1, row_count = part->rows * part->columns / each,
            index = at / each;
    parameter_run run = parameter_rows_at(part, index, row_count - index);
    int64_t skipped = run.first - index, left = (index + run.count) * each - at;
    return (parameter_run){part->row * columns + part->column + at + skipped * each,
                           left < most ? left : most};
}

void parameter_split_rows(parameter *p, const int64_t *section, int sections, int rank, int ranks) {
    parameter_part *part = &p->local;
    /* begin: first row of section i in p. row_count: the part's rows so far. end: row after these, in p. */
    int64_t begin = 0, row_count = 0, end = 0;
    for (int i = 0; i < sections; i++) {
        int64_t share = section[i] / ranks, first = begin + rank * share;
        if (i == 0)
            *(p->rank > 1 ? &part->row : &part->column) = first;
        else
            part->gap[i - 1] = (parameter_gap){row_count, first - end};
        begin += section[i];
        row_count += share;
        end = first + share;
    }
    *(p->rank > 1 ? &part->rows : &part->columns) = row_count;
}

parameter_part parameter_shard_part(const parameter *p) {
    const parameter_shard *s = &p->shard;
    int64_t row_count = p->rank > 1 ? s->value.rows : s->value.columns;
    parameter_part part = p->local;
    parameter_run run = parameter_rows_at(&p->local, s->first, 1);
    part.rows = s->value.rows;
    part.columns = s->value.columns;
    *(p->rank > 1 ? &part.row : &part.column) += run.first;
    for (int i = 0; i < PARAMETER_SECTIONS - 1; i++) {
        parameter_gap *gap = &part.gap[i];
        int64_t after = gap->after - s->first;
        /* Keep only gaps between two rows of the shard. A part of one row must have none: parameter_run_at
           would compare `after`, a number of rows, with numbers of elements. */
        *gap = after > 0 && after < row_count ? (parameter_gap){after, gap->skipped} : (parameter_gap){0};
    }
    return part;
}
