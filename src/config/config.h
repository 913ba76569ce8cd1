/*
 * config: what a run is. `struct config` is generated from schema.def: cfg->train.seq_len,
 * cfg->float8.recipe_name. Defaults come first, then a TOML or YAML file in KempnerForge's, torchtitan's or
 * AutoModel's spelling, then the command line; whether a key was set at all stays known, so that a model
 * preset can go under explicit keys.
 *
 * Every failure is OTT_ERR_CONFIG (OTT_ERR_NOT_FOUND, _ARGUMENT or _IO for a file) with one line that names the
 * place, the key, the value, what is allowed and the nearest match; config_parse and config_check name all that is
 * in the way, one a line, indented below a first that counts them.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/family.h"
#include <stdbool.h>
#include <stdint.h>

/* The enums of choices.def: config_precision with PRECISION_BF16, ... */
#define CHOICES(list, ...)   typedef enum config_##list{__VA_ARGS__} config_##list;
#define WORD(constant, text) constant,
#include "config/choices.def"

/* Owned by the config; integers as their digits. */
typedef struct config_list {
    const char *const *items;
    int64_t count;
} config_list;

typedef struct config_state config_state; /* set bits, origins and memory of a config: state.h */

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
#define LIST(section, key, state, help)                       config_list key;
#define INTEGERS(section, key, range, state, help)            config_list key;
#include "config/schema.def"
    const char *path; /* the configuration file, "" without one */
    config_state *state;
} config;

/*
 * Reads a run's configuration from the arguments after the verb: at most one file (--config FILE,
 * --job.config_file FILE or a plain path) and overrides (--section.key=value, --section.key value,
 * --section.key for true,
 * --section.no_key or --no-section.key for false). Ends with config_check. `lg` (may be NULL) hears what a
 * foreign key does here and is borrowed until config_close. `*out` is closed with config_close.
 */
ott_status config_parse(mem *account, const logger *lg, int argc, const char *const *argv, config **out);
void config_close(config *cfg); /* NULL is allowed */
/* The values, and which were set, as they stand: what is set in one later is not in the other. */
ott_status config_copy(const config *from, config **out);

/* Was the key (canonical name, "train.seq_len") given by the file, the command line or config_set? */
bool config_was_set(const config *cfg, const char *key);
/* Tokens that a sequence may have: model.max_seq_len; with dynamic rotary frequencies rope_factor times as many. */
int64_t config_max_positions(const config *cfg);
/* Where a key was given, as messages begin: "run.toml:3: train.device = \"gpu\"", "--device=gpu"; its name when it was
   not. */
const char *config_where(const config *cfg, const char *key);
/* The class of AutoModel's that data.format follows from, "make_squad_dataset"; NULL: it was given itself, or not. */
const char *config_dataset_class(const config *cfg);
/* One override, by the rules of the command line; config_check afterwards is the caller's. Accepts aliases
 * too. */
ott_status config_set(config *cfg, const char *key, const char *value);
/* Are all values built, and do they agree with each other? Values that follow from others are filled in. */
ott_status config_check(config *cfg);
/*
 * Lets checks outside of config report together. Call config_collect_begin, then config_collect(cfg, check(...)) for each check,
 * then config_collect_end. config_collect keeps the text of an OTT_ERR_CONFIG and returns OTT_OK for it; it returns other
 * failures. config_collect_end fails with all texts.
 */
void config_collect_begin(config *cfg);
ott_status config_collect(config *cfg, ott_status status);
ott_status config_collect_end(config *cfg);
/* OTT_ERR_CONFIG if `name` has a control character. config_check refuses such paths, so a run must not take one from a file:
   its config.toml could not be read again. */
ott_status config_check_name(const char *key, const char *name);
/* Are sequences at most model.max_seq_len long? To be asked again when a folder or a preset has given that. */
ott_status config_check_lengths(const config *cfg);
/* Gives the key of one argument, "--section.key=value", which must be a key of `allowed` (NULL-terminated: "float8." is all of a
   section). *key: the canonical name. `user` begins the message about another key: "eval". */
ott_status config_override(config *cfg, const char *argument, const char *const *allowed, const char *user,
                           const char **key);
/* The output head, as filter_fqns names it in the config format of the run's file: "lm_head". */
const char *config_head_name(const config *cfg);
/* The keys of [float8] that define a recipe; the others say where and when it applies. */
const char *const *config_recipe_keys(int *count);
/* How many ranks read rows of their own: what follows from it is filled in, as train.grad_accum_steps, and what depends on
   parallel sizes is checked. */
ott_status config_set_data_ranks(config *cfg, int64_t ranks);
/* Do products compute with copies of master weights, never with these? */
bool config_copies_masters(const config *cfg);
/* Rows of the data that a step takes, over all ranks. */
int64_t config_step_rows(const config *cfg);
/* Rows of a batch of evaluation, and tokens of a row: those of training, unless it is on and has its own. */
int64_t config_evaluation_batch(const config *cfg);
int64_t config_evaluation_length(const config *cfg);
/* Appends the value of a key (canonical name) as written in TOML. */
ott_status config_show(const config *cfg, const char *key, str *out);
/* The words of a choice key in the schema: config_word(cfg, "train.mixed_precision") is "fp8". NULL: not a
 * choice. */
const char *config_word(const config *cfg, const char *key);

/* Appends the resolved configuration as TOML, each key with its meaning; it reads back to an equal config. */
ott_status config_write_toml(const config *cfg, str *out);
/* Appends every key: section, name, type, default, what is allowed, meaning, other tools' names. */
ott_status config_help(str *out);
/* The same of a section ("float8") or a key ("optimizer.lr"), by any tool's name of it. */
ott_status config_help_about(const char *what, str *out);
/* Calls back for each key whose values differ, with both as written in TOML. */
typedef void (*config_difference)(void *user, const char *key, const char *value_a, const char *value_b);
ott_status config_differences(const config *a, const config *b, config_difference callback, void *user);

#endif
