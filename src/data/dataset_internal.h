/*
 * data/dataset_internal: what the files of the dataset share. Two tables of functions make a dataset: where its tokens are, and
 * how rows are made of it. So a new kind of token file is one more open function, and a mixture is a way to make rows.
 */
#ifndef DATA_DATASET_INTERNAL_H
#define DATA_DATASET_INTERNAL_H

#include "data/dataset.h"

typedef struct token_source {
    /* Tokens [begin, begin + count) of the sequence; the caller has checked the range. */
    ott_status (*read)(const dataset *d, int64_t begin, int64_t count, int32_t *tokens);
    void (*close)(dataset *d); /* of what `state` holds; NULL: nothing */
} token_source;

typedef struct row_source {
    ott_status (*make_rows)(dataset *d); /* d->row_options is set: makes rows, samples and left_out */
    ott_status (*read)(const dataset *d, int64_t index, dataset_row *row); /* 0 <= index < d->rows */
    /* Row number `number` of a run, see dataset_load_row. */
    ott_status (*draw)(const dataset *d, uint64_t seed, int64_t number, dataset_row *row);
} row_source;

extern const row_source dataset_windows; /* of running text: dataset_rows.c */
extern const row_source dataset_packs;   /* samples, one to a row or packed: dataset_rows.c */

struct dataset {
    mem *account;
    char *name;
    const token_source *from;
    const row_source *rows_by;
    void *state; /* of the source; freed with the dataset */
    bool has_samples;
    int64_t longest;       /* tokens of the longest sample; 0 for running text */
    int64_t tokens, vocab; /* ids are below vocab */
    uint64_t seed;         /* synthetic */
    /* documents: from a table, or ended by a token, or not known (0 and -1) */
    int64_t documents;
    int64_t *begin;     /* [documents + 1] the token where each begins, ascending */
    uint8_t *learned;   /* [tokens] of samples: 1 for each that is a target */
    int32_t last_token; /* ends a document; -1: none does */
    /* rows */
    dataset_row_options row_options;
    int64_t rows;
    int64_t *kept; /* [samples] the samples that fit a row, in file order */
    int64_t *pack; /* [rows + 1] samples: row r has kept[pack[r]] to kept[pack[r + 1] - 1] */
    int64_t samples, left_out;
};

ott_status dataset_new(mem *account, const token_source *from, const row_source *rows_by, dataset **out);
/* row_source.draw: in a new order each epoch. */
ott_status dataset_draw(const dataset *d, uint64_t seed, int64_t number, dataset_row *row);
/* The name of what the files are: the one path, or "12 files, first.bin to last.bin". */
ott_status dataset_name_files(dataset *d, const dataset_source *s);
/* OTT_ERR_ARGUMENT unless the shares are a part. */
ott_status dataset_check_share(const dataset_source *s);

/* ---- text files (dataset_bytes.c) ---- */

#define TEXT_LIMIT (INT64_C(4) << 30) /* bytes held in memory */
#define TEXT_SLACK 3 /* bytes read on each side of a part, to judge characters cut by its ends */

/* The source's share of all its files' bytes. */
typedef struct text_share {
    int64_t begin, end, total;
} text_share;

/* Errors: an empty file, a share above TEXT_LIMIT. */
ott_status dataset_text_share(const dataset_source *s, text_share *out);
/*
 * Reads what of [begin, end) lies in this file, whose first byte is number `before`; `text` is where byte
 * `begin` goes, with TEXT_SLACK bytes of room on both sides of the range. *bytes: size of the file. The
 * part's ends may cut characters; else it is UTF-8.
 */
ott_status dataset_text_read(const char *path, const cancellation *w, int64_t before, int64_t begin,
                             int64_t end, char *text, int64_t *bytes);
/* A file of rows, at most TEXT_LIMIT bytes, to be given back with mem_free. */
ott_status dataset_file_read(mem *account, const char *path, const cancellation *w, char **text,
                             int64_t *bytes);

#endif
