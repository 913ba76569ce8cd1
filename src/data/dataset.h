/*
 * data/dataset: where tokens come from. A dataset is opened from files, cut into rows of one length, and read
 * row by row; the loader reads its rows in a new random order each epoch. Which row is which is a pure
 * function of the seed and the row's global number, so that number is the whole state of loading data, on any
 * number of ranks.
 *
 * Two kinds of row. Running text (bytes, text, JSONL with a text field, token files, synthetic) is one
 * sequence of tokens, cut into windows of length + 1 tokens at a stride of length: every token is a target
 * once. Samples (HellaSwag, prompt and completion) stay whole: a row is one sample and padding, or several
 * samples packed.
 */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "base/log.h"
#include "tokenizer/tokenizer.h"

typedef struct dataset dataset; /* read-only once cut: any thread may read it */

#define DATASET_NO_LABEL (-100) /* the target of a token that has no loss */

/* ---- opening ---- */

/* What the open functions read; each says what it needs beside files and shares. */
typedef struct dataset_source {
    const char *const *paths; /* [count] files, one after the other */
    int64_t count;
    double from_share, to_share; /* the part that is read: 0 <= from < to <= 1 */
    int64_t limit;               /* documents or samples at most; 0: all */
    const tokenizer *tokenizer;  /* borrowed while opening; NULL: a token is a byte */
    bool add_bos, add_eos;       /* around each document, where the tokenizer has such a token */
    const char *separator;       /* between the documents of a text; "": each file is one */
    const char *text_field, *prompt_field, *completion_field; /* of a JSONL row; prompt_field "": text only */
    const char *context_field;                                /* of an instruction; "": none */
    int64_t vocab;         /* token files: ids at or above it are errors, found when they are read */
    const char *chat_date; /* chat_settings.date; NULL: none */
    const cancellation *cancellation; /* checked while files are read, rendered and tokenized; NULL: never */
} dataset_source;

/*
 * Bytes of text files; the vocabulary is 256. The share is of the bytes of all files. Held in memory: at most
 * 4 GiB. Errors name the path: not a regular file, empty, too large, not UTF-8 (with the byte offset).
 */
ott_status dataset_open_bytes(mem *account, const dataset_source *s, dataset **out);
/* Text files in the tokenizer's ids, cut into documents by `separator`. The share is of the bytes. */
ott_status dataset_open_text(mem *account, const dataset_source *s, dataset **out);
/* Files with a JSON object on each line. With prompt_field and completion_field, samples whose loss is on the
   completion; else running text of the documents in text_field. The share is of the rows. Errors name file,
   line and field. */
ott_status dataset_open_jsonl(mem *account, const dataset_source *s, dataset **out);
/* HellaSwag's raw rows (ctx, endings, label) as samples, token for token as NeMo AutoModel makes them. */
ott_status dataset_open_hellaswag(mem *account, const dataset_source *s, dataset **out);
/*
 * Rows of a context, a question and an answer as samples, token for token as AutoModel makes them without a chat
 * template: prompt and answer are tokenized as one text, as many tokens as the prompt alone has carry no loss, and
 * the tokenizer's EOS ends the sample. SQuAD: "Context: C Question: Q Answer: " and the first of answers.text;
 * instructions: context_field and prompt_field (either may be ""), a space behind each, and completion_field.
 */
ott_status dataset_open_squad(mem *account, const dataset_source *s, dataset **out);
ott_status dataset_open_instructions(mem *account, const dataset_source *s, dataset **out);
/*
 * Conversations as samples, in the tokenizer's chat template (tokenizer/chat.h), with loss on the assistant's turns only: rows of
 * messages (role and content), ShareGPT's conversations (from and value), or Alpaca's instruction, input and output.
 */
ott_status dataset_open_chat(mem *account, const dataset_source *s, dataset **out);
/* What the first row of a JSONL file is, by its fields: HellaSwag's ctx, endings and label; SQuAD's context, question
   and answers; a conversation's messages or conversations; Alpaca's instruction and output. */
