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
    config_list mx_filter;     /* layers that the MX converter skips */
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
ott_status foreign_model_name(config *cfg, const node *value, const char *where);
ott_status foreign_flavor(config *cfg, const node *value, const char *where);
ott_status foreign_model_target(config *cfg, const node *value, const char *where);
ott_status foreign_load_base_model(config *cfg, const node *value, const char *where);
ott_status foreign_seed(config *cfg, const node *value, const char *where);
ott_status foreign_converters(config *cfg, const node *value, const char *where);
ott_status foreign_mx_recipe(config *cfg, const node *value, const char *where);
ott_status foreign_mx_filter(config *cfg, const node *value, const char *where);
ott_status foreign_expert_names(config *cfg, const node *value, const char *where);
ott_status foreign_te_section(config *cfg, const node *value, const char *where);
ott_status foreign_te_recipe(config *cfg, const node *value, const char *where);
ott_status foreign_te_experts(config *cfg, const node *value, const char *where);
ott_status foreign_adapters(config *cfg, const node *value, const char *where);
ott_status foreign_fp8_enabled(config *cfg, const node *value, const char *where);
ott_status foreign_precision(config *cfg, const node *value, const char *where);
ott_status foreign_parameter_dtype(config *cfg, const node *value, const char *where);
ott_status foreign_moment_dtype(config *cfg, const node *value, const char *where);
ott_status foreign_ac_mode(config *cfg, const node *value, const char *where);
ott_status foreign_ac_option(config *cfg, const node *value, const char *where);
ott_status foreign_beta1(config *cfg, const node *value, const char *where);
ott_status foreign_beta2(config *cfg, const node *value, const char *where);
ott_status foreign_total_steps(config *cfg, const node *value, const char *where);
ott_status foreign_decay_ratio(config *cfg, const node *value, const char *where);
ott_status foreign_decay_type(config *cfg, const node *value, const char *where);
ott_status foreign_packed_size(config *cfg, const node *value, const char *where);
ott_status foreign_dataset_path(config *cfg, const node *value, const char *where);
ott_status foreign_validation_path(config *cfg, const node *value, const char *where);
ott_status foreign_dataset_target(config *cfg, const node *value, const char *where);
ott_status foreign_mock_length(config *cfg, const node *value, const char *where);
ott_status foreign_validation_target(config *cfg, const node *value, const char *where);
ott_status foreign_lr_warmup(config *cfg, const node *value, const char *where);
ott_status foreign_lr_decay_steps(config *cfg, const node *value, const char *where);
ott_status foreign_lr_decay_style(config *cfg, const node *value, const char *where);
ott_status foreign_min_lr(config *cfg, const node *value, const char *where);

#endif
