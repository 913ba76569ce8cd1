/* eval/eval: evaluates a trained model: HellaSwag accuracy, perplexity of a text, difference from another
   model. Each task runs batches of separate documents through the model, with one forward for each batch. */
#ifndef EVAL_EVAL_H
#define EVAL_EVAL_H

#include "data/dataset.h"
#include "model/run.h"
#include "ottava/ottava.h"
#include "run/inference.h"

/* ---- a model that is open for evaluation (eval/open.c) ---- */

enum { EVAL_MAX_FILTERS = 64 }; /* includes the filters of the run's configuration */

typedef struct eval_model {
    mem *account;
    const logger *log;
    const char *path;  /* path that the caller passed; borrowed */
    config *cfg;       /* the run's configuration, or one derived from a Hugging Face folder's config.json */
    char *checkpoint;  /* NULL: the model is from a Hugging Face folder */
    const char *codec; /* tokenizer that the caller chose (borrowed); NULL: the model's own tokenizer */
    inference_plan inference;
    const char *filters[EVAL_MAX_FILTERS]; /* layers that stay in high precision */
    device *device;                        /* borrowed from the caller */
    model *m;
    model_slot *slot;
    exec cx;
    plan *plan;
    /* Size of the batch for which `plan` was recorded: number of tokens, and columns of cu_seqlens. */
    int64_t planned, planned_places;
    void *arena, *device_block;
    int64_t arena_bytes, device_tokens; /* capacities of arena and device_block */
    int64_t window;                     /* longest context in tokens */
    tokenizer *tokenizer;               /* NULL: a token is a byte, or text cannot be encoded (no_text) */
    tokenizer_scratch *scratch;
    const char *no_text; /* why text cannot be encoded; NULL: it can */
} eval_model;

typedef struct eval_source {
    const char *path;            /* run folder, checkpoint folder or Hugging Face folder */
    const char *base;            /* base model of adapters; NULL: the configuration's (inference_find) */
    const char *precision;       /* see ott_eval_options */
    const char *const *settings; /* [setting_count] overrides of the configuration */
    int setting_count;
    const char *const *filter; /* [filter_count], as in ott_eval_options */
    int filter_count;
    const char *tokenizer; /* NULL: the model's own tokenizer */
    int64_t seq_len;       /* 0: the model's own window */
} eval_source;

/* Reads the configuration and the recipe, and sets the window; needs no device. Borrows the strings of `s`.
   Call eval_model_close also after a failure. */
ott_status eval_model_read(mem *account, const logger *log, const eval_source *s, eval_model *out);
/* Opens the model. The device is borrowed; close it after the model. */
ott_status eval_model_open(device *d, eval_model *e);
void eval_model_close(eval_model *e);

/* OTT_ERR_ARGUMENT if text cannot be encoded (no_text). */
ott_status eval_check_text(const eval_model *e);
/* Appends the token ids of a text. OTT_ERR_ARGUMENT if an id is not in the model's vocabulary. */
ott_status eval_encode(const eval_model *e, const char *text, int64_t bytes, unsigned flags,
                       tokenizer_ids *ids);

/* ---- batches ---- */

/* A batch of documents, one after the other. Initialize with {.account = m}; free with eval_batch_free. */
typedef struct eval_batch {
    mem *account;
    int32_t *token, *target, *position; /* [tokens], in one allocation; target < 0: no loss */
    int32_t *start;                     /* [documents + 1]: first tokens, then the number of tokens */
    float *loss;                        /* [tokens] loss of each token; set by eval_forward */
    int64_t tokens, documents, capacity;
} eval_batch;

void eval_batch_clear(eval_batch *b);
void eval_batch_free(eval_batch *b);
/* Adds a document of ids[0, count). Ids from ids[first] on are predicted from earlier ids; first >= 1. */
ott_status eval_batch_add(eval_batch *b, const int32_t *ids, int64_t count, int64_t first);
/* Adds a row of `length` tokens from a dataset, as the documents that it consists of. */
ott_status eval_batch_add_row(eval_batch *b, const dataset_row *row, int64_t length);

/* True if a hook with the arguments `module` and `what` receives the logits. */
bool eval_is_logits(const eval_model *e, const char *module, const char *what);
/* Runs the batch and fills b->loss. look: a hook for the forward (exec.hook), or NULL. OTT_ERR_DIVERGED if a
   loss is NaN or infinite. */
ott_status eval_forward(eval_model *e, eval_batch *b, const hook *look);

/* ---- windows of a text (eval/windows.c) ---- */

/* A text, divided into windows of e->window tokens that follow each other. The last window may be shorter.
   Every token except the first is predicted once. */
typedef struct eval_windows {
    mem *account;
    const eval_model *model;
    dataset *data;
    dataset_row row; /* memory for one row */
    int64_t length;  /* tokens of a full window */
    int64_t full;    /* number of full windows */
    int64_t count;   /* number of windows, with the shorter one */
    bool pack;       /* attention stays within a document, as in training */
} eval_windows;

/* Opens o->data: a token file, JSONL or text, by its name. Call eval_windows_close also after a failure. */
ott_status eval_windows_open(mem *account, const eval_model *e, const ott_eval_options *o, eval_windows *out);
void eval_windows_close(eval_windows *w);
/* Goes back to the first window. */
ott_status eval_windows_rewind(eval_windows *w);
/* Adds window `index` to the batch. Indices must ascend. */
ott_status eval_windows_add(eval_windows *w, int64_t index, eval_batch *b);

/* ---- the tasks ---- */

typedef struct eval_hooks {
    bool (*stop)(void *user); /* called between items; returns true to end the evaluation; NULL: never */
    void *user;
} eval_hooks;

/* The inputs and the result of a task. */
typedef struct eval_job {
    mem *account;
    const logger *log;
    const ott_eval_options *options;
    const eval_hooks *hooks;     /* NULL: no hooks */
    eval_model *model, *against; /* against: the second model of a comparison; else NULL */
    ott_eval_result *result;
    double started; /* clock_seconds() at the start of the task */
} eval_job;

/* Writes to j->result: total, window, bos, and batch (`together`, the number of windows in a forward). */
ott_status eval_windows_note(eval_windows *w, eval_job *j, int64_t together);

ott_status eval_hellaswag(eval_job *j);
ott_status eval_perplexity(eval_job *j);
ott_status eval_compare(eval_job *j);

/* Counts a finished item and reports progress. Returns false if the evaluation must end. */
bool eval_advance(eval_job *j);

/* See ott_eval. */
ott_status eval_run(mem *account, const logger *log, const char *path, const ott_eval_options *o,
                    const eval_hooks *hooks, ott_eval_result *out);

#endif
