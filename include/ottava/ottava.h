/*
 * Ottava: training of language models in 8-bit floating point. The public C API.
 *
 * Errors: a function that can fail returns an ott_status; ott_error_text() then gives the reason, one line
 * that names the thing, its value and the way out; several faults of a configuration stand below it, indented, a
 * line each. The library never exits and never prints: it logs through the context's callback.
 *
 * Ownership: an object made by ott_x_open is closed by ott_x_close (NULL is allowed), and before its context;
 * strings given in are copied.
 *
 * Threads: a context and all that is made with it belong to one thread at a time: a call that comes from
 * another thread during a call is OTT_ERR_ARGUMENT. Two contexts may be used by two threads. ott_stop may be
 * called from any thread and from a signal handler. After fork a context belongs to the parent: in the child
 * every call with it is OTT_ERR_ARGUMENT, and closing it does nothing; the child opens its own.
 *
 * Locale: files, JSON, messages and log lines have a decimal point whatever the program's locale is.
 *
 * Option structs start with struct_size and are filled by their _init function, so that a program built
 * against an older header keeps working. Compiles as C11 and as C++17.
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

/* Reads a configuration as `ottava train` takes it: at most one file (a plain path or --config FILE) and
   overrides (--section.key=value). argv[argc], none NULL. */
OTT_API ott_status ott_config_open(ott_context *context, int argc, const char *const *argv, ott_config **out);
OTT_API void ott_config_close(ott_config *config);
/* One more override: key "train.max_steps", value "100". Not from a callback of the training that runs it; neither
   is ott_config_close. */
OTT_API ott_status ott_config_set(ott_config *config, const char *key, const char *value);
/* Writes the value of a key ("metrics.color") as a file has it: true, 3, "text", [1, 2]. */
OTT_API ott_status ott_config_get(const ott_config *config, const char *key, ott_text_fn write, void *user);
/* Writes every key with type, default and meaning. */
OTT_API ott_status ott_config_help(ott_context *context, ott_text_fn write, void *user);
/* The same of one section ("float8") or key ("optimizer.lr"), by any name it has. */
OTT_API ott_status ott_config_help_about(ott_context *context, const char *what, ott_text_fn write,
                                         void *user);

/* ---- work that takes a while ---- */

typedef struct ott_work {
    int64_t done, total; /* micro-batches, rows, windows or bytes, as the call says */
    double seconds_left; /* estimated; NaN while there is no estimate */
} ott_work;

/* Called on the calling thread, after every piece of work. */
typedef void (*ott_work_fn)(void *user, const ott_work *work);

/* ---- training ---- */

typedef struct ott_progress {
    int64_t step, max_steps;
    double loss;            /* mean over the tokens of the step */
    double validation_loss; /* NaN until the first validation */
    double learning_rate, grad_norm;
    double tokens_per_second; /* over the last steps */
    double seconds_left;      /* estimated */
} ott_progress;

/* Called after every step on the calling thread. */
typedef void (*ott_progress_fn)(void *user, const ott_progress *progress);

typedef struct ott_train_options {
    size_t struct_size;
    ott_progress_fn progress; /* NULL: none */
    void *user;
    ott_work_fn work; /* inside a step of several micro-batches: those done; NULL: none */
} ott_train_options;

OTT_API void ott_train_options_init(ott_train_options *options);
/* Trains as the configuration says, to the last step or until ott_stop. Writes the run folder: config.toml,
   metrics.jsonl, summary.json, checkpoints. OTT_ERR_DIVERGED after too many non-finite steps in a row.
   options may be NULL. */
OTT_API ott_status ott_train(ott_context *context, ott_config *config, const ott_train_options *options);

/* ---- generation ---- */

/* In which arithmetic a trained model computes. */
typedef enum ott_generate_precision {
    OTT_GENERATE_AS_TRAINED, /* as the run did at its end, its FP8 recipe included */
    OTT_GENERATE_BF16
} ott_generate_precision;

