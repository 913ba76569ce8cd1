/*
 * checkpoint/state: state.json of a checkpoint: the run's counters, the model's dimensions, and what
 * the other files must be. Internal to this floor.
 *
 *     {"version": 3, "run": {...}, "owner": {"run": ID, "branch": N}, "model": {...},
 *      "files": {"model.safetensors": {"bytes": N, "crc32c": N}, ...}, "crc32c": N}
 *
 * A run with adapters on a Hugging Face folder leaves what is frozen there: model.safetensors has it not, and state.json has
 * "base": {"folder": PATH, "files": N, "bytes": N, "hash": N} (hf_base.h).
 * A module of the public API that is no model has no dimensions: "model" is null, and files it does not need are left out.
 * owner (not in version 2): of which run and branch the checkpoint is (run.h). The last member is
 * a checksum (json.h).
 */
#ifndef CHECKPOINT_STATE_H
#define CHECKPOINT_STATE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/run_record.h"

#define CHECKPOINT_STATE_NAME "state.json"

/* The files beside state.json, in the order they are written. */
#define CHECKPOINT_FILE_MAP(X)                                                                               \
    X(MODEL, "model.safetensors")                                                                            \
    X(OPTIMIZER, "optimizer.safetensors")                                                                    \
    X(FLOAT8, "float8.safetensors")                                                                          \
    X(CONFIG, "config.toml")

enum checkpoint_file_id {
#define X(id, name) CHECKPOINT_##id,
    CHECKPOINT_FILE_MAP(X)
#undef X
        CHECKPOINT_FILE_COUNT
};

typedef struct checkpoint_file {
    bool absent; /* there is no such file */
    int64_t bytes;
    uint32_t crc;
} checkpoint_file;

/* One number of the model's description; which member counts is known by its row (state.c). */
typedef struct state_value {
    int64_t integer; /* also a bool, and the place of a word in its list */
    double real;
} state_value;

enum { CHECKPOINT_SHAPE_FIELDS = 18 };

typedef struct checkpoint_state {
    bool lacks_owner; /* of a version that did not say whose a run's checkpoint is */
    /* of a module of the public API that is no model: without dimensions, and with the files it needs */
    bool is_bare_module;
    run_state run;
    run_mark mark;
    model_base base; /* of 0 files: the checkpoint holds all */
    state_value shape[CHECKPOINT_SHAPE_FIELDS];
    checkpoint_file files[CHECKPOINT_FILE_COUNT];
} checkpoint_state;

const char *checkpoint_file_name(enum checkpoint_file_id id);
void checkpoint_state_describe(const model_options *o, checkpoint_state *s); /* fills s->shape */
ott_status checkpoint_state_write(mem *account, const char *path, const checkpoint_state *s);
/* Checks everything that can be checked without the other files. Errors name the path, the member and its
 * value. */
ott_status checkpoint_state_read(mem *account, const char *path, checkpoint_state *s);
/* OTT_ERR_SHAPE, naming the first key that differs, both values and the way out. `folder` is for the message.
 */
ott_status checkpoint_state_match(const checkpoint_state *s, const model_options *o, const char *folder);

#endif
