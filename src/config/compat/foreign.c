/* config/compat/foreign: one function per SPECIAL foreign key (optimizer, schedule, checkpointing, data). */
#include "config/compat/foreign.h"
#include "base/file/file.h"
#include "config/assign.h"
#include "config/parse/number.h"
#include "config/value.h"
#include <math.h>
#include <string.h>

/* --- State formats and adapters --- */

/* Translates a dtype by the table `words` (alias_translate). `all` lists the allowed dtypes for an error. */
static ott_status read_state_dtype(const node *value, const char *where, const char *words, const char *all,
                                   char word[64]) {
    if (value->text && alias_translate(words, alias_last_component(value->text), word)) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "%s is not one of %s", where, all);
}

/* torchtitan's training.dtype sets the format of masters, gradients and moments. */
ott_status foreign_parameter_dtype(config *cfg, const node *value, const char *where) {
    static const char *const keys[] = {"train.master_dtype", "train.grad_dtype", "optimizer.state_dtype"};
    char word[64];
    if (tree_is_null(value)) return OTT_OK;
    TRY(read_state_dtype(value, where, "float32=fp32|bfloat16=bf16", "\"float32\", \"bfloat16\"", word));
    for (int i = 0; i < 3; i++)
        if (!state_note(cfg, keys[i])->set) TRY(assign_word(cfg, keys[i], word, where));
    return OTT_OK;
}

/* TransformerEngine has a format for each moment; here both have the same. uint8 means FP8. */
ott_status foreign_moment_dtype(config *cfg, const node *value, const char *where) {
    static const char key[] = "optimizer.state_dtype";
    char word[64];
    if (tree_is_null(value)) return OTT_OK;
    TRY(read_state_dtype(value, where, "float32=fp32|bfloat16=bf16|uint8=fp8|float8_e4m3fn=fp8",
                         "\"float32\", \"bfloat16\", \"uint8\" (FP8)", word));
    if (state_note(cfg, key)->set && strcmp(config_word(cfg, key), word) != 0)
        return status_fail(OTT_ERR_CONFIG, "%s: both moments must have one format: give %s", where, key);
    return assign_word(cfg, key, word, where);
}

/* The option --peft=none switches adapters off, even if the file has [peft]. `peft: null` has no effect. */
ott_status foreign_adapters(config *cfg, const node *value, const char *where) {
    if (!tree_is_null(value))
        return status_fail(OTT_ERR_CONFIG, "%s is a section: give single keys such as peft.enabled, or none",
                           where);
    return cfg->state->reading_file ? OTT_OK : assign_word(cfg, "peft.enabled", "false", where);
}

/* --- Activation checkpointing: torchtitan's mode and option --- */

static ott_status finalize_checkpointing(config *cfg, const char *where) {
    foreign_state kept = cfg->state->foreign, *f = &cfg->state->foreign;
    const char *mode = f->ac_mode ? f->ac_mode : "selective", *option = f->ac_option ? f->ac_option : "2";
    const char *word = strcmp(mode, "selective") == 0 ? option : mode;
    TRY(assign_word(cfg, "train.activation_checkpointing", word, where));
    return *f = kept, OTT_OK;
}

ott_status foreign_ac_mode(config *cfg, const node *value, const char *where) {
    char ignored[64];
    if (tree_is_null(value) && !(value->text && strcmp(value->text, "none") == 0)) return OTT_OK;
    if (!value->text || !alias_translate("none=|selective=|full=|memory_budget=", value->text, ignored))
        return status_fail(OTT_ERR_CONFIG,
                           "%s is not one of \"none\", \"selective\", \"full\", \"memory_budget\"", where);
    cfg->state->foreign.ac_mode = value->text;
    return finalize_checkpointing(cfg, where);
}

ott_status foreign_ac_option(config *cfg, const node *value, const char *where) {
    int64_t every = 0;
    bool good = value->text &&
                (strcmp(value->text, "op") == 0 || (number_parse_integer(value->text, &every) && every >= 1));
    if (!good) return status_fail(OTT_ERR_CONFIG, "%s must be \"op\" or a positive integer", where);
    cfg->state->foreign.ac_option = value->text;
    return finalize_checkpointing(cfg, where);
}

/* --- Optimizer --- */

