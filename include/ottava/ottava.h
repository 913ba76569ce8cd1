/*
 * ottava/ottava.h: the public C API of Ottava, which trains language models in 8-bit floating point. This
 * header includes all others. It declares configurations, training runs, generation, export, inspection,
 * reports, evaluation and tokenizing, in that order.
 *
 *     ott_context_open(NULL, &context);
 *     ott_config_open(context, 2, (const char *[]){"run.toml", "--train.max_steps=100"}, &config);
 *     if (ott_train(context, config, NULL) != OTT_OK) puts(ott_error_text());
 *     ott_config_close(config);
 *     ott_context_close(context);
 *
 * Errors: a function that can fail returns an ott_status. ott_error_text() then gives the reason in one line:
 * what failed, its value, what to do. If a configuration has several errors, one indented line for each
 * follows. The library never exits and never prints; it logs through the context's callback.
 *
 * Ownership: every object that an ott_x_open function makes is closed with ott_x_close, before its context.
 * Closing NULL does nothing. Strings and option structs are copied; the caller may free them after the call.
 *
 * Threads: one thread at a time may use a context and its objects. A call while another thread is inside a
 * call returns OTT_ERR_ARGUMENT. Threads that work in parallel need one context each. ott_stop may be called
 * from any thread and from signal handlers. After fork a context belongs to the parent: in the child every
 * call with it returns OTT_ERR_ARGUMENT and closing it does nothing. The child opens its own context.
 *
 * Locale: files, JSON, messages and log lines use a decimal point in every locale.
 *
 * Option structs begin with struct_size; always fill them with their _init function first, which also sets
 * the defaults. An _init function receives the size of the caller's struct, which the macro of the same name
 * passes. So a program that was compiled with an older header works with a newer library. In comments,
 * "NULL:" and "0:" explain what that value means. Compiles as C11 and as C++17.
 */
#ifndef OTTAVA_OTTAVA_H
#define OTTAVA_OTTAVA_H

#include "ottava/context.h"
#include "ottava/fp8.h"
#include "ottava/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- configuration ---- */

/* Reads a configuration from the arguments of `ottava train`: at most one file (a path, or --config FILE) and
   overrides (--section.key=value). argv: argc arguments without the program's name, none NULL. */
OTT_API ott_status ott_config_open(ott_context *context, int argc, const char *const *argv, ott_config **out);
OTT_API void ott_config_close(ott_config *config);
/* Overrides one key, for example "train.max_steps" with "100". While the configuration is used by ott_train,
   a callback cannot change or close it: this call is OTT_ERR_ARGUMENT, and ott_config_close does nothing. */
OTT_API ott_status ott_config_set(ott_config *config, const char *key, const char *value);
/* Writes the value of a key ("metrics.color") as TOML: true, 3, "text", [1, 2]. */
OTT_API ott_status ott_config_get(const ott_config *config, const char *key, ott_text_fn write, void *user);
/* Writes all keys with type, default and meaning. */
OTT_API ott_status ott_config_help(ott_context *context, ott_text_fn write, void *user);
/* Writes the help of one section ("float8") or one key ("optimizer.lr", or another name of this key). */
OTT_API ott_status ott_config_help_about(ott_context *context, const char *what, ott_text_fn write,
                                         void *user);
/* Writes the candidates with which a shell completes an option, one per line. If `word` has a "=", as in
   "--train.mixed_precision=b", these are the words that the key takes. Otherwise each line has a key as
   "--section.key=", a tab and the key's meaning. */
OTT_API ott_status ott_config_complete(ott_context *context, const char *word, ott_text_fn write, void *user);

/* ---- progress of long calls ---- */

typedef struct ott_work {
    int64_t done, total; /* units of work: micro-batches, rows, windows or bytes, depending on the function */
    double seconds_left; /* estimated seconds until the end of the call; NaN while there is no estimate */
} ott_work;

/* Called after every unit of work (ott_work), on the thread that made the call. */
typedef void (*ott_work_fn)(void *user, const ott_work *work);

/* ---- training ---- */

typedef struct ott_progress {
    int64_t step, max_steps;
    double loss;            /* mean loss of the step's tokens, in nats */
    double validation_loss; /* loss of the last validation; NaN before the first one */
    double learning_rate, grad_norm;
    double tokens_per_second; /* mean rate of the last steps */
    double seconds_left;      /* estimated seconds until the end of the run */
} ott_progress;

