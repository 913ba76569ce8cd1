/*
 * config/compat/foreign: other tools' defaults, and the functions for their SPECIAL keys (aliases.def). Most
 * functions set our key. If our key depends on several of their keys, the function only stores the value in
 * foreign_state, and a finalize function sets our key later. Internal to config.
 */
#ifndef CONFIG_FOREIGN_H
#define CONFIG_FOREIGN_H

#include "config/config.h"
#include "config/table.h"
#include "config/parse/tree.h"

/* The tool that a file was written for. */
typedef enum config_format {
    CONFIG_FORMAT_OWN,
    CONFIG_FORMAT_KEMPNER,
    CONFIG_FORMAT_TITAN,
    CONFIG_FORMAT_AUTOMODEL
} config_format;

typedef struct foreign_state {
    config_format config_format;
    int fp8;                     /* a separate FP8 switch (converters, fp8.enabled): 0 or 1; -1: not given */
    int precision;               /* a separate dtype, as a config_precision; -1: not given */
    const char *precision_where; /* place where the dtype was given, for messages */
    const char *ac_mode, *ac_option; /* torchtitan's activation checkpointing; NULL: not given */
    const char *dataset_class;       /* the AutoModel class that decided data.format; NULL: none */
    bool mock;                       /* dataset_class is a mock data set */
    const node *mock_length;         /* tokens per row of the mock data; NULL: not given */
    const char *mock_length_where;
    bool adam;              /* optimizer.name was adam */
    bool titan_schedule;    /* the file is torchtitan's, or has a decay key of torchtitan */
    double decay_ratio;     /* torchtitan's share of all steps that decay; -1: not given */
    int64_t schedule_total; /* steps of torchtitan's schedule; 0: train.max_steps */
    config_wsd_decay decay_type;
    bool automodel_schedule;   /* an AutoModel file has a learning-rate schedule */
    int64_t decay_total;       /* AutoModel's decay steps including the warmup; 0: not given */
    double min_lr;             /* AutoModel's last learning rate, not divided by the peak; -1: not given */
    bool mx;                   /* torchtitan's converters include MX */
    bool mx_rounds_up;         /* the MX recipe rounds scales up; torchao's default rounds down */
    str_list mx_filter;        /* layers that the MX converter skips */
    bool te_fp8;               /* AutoModel's model.backend.te_fp8 is on */
    bool te_experts;           /* AutoModel's model.backend.experts is TransformerEngine */
    const char *expert_recipe; /* our recipe for torchtitan's grouped_mm converter; NULL: not given */
    bool only_experts;         /* torchtitan's converters convert experts and no other layers */
    const char *family;        /* torchtitan's model.name as our family, "qwen3"; NULL: not given */
    const char *flavor;        /* torchtitan's model.flavor; NULL: not given */
    const char *flavor_where;
    bool from_config; /* AutoModel's model uses a folder's config.json with random weights */
    bool loads_base;  /* load_base_model is true: use the folder's weights */
} foreign_state;

void foreign_open(foreign_state *f); /* resets all members to "not given" */
/* Detects from a file's sections which tool it was written for. */
config_format config_format_detect(const node *root);
/* Sets the keys that a file does not give to the defaults of the file's tool. */
ott_status config_format_defaults(config *cfg);
/* Call after our own key was set. It overwrites the stored values of other tools' keys for the same thing. */
void foreign_key_was_set(config *cfg, const config_key *key);
/* Computes each of our keys that depends on several keys of another tool. May be called repeatedly. */
ott_status foreign_finalize(config *cfg);
/* The FP8 part of foreign_finalize. */
ott_status foreign_finalize_float8(config *cfg);
/* The model part of foreign_finalize. */
ott_status foreign_finalize_model(config *cfg);

/* An alias_function for each SPECIAL row of aliases.def. */
#define SPECIAL(path, key, function) ott_status function(config *cfg, const node *value, const char *where);
#define SAME(path, key)
#define WORDS(path, key, list)
#define CLOSED(path, list)
#include "config/compat/aliases.def"

#endif
