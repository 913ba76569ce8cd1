/*
 * config: the configuration of a run. `struct config` is generated from schema.def: cfg->train.seq_len,
 * cfg->float8.recipe_name. Values come from the defaults, then from a TOML or YAML file with the keys of
 * Ottava, KempnerForge, torchtitan or AutoModel, then from the command line. Each key remembers whether it
 * was set, so that a model preset fills in only the other keys.
 *
 * Failures are OTT_ERR_CONFIG (for a file also OTT_ERR_NOT_FOUND, _ARGUMENT or _IO). The message names the
 * place, the key, the value, the allowed values and the nearest match. config_parse and config_check report
 * all errors together: a first line with their number, then one indented line per error.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/log.h"
#include "base/mem.h"
#include "base/text/str.h"
#include "kinds/choices.h"
#include "kinds/family.h"
#include <stdbool.h>
#include <stdint.h>

/* The enums of choices.def and of kinds/choices.h: config_precision with PRECISION_BF16, ... */
#define CHOICES(list, ...)   typedef enum config_##list{__VA_ARGS__} config_##list;
#define WORD(constant, text) constant,
#include "config/choices.def"
#define KIND_TYPE(name, list) typedef kind_##name config_##name;
KIND_LISTS(KIND_TYPE)
#undef KIND_TYPE

typedef struct config_state config_state; /* where each key was set, and the config's memory */

typedef struct config {
#define SECTION_BEGIN(section, help) struct {
#define SECTION_END(section)                                                                                 \
    }                                                                                                        \
    section;
#define INT(section, key, value, range, state, help)          int64_t key;
#define REAL(section, key, value, range, state, help)         double key;
#define PAIR(section, key, first, second, range, state, help) double key[2];
#define BOOL(section, key, value, state, help)                bool key;
#define TEXT(section, key, value, state, help)                const char *key;
#define CHOICE(section, key, list, value, state, help)        config_##list key;
#define LIST(section, key, state, help)                       str_list key;
#define INTEGERS(section, key, range, state, help)            str_list key;
#include "config/schema.def"
    const char *path; /* the configuration file; "" without one */
    config_state *state;
} config;

/*
 * Reads a run's configuration from the arguments after the verb, then calls config_check. The arguments
 * hold at most one file (--config FILE, --job.config_file FILE or a plain path) and overrides
 * (--section.key=value, --section.key value; --section.key for true; --section.no_key or --no-section.key for
 * false). `lg` (may be NULL) receives the log lines, for example about foreign keys without effect; it is
 * borrowed until config_close. Close *out with config_close.
 */
ott_status config_parse(mem *account, const logger *lg, int argc, const char *const *argv, config **out);
void config_close(config *cfg); /* NULL is allowed */
/* Makes a deep copy of the values and of the set flags (config_was_set). */
ott_status config_copy(const config *from, config **out);

/* True if the file, the command line or config_set gave the key (canonical name, "train.seq_len"). */
bool config_was_set(const config *cfg, const char *key);
/* Longest allowed sequence in tokens: model.max_seq_len, times rope_factor with dynamic rope scaling. */
int64_t config_max_positions(const config *cfg);
/* Returns where a key was given, for the start of a message: "run.toml:3: train.device = \"gpu\"" or
   "--device=gpu"; the key's name if it was not given. */
const char *config_where(const config *cfg, const char *key);
/* The AutoModel dataset class that decided data.format ("make_squad_dataset"); NULL if no class did. */
const char *config_dataset_class(const config *cfg);
/* Applies one override by the rules of the command line; aliases are allowed. The caller then calls
   config_check. */
ott_status config_set(config *cfg, const char *key, const char *value);
/* Like config_set, but keeps a value that was set. */
ott_status config_set_default(config *cfg, const char *key, const char *value);
/* Checks that all values are supported and that keys agree. Fills in values that follow from other keys. */
ott_status config_check(config *cfg);
/*
 * Reports the errors of several checks together. Call config_collect_begin, then config_collect(cfg,
 * check(...)) for each check, then config_collect_end. config_collect keeps the text of an OTT_ERR_CONFIG and
 * returns OTT_OK for it. It returns other errors. config_collect_end fails with all texts.
 */
void config_collect_begin(config *cfg);
ott_status config_collect(config *cfg, ott_status status);
ott_status config_collect_end(config *cfg);
/* Fails with OTT_ERR_CONFIG if `name` has a control character, because config.toml could not be read back.
   config_check checks all paths in the configuration. A run also checks paths that it reads from files. */
ott_status config_check_name(const char *key, const char *name);
/* Fails if a sequence length exceeds config_max_positions. Call it again after a folder or a preset set
   model.max_seq_len. */
ott_status config_check_lengths(const config *cfg);
/* Applies "--section.key=value". `allowed` lists the allowed keys, and sections like "float8."; it ends with
   NULL. *key receives the canonical name. For other keys the error message begins with `user` ("eval"). */
ott_status config_override(config *cfg, const char *argument, const char *const *allowed, const char *user,
                           const char **key);
/* Returns the head's name in filter_fqns for the tool of cfg's file: "lm_head", "output" or "output_head". */
const char *config_head_name(const config *cfg);
/* The keys of [float8] that define a recipe. Other keys of [float8] select layers and steps. */
const char *const *config_recipe_keys(int *count);
/* Sets the number of data-parallel ranks (ranks that read different rows). Fills in values that follow from
   it (train.grad_accum_steps) and checks the keys that depend on parallel sizes. */
ott_status config_set_data_ranks(config *cfg, int64_t ranks);
/* True if GEMMs read quantized or bf16 copies of the weights, but never the fp32 masters. */
bool config_copies_masters(const config *cfg);
/* Sequences per optimizer step, over all ranks. */
int64_t config_step_rows(const config *cfg);
/* Sequences per evaluation batch, and tokens per sequence: the values of [eval] if set, else of [train]. */
int64_t config_evaluation_batch(const config *cfg);
int64_t config_evaluation_length(const config *cfg);
/* Appends the value of a key (canonical name) in TOML syntax. */
ott_status config_show(const config *cfg, const char *key, str *out);
/* Returns the word that a choice key has: "fp8" for "train.mixed_precision". NULL for keys of other types. */
const char *config_word(const config *cfg, const char *key);

/* Appends the resolved configuration as TOML, with a comment per key. Reading it gives an equal config. */
ott_status config_write_toml(const config *cfg, str *out);
/* Appends the help of every key: section, name, type, default, allowed values, meaning, aliases. */
ott_status config_help(str *out);
/* Appends the help of one section ("float8") or key ("optimizer.lr"). The name may be another tool's. */
ott_status config_help_about(const char *what, str *out);
/* Appends the candidates with which a shell completes the option `word` (ott_config_complete). */
ott_status config_complete(const char *word, str *out);
/* Calls `callback` for each key that differs between a and b, with the values of a and b in TOML syntax. */
typedef void (*config_difference)(void *user, const char *key, const char *value_a, const char *value_b);
ott_status config_differences(const config *a, const config *b, config_difference callback, void *user);

#endif
