/*
 * checkpoint/state: state.json of a checkpoint: the run's counters, the model's dimensions, and sizes and
 * checksums of the other files. Internal to src/checkpoint.
 *
 *     {"version": 3, "run": {...}, "owner": {"run": ID, "branch": N}, "model": {...},
 *      "files": {"model.safetensors": {"bytes": N, "crc32c": N}, ...}, "crc32c": N}
 *
 * owner: run and branch of the checkpoint (run.h); not in version 2. The last member is a checksum (json.h).
 * If a run trains adapters on a Hugging Face folder, model.safetensors lacks the frozen weights, and
 * state.json has "base": {"folder": PATH, "files": N, "bytes": N, "hash": N} (hf_base.h). For a single module
 * of the public API "model" is null, and "files" has only the files that the module needs.
 */
#ifndef CHECKPOINT_STATE_H
#define CHECKPOINT_STATE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/run_record.h"

#define CHECKPOINT_STATE_NAME "state.json"

/* The files next to state.json, in the order in which they are written. */
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
    bool absent; /* the checkpoint has no such file */
    int64_t bytes;
    uint32_t crc;
} checkpoint_file;

/* The value of a field of state.json. A field of type REAL uses `real`, other fields `integer`. */
typedef struct state_value {
    int64_t integer; /* an integer, a bool, or the index of a word */
    double real;
} state_value;

enum { CHECKPOINT_SHAPE_FIELDS = 18 };

typedef struct checkpoint_state {
    bool lacks_owner; /* the file has version 2, which recorded no run */
    /* saved by the public API for a single module: no dimensions, fewer files */
    bool is_bare_module;
    run_state run;
    run_mark mark;
    model_base base; /* base.files is 0 if the checkpoint has all weights */
    state_value shape[CHECKPOINT_SHAPE_FIELDS];
    checkpoint_file files[CHECKPOINT_FILE_COUNT];
} checkpoint_state;

const char *checkpoint_file_name(enum checkpoint_file_id id);
void checkpoint_state_describe(const model_options *o, checkpoint_state *s); /* fills s->shape from o */
ott_status checkpoint_state_write(mem *account, const char *path, const checkpoint_state *s);
/* Reads state.json and checks it, but not the other files. Errors name the path, the member and its value. */
ott_status checkpoint_state_read(mem *account, const char *path, checkpoint_state *s);
/* Compares the dimensions with the model's. OTT_ERR_SHAPE names the first key that differs, and `folder`. */
ott_status checkpoint_state_match(const checkpoint_state *s, const model_options *o, const char *folder);

#endif