/* Called after every step, on the thread that called ott_train. It may generate from the run's model
   (ott_generate). */
typedef void (*ott_progress_fn)(void *user, const ott_progress *progress);

typedef struct ott_train_options {
    size_t struct_size;
    ott_progress_fn progress; /* NULL: none */
    void *user;               /* passed to progress, work and loss */
    ott_work_fn work;         /* called after each micro-batch if a step has several; NULL: none */
    /* Your loss function; NULL: train.loss_fn. It is called for every micro-batch of training and validation,
       on each rank for the rank's own rows; in a pipeline only on the ranks of the last stage. */
    ott_loss_fn loss;
} ott_train_options;

OTT_API void ott_train_options_init(ott_train_options *options, size_t size);
#define ott_train_options_init(options) ott_train_options_init(options, sizeof *(options))
/*
 * Trains with this configuration until train.max_steps or ott_stop. Writes the run folder: config.toml,
 * metrics.jsonl, summary.json, checkpoints. A step whose loss or gradient is not finite changes no parameter.
 * Its micro-batches then run again, also with your loss function, to find the first value that is not finite.
 * OTT_ERR_DIVERGED after too many such steps in a row. options may be NULL.
 *
 * With your loss function: OTT_ERR_CONFIG if train.loss_fn is chunked_cross_entropy or train.z_loss_weight is
 * not 0. OTT_ERR_UNSUPPORTED with tensor or context parallelism (distributed.tp, distributed.cp), which
 * divide the vocabulary or the sequences over ranks. Micro-batches take more memory, because the logits of
 * all tokens are stored in fp32. Steps are not captured as CUDA graphs.
 */
OTT_API ott_status ott_train(ott_context *context, ott_config *config, const ott_train_options *options);

/* ---- generation ---- */

/* The precision of a run's model. */
typedef enum ott_generate_precision {
    OTT_GENERATE_AS_TRAINED, /* the precision at the end of the run, with its FP8 recipe */
    OTT_GENERATE_BF16
} ott_generate_precision;

typedef struct ott_generate_options {
    size_t struct_size;
    const char *prompt; /* text to continue, not empty; only ott_generate reads it */
    int64_t max_tokens; /* maximum number of tokens to add; default 200 */
    double temperature; /* default 0.8; 0: always the most likely token */
    double top_p;       /* nucleus sampling after top_k, above 0, up to 1; default 0.95 */
    uint64_t seed;      /* default 42 */
    int threads;        /* CPU threads; 0: one per core */
    int64_t top_k;      /* sample among the k most likely tokens; 0 (default): all */
    /* Above 0; 1 (default): no penalty. For tokens that the text already contains, a positive logit is
       divided by this number and a negative logit is multiplied by it. */
    double repetition_penalty;
    /* [stop_count] stop texts, none empty. The first complete one ends the text and is not written. */
    const char *const *stop;
    int stop_count;
    ott_generate_precision precision;
    const char *tokenizer; /* folder or tokenizer.json; NULL: the model's own */
    const char *device;    /* device; see ott_context_options */
    /* Not 0: the prompt, and each text of ott_generator_continue, is a user message. It is put into the
       tokenizer's chat template, and only the answer is written. */
    int chat;
    /* For a run with adapters or a PEFT folder: the Hugging Face folder of the base model. NULL: the folder
       that the run or adapter_config.json names. */
    const char *base;
    const char *precision_name; /* see `precision` of ott_eval_options; NULL: the member `precision` counts */
    /* [setting_count] overrides of the model's configuration, as arguments of ott_config_open
       ("--float8.recipe_name=block"): keys of [float8], train.mixed_precision and train.seq_len. */
    const char *const *settings;
    int setting_count;
    /* An open model (ott_model_open), instead of `run`; see ott_generate. NULL: none. */
    ott_module *model;
} ott_generate_options;

