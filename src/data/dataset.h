/*
 * data/dataset: training and validation data. A dataset is opened from files, divided into rows of one
 * length, and read row by row. The loader reads the rows in a new random order each epoch. The seed and the
 * row's global number alone determine a row, so this number is the loader's entire state, on any number of
 * ranks.
 *
 * There are two kinds of rows. Running text (bytes, text, JSONL with a text field, token files, synthetic
 * tokens) is one sequence of tokens. Its rows are windows of length + 1 tokens at a stride of length, so
 * every token is a target once. Samples (HellaSwag, prompt and completion, chat) are never divided: a row is
 * one sample and padding, or several packed samples.
 */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "base/log.h"
#include "tokenizer/tokenizer.h"

typedef struct dataset dataset; /* read-only after dataset_make_rows, so any thread may read it */

#define DATASET_NO_LABEL (-100) /* target of a token without loss */

/* ---- opening ---- */

/* Input of the open functions. Each function names the fields that it needs besides the files and shares. */
typedef struct dataset_source {
    const char *const *paths; /* [count] files, read in this order */
    int64_t count;
    double from_share, to_share; /* range of the data to read, as fractions: 0 <= from < to <= 1 */
    int64_t limit;               /* maximum number of documents or samples; 0: no limit */
    const tokenizer *tokenizer;  /* borrowed during the open call; NULL: each byte is a token */
    bool add_bos, add_eos;       /* add BOS or EOS to each document, if the tokenizer has it */
    const char *separator;       /* text between documents; "": each file is one document */
    /* keys of a JSONL row; if prompt_field is "", rows have only text_field */
    const char *text_field, *prompt_field, *completion_field;
    const char *context_field;        /* key of an instruction's context; "": none */
    int64_t vocab;                    /* for token files: reading an id >= vocab is an error */
    const char *chat_date;            /* value of chat_settings.date; NULL: none */
    const cancellation *cancellation; /* checked while reading and tokenizing; may be NULL */
} dataset_source;

/* Opens text files as bytes, with a vocabulary of 256. from_share and to_share are fractions of all files'
   bytes. The bytes are held in memory, at most 4 GiB. Errors name the path: not a regular file, empty, too
   large, not UTF-8 (with the byte offset). */
ott_status dataset_open_bytes(mem *account, const dataset_source *s, dataset **out);
/* Opens text files, splits them into documents at `separator`, and tokenizes them. from_share and to_share
   are fractions of the bytes. */
ott_status dataset_open_text(mem *account, const dataset_source *s, dataset **out);
/* Kind of a JSONL file's rows, by its first row: HellaSwag's ctx, endings and label; SQuAD's context,
   question and answers; messages or conversations; Alpaca's instruction and output. */
typedef enum dataset_row_kind {
    ROWS_OTHER,
    ROWS_HELLASWAG,
    ROWS_SQUAD,
    ROWS_INSTRUCTION, /* the fields that dataset_source names; dataset_first_row does not return it */
    ROWS_MESSAGES,
    ROWS_ALPACA
} dataset_row_kind;
/*
 * Opens files with a JSON object on each line. from_share and to_share are fractions of the objects. Errors
 * name file, line and field. Kinds of rows:
 * - ROWS_OTHER: with prompt_field and completion_field, rows are samples with loss on the completion.
 *   Otherwise they are running text of the documents in text_field.
 * - ROWS_HELLASWAG: HellaSwag's raw rows as samples, with the same tokens as NeMo AutoModel.
 * - ROWS_SQUAD, ROWS_INSTRUCTION: context, question and answer as samples. The tokens are AutoModel's without
 *   a chat template. Prompt and answer are tokenized as one text. If the prompt alone has n tokens, the first
 *   n carry no loss. The tokenizer's EOS ends the sample. SQuAD's text is "Context: C Question: Q Answer: "
 *   and the first of answers.text. An instruction's text is context_field and prompt_field (either may be
 *   ""), each followed by a space, and completion_field.
 * - ROWS_MESSAGES, ROWS_ALPACA: conversations as samples, rendered with the tokenizer's chat template
 *   (tokenizer/chat.h), with loss only on assistant turns. Rows are messages (role and content), ShareGPT's
 *   conversations (from and value), or Alpaca's instruction, input and output. Both kinds read all three.
 */
