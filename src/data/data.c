/* data/data: a run's training and validation data, opened from its configuration. */
#include "data/data.h"
#include "base/text/size.h"
#include "data/phases.h"
#include "config/table.h"
#include "data/data_files.h"
#include "data/ends.h"
#include "tokenizer/gguf_tokens.h"
#include <stdio.h>
#include <string.h>

/* State of opening a run's data. The tokenizer is closed when all files are read. */
typedef struct opener {
    mem *account;
    const cancellation *cancellation;
    const logger *log;
    config *cfg;
    int64_t *vocab;       /* size of the model's vocabulary */
    tokenizer *tokenizer; /* the run's tokenizer; NULL: none is configured */
    bool *logged;         /* true after the log line about BOS and EOS */
} opener;

/* ---- the tokenizer ---- */

void data_tokenizer_path(const config *cfg, char out[PATH_MAX]) {
    snprintf(out, PATH_MAX, "%s", cfg->data.format == DATA_BYTES ? "" : cfg->data.tokenizer_path);
    if (*out || cfg->data.format == DATA_BYTES || !*cfg->model.hf_path) return;
    if (file_is_gguf(cfg->model.hf_path))
        snprintf(out, PATH_MAX, "%s", gguf_tokens_exist(cfg->model.hf_path) ? cfg->model.hf_path : "");
    else if (!tokenizer_file_in(cfg->model.hf_path, out))
        *out = 0;
}

const char *data_no_text_reason(const config *cfg) {
    char path[PATH_MAX];
    data_tokenizer_path(cfg, path);
    if (*path || cfg->data.format == DATA_BYTES) return NULL;
    if (cfg->data.format == DATA_TOKENS)
        return "the run was trained on token ids and its config.toml names no data.tokenizer_path";
    if (!*cfg->model.hf_path) return NULL;
    return file_is_gguf(cfg->model.hf_path)
               ? "the GGUF file of the model has no tokenizer"
               : "the Hugging Face folder of the model has no tokenizer.json or tokenizer.model";
}

static ott_status open_run_tokenizer(opener *o) {
    char path[PATH_MAX];
    data_tokenizer_path(o->cfg, path);
    return *path ? status_context(tokenizer_open(o->account, path, &o->tokenizer), "data.tokenizer_path")
                 : OTT_OK;
}

static void log_ends(const opener *o, config_data_format format) {
    const config *cfg = o->cfg;
    const tokenizer *t = o->tokenizer;
    if (!t || *o->logged || (format != DATA_TEXT && format != DATA_JSONL)) return;
    *o->logged = true;
    ends_log(o->log, t, "document", cfg->data.add_bos ? tokenizer_bos(t) : -1,
             cfg->data.add_eos ? tokenizer_eos(t) : -1, "data.add_bos, data.add_eos");
}

/* ---- one dataset ---- */

/* The data to open in the files of `path`: the part from fraction from_share to fraction to_share. */
typedef struct request {
    const char *path, *pattern;
    double from_share, to_share;
    int64_t limit;         /* maximum number of documents or samples; 0: no limit */
    const char *limit_key; /* config key of the limit, for messages */
} request;

/* Fails if the data are text without a tokenizer, unless data.format = bytes makes each byte a token. */
static ott_status check_tokenizer(const opener *o, const char *path, config_data_format format) {
    const char *folder = o->cfg->model.hf_path;
    bool bytes = o->cfg->data.format == DATA_BYTES;
    if (o->tokenizer || !*folder || bytes || format == DATA_TOKENS) return OTT_OK;
    return status_context(tokenizer_fail_absent(folder),
                          "%s is text, which needs the tokenizer of model.hf_path (data.tokenizer_path names "
                          "another, data.format = \"bytes\" needs none)",
                          path);
}

