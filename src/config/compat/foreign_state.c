/* config/compat/foreign_state: initializes foreign_state, and changes it when one of our own keys is set. */
#include "config/state.h"
#include <string.h>

void foreign_open(foreign_state *f) {
    *f = (foreign_state){
        .fp8 = -1, .precision = -1, .decay_ratio = -1.0, .decay_type = WSD_DECAY_LINEAR, .min_lr = -1.0};
}

void foreign_key_was_set(config *cfg, const config_key *key) {
    foreign_state *f = &cfg->state->foreign;
    if (strcmp(key->path, "train.mixed_precision") == 0) {
        f->fp8 = cfg->train.mixed_precision == PRECISION_FP8;
        f->precision = f->fp8 ? -1 : (int)cfg->train.mixed_precision;
        f->te_fp8 = false;
    } else if (strcmp(key->path, "train.activation_checkpointing") == 0) {
        f->ac_mode = f->ac_option = NULL;
    } else if (strcmp(key->path, "data.format") == 0) {
        f->dataset_class = NULL;
    } else if (strcmp(key->path, "optimizer.name") == 0) {
        f->adam = cfg->optimizer.name == OPTIMIZER_ADAM;
    } else if (strcmp(key->path, "model.preset") == 0) {
        f->flavor = NULL;
    } else if (strcmp(key->path, "scheduler.min_lr_ratio") == 0) {
        f->min_lr = -1.0;
    }
}