ott_status dataset_open_rows(mem *account, const dataset_source *s, dataset_row_kind kind, dataset **out);
/* Finds the kind of a file's first row. */
ott_status dataset_first_row(mem *account, const char *path, dataset_row_kind *out);
/* Opens token files: llm.c's .bin (20240520, 20240801), modded-nanogpt's (278895051), Megatron's .bin with
   its .idx, NumPy's one-dimensional .npy, and .bin without a header (uint32, or uint16 if the size is no
   multiple of 4). Tokens stay in the files and are read window by window. from_share and to_share are
   fractions of the tokens. Documents end where the .idx says, or else at the tokenizer's EOS. */
ott_status dataset_open_tokens(mem *account, const dataset_source *s, dataset **out);
/* Makes `count` random tokens, uniform in [0, vocab). */
ott_status dataset_open_synthetic(mem *account, int64_t vocab, uint64_t seed, int64_t count, dataset **out);

/* Mixes the rows of several datasets, the parts. Part i gets a share of the rows in proportion to
   weights[i]^(1/temperature), rounded to 1/65536, and never 0. Any range of rows has these shares to within
   one row. Each part has its own epochs. The mixture takes ownership of the parts, also on failure.
   dataset_make_rows on the mixture makes the parts' rows. */
ott_status dataset_open_mixture(mem *account, dataset **parts, const double *weights, int64_t count,
                                double temperature, dataset **out);
/* Sets the weights of a mixture's parts from row number `first` on. Call it in ascending order of `first`. A
   weight of 0 leaves the part out; at least one weight must be positive. */
ott_status dataset_mixture_phase(dataset *d, int64_t first, const double *weights, double temperature);
void dataset_close(dataset *d); /* NULL is allowed */

/* ---- properties ---- */

/* A name for messages: the path of one file, or the number of files with the first and the last path. Text
   that is read as bytes also has its byte range, unless all bytes are read. */
const char *dataset_name(const dataset *d);
int64_t dataset_tokens(const dataset *d);
int64_t dataset_vocab(const dataset *d); /* all token ids are less than this number */
/* True for samples, false for running text. True for a mixture if any of its parts has samples. */
bool dataset_has_samples(const dataset *d);
/* Tokens of the longest sample; 0 for running text. */
int64_t dataset_longest(const dataset *d);

/* ---- rows ---- */

typedef struct dataset_row_options {
    int64_t length;         /* number of tokens in a row */
    const char *length_key; /* config key of the length, for errors; NULL: train.seq_len */
    /* Samples: true packs as many into a row as fit, in file order; false makes one row per sample. Running
       text: true keeps documents separate, which is an error if their boundaries are unknown. */
    bool pack;
    bool shuffle; /* true: the loader shuffles rows; false: file order */
} dataset_row_options;

/* Divides the tokens into rows of options->length. Leaves out samples longer than a row. OTT_ERR_CONFIG if no
   row is left; the message names options->length_key. May be called again with other options. */
ott_status dataset_make_rows(dataset *d, const dataset_row_options *options);
int64_t dataset_length(const dataset *d);
int64_t dataset_rows(const dataset *d);
int64_t dataset_left_out(const dataset *d); /* number of samples longer than a row */
int64_t dataset_samples(const dataset *d);  /* number of samples in the rows; 0 for running text */

/* A row, in the caller's memory. Attention stays inside a document. Padding is a separate document. */
typedef struct dataset_row {
    int32_t *token;            /* [length] token ids */
    int32_t *target;           /* [length] the token to predict; negative: no loss */
    int32_t *position;         /* [length] position of the token in its document, from 0 */
    int32_t *start;            /* [length] start[i]: first token of document i < documents; start[0] = 0 */
    int64_t documents, labels; /* number of documents; number of targets with loss */
} dataset_row;

/* Reads row `index` in file order, 0 <= index < dataset_rows. */
ott_status dataset_read_row(const dataset *d, int64_t index, dataset_row *row);

/* Reads row `number` of a run (>= 0, counted over all ranks since the first step): row rng_permute(seed,
   rng_stream("epoch") + epoch, number % rows, rows), where epoch = number / rows. */
ott_status dataset_load_row(const dataset *d, uint64_t seed, int64_t number, dataset_row *row);
int64_t dataset_epoch(const dataset *d, int64_t number); /* epoch of row `number` of a run */

#endif