OTT_API void ott_generate_options_init(ott_generate_options *options, size_t size);
#define ott_generate_options_init(options) ott_generate_options_init(options, sizeof *(options))
/*
 * Continues the prompt. `run` is a run folder (its newest checkpoint), a checkpoint folder, a PEFT folder or
 * a Hugging Face folder (in bf16, unless the options choose another precision). options must not be NULL.
 *
 * Writes the prompt (not in a chat), then the new text token by token, in complete UTF-8 characters. It ends
 * after max_tokens, at a stop text, or at the tokenizer's end of text. Token ids that the tokenizer does not
 * have are never chosen. The same seed gives the same text on any number of threads.
 *
 * The model's window is train.seq_len tokens; for a Hugging Face folder 2048, or its context length if that
 * is shorter. If a prompt is longer, only its end is used. When the text fills the window, the older half is
 * dropped and the rest is computed again.
 *
 * To generate during training, give NULL for `run`. The model is options->model. If that is NULL, it is the
 * model of the run whose progress callback makes this call. The call uses the weights as they are now, in the
 * precision and on the device of the training. It changes nothing that later steps depend on. Generate only
 * between steps. With a model of your own, that is before the first forward of a step. The memory of the
 * passes and of the keys and values is freed at the end of the call. OTT_ERR_ARGUMENT if device, threads,
 * precision, precision_name, settings or base is set, because the open model determines them.
 * OTT_ERR_ARGUMENT also if a callback gives a model of your own. OTT_ERR_UNSUPPORTED if ranks divide the
 * run's model (distributed.dp_shard, ep, tp, cp, pp).
 */
OTT_API ott_status ott_generate(ott_context *context, const char *run, const ott_generate_options *options,
                                ott_text_fn write, void *user);

/* A model that stays open, with the text so far, for a text or a chat that grows in turns. */
typedef struct ott_generator ott_generator;

/*
 * Opens a generator. Arguments as in ott_generate; options may be NULL, and their prompt is not used.
 * OTT_ERR_ARGUMENT if `run` and options->model are both NULL, also in a progress callback.
 *
 * With options->model, each ott_generator_continue uses the weights as they are at its call, so it first runs
 * the text so far through the model again. You may close the model before the generator. Then
 * ott_generator_continue returns OTT_ERR_ARGUMENT, and ott_generator_close still works.
 */
OTT_API ott_status ott_generator_open(ott_context *context, const char *run,
                                      const ott_generate_options *options, ott_generator **out);
/* Closes the generator. Does nothing inside a callback of ott_generator_continue (see ott_error_text). */
OTT_API void ott_generator_close(ott_generator *generator);
/* Appends `text` to the text so far and writes only the continuation, as ott_generate does. `text` may be
   empty, but not in the first call. */
OTT_API ott_status ott_generator_continue(ott_generator *generator, const char *text, ott_text_fn write,
                                          void *user);

/* ---- export ---- */

typedef enum ott_export_format {
    OTT_EXPORT_HF, /* a Hugging Face folder: safetensors, config.json, tokenizer files */
    /* a Hugging Face folder for serving: matrices of the decoder blocks in E4M3, with scales */
    OTT_EXPORT_HF_FP8,
    OTT_EXPORT_PEFT, /* the run's adapters for the PEFT library; other formats merge them into the weights */
    OTT_EXPORT_GGUF, /* one file for llama.cpp: weights, tokenizer, chat template */
    OTT_EXPORT_GGUF_Q8 /* a GGUF file with the matrices in Q8_0 */
} ott_export_format;

/* quantization_config.quant_method in config.json. It also determines the names of the scales. vLLM and
   SGLang read the scales of both methods. transformers reads OTT_EXPORT_COMPRESSED_TENSORS (the default) if
   the Python package compressed-tensors is installed. It reads OTT_EXPORT_FP8 correctly only with block
   scales; other scales give wrong values. */
typedef enum ott_export_method {
    /* "fp8": a weight X has X.weight_scale [], or X.weight_scale_inv [N/128, K/128] for blocks */
    OTT_EXPORT_FP8,
    OTT_EXPORT_COMPRESSED_TENSORS /* "compressed-tensors": X.weight_scale [1], [N, 1] or [N/128, K/128] */
} ott_export_method;

/* Which elements of a weight [N, K] share a scale. */
typedef enum ott_export_granularity {
    OTT_EXPORT_TENSOR,    /* one scale per tensor; q, k and v share one, and so do gate and up */
    OTT_EXPORT_CHANNEL,   /* a row (an output channel), with compressed-tensors only; the default */
    OTT_EXPORT_BLOCK,     /* 128 x 128 elements; sizes must be multiples of 128 */
    OTT_EXPORT_AS_TRAINED /* groups of the run's recipe; see ott_export */
} ott_export_granularity;