/* Fails if NeMo AutoModel would put these rows into the chat template: Ottava does so only for messages. */
static ott_status check_template(const opener *o) {
    const char *class = config_dataset_class(o->cfg);
    if (!class || !o->tokenizer || !tokenizer_has_chat_template(o->tokenizer)) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "%s puts its rows into the chat template of %s, but Ottava does so only for rows of messages "
        "(data.format = \"chat\"): set --data.format=%s to read the rows without the template",
        class, tokenizer_path(o->tokenizer), config_word(o->cfg, "data.format"));
}

static ott_status check_data_request(const opener *o, const request *r, config_data_format format) {
    bool rows = format == DATA_SQUAD || format == DATA_INSTRUCTION;
    bool text = rows || format == DATA_TEXT || format == DATA_HELLASWAG || format == DATA_CHAT;
    TRY(check_tokenizer(o, r->path, format));
    if (text && !o->tokenizer)
        return status_fail(
            OTT_ERR_CONFIG,
            "data.format = \"%s\" needs a tokenizer: name its file, or the folder it is in, with "
            "data.tokenizer_path (%s)",
            table_find("data.format")->choices[format].text, r->path);
    if (rows) TRY(check_template(o));
    if (format == DATA_INSTRUCTION &&
        ((!*o->cfg->data.prompt_field && !*o->cfg->data.context_field) || !*o->cfg->data.completion_field))
        return status_fail(OTT_ERR_CONFIG,
                           "data.format = \"instruction\" needs data.completion_field, and "
                           "data.prompt_field or data.context_field (column_mapping's answer, question "
                           "and context)");
    if (r->limit > 0 && (format == DATA_TOKENS || format == DATA_BYTES))
        return status_fail(OTT_ERR_CONFIG,
                           "%s = %lld limits documents or samples, but %s is read as %s: set the limit to 0",
                           r->limit_key, (long long)r->limit, r->path,
                           format == DATA_BYTES ? "bytes" : "one sequence of tokens");
    return OTT_OK;
}

/* Fails if the rows do not have the data.format that AutoModel's dataset class specifies. */
static ott_status check_row_format(const opener *o, const file_list *files, config_data_format format) {
    static const struct {
        dataset_row_kind kind;
        config_data_format format;
        const char *name;
    } kinds[] = {{ROWS_HELLASWAG, DATA_HELLASWAG, "HellaSwag's (ctx, endings, label)"},
                 {ROWS_SQUAD, DATA_SQUAD, "SQuAD's (context, question, answers)"},
                 {ROWS_MESSAGES, DATA_CHAT, "conversations (messages or conversations)"},
                 {ROWS_ALPACA, DATA_CHAT, "Alpaca's (instruction, output)"}};
    dataset_row_kind kind;
    if (format != DATA_HELLASWAG && format != DATA_SQUAD) return OTT_OK;
    TRY(dataset_first_row(o->account, files->names[0], &kind));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind && kinds[i].format != format)
            return status_fail(OTT_ERR_CONFIG,
                               "%s: its rows are %s, and %s needs others: set data.format to %s",
                               files->names[0], kinds[i].name, config_where(o->cfg, "data.format"),
                               table_find("data.format")->choices[kinds[i].format].text);
    return OTT_OK;
}

static ott_status open_format(const opener *o, config_data_format format, const dataset_source *s,
                              dataset **out) {
    switch (format) {
    case DATA_TEXT: return dataset_open_text(o->account, s, out);
    case DATA_JSONL: return dataset_open_rows(o->account, s, ROWS_OTHER, out);
    case DATA_HELLASWAG: return dataset_open_rows(o->account, s, ROWS_HELLASWAG, out);
    case DATA_SQUAD: return dataset_open_rows(o->account, s, ROWS_SQUAD, out);
    case DATA_INSTRUCTION: return dataset_open_rows(o->account, s, ROWS_INSTRUCTION, out);
    case DATA_CHAT: return dataset_open_rows(o->account, s, ROWS_MESSAGES, out);
    case DATA_TOKENS: return dataset_open_tokens(o->account, s, out);
    default: return dataset_open_bytes(o->account, s, out);
    }
}

