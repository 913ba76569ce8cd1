/*
 * run_folder: a temporary folder of checkpoints, and small models to save into it and load from it. A call
 * that fails ends the test (cmocka).
 */
#ifndef TESTS_PARALLEL_RUN_FOLDER_H
#define TESTS_PARALLEL_RUN_FOLDER_H

#include "checkpoint/checkpoint.h"

typedef struct run_folder {
    mem *account;
    device *device;
    config *cfg;
    char root[64];
    char text[4][256]; /* the last results of at() */
    int next;
} run_folder;

/* cmocka setup and teardown; the state is a run_folder. Teardown fails the test when memory was leaked. */
int run_folder_setup(void **state);
int run_folder_teardown(void **state);
/* The path "ROOT/name" from a printf format. Four paths may be in use at a time. */
const char *at(run_folder *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The model options of a run that starts from a Hugging Face folder. */
model_options folder_model_options(mem *account, const char *folder);
/* Two layers of width 16. The embedding is larger than any copy buffer of a checkpoint. */
model_options small_options(void);
/* A model with parameters and moments of bits that depend on `seed`. seed 0: zeros. */
model *small_model(run_folder *f, const model_options *o, model_use use, uint64_t seed);
/* Fails unless parameters (and moments, if both models have them) have the same bits. */
void assert_same_model(const model *a, const model *b);
/* Fails unless `part`, a rank's model, has this rank's rows of `full`: values, and state if both have it. */
void assert_shard_of(const model *full, const model *part);
/* A parameter's elements on the host. The caller frees them. */
float *parameter_values(const model *m, const parameter *p);
void set_parameter(const model *m, const parameter *p, const float *values);
run_state state_at(int64_t step);
/* Saves a model of that seed as step `step` in the root. keep: keep_last_n. */
void save_step(run_folder *f, int64_t step, uint64_t seed, int64_t keep);

/* Read a full file. The caller frees the text. */
char *read_text(run_folder *f, const char *path, int64_t *bytes);
void write_bytes(const char *path, const void *data, int64_t bytes);
/* The names in the root folder, each followed by a space. */
const char *names_in_root(run_folder *f);
/* Fails unless the last error is one line and contains each of the texts. The list ends with NULL. */
void assert_error(ott_status status, ott_status expected, ...) __attribute__((sentinel));

#endif