static ott_status set_beta(config *cfg, const node *value, const char *where, int which) {
    const config_key *lr = table_find("optimizer.eps"), *betas = table_find("optimizer.betas");
    config_value number, pair = table_get(cfg, betas);
    config_key as_beta = *lr;
    as_beta.range = betas->range;
    TRY(value_read(cfg->state->memory, &as_beta, value, where, &number));
    pair.real[which] = number.real[0];
    table_put(cfg, betas, &pair);
    cfg->state->keys[table_index(betas)] = (key_note){
        .set = true, .where = where, .spelled = betas->path, .from_file = cfg->state->reading_file};
    return OTT_OK;
}

ott_status foreign_beta1(config *cfg, const node *value, const char *where) {
    return set_beta(cfg, value, where, 0);
}
ott_status foreign_beta2(config *cfg, const node *value, const char *where) {
    return set_beta(cfg, value, where, 1);
}

/* --- Schedules --- */

/* Reads a number for another tool's key. It must be in the range of our key `like`. Null: *out = -1. */
static ott_status read_foreign_number(config *cfg, const char *like, const node *value, const char *where,
                                      double *out) {
    config_value number;
    *out = -1.0;
    if (tree_is_null(value)) return OTT_OK;
    TRY(value_read(cfg->state->memory, table_find(like), value, where, &number));
    return *out = number.real[0], OTT_OK;
}

ott_status foreign_total_steps(config *cfg, const node *value, const char *where) {
    config_value steps = {0};
    if (!tree_is_null(value))
        TRY(value_read(cfg->state->memory, table_find("scheduler.decay_steps"), value, where, &steps));
    cfg->state->foreign.titan_schedule = true;
    cfg->state->foreign.schedule_total = steps.integer;
    return OTT_OK;
}

ott_status foreign_decay_ratio(config *cfg, const node *value, const char *where) {
    cfg->state->foreign.titan_schedule = true;
    return read_foreign_number(cfg, "scheduler.min_lr_ratio", value, where, &cfg->state->foreign.decay_ratio);
}

ott_status foreign_decay_type(config *cfg, const node *value, const char *where) {
    config_value type = {.integer = WSD_DECAY_LINEAR};
    if (!tree_is_null(value))
        TRY(value_read(cfg->state->memory, table_find("scheduler.wsd_decay_type"), value, where, &type));
    cfg->state->foreign.titan_schedule = true;
    cfg->state->foreign.decay_type = (config_wsd_decay)type.integer;
    return OTT_OK;
}

/* Records that an AutoModel file sets its schedule: then AutoModel's default is cosine decay. */
static void have_schedule(config *cfg) {
    cfg->state->foreign.automodel_schedule = cfg->state->foreign.config_format == CONFIG_FORMAT_AUTOMODEL;
}

ott_status foreign_lr_warmup(config *cfg, const node *value, const char *where) {
    have_schedule(cfg);
    return assign_key(cfg, table_find("scheduler.warmup_steps"), value, where,
                      "lr_scheduler.lr_warmup_steps");
}

ott_status foreign_lr_decay_steps(config *cfg, const node *value, const char *where) {
    config_value steps = {0};
    have_schedule(cfg);
    if (!tree_is_null(value))
        TRY(value_read(cfg->state->memory, table_find("scheduler.decay_steps"), value, where, &steps));
    cfg->state->foreign.decay_total = steps.integer;
    return OTT_OK;
}

ott_status foreign_lr_decay_style(config *cfg, const node *value, const char *where) {
    have_schedule(cfg);
    if (value->text && strcmp(value->text, "WSD") == 0)
        return assign_word(cfg, "scheduler.name", "wsd", where);
    return assign_key(cfg, table_find("scheduler.name"), value, where, "lr_scheduler.lr_decay_style");
}

ott_status foreign_min_lr(config *cfg, const node *value, const char *where) {
    have_schedule(cfg);
    return read_foreign_number(cfg, "train.grad_clip_norm", value, where, &cfg->state->foreign.min_lr);
}

/* torchtitan's schedule is a warmup, a constant part and a decay. The decay has decay_ratio times all steps;
   if decay_ratio is not given, it has all steps after the warmup. */