typedef enum dataset_row_kind {
    ROWS_OTHER,
    ROWS_HELLASWAG,
    ROWS_SQUAD,
    ROWS_MESSAGES,
    ROWS_ALPACA
} dataset_row_kind;
ott_status dataset_first_row(mem *account, const char *path, dataset_row_kind *out);
/*
 * Token files: llm.c's .bin (20240520, 20240801), modded-nanogpt's (278895051), Megatron's .bin with its .idx
 * beside it, NumPy's .npy of one dimension, and .bin without a header (uint32, or uint16 when the size is no
 * multiple of 4). Read where they lie. The share is of the tokens. Documents are known from an .idx, or end
 * with the tokenizer's EOS.
 */
ott_status dataset_open_tokens(mem *account, const dataset_source *s, dataset **out);
/* `count` tokens drawn uniformly from [0, vocab). */
ott_status dataset_open_synthetic(mem *account, int64_t vocab, uint64_t seed, int64_t count, dataset **out);

/*
 * Rows of several datasets, part i with the share weights[i]^(1/temperature) of them (normalized; to 1/65536,
 * and never nothing): every stretch of rows has its parts in these shares to within a row. Each part goes
 * through its own epochs. Takes the parts over, also when it fails; parts are cut by cutting the mixture.
 */
ott_status dataset_open_mixture(mem *account, dataset **parts, const double *weights, int64_t count,
                                double temperature, dataset **out);
/* From row number `first` of a mixture on, which comes after those of the phases before, its parts have these weights, 0: none of
   its rows; at least one is above 0. */
ott_status dataset_mixture_phase(dataset *d, int64_t first, const double *weights, double temperature);
void dataset_close(dataset *d); /* NULL is allowed */

/* ---- what was opened ---- */

/* For messages: the path, followed by the byte range when only a part is read; or how many files of which. */
const char *dataset_name(const dataset *d);
int64_t dataset_tokens(const dataset *d);
int64_t dataset_vocab(const dataset *d);    /* ids are below it */
bool dataset_has_samples(const dataset *d); /* false: running text; a mixture has samples if a part has */
/* Tokens of the longest sample; 0 for running text. */
int64_t dataset_longest(const dataset *d);

/* ---- rows ---- */

typedef struct dataset_row_options {
    int64_t length;         /* tokens of a row */
    const char *length_key; /* where that comes from, for errors; NULL: train.seq_len */
    /* Samples: as many as fit, in file order, into a row; else one each. Running text: documents are kept
       apart, where they are known: an error where they are not. */
    bool pack;
    bool shuffle; /* the loader's order; false: as in the file */
} dataset_row_options;

/* Decides the rows. Samples longer than a row are left out. OTT_ERR_CONFIG, naming length_key and the
   dataset, when no row is left. May be repeated. */
ott_status dataset_make_rows(dataset *d, const dataset_row_options *options);
int64_t dataset_length(const dataset *d);
int64_t dataset_rows(const dataset *d);
int64_t dataset_left_out(const dataset *d); /* samples longer than a row */
int64_t dataset_samples(const dataset *d);  /* samples in the rows; 0 for running text */

/* A row, in memory of the caller. Attention stays inside a document; padding is a document of its own. */
typedef struct dataset_row {
    int32_t *token;    /* [length] */
    int32_t *target;   /* [length] the token to predict; negative: no loss */
    int32_t *position; /* [length] in its document */
    int32_t *start;    /* [length] of which `documents` are written: where each begins; start[0] = 0 */
    int64_t documents, labels; /* written: labels counts the targets that are not negative */
} dataset_row;

/* Row `index` of dataset_rows, as in the file. */
ott_status dataset_read_row(const dataset *d, int64_t index, dataset_row *row);

/* Row number `number` (>= 0, counted over all ranks since the first step) of a run: row rng_permute(seed,
   rng_stream("epoch") + epoch, number % rows, rows) with epoch = number / rows. */
ott_status dataset_load_row(const dataset *d, uint64_t seed, int64_t number, dataset_row *row);
int64_t dataset_epoch(const dataset *d, int64_t number); /* number / rows */

#endif