static ott_status open_files(const opener *o, const request *r, const file_list *files, dataset **out) {
    const config *cfg = o->cfg;
    config_data_format format;
    dataset_source s = {.paths = (const char *const *)files->names,
                        .count = files->count,
                        .from_share = r->from_share,
                        .to_share = r->to_share,
                        .limit = r->limit,
                        .tokenizer = o->tokenizer,
                        .add_bos = cfg->data.add_bos,
                        .add_eos = cfg->data.add_eos,
                        .separator = cfg->data.document_separator,
                        .text_field = cfg->data.text_field,
                        .context_field = cfg->data.context_field,
                        .prompt_field = cfg->data.prompt_field,
                        .completion_field = cfg->data.completion_field,
                        .vocab = *o->vocab,
                        .chat_date = cfg->data.chat_date,
                        .cancellation = o->cancellation};
    TRY(data_files_format(o->account, files, cfg, o->tokenizer != NULL, &format));
    TRY(check_row_format(o, files, format));
    TRY(check_data_request(o, r, format));
    log_ends(o, format);
    return open_format(o, format, &s, out);
}

static ott_status check_vocabulary(const dataset *d, int64_t vocab) {
    if (dataset_vocab(d) <= vocab) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "model.vocab_size = %lld is too small for %s: its token ids go up to %lld; set "
                       "model.vocab_size to %lld or more",
                       (long long)vocab, dataset_name(d), (long long)dataset_vocab(d) - 1,
                       (long long)dataset_vocab(d));
}

static ott_status open_request(const opener *o, const request *r, dataset **out) {
    file_list files;
    *out = NULL;
    TRY(data_files_find(o->account, r->path, r->pattern, &files));
    ott_status status = open_files(o, r, &files, out);
    file_list_free(&files);
    if (status == OTT_OK) status = check_vocabulary(*out, *o->vocab);
    if (status != OTT_OK) dataset_close(*out), *out = NULL;
    return status;
}

static request training_request(const config *cfg, const char *path) {
    return (request){.path = path,
                     .pattern = data_files_pattern(cfg, "data.file_pattern", cfg->data.file_pattern),
                     .to_share = 1,
                     .limit = cfg->data.num_samples_limit,
                     .limit_key = "data.num_samples_limit"};
}

/* ---- mixtures ---- */

enum { MAX_DATASETS = 256 };

/* Returns the name in "path=weight name", or else the end of the path. *length: length of the name. */
static const char *dataset_name_in(const char *text, size_t *length) {
    const char *equals = strrchr(text, '='), *space = equals ? strchr(equals, ' ') : NULL;
    size_t path = equals ? (size_t)(equals - text) : strlen(text);
    if (space) return *length = strlen(space + 1), space + 1;
    while (path > 1 && text[path - 1] == '/') path--;
    *length = 0;
    while (*length < path && text[path - *length - 1] != '/') ++*length;
    return text + path - *length;
}

static ott_status open_weighted_part(const opener *o, const char *text, dataset **part, double *weight) {
    char path[PATH_MAX];
    TRY(data_files_split_weight(text, path, weight));
    request r = training_request(o->cfg, path);
    return open_request(o, &r, part);
}

/* Sets the weights of the datasets named in the phase. Other datasets keep those that data.datasets gave. */
static ott_status weigh_phase(const str_list *list, const data_phase *p, double *weights) {
    for (int k = 0; k < p->count; k++) {
        int64_t found = -1, count = 0;
        for (int j = 0; j < k; j++)
            if (strcmp(p->weights[j].name, p->weights[k].name) == 0)
                return status_fail(
                    OTT_ERR_CONFIG,
                    "data.phases gives %s two weights from step %lld on: %g and %g; remove one",
                    p->weights[k].name, (long long)p->start_step, p->weights[j].weight, p->weights[k].weight);
        for (int64_t i = 0; i < list->count; i++) {
            size_t length;
            const char *name = dataset_name_in(list->items[i], &length);
            if (length != strlen(p->weights[k].name) || strncmp(name, p->weights[k].name, length) != 0)
                continue;
            found = i;
            count++;
        }
        if (count != 1)
            return status_fail(OTT_ERR_CONFIG,
                               "data.phases: %s of data.datasets has the name %s (weight %g from step %lld "
                               "on): use names of data.datasets, or the last parts of their paths",
                               count ? "more than one" : "none", p->weights[k].name, p->weights[k].weight,
                               (long long)p->start_step);
        weights[found] = p->weights[k].weight;
    }
    return OTT_OK;
}