static void finalize_titan_schedule(config *cfg) {
    const foreign_state *f = &cfg->state->foreign;
    static const char *const ours[] = {"scheduler.name", "scheduler.decay_steps", "scheduler.stable_steps",
                                       "scheduler.wsd_decay_type"};
    if (!f->titan_schedule) return;
    for (int i = 0; i < 4; i++)
        if (state_note(cfg, ours[i])->set) return;
    int64_t total = f->schedule_total > 0 ? f->schedule_total : cfg->train.max_steps;
    int64_t after = total - cfg->scheduler.warmup_steps;
    if (after < 0) after = 0;
    int64_t decay = f->decay_ratio < 0 ? after : llround((double)total * f->decay_ratio);
    if (decay > after) decay = after;
    bool is_wsd_full = decay == after && f->decay_type != WSD_DECAY_SQRT;
    cfg->scheduler.name = !is_wsd_full                        ? SCHEDULER_WSD
                          : f->decay_type == WSD_DECAY_COSINE ? SCHEDULER_COSINE
                                                              : SCHEDULER_LINEAR;
    cfg->scheduler.wsd_decay_type = f->decay_type;
    cfg->scheduler.decay_steps = decay;
    cfg->scheduler.stable_steps = after - decay;
}

/* AutoModel's defaults: cosine decay, and a warmup of train.max_steps / 10 steps, at most 1000 steps. */
static void finalize_automodel_schedule(config *cfg) {
    const foreign_state *f = &cfg->state->foreign;
    if (!f->automodel_schedule) return;
    if (!state_note(cfg, "scheduler.name")->set) cfg->scheduler.name = SCHEDULER_COSINE;
    if (!state_note(cfg, "scheduler.warmup_steps")->set)
        cfg->scheduler.warmup_steps = cfg->train.max_steps / 10 < 1000 ? cfg->train.max_steps / 10 : 1000;
    if (f->decay_total > 0 && !state_note(cfg, "scheduler.decay_steps")->set)
        cfg->scheduler.decay_steps =
            f->decay_total > cfg->scheduler.warmup_steps ? f->decay_total - cfg->scheduler.warmup_steps : 1;
}

/* --- Data --- */

ott_status foreign_packed_size(config *cfg, const node *value, const char *where) {
    const config_key *pack = table_find("data.pack_sequences");
    if (tree_is_null(value) || (value->text && strcmp(value->text, "0") == 0)) {
        if (state_note(cfg, pack->path)->set) assign_default(cfg, pack);
        return OTT_OK;
    }
    TRY(assign_key(cfg, table_find("train.seq_len"), value, where, "packed_sequence.packed_sequence_size"));
    return assign_word(cfg, pack->path, "true", where);
}

/* a dataset class of AutoModel, and the data.format of the files that it reads */
static const struct {
    const char *name, *format;
} dataset_classes[] = {
    {"HellaSwag", "hellaswag"},
    {"NanogptDataset", "tokens"},
    {"MegatronPretraining", "tokens"},
    {"SQuAD", "squad"},
    {"make_squad_dataset", "squad"},
    {"ColumnMappedTextInstructionDataset", "instruction"},
    {"ChatDataset", "chat"},
    {"MockIterableDataset", "synthetic"},
    {"build_unpacked_dataset", "synthetic"},
    {"build_packed_dataset", "synthetic"},
    {"MockPretrainingDatasetConfig", "synthetic"},
};

static ott_status find_dataset(const node *value, const char *where, const char **name, const char **format) {
    *name = value->text ? alias_last_component(value->text) : "";
    for (size_t i = 0; i < sizeof dataset_classes / sizeof dataset_classes[0]; i++) {
        *format = dataset_classes[i].format;
        if (strcmp(dataset_classes[i].name, *name) == 0) return OTT_OK;
    }
    return status_fail(
        OTT_ERR_CONFIG,
        "%s: no dataset of that name is supported; supported: \"HellaSwag\", "
        "\"make_squad_dataset\", \"ColumnMappedTextInstructionDataset\", \"ChatDataset\", "
        "\"NanogptDataset\", \"MockIterableDataset\"; or name a local file with data.dataset_path",
        where);
}

/* AutoModel's mock data sets are random tokens. */
static bool is_mock(const char *format) {
    return strcmp(format, "synthetic") == 0;
}