typedef struct ott_export_options {
    size_t struct_size;
    ott_export_format format; /* default OTT_EXPORT_HF */
    /* OTT_BF16 (default), OTT_F32 or OTT_F16. OTT_EXPORT_HF: format of all tensors. OTT_EXPORT_GGUF: format
       of the matrices. OTT_EXPORT_GGUF_Q8: format of matrices whose rows are no multiple of 32. */
    ott_dtype dtype;
    ott_export_method method;           /* used only by OTT_EXPORT_HF_FP8 */
    ott_export_granularity granularity; /* used only by OTT_EXPORT_HF_FP8 */
    /* The Hugging Face folder or GGUF file with the tokenizer. A folder's tokenizer files are copied. Keys of
       config.json that Ottava does not write are copied too. NULL: the run's model.hf_path, or the exported
       folder itself. "": none. A GGUF export only reads the tokenizer from it; NULL: the run's tokenizer. If
       the base model of a run's adapters is not at its path any more, its weights are read from `from`. */
    const char *from;
    const char *device; /* device; see ott_context_options */
} ott_export_options;

OTT_API void ott_export_options_init(ott_export_options *options, size_t size);
#define ott_export_options_init(options) ott_export_options_init(options, sizeof *(options))
/*
 * Exports a model. `run` is a run folder (its newest checkpoint), a checkpoint folder, a Hugging Face folder,
 * a GGUF file or a PEFT folder. `folder` must be absent or empty; for GGUF it is a file and must be absent.
 * The output is complete, or absent if the call fails. `write` receives a summary. options may be NULL: bf16.
 *
 * FP8 export: codes are round(w / scale) to nearest even, saturating, with scale = amax / 448 in fp32, from
 * the fp32 masters, so w = code * scale. Only matrices of the decoder blocks are FP8; embedding, head, norms
 * and biases are bf16. The server quantizes activations. OTT_EXPORT_AS_TRAINED writes the codes that the next
 * training step would use, with the inverse of the training scale as scale. Layers that the run kept in high
 * precision are bf16. OTT_ERR_UNSUPPORTED for recipes that the file format cannot represent exactly: delayed
 * scaling, 1x32 and 1x128 blocks, a run without FP8.
 */
OTT_API ott_status ott_export(ott_context *context, const char *run, const char *folder,
                              const ott_export_options *options, ott_text_fn write, void *user);

/* ---- inspection ---- */

typedef struct ott_inspect_options {
    size_t struct_size;
    int statistics; /* 1: add minimum, maximum, mean, deviation, zeros, NaNs and infinities per tensor */
    int json;       /* 1: one JSON object; 0: a table */
} ott_inspect_options;

OTT_API void ott_inspect_options_init(ott_inspect_options *options, size_t size);
#define ott_inspect_options_init(options) ott_inspect_options_init(options, sizeof *(options))
/* Lists tensors, totals and metadata. `path` is a safetensors file, its index, or a folder with either: a
   model, a checkpoint, or a run (its newest checkpoint). All headers are validated before anything is
   written; OTT_ERR_FORMAT names the error in an invalid file. options may be NULL. */
OTT_API ott_status ott_inspect(ott_context *context, const char *path, const ott_inspect_options *options,
                               ott_text_fn write, void *user);

/* ---- reports ---- */

typedef struct ott_report_options {
    size_t struct_size;
    const char *html;            /* file for the self-contained HTML page; NULL: none */
    const char *title;           /* title of the page; NULL: a default */
    int plot_width, plot_height; /* size of the text plot in characters, default 80 x 20; 0: no plot */
    int json;                    /* 1: one JSON object instead of table and plot */
} ott_report_options;

OTT_API void ott_report_options_init(ott_report_options *options, size_t size);
#define ott_report_options_init(options) ott_report_options_init(options, sizeof *(options))
/* Compares runs[count], which are run folders, with the first one. Writes a table and a plot as text, and an
   HTML page if options name a file. Runs that differ only in the seed share a row. options may be NULL. */
OTT_API ott_status ott_report(ott_context *context, const char *const *runs, int count,
                              const ott_report_options *options, ott_text_fn write, void *user);

/* ---- evaluation ---- */

typedef enum ott_eval_task {
    OTT_EVAL_PERPLEXITY, /* loss of a text, JSONL or token file, computed in windows of seq_len tokens */
    OTT_EVAL_HELLASWAG,  /* accuracy on HellaSwag */
    OTT_EVAL_COMPARE     /* divergence from the predictions of another model, in windows of seq_len tokens */
} ott_eval_task;

