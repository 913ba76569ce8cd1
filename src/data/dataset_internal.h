/* data/dataset_internal: structures and functions that the files of src/data share. A dataset has two tables
   of functions: its token_source reads tokens, and its row_source makes rows from tokens. So a new kind of
   token file needs only a token_source. A mixture has its own row_source. */
#ifndef DATA_DATASET_INTERNAL_H
#define DATA_DATASET_INTERNAL_H

#include "data/dataset.h"

typedef struct token_source {
    /* Reads tokens [begin, begin + count). The caller has checked the range. */
    ott_status (*read)(const dataset *d, int64_t begin, int64_t count, int32_t *tokens);
    void (*close)(dataset *d); /* closes the contents of `state`; NULL: nothing to close */
} token_source;

typedef struct row_source {
    ott_status (*make_rows)(dataset *d); /* sets rows, samples and left_out from d->row_options */
    ott_status (*read)(const dataset *d, int64_t index, dataset_row *row); /* reads row `index` */
    /* Reads row `number` of a run, see dataset_load_row. */
    ott_status (*draw)(const dataset *d, uint64_t seed, int64_t number, dataset_row *row);
} row_source;

extern const row_source dataset_windows; /* rows of running text (dataset_rows.c) */
extern const row_source dataset_packs;   /* rows of samples, one per row or packed (dataset_rows.c) */

struct dataset {
    mem *account;
    char *name;
    const token_source *from;
    const row_source *rows_by;
    void *state; /* state of the token source; freed with the dataset */
    bool has_samples;
    int64_t longest;       /* tokens of the longest sample; 0 for running text */
    int64_t tokens, vocab; /* number of tokens; ids are below vocab */
    uint64_t seed;         /* seed of synthetic tokens */
    /* Number of documents, which `begin` lists. If 0, a document ends at each last_token (-1: unknown). */
    int64_t documents;
    int64_t *begin;     /* [documents + 1] first token of each document, ascending */
    uint8_t *learned;   /* [tokens] 1 if the token is a target; only for samples */
    int32_t last_token; /* token that ends a document; -1: none */
    /* rows of the dataset */
    dataset_row_options row_options;
    int64_t rows;
    int64_t *kept; /* [samples] indices of samples that fit a row, in file order */
    int64_t *pack; /* [rows + 1] row r contains samples kept[pack[r]] to kept[pack[r + 1] - 1] */
    int64_t samples, left_out;
};

ott_status dataset_new(mem *account, const token_source *from, const row_source *rows_by, dataset **out);
/* Implements row_source.draw: a new order each epoch. */
ott_status dataset_draw(const dataset *d, uint64_t seed, int64_t number, dataset_row *row);
/* Sets the dataset's name: the path, or "12 files, first.bin to last.bin". */
ott_status dataset_name_files(dataset *d, const dataset_source *s);
/* OTT_ERR_ARGUMENT unless 0 <= from_share < to_share <= 1. */
ott_status dataset_check_share(const dataset_source *s);

/* Returns how many of `count` ascending numbers are below `limit`. stride: bytes from one to the next. */
static inline int64_t dataset_lower_bound(const int64_t *first, int64_t stride, int64_t count,
                                          int64_t limit) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (*(const int64_t *)((const char *)first + middle * stride) < limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- text files (dataset_bytes.c) ---- */

#define TEXT_LIMIT (INT64_C(4) << 30) /* maximum bytes held in memory */
#define TEXT_SLACK 3 /* extra bytes read on each side of a range, to check characters at its ends */

/* The source's byte range in the sequence of all its files' texts. */
typedef struct text_share {
    int64_t begin, end, total;
    int64_t *sizes; /* [count] bytes of each file's text; free with mem_free */
} text_share;

/* Finds the byte range to read. Fails if it is larger than TEXT_LIMIT, or if a file is empty. Reads
   compressed files to their ends. */
ott_status dataset_text_share(mem *account, const dataset_source *s, text_share *out);
/* Reads the bytes of [begin, end) that are in this file, which has a text of `bytes` bytes. Byte numbers
   count through all files; `before` bytes are in earlier files. text[0] receives byte `begin`. The caller's
   memory also has TEXT_SLACK bytes before the range and after it. Checks that the text is UTF-8. This
   includes characters that cross an end of the range. */
ott_status dataset_text_read(mem *account, const char *path, int64_t bytes, const cancellation *w,
                             int64_t before, int64_t begin, int64_t end, char *text);

#endif
