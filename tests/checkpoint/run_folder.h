/*
 * run_folder: a temporary folder of checkpoints, and small models to save into it and load from it. A call
 * that fails ends the test (cmocka).
 */
#ifndef TESTS_CHECKPOINT_RUN_FOLDER_H
#define TESTS_CHECKPOINT_RUN_FOLDER_H

#include "checkpoint/checkpoint.h"

typedef struct run_folder {
    mem *account;
    device *device;
    config *cfg;
    char root[64];
    char text[4][256]; /* the last four results of at() */
    int next;
} run_folder;

/* cmocka setup and teardown; the state is a run_folder. Teardown fails the test when memory was leaked. */
int run_folder_setup(void **state);
int run_folder_teardown(void **state);
/* Returns the path "ROOT/name" from a printf format. The path is valid until the fourth call after this
   one. */
const char *at(run_folder *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the model options of a run that starts from a Hugging Face folder. */
model_options folder_model_options(mem *account, const char *folder);
/* Options of a model with two layers of width 16. The model's embedding is larger than a checkpoint's copy
   buffer. */
model_options small_options(void);
/* Opens a model. The bits of its parameters and moments depend on `seed`. seed 0: all zeros. */
model *small_model(run_folder *f, const model_options *o, model_use use, uint64_t seed);
/* Fails unless two models have the same bits: parameters, and moments if both models have them. */
void assert_same_model(const model *a, const model *b);
/* Fails unless the shards of model `part` equal their rows of model `full`, in values and optimizer state. */
void assert_shard_of(const model *full, const model *part);
/* Copies a parameter's elements to the host, as fp32. The caller frees the copy. */
float *parameter_values(const model *m, const parameter *p);
void set_parameter(const model *m, const parameter *p, const float *values);
run_state state_at(int64_t step);
/* Saves a model with bits of `seed` as step-`step` in the root folder. keep: checkpoint.keep_last_n. */
void save_step(run_folder *f, int64_t step, uint64_t seed, int64_t keep);

/* Reads a file as text. The caller frees it. */
char *read_text(run_folder *f, const char *path, int64_t *bytes);
void write_bytes(const char *path, const void *data, int64_t bytes);
/* Returns the names in the root folder, each followed by a space. */
const char *names_in_root(run_folder *f);
/* Fails unless the last error is one line and contains each of the texts. The list ends with NULL. */
void assert_error(ott_status status, ott_status expected, ...) __attribute__((sentinel));

#endif