static ott_status add_phases(const opener *o, const double *weights, dataset *d) {
    const config *cfg = o->cfg;
    for (int i = 0; i < phases_count(cfg); i++) {
        data_phase p;
        double own[MAX_DATASETS];
        int64_t rows;
        memcpy(own, weights, (size_t)cfg->data.datasets.count * sizeof *own);
        TRY(phases_read(cfg, i, &p));
        TRY(weigh_phase(&cfg->data.datasets, &p, own));
        TRY(size_product("rows before a phase of data.phases",
                         (const int64_t[]){p.start_step, config_step_rows(cfg)}, 2, &rows));
        TRY(dataset_mixture_phase(d, rows, own, cfg->data.mix_temperature));
    }
    return OTT_OK;
}

static ott_status open_weighted_parts(const opener *o, dataset **out) {
    dataset *parts[MAX_DATASETS];
    double weights[MAX_DATASETS];
    const str_list *list = &o->cfg->data.datasets;
    if (list->count > MAX_DATASETS)
        return status_fail(OTT_ERR_CONFIG, "data.datasets: %lld datasets; 1 to %d can be mixed",
                           (long long)list->count, MAX_DATASETS);
    for (int64_t i = 0; i < list->count; i++) {
        ott_status status = open_weighted_part(o, list->items[i], &parts[i], &weights[i]);
        if (status == OTT_OK) continue;
        while (i > 0) dataset_close(parts[--i]);
        return status;
    }
    TRY(dataset_open_mixture(o->account, parts, weights, list->count, o->cfg->data.mix_temperature, out));
    return add_phases(o, weights, *out);
}

/* ---- training and validation ---- */

/* Number of random tokens for training. A run that reads more tokens reads the same ones again. */
#define SYNTHETIC_TOKENS (1 << 22)

/* Returns the number of random tokens for evaluation: at least one batch. Training has other tokens. */
static int64_t synthetic_evaluation_tokens(const config *cfg) {
    int64_t batch = config_evaluation_batch(cfg) * (config_evaluation_length(cfg) + 1), least = 1 << 16;
    return batch > least ? batch : least;
}

static bool is_synthetic(const config *cfg) {
    return cfg->data.format == DATA_SYNTHETIC;
}

static ott_status open_training(const opener *o, dataset **out) {
    const config *cfg = o->cfg;
    TRY(phases_check(cfg));
    if (cfg->data.datasets.count > 0) return open_weighted_parts(o, out);
    if (is_synthetic(cfg))
        return dataset_open_synthetic(o->account, *o->vocab, (uint64_t)cfg->train.seed, SYNTHETIC_TOKENS,
                                      out);
    request r = training_request(cfg, cfg->data.dataset_path);
    if (cfg->eval.enabled && !*cfg->eval.dataset_path) r.to_share = 1.0 - cfg->eval.holdout;
    return open_request(o, &r, out);
}