typedef struct ott_generate_options {
    size_t struct_size;
    const char *prompt; /* not empty; of ott_generate only */
    int64_t max_tokens; /* how many to add at most */
    double temperature; /* 0: the most likely token always */
    double top_p;       /* (0, 1]: smallest set of tokens with this share of the top_k's probability */
    uint64_t seed;
    int threads;               /* 0: all cores */
    int64_t top_k;             /* only the k most likely tokens; 0: all */
    double repetition_penalty; /* > 0: logits of tokens that the text has are divided by it where they are
                                  positive, multiplied where they are negative; 1: none */
    const char *const *stop; /* [stop_count] texts, none empty: the first of them to be complete in the added
                                text ends it, and is not written */
    int stop_count;
    ott_generate_precision precision;
    const char *tokenizer; /* NULL: the one the model came with */
    const char *device;    /* as in ott_context_options */
    int chat; /* not 0: the prompt, and each text of ott_generator_continue, is what a user says: it goes into the chat template
                 that the tokenizer came with, and only the answer is written */
    const char *
        base; /* of a run with adapters or a PEFT folder: the Hugging Face folder of the weights beside them; NULL:
                         where it says that they are */
    const char *precision_name; /* as precision in ott_eval_options; NULL: as `precision` says */
    /* [setting_count] configuration keys that replace the model's own, as arguments of ott_config_open
       ("--float8.recipe_name=block"): [float8], train.mixed_precision and train.seq_len. */
    const char *const *settings;
    int setting_count;
} ott_generate_options;

OTT_API void ott_generate_options_init(ott_generate_options *options);
/*
 * Continues the prompt with the model of a run folder (its newest checkpoint), of one checkpoint folder or of
 * a Hugging Face folder, which computes in bf16 unless the options choose otherwise. Ids that the tokenizer has no token for are never chosen.
 * Writes the prompt (not of a chat), then the text token by token, to max_tokens, a stop text or the tokenizer's end of text.
 * Of a tokenizer's text only whole characters are written. options must be given. The same seed gives the
 * same text on any number of threads.
 *
 * The model looks back upon train.seq_len tokens at most, 2048 for a Hugging Face folder. A longer prompt is
 * cut to its end; when the text has grown to that length, the older half is forgotten and the rest is read
 * anew.
 */
OTT_API ott_status ott_generate(ott_context *context, const char *run, const ott_generate_options *options,
                                ott_text_fn write, void *user);

/* A model that stays open, with the text so far: for one text that grows in turns. options may be NULL; their
   prompt is not used. */
typedef struct ott_generator ott_generator;

OTT_API ott_status ott_generator_open(ott_context *context, const char *run,
                                      const ott_generate_options *options, ott_generator **out);
/* From a callback of ott_generator_continue nothing is closed, and ott_error_text says so. */
OTT_API void ott_generator_close(ott_generator *generator);
/* Puts `text` (not written; may be empty after the first time) behind the text so far, and continues that as
   ott_generate does. */
OTT_API ott_status ott_generator_continue(ott_generator *generator, const char *text, ott_text_fn write,
                                          void *user);

/* ---- export ---- */

typedef enum ott_export_format {
    OTT_EXPORT_HF,     /* a Hugging Face folder: safetensors, config.json, tokenizer files */
    OTT_EXPORT_HF_FP8, /* the same with the matrices of the blocks in E4M3 and scales, for serving */
    OTT_EXPORT_PEFT, /* the run's adapters alone, as the PEFT library has them; in the other formats they are merged into the
                          weights */
    OTT_EXPORT_GGUF,   /* one file, for llama.cpp: weights, tokenizer, chat template */
    OTT_EXPORT_GGUF_Q8 /* the same with the matrices in Q8_0 */
} ott_export_format;

/* How config.json and the scales' names say that weights are FP8 (quantization_config.quant_method). vLLM and
   SGLang read both; transformers reads OTT_EXPORT_COMPRESSED_TENSORS, the default, with the Python package of
   that name, and of OTT_EXPORT_FP8 blocks only: from a scale for the whole matrix it makes other numbers. */
