/*
 * config/compat/foreign: keys of other tools whose meaning depends on other keys, and what those tools do when a key
 * is absent. Internal to this floor.
 */
#ifndef CONFIG_FOREIGN_H
#define CONFIG_FOREIGN_H

#include "config/config.h"
#include "config/table.h"
#include "config/tree.h"

/* For which tool a file was written. */
typedef enum config_format {
    CONFIG_FORMAT_OWN,
    CONFIG_FORMAT_KEMPNER,
    CONFIG_FORMAT_TITAN,
    CONFIG_FORMAT_AUTOMODEL
} config_format;

typedef struct foreign_state {
    config_format config_format;
    int fp8;                     /* a switch of its own (converters, fp8.enabled): -1 nothing said, 0, 1 */
    int precision;               /* the format named beside it: -1 or a config_precision */
    const char *precision_where; /* where it was named */
    const char *ac_mode, *ac_option; /* torchtitan's activation checkpointing; NULL: not said */
    const char *dataset_class;       /* AutoModel's, that data.format follows from; NULL: none */
    bool mock;                       /* it is mock data */
    const node *mock_length;         /* its tokens per row; NULL: not given */
    const char *mock_length_where;
    bool adam;              /* the optimizer was named adam */
    bool titan_schedule;    /* decay_ratio or decay_type was said */
    double decay_ratio;     /* -1: not said */
    int64_t schedule_total; /* steps of torchtitan's schedule; 0: those of the run */
    config_wsd_decay decay_type;
    bool automodel_schedule;   /* an AutoModel file has a schedule */
    int64_t decay_total;       /* AutoModel's decay steps, which count the warmup; 0: not said */
    double min_lr;             /* AutoModel's absolute last learning rate; -1: not said */
    bool mx;                   /* torchtitan's converters ask for MX */
    bool mx_rounds_up;         /* its MX recipe; torchao's default rounds scales down */
    config_list mx_filter;     /* layers its MX converter leaves out */
    bool te_fp8;               /* AutoModel's model.backend.te_fp8 is there */
    bool te_experts;           /* and its experts are TransformerEngine's */
    const char *expert_recipe; /* of torchtitan's converter of grouped products; NULL: none */
    bool only_experts;         /* its converters name no other layers */
    const char *family;        /* torchtitan's model by its own name here, "qwen3"; NULL: not said */
    const char *flavor;        /* and its size, by torchtitan's name; NULL: not said */
    const char *flavor_where;
    bool from_config; /* AutoModel's model takes its shape from a folder, not its weights, */
    bool loads_base;  /* unless it is told to */
} foreign_state;

void foreign_open(foreign_state *f);
/* Which tool a file's sections belong to. */
config_format config_format_detect(const node *root);
/* Gives keys the file left out the defaults of the tool it was written for. */
ott_status config_format_defaults(config *cfg);
/* Our own key was set: what a foreign key said about the same thing no longer counts. */
void foreign_key_was_set(config *cfg, const config_key *key);
/* Works out values that follow from several keys; may be repeated. */
ott_status foreign_finalize(config *cfg);
/* The same for FP8 only. */
ott_status foreign_finalize_float8(config *cfg);
/* The part of it that is about the model. */
ott_status foreign_finalize_model(config *cfg);

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