static ott_status open_validation(const opener *o, dataset **out) {
    const config *cfg = o->cfg;
    request r = {.path = cfg->eval.dataset_path,
                 .pattern = data_files_pattern(cfg, "eval.file_pattern", cfg->eval.file_pattern),
                 .to_share = 1};
    *out = NULL;
    if (!cfg->eval.enabled) return OTT_OK;
    if (!*r.path && is_synthetic(cfg))
        return dataset_open_synthetic(o->account, *o->vocab, (uint64_t)cfg->train.seed + 1,
                                      synthetic_evaluation_tokens(cfg), out);
    if (!*r.path) {
        if (!*cfg->data.dataset_path || cfg->eval.holdout <= 0)
            return status_fail(OTT_ERR_CONFIG,
                               "eval.enabled is true but no eval data source is configured: set "
                               "eval.dataset_path, or eval.holdout to keep the end of data.dataset_path");
        r = training_request(cfg, cfg->data.dataset_path);
        r.from_share = 1.0 - cfg->eval.holdout;
    }
    r.limit = cfg->eval.num_samples_limit;
    r.limit_key = "eval.num_samples_limit";
    return open_request(o, &r, out);
}

/* ---- rows ---- */

static ott_status set_config_number(config *cfg, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return config_set(cfg, key, text);
}

/* A preset has its original tokenizer's vocabulary size. If the run's tokenizer is larger, takes its size. */
static ott_status choose_vocabulary(const opener *o) {
    int64_t ids = o->tokenizer ? tokenizer_vocab(o->tokenizer) : 0;
    bool given = o->cfg->model.preset == PRESET_NONE || config_was_set(o->cfg, "model.vocab_size");
    if (given || ids <= *o->vocab) return OTT_OK;
    log_info(o->log, "model.vocab_size = %lld, from the tokenizer", (long long)ids);
    *o->vocab = ids;
    return set_config_number(o->cfg, "model.vocab_size", ids);
}

/* Sets train.seq_len to the length of the longest unpacked sample, unless train.seq_len is given. */
static ott_status choose_length(const opener *o, const dataset *train, const dataset *validation) {
    config *cfg = o->cfg;
    bool decides = dataset_has_samples(train) && !cfg->data.pack_sequences;
    if (!decides || config_was_set(cfg, "train.seq_len")) return OTT_OK;
    int64_t longest = dataset_longest(train), multiple = cfg->data.pad_seq_len_divisible;
    if (validation && cfg->eval.seq_len == 0 && dataset_longest(validation) > longest)
        longest = dataset_longest(validation);
    if (multiple > 0) longest += (multiple - longest % multiple) % multiple;
    TRY(set_config_number(cfg, "train.seq_len", longest));
    if (longest <= config_max_positions(cfg)) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "%s: its longest sample, rounded up to data.pad_seq_len_divisible, has %lld tokens, and "
        "model.max_seq_len is %lld: set --train.seq_len=%lld, which leaves longer samples out, or "
        "--model.max_seq_len=%lld",
        dataset_name(train), (long long)longest, (long long)cfg->model.max_seq_len,
        (long long)cfg->model.max_seq_len, (long long)longest);
}

static void log_dataset(const opener *o, const char *what, const dataset *d, const char *length_key) {
    char tokens[32], rows[32], samples[32], left_out[32];
    log_info(o->log, "%s: %s, %s tokens, %s rows of %lld%s%s%s", what, dataset_name(d),
             str_commas(dataset_tokens(d), tokens), str_commas(dataset_rows(d), rows),
             (long long)dataset_length(d), dataset_samples(d) ? " with " : "",
             dataset_samples(d) ? str_commas(dataset_samples(d), samples) : "",
             dataset_samples(d) ? " samples" : "");
    if (dataset_left_out(d) > 0)
        log_warning(o->log, "%s: %s samples longer than %s = %lld are left out", dataset_name(d),
                    str_commas(dataset_left_out(d), left_out), length_key, (long long)dataset_length(d));
}

static bool packs_sequences(const opener *o) {
    return o->cfg->data.pack_sequences && !is_synthetic(o->cfg);
}

static ott_status make_training_rows(const opener *o, dataset *d) {
    TRY(dataset_make_rows(d, &(dataset_row_options){.length = o->cfg->train.seq_len,
                                                    .pack = packs_sequences(o),
                                                    .shuffle = o->cfg->data.shuffle}));
    log_dataset(o, "Training data", d, "train.seq_len");
    return OTT_OK;
}