typedef enum ott_export_method {
    OTT_EXPORT_FP8, /* "fp8": X.weight_scale [], or X.weight_scale_inv [N/128, K/128] for blocks */
    OTT_EXPORT_COMPRESSED_TENSORS /* "compressed-tensors": X.weight_scale [1], [N, 1] or [N/128, K/128] */
} ott_export_method;

/* What of a weight [N, K] shares a scale. */
typedef enum ott_export_granularity {
    OTT_EXPORT_TENSOR,    /* all of it; q, k and v have one together, and so have gate and up */
    OTT_EXPORT_CHANNEL,   /* a row, which makes an output channel; of compressed-tensors only; the default */
    OTT_EXPORT_BLOCK,     /* 128 x 128 elements, of matrices whose sizes are multiples of 128 */
    OTT_EXPORT_AS_TRAINED /* what the run's recipe says; see ott_export */
} ott_export_granularity;

typedef struct ott_export_options {
    size_t struct_size;
    ott_export_format format;
    ott_dtype
        dtype; /* OTT_BF16, OTT_F32 or OTT_F16: of OTT_EXPORT_HF; of OTT_EXPORT_GGUF's matrices, and of those that Q8_0 does
                        not fit, whose rows are no multiples of 32 */
    /* of OTT_EXPORT_HF_FP8 */
    ott_export_method method;
    ott_export_granularity granularity;
    const char *from;   /* the Hugging Face folder that gives tokenizer files and further keys of config.json;
                         NULL: model.hf_path of the run, or the folder that is exported; "": none; where that is gone, the
                         weights beside a run's adapters are read here too. Of GGUF the folder of the tokenizer;
                         NULL: the run's */
    const char *device; /* as in ott_context_options */
} ott_export_options;

OTT_API void ott_export_options_init(ott_export_options *options);
/*
 * Writes the model of a run folder (its newest checkpoint), of one checkpoint folder, of a Hugging Face folder or of
 * a PEFT folder to `folder`, which must be absent or empty, or to the file of this name that must be absent (GGUF); it is complete, or absent when this fails. Writes what was done as text. options
 * may be NULL: bf16.
 *
 * FP8: codes are round(w / scale) to nearest even, saturating, scale = amax / 448 (fp32; w = code * scale),
 * from the fp32 masters; matrices of the decoder's blocks only: embedding, head, norms and biases are bf16.
 * Activations are quantized by the server. OTT_EXPORT_AS_TRAINED instead gives the very codes that the next
 * training step would have multiplied, scale = 1 / s for the s they were made with, and leaves in bf16 what
 * the run kept in high precision; OTT_ERR_UNSUPPORTED for a recipe that the format cannot hold exactly
 * (delayed scaling, 1x32 and 1x128 blocks, a run without FP8).
 */
OTT_API ott_status ott_export(ott_context *context, const char *run, const char *folder,
                              const ott_export_options *options, ott_text_fn write, void *user);

/* ---- inspection ---- */

typedef struct ott_inspect_options {
    size_t struct_size;
    int statistics; /* 1: minimum, maximum, mean, standard deviation, zeros, NaN and infinities of each tensor
                     */
    int json;       /* 1: one JSON object, 0: a table */
} ott_inspect_options;

OTT_API void ott_inspect_options_init(ott_inspect_options *options);
/* Lists tensors, totals and metadata of a safetensors file, of its index or of a folder with either (a model,
   a checkpoint; of a run folder, its newest checkpoint). Headers are checked whole: OTT_ERR_FORMAT says what
   is wrong with an invalid file, before anything is written. options may be NULL. */
OTT_API ott_status ott_inspect(ott_context *context, const char *path, const ott_inspect_options *options,
                               ott_text_fn write, void *user);

/* ---- reports ---- */

typedef struct ott_report_options {
    size_t struct_size;
    const char *html;            /* file to write the self-contained page to; NULL: none */
    const char *title;           /* NULL: a default */
    int plot_width, plot_height; /* of the text plot, in characters; 0: none */
    int json;                    /* 1: one JSON object instead of the table and the plot */
} ott_report_options;

