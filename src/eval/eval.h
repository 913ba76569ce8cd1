/*
 * eval/eval: measuring a trained model: accuracy in choosing endings, loss of a text, distance from another
 * model. All rest on one thing: a batch of documents through the model, each for itself, in one forward.
 */
#ifndef EVAL_EVAL_H
#define EVAL_EVAL_H

#include "data/dataset.h"
#include "model/run.h"
#include "ottava/ottava.h"
#include "train/inference.h"

/* ---- a model that is open for evaluation (eval_open.c) ---- */

enum { EVAL_FILTERS_MOST = 64 }; /* those of the run included */

typedef struct eval_model {
    mem *account;
    const logger *log;
    const char *path;  /* as it was named; borrowed */
    config *cfg;       /* that trained it; for a Hugging Face folder, one made of its config.json */
    char *checkpoint;  /* NULL: a Hugging Face folder */
    const char *codec; /* its tokenizer, as the caller named it; NULL: its own. Borrowed */
    inference_plan inference;
    const char *filters[EVAL_FILTERS_MOST]; /* what its conversion filters by */
    device *device;                         /* borrowed */
    model *m;
    model_slot *slot;
    exec cx;
    plan *plan;
    int64_t planned, planned_starts; /* tokens and cu_seqlens' numbers of the batch it is sealed for */
    void *arena, *device_block;
    int64_t arena_bytes, device_tokens;
    int64_t window;       /* tokens it looks back upon */
    tokenizer *tokenizer; /* NULL: a token is a byte, or text cannot be made (no_text) */
    tokenizer_scratch *scratch;
    const char *no_text; /* why; NULL: it can */
} eval_model;

typedef struct eval_source {
    const char *path;            /* run folder, checkpoint folder, or Hugging Face folder */
    const char *base;            /* of its adapters (inference_find) */
    const char *precision;       /* as in ott_eval_options */
    const char *const *settings; /* [setting_count] */
    int setting_count;
    const char *const *filter; /* [filter_count] */
    int filter_count;
    const char *tokenizer; /* NULL: its own */
    int64_t seq_len;       /* 0: its own */
} eval_source;

/* What is known of it before there is a device: configuration, recipe, window. Zeroes *out first; eval_model_close may follow a
   failure. */
ott_status eval_model_read(mem *account, const logger *log, const eval_source *s, eval_model *out);
/* The model itself. The device is closed after it. */
ott_status eval_model_open(device *d, eval_model *e);
void eval_model_close(eval_model *e);

/* Appends the ids of a text. OTT_ERR_ARGUMENT: a token that the model does not have. */
ott_status eval_encode(const eval_model *e, const char *text, int64_t bytes, unsigned flags,
                       tokenizer_ids *ids);

/* ---- batches ---- */

/* Documents, one after the other. Zero-initialise with {.account = m}; free with eval_batch_free. */
typedef struct eval_batch {
    mem *account;
    int32_t *token, *target, *position; /* [tokens] of one block; target < 0: no loss */
    int32_t *start;                     /* [documents + 1] */
    float *loss;                        /* [tokens], after eval_forward */
    int64_t tokens, documents, capacity;
} eval_batch;

void eval_batch_clear(eval_batch *b);
void eval_batch_free(eval_batch *b);
/* One more document: ids[0, count - 1) are read, and each from ids[first] on is predicted; 1 <= first <
 * count. */
ott_status eval_batch_add(eval_batch *b, const int32_t *ids, int64_t count, int64_t first);
/* A dataset's row of `length` tokens, with the documents that it says. */
ott_status eval_batch_add_row(eval_batch *b, const dataset_row *row, int64_t length);

/* Is a hook called with the logits that predictions are made from? */
bool eval_is_logits(const eval_model *e, const char *module, const char *what);
/* Fills b->loss. `look` (may be NULL) sees what passes, as exec.hook does. OTT_ERR_DIVERGED: a loss is no
 * number. */
ott_status eval_forward(eval_model *e, eval_batch *b, const hook *look);

/* ---- windows of a text (eval_windows.c) ---- */

/* Rows of e->window tokens, one after the other, and what is left behind them: every token is predicted once.
 */
typedef struct eval_windows {
    mem *account;
    const eval_model *model;
    dataset *data;
    dataset_row row; /* buffers of it */
    int64_t length;  /* of all but the last */
    int64_t whole;   /* how many have that length */
    int64_t count;   /* these and the shorter one */
    bool pack;       /* attention stays inside a document, as in the run */
} eval_windows;

/* Opens the file of o->data: token file, JSONL or text by its name. eval_windows_close may follow a failure.
 */
ott_status eval_windows_open(mem *account, const eval_model *e, const ott_eval_options *o, eval_windows *out);
void eval_windows_close(eval_windows *w);
/* Makes the first window the next one again. */
ott_status eval_windows_rewind(eval_windows *w);
/* Adds window `index` to the batch. They must be asked for in ascending order. */
ott_status eval_windows_add(eval_windows *w, int64_t index, eval_batch *b);

/* ---- the tasks ---- */

typedef struct eval_hooks {
    bool (*stop)(void *user); /* asked between pieces of work; NULL: never */
    void *user;
} eval_hooks;

/* What a task works with. */
typedef struct eval_job {
    mem *account;
    const logger *log;
    const ott_eval_options *options;
    const eval_hooks *hooks;     /* may be NULL */
    eval_model *model, *against; /* against: of COMPARE only */
    ott_eval_result *result;
    double started;
} eval_job;

/* Writes into j->result how many windows there are, their tokens, how many share a forward, and whether a BOS
   begins the text. */
ott_status eval_windows_note(eval_windows *w, eval_job *j, int64_t together);

ott_status eval_hellaswag(eval_job *j);
ott_status eval_perplexity(eval_job *j);
ott_status eval_compare(eval_job *j);

/* Counts one more item of result->total and tells how far it is. False: stop here. */
bool eval_advance(eval_job *j);

/* See ott_eval. */
ott_status eval_run(mem *account, const logger *log, const char *path, const ott_eval_options *o,
                    const eval_hooks *hooks, ott_eval_result *out);

#endif