typedef struct ott_eval_options {
    size_t struct_size;
    ott_eval_task task;
    const char *data; /* file to evaluate on; required */
    /* NULL or "trained": the run's own precision, or bf16 for a Hugging Face folder. "fp32", "bf16", "fp16":
       this precision. "fp8": the run's float8.recipe_name. The name of a recipe (ott_recipe_table): this
       recipe for every linear layer that no filter excludes. */
    const char *precision;
    /* [filter_count] layers with one of these texts in their name stay in high precision, in addition to the
       filters of the run's configuration. */
    const char *const *filter;
    int filter_count;
    int threads;   /* CPU threads; 0: one per core */
    int64_t limit; /* maximum number of windows (HellaSwag: rows) to evaluate; 0: all */
    /* Tokens per window. 0: the run's train.seq_len; for a Hugging Face folder min(2048, context length). */
    int64_t seq_len;
    const char *tokenizer;         /* folder or tokenizer.json; NULL: the model's own */
    const char *text_field;        /* field of a JSONL row that has the text; default "text" */
    int hellaswag_forms;           /* OTT_HELLASWAG_... flags; default: both flags */
    const char *against;           /* COMPARE: the reference model, as `path` of ott_eval */
    const char *against_precision; /* COMPARE: precision of the reference model, as `precision` */
    /* OTT_EVAL_COMPARE passes if the largest KL divergence is at most kl_max, the mean at most kl_mean, and
       the cosine at least `cosine`. Defaults: 1e-2, 3e-3 and 0.999, which are NeMo AutoModel's for FP8. */
    double kl_max, kl_mean, cosine;
    ott_work_fn progress; /* called after each window or row; NULL: none */
    void *user;           /* passed to progress */
    const char *device;   /* device; see ott_context_options */
    const char *base;     /* base model of the model at `path`; see ott_generate_options */
    /* [setting_count] overrides of the model's configuration (not of the model `against`), as arguments of
       ott_config_open ("--float8.recipe_name=block"): [float8], train.mixed_precision, train.batch_size,
       train.seq_len, data.add_bos, data.add_eos, data.document_separator, data.pack_sequences. */
    const char *const *settings;
    int setting_count;
    /* OTT_EVAL_PERPLEXITY writes the logits to this safetensors file; NULL: none. Tensors: logits [tokens,
       vocabulary] in the format of the activations; int32 input_ids, labels (-100: not predicted) and
       position_ids [tokens]. */
    const char *logits;
} ott_eval_options;

/* Scoring of HellaSwag endings, as in lm-evaluation-harness and in llm.c. */
enum { OTT_HELLASWAG_LM_EVAL = 1, OTT_HELLASWAG_LLMC = 2 };

/* Numbers that the task does not compute are NaN. */
typedef struct ott_eval_result {
    size_t struct_size;
    /* items: rows or windows evaluated (fewer after ott_stop); total: rows or windows available */
    int64_t items, total;
    int64_t tokens;         /* predicted tokens; HELLASWAG: tokens of the right endings */
    int64_t truncated;      /* HELLASWAG: endings whose context was too long; its beginning was dropped */
    double loss;            /* mean loss of the tokens that `tokens` counts, in nats */
    double perplexity;      /* exp(loss) */
    double bits_per_byte;   /* loss in bits per byte of the tokens' text */
    double acc, acc_stderr; /* lm-eval's acc: the ending with the largest log probability */
    double acc_norm, acc_norm_stderr; /* lm-eval's acc_norm: log probability per character */
    /* llm.c's acc: the ending with the smallest mean loss per token, from the unchanged text of the data */
    double acc_llmc, acc_llmc_stderr;
    double kl_max, kl_mean;   /* KL(against || model) over tokens, in nats */
    double cosine;            /* cosine similarity of all logits as one vector */
    double agreement;         /* fraction of tokens for which both models predict the same next token */
    int passed;               /* COMPARE: 1 if all three limits hold; other tasks: 1 */
    int64_t gemms, fp8_gemms; /* GEMMs of the model: all, and in FP8 */
    double seconds;           /* duration without loading the model */
    int64_t window;           /* tokens per window (the last one may have fewer); 0 for HELLASWAG */
    int64_t batch;            /* windows per forward pass; they share tensorwise scales */
    int bos;                  /* 1: the text begins with the tokenizer's BOS token; 0: it does not */
} ott_eval_result;