/* Stores the row length of AutoModel's mock data set. finalize_mock sets train.seq_len to it. */
ott_status foreign_mock_length(config *cfg, const node *value, const char *where) {
    cfg->state->foreign.mock_length = tree_is_null(value) ? NULL : value;
    cfg->state->foreign.mock_length_where = where;
    if (cfg->state->foreign.mock || tree_is_null(value)) return OTT_OK;
    return diagnostic_add(cfg, DIAGNOSTIC_INERT, "dataset.*", NULL, "dataset.*", "data.dataset");
}

/* If the user names a local file, it replaces the mock data. If not, train.seq_len = the mock row length. */
static ott_status finalize_mock(config *cfg) {
    foreign_state kept = cfg->state->foreign, *f = &cfg->state->foreign;
    if (!f->mock || cfg->data.format != DATA_SYNTHETIC) return OTT_OK;
    if (*cfg->data.dataset_path || cfg->data.datasets.count > 0)
        return assign_default(cfg, table_find("data.format")), OTT_OK;
    if (!f->mock_length || state_note(cfg, "train.seq_len")->set) return OTT_OK;
    TRY(assign_word(cfg, "train.seq_len", f->mock_length->text ? f->mock_length->text : "",
                    f->mock_length_where));
    return *f = kept, OTT_OK;
}

/* Sets data.format, and data.dataset to the class: this fails later unless a key names local files. */
ott_status foreign_dataset_target(config *cfg, const node *value, const char *where) {
    const char *name, *format;
    if (tree_is_null(value)) return OTT_OK;
    TRY(find_dataset(value, where, &name, &format));
    TRY(assign_word(cfg, "data.format", format, where));
    cfg->state->foreign.dataset_class = name;
    cfg->state->foreign.mock = is_mock(format);
    if (is_mock(format)) return OTT_OK;
    return state_note(cfg, "data.dataset")->set ? OTT_OK : assign_word(cfg, "data.dataset", name, where);
}

ott_status foreign_validation_target(config *cfg, const node *value, const char *where) {
    const char *name, *format;
    if (tree_is_null(value)) return OTT_OK;
    TRY(assign_word(cfg, "eval.enabled", "true", where));
    TRY(find_dataset(value, where, &name, &format));
    if (is_mock(format)) return OTT_OK;
    return state_note(cfg, "eval.dataset")->set ? OTT_OK : assign_word(cfg, "eval.dataset", name, where);
}

/* Sets path_key if the value is an existing file or a pattern. Else sets name_key: a name on the HF hub. */
static ott_status set_dataset(config *cfg, const char *path_key, const char *name_key, const node *value,
                              const char *where) {
    if (tree_is_null(value)) return OTT_OK;
    bool local = value->text && (file_exists(value->text) || strpbrk(value->text, "*?"));
    return assign_key(cfg, table_find(local ? path_key : name_key), value, where,
                      local ? path_key : name_key);
}

ott_status foreign_dataset_path(config *cfg, const node *value, const char *where) {
    return set_dataset(cfg, "data.dataset_path", "data.dataset", value, where);
}

ott_status foreign_validation_path(config *cfg, const node *value, const char *where) {
    return set_dataset(cfg, "eval.dataset_path", "eval.dataset", value, where);
}

/* --- After everything --- */

ott_status foreign_finalize(config *cfg) {
    const foreign_state *f = &cfg->state->foreign;
    TRY(foreign_finalize_model(cfg));
    TRY(foreign_finalize_float8(cfg));
    TRY(finalize_mock(cfg));
    if (f->adam) /* without weight decay, Adam and AdamW are equal */
        cfg->optimizer.name = cfg->optimizer.weight_decay == 0.0 ? OPTIMIZER_ADAMW : OPTIMIZER_ADAM;
    if (f->min_lr >= 0.0) {
        if (f->min_lr > cfg->optimizer.lr)
            return status_fail(OTT_ERR_CONFIG, "lr_scheduler.min_lr (%g) is above optimizer.lr (%g)",
                               f->min_lr, cfg->optimizer.lr);
        cfg->scheduler.min_lr_ratio = f->min_lr / cfg->optimizer.lr;
    }
    finalize_automodel_schedule(cfg);
    finalize_titan_schedule(cfg);
    return OTT_OK;
}
