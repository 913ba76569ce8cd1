/*
 * api/state: the files of a module's checkpoint, described once for saving and loading. Internal to this
 * floor.
 *
 *     model.safetensors       parameters, by name
 *     optimizer.safetensors   "<parameter>.exp_avg", ".exp_avg_sq"; absent without an optimizer
 *     float8.safetensors      "<linear>.<input|weight|grad_output>.<format>.amax_history", ".scale", as in a
 *                             run's checkpoints (checkpoint/float8.h); absent without delayed scaling
 *     module.json             counters, recipes, and the CRC-32C of each tensor:
 *
 *     {"version": 1, "step": N, "updates": N,
 *      "float8": {"0": {"recipe": "delayed", "margin": {"input": 0, ...}}, ...},
 *      "tensors": {"model.safetensors": {"0.weight": N, ...}, ...}, "crc32c": N}
 *
 * updates is null without an optimizer. The last member is the CRC-32C of all others, compact and with sorted
 * keys.
 */
#ifndef API_STATE_H
#define API_STATE_H

#include "api/optimizer.h"
#include "base/arena.h"
#include "formats/safetensors.h"
#include <jansson.h>

#define STATE_JSON    "module.json"
#define STATE_VERSION 1
#define STATE_LIMIT   (INT64_C(1) << 26) /* bytes of module.json */

/* Bytes of the piece that tensors go through; the longest amax history is one piece. */
enum { STATE_BUFFER = 1 << 22 };

#define STATE_FILE_MAP(X)                                                                                    \
    X(MODEL, "model.safetensors")                                                                            \
    X(OPTIMIZER, "optimizer.safetensors")                                                                    \
    X(FLOAT8, "float8.safetensors")

typedef enum state_file {
#define X(id, name) STATE_##id,
    STATE_FILE_MAP(X)
#undef X
        STATE_FILES
} state_file;

const char *state_file_name(state_file id);

/* The tensors of one file: as the file names them, and where they are on the device. */
typedef struct state_set {
    arena *memory;
    safetensors_tensor *declared;
    tensor *values;
    uint32_t *crc; /* of what was written */
    int64_t count, capacity;
} state_set;

/* optimizer may be NULL: its set is then empty. */
ott_status state_set_open(state_set *set, state_file id, ott_module *m, const ott_optimizer *o);
void state_set_close(state_set *set);
/* "0.input.e4m3.scale" for part ".scale"; in `memory`. */
ott_status state_float8_name(arena *memory, const char *fqn, int which, ott_dtype format, const char *part,
                             const char **out);
/* CRC-32C of the object's one canonical text. */
ott_status state_json_crc(const json_t *object, uint32_t *crc);

#endif