static ott_status make_validation_rows(const opener *o, dataset *d) {
    const config *cfg = o->cfg;
    const char *key = cfg->eval.seq_len > 0 ? "eval.seq_len" : "train.seq_len";
    int64_t length = config_evaluation_length(cfg), batch = config_evaluation_batch(cfg);
    TRY(dataset_make_rows(
        d, &(dataset_row_options){.length = length, .length_key = key, .pack = packs_sequences(o)}));
    log_dataset(o, "Validation data", d, key);
    if (dataset_rows(d) >= batch) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "%s has %lld sequences of %s = %lld, fewer than %s = %lld",
                       dataset_name(d), (long long)dataset_rows(d), key, (long long)length,
                       cfg->eval.batch_size > 0 ? "eval.batch_size" : "train.batch_size", (long long)batch);
}

/* Rows at the end of the last epoch that do not fill a step are not read. */
ott_status data_count_epochs(const logger *log, config *cfg, const dataset *train, int64_t steps,
                             int64_t done, bool is_limit) {
    int64_t a_step = config_step_rows(cfg), rows = dataset_rows(train), epochs = cfg->train.num_epochs;
    if (epochs == 0) return OTT_OK;
    bool fits = epochs <= INT64_MAX / rows;
    int64_t left = fits && done < rows * epochs ? rows * epochs - done : 0, last = steps + left / a_step;
    if (!fits || last == 0)
        return status_fail(OTT_ERR_CONFIG,
                           "train.num_epochs = %lld, with %lld rows in an epoch: too %s rows for steps of "
                           "%lld rows",
                           (long long)epochs, (long long)rows, fits ? "few" : "many", (long long)a_step);
    if (is_limit && cfg->train.max_steps <= last) return OTT_OK;
    TRY(set_config_number(cfg, "train.max_steps", last));
    if (done == 0)
        log_info(log, "train.num_epochs = %lld: %lld steps of %lld rows", (long long)epochs, (long long)last,
                 (long long)a_step);
    else
        log_info(log,
                 "train.num_epochs = %lld: %lld rows are read, %lld are left for %lld steps of %lld rows",
                 (long long)epochs, (long long)done, (long long)left, (long long)(last - steps),
                 (long long)a_step);
    return config_check(cfg); /* schedules depend on the number of steps */
}

static ott_status open_both(opener *o, dataset **train, dataset **validation) {
    TRY(open_run_tokenizer(o));
    /* Adds the BOS if transformers would, and the EOS at the end of each document. */
    if (o->tokenizer && !config_was_set(o->cfg, "data.add_bos"))
        TRY(config_set(o->cfg, "data.add_bos", tokenizer_adds_bos(o->tokenizer) ? "true" : "false"));
    TRY(choose_vocabulary(o));
    TRY(open_training(o, train));
    TRY(check_vocabulary(*train, *o->vocab));
    TRY(open_validation(o, validation));
    TRY(choose_length(o, *train, *validation));
    TRY(make_training_rows(o, *train));
    /* For a resumed run, train.max_steps is computed later, from the number of rows in its checkpoint. */
    if (!*o->cfg->checkpoint.load_path)
        TRY(data_count_epochs(o->log, o->cfg, *train, 0, 0, config_was_set(o->cfg, "train.max_steps")));
    return *validation ? make_validation_rows(o, *validation) : OTT_OK;
}

ott_status data_open(mem *account, const cancellation *w, config *cfg, int64_t *vocab, dataset **train,
                     dataset **validation) {
    bool logged = false;
    opener o = {.account = account,
                .cancellation = w,
                .log = w ? w->log : NULL,
                .cfg = cfg,
                .vocab = vocab,
                .logged = &logged};
    *train = *validation = NULL;
    ott_status status = open_both(&o, train, validation);
    tokenizer_close(o.tokenizer);
    if (status == OTT_OK) return OTT_OK;
    dataset_close(*train);
    dataset_close(*validation);
    *train = *validation = NULL;
    return status;
}