OTT_API void ott_eval_options_init(ott_eval_options *options, size_t size);
#define ott_eval_options_init(options) ott_eval_options_init(options, sizeof *(options))
OTT_API void ott_eval_result_init(ott_eval_result *result, size_t size);
#define ott_eval_result_init(result) ott_eval_result_init(result, sizeof *(result))
/*
 * Evaluates a model. `path` is a run folder (its newest checkpoint), a checkpoint folder, a PEFT folder or a
 * Hugging Face folder. options and result must not be NULL. After ott_stop the result covers the rows or
 * windows that were evaluated. Results do not depend on the number of threads. Errors name the file, line and
 * field. OTT_ERR_DIVERGED if the model's loss is not finite.
 */
OTT_API ott_status ott_eval(ott_context *context, const char *path, const ott_eval_options *options,
                            ott_eval_result *result);

/* ---- tokenizers ---- */

/* Your function: reads up to `bytes` bytes into `buffer`. Returns the number of bytes read (0 at the end of
   the input), or a negative number on failure. A number above `bytes` is OTT_ERR_ARGUMENT. */
typedef int64_t (*ott_read_fn)(void *user, void *buffer, int64_t bytes);
/* Receives `bytes` bytes of output; data is valid during the call. */
typedef void (*ott_bytes_fn)(void *user, const void *data, int64_t bytes);

/* An option whose comment names ott_tokenize or ott_tokenize_file has an effect only in that function. */
typedef struct ott_tokenize_options {
    size_t struct_size;
    int jsonl;      /* ott_tokenize: each text is a JSON string on a line, and so may contain newlines */
    int decode;     /* ott_tokenize: convert ids to text */
    int no_special; /* 1: omit the special tokens that the tokenizer puts around a text (BOS, EOS) */
    int threads;    /* ott_tokenize_file: CPU threads; 0: one per core */
    const char *text_field; /* ott_tokenize_file: field of a JSONL row that has the text; default "text" */
    const char *separator;  /* ott_tokenize_file: text between documents of a text file; "": one document */
    ott_work_fn progress;   /* ott_tokenize_file: called with the number of bytes done; NULL: none */
    void *user;             /* passed to progress */
    /* ott_tokenize: each line is a conversation, as for data.format = "chat". The output is its text in the
       chat template. With jsonl it is an object with text, ids and learned (0 or 1 for each id). */
    int chat;
    int mask;              /* chat: puts [[ and ]] around the parts of the text that a model is trained on */
    const char *chat_date; /* chat: the date for strftime_now, as data.chat_date; NULL: today */
} ott_tokenize_options;

OTT_API void ott_tokenize_options_init(ott_tokenize_options *options, size_t size);
#define ott_tokenize_options_init(options) ott_tokenize_options_init(options, sizeof *(options))
/*
 * Tokenizes a stream: each line of text becomes a line of ids, separated by spaces. decode does the reverse
 * and restores the exact text. tokenizer_path: a folder or tokenizer.json. options may be NULL. Errors name
 * the line.
 */
OTT_API ott_status ott_tokenize(ott_context *context, const char *tokenizer_path,
                                const ott_tokenize_options *options, ott_read_fn read, void *read_user,
                                ott_bytes_fn write, void *write_user);

typedef struct ott_tokenize_result {
    size_t struct_size;
    int64_t documents, tokens, bytes; /* bytes of the input file */
    int complete;                     /* 0: ott_stop ended the call, and no file was written */
    double seconds;                   /* duration without loading the tokenizer */
    char begins[64], ends[64];        /* special tokens before and after each document; "": none */
} ott_tokenize_result;

OTT_API void ott_tokenize_result_init(ott_tokenize_result *result, size_t size);
#define ott_tokenize_result_init(result) ott_tokenize_result_init(result, sizeof *(result))
/*
 * Tokenizes a corpus into a token file (llm.c's version 20240801: uint32 ids). input: a text file, or a JSONL
 * file (.jsonl, .ndjson, or .json, which may be one array of rows) whose documents are in text_field. Each
 * document ends with the tokenizer's EOS. It begins with the BOS if the tokenizer adds BOS in transformers.
 * Special tokens in the text are tokenized as plain characters. The output file is complete, or absent if the
 * call fails. options and result may be NULL.
 */
OTT_API ott_status ott_tokenize_file(ott_context *context, const char *tokenizer_path, const char *input,
                                     const char *output, const ott_tokenize_options *options,
                                     ott_tokenize_result *result);

#ifdef __cplusplus
}
#endif
#endif