OTT_API void ott_report_options_init(ott_report_options *options);
/* Compares run folders with the first of them: writes the table and the plot as text, and the page. Runs whose
   configurations differ only in the seed are one row. */
OTT_API ott_status ott_report(ott_context *context, const char *const *runs, int count,
                              const ott_report_options *options, ott_text_fn write, void *user);

/* ---- evaluation ---- */

typedef enum ott_eval_task {
    OTT_EVAL_PERPLEXITY, /* loss of a text, JSONL or token file; work is counted in windows of seq_len tokens
                          */
    OTT_EVAL_HELLASWAG,  /* accuracy in choosing HellaSwag's endings; in rows */
    OTT_EVAL_COMPARE     /* how far the model's predictions are from another model's; in windows */
} ott_eval_task;

typedef struct ott_eval_options {
    size_t struct_size;
    ott_eval_task task;
    const char *data; /* file */
    const char *
        precision; /* NULL or "trained": the run's own, for a Hugging Face folder bf16; "fp32", "bf16" or "fp16"; "fp8":
                       the run's float8.recipe_name; or the name of a recipe (ott_recipe_table), which every linear
                       layer then runs under, except the layers that the filters exclude */
    const char *const *filter; /* [filter_count] layers whose name contains one of these stay in high
                                  precision, beside those of the run's configuration */
    int filter_count;
    int threads;     /* 0: all cores */
    int64_t limit;   /* rows or windows at most; 0: all */
    int64_t seq_len; /* tokens the model looks back upon; 0: the run's train.seq_len, for a folder 2048 or the
                        max_position_embeddings that are fewer */
    const char *tokenizer;  /* NULL: the one the model came with */
    const char *text_field; /* of JSONL rows */
    int hellaswag_forms;    /* OTT_HELLASWAG_..., or-ed */
    const char *against;    /* the other model, what COMPARE measures from */
    const char *against_precision;
    double kl_max, kl_mean, cosine; /* what COMPARE must keep to: at most, at most, at least. The defaults are
                                       NeMo AutoModel's for FP8: 1e-2, 3e-3, 0.999 */
    ott_work_fn progress;           /* NULL: none */
    void *user;
    const char *device; /* as in ott_context_options */
    const char *base;   /* of the model, as in ott_generate_options */
    /* [setting_count] configuration keys that replace the model's own, as arguments of ott_config_open
       ("--float8.recipe_name=block"): [float8], train.mixed_precision, train.batch_size, train.seq_len, data.add_bos,
       data.add_eos, data.document_separator and data.pack_sequences. They do not apply to `against`. */
    const char *const *settings;
    int setting_count;
    /* PERPLEXITY: a safetensors file to write the logits to; NULL: none. It has logits [tokens, vocabulary] in the
       precision of the activations, input_ids, labels (-100: not predicted) and position_ids [tokens] in int32. */
    const char *logits;
} ott_eval_options;

enum { OTT_HELLASWAG_LM_EVAL = 1, OTT_HELLASWAG_LLMC = 2 };

/* A number that the task does not give is NaN. */
typedef struct ott_eval_result {
    size_t struct_size;
    int64_t items, total;   /* rows or windows looked at, of how many: fewer after ott_stop */
    int64_t tokens;         /* that have been predicted; HELLASWAG: of the right endings, in lm-eval's form */
    int64_t truncated;      /* HELLASWAG: endings whose context lost its beginning */
    double loss;            /* mean over these tokens, in nats */
    double perplexity;      /* exp(loss) */
    double bits_per_byte;   /* of the text these tokens stand for */
    double acc, acc_stderr; /* lm-eval's: the ending with the largest log probability */
    double acc_norm, acc_norm_stderr; /* ... divided by its characters */
    double acc_llmc,
        acc_llmc_stderr;      /* llm.c's: the smallest mean loss of a token, text as it stands in the row */
    double kl_max, kl_mean;   /* of KL(against || model) of a token, in nats */
    double cosine;            /* of all logits laid end to end */
    double agreement;         /* share of tokens whose most likely successor is the same */
    int passed;               /* COMPARE: the three limits are kept; 1 for the other tasks */
    int64_t gemms, fp8_gemms; /* matrix products run by the model, and those of them in FP8 */
    double seconds;           /* without loading */
    int64_t window;           /* tokens of a window, the last of which may be shorter; 0 for HELLASWAG */
    int64_t batch;            /* windows that share a forward pass, and the scales of whole tensors */
    int bos; /* 1: the first token of the text is the tokenizer's BOS; 0: it is not, or the tokenizer has none */
} ott_eval_result;

OTT_API void ott_eval_options_init(ott_eval_options *options);
OTT_API void ott_eval_result_init(ott_eval_result *result);
/*
 * Evaluates a model: a run folder (its newest checkpoint), one checkpoint folder, or a Hugging Face folder.
 * ott_stop ends it early, with what was looked at so far. The same numbers on any number of threads. Errors
 * name the file, line and field. OTT_ERR_DIVERGED: the model's loss is not a finite number.
 */
OTT_API ott_status ott_eval(ott_context *context, const char *path, const ott_eval_options *options,
                            ott_eval_result *result);

/* ---- tokenizers ---- */

/* Up to `bytes` bytes into the buffer; returns how many, 0 at the end, negative when reading failed; more than
   `bytes` is OTT_ERR_ARGUMENT. */
typedef int64_t (*ott_read_fn)(void *user, void *buffer, int64_t bytes);
typedef void (*ott_bytes_fn)(void *user, const void *data, int64_t bytes);

typedef struct ott_tokenize_options {
    size_t struct_size;
    int jsonl;  /* ott_tokenize: a text is a JSON string on a line, so that it may have lines of its own */
    int decode; /* ott_tokenize: from ids to texts */
    int no_special;         /* without what the tokenizer puts around a text (BOS, EOS) */
    int threads;            /* ott_tokenize_file; 0: all cores */
    const char *text_field; /* of JSONL rows */
    const char *separator;  /* between the documents of a text file; "": the file is one */
    ott_work_fn progress;   /* ott_tokenize_file: in bytes; NULL: none */
    void *user;
    int chat; /* ott_tokenize: each line is a row of a conversation, as data.format = "chat" reads it, and gives its text in the
                 tokenizer's chat template; with jsonl an object with text, ids and learned (0 or 1 for each id) */
    int mask; /* chat: puts [[ and ]] around what a model learns of the text */
    const char *chat_date; /* chat: the day of strftime_now, as data.chat_date; NULL: today */
} ott_tokenize_options;

OTT_API void ott_tokenize_options_init(ott_tokenize_options *options);
/*
 * Texts to ids as they come: a line of text gives a line of ids with spaces between; decode goes back, and
 * gives exactly the text. tokenizer_path: a folder, or its tokenizer.json. options may be NULL. Errors name
 * the line.
 */
OTT_API ott_status ott_tokenize(ott_context *context, const char *tokenizer_path,
                                const ott_tokenize_options *options, ott_read_fn read, void *read_user,
                                ott_bytes_fn write, void *write_user);

typedef struct ott_tokenize_result {
    size_t struct_size;
    int64_t documents, tokens, bytes; /* bytes of the file that was read */
    int complete;                     /* 0: ott_stop ended it, and nothing was written */
    double seconds;                   /* without loading the tokenizer */
    char begins[64], ends[64];        /* the special tokens around each document; "": none */
} ott_tokenize_result;

OTT_API void ott_tokenize_result_init(ott_tokenize_result *result);
/*
 * Makes a token file (llm.c's 20240801: uint32 ids) of a text file, or of a JSONL file (.jsonl, .json,
 * .ndjson), whose documents lie in text_field; a .json file may be one array of rows.
 * Each document begins with the tokenizer's BOS if the tokenizer begins texts with it in transformers, and ends with its EOS.
 * Special tokens in the text are plain characters. The output is complete or absent. result may be NULL.
 */
OTT_API ott_status ott_tokenize_file(ott_context *context, const char *tokenizer_path, const char *input,
                                     const char *output, const ott_tokenize_options *options,
                                     ott_tokenize_result *result);

#ifdef __cplusplus
}
#endif
#endif
