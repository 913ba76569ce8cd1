/*
 * run_folder: a temporary folder of checkpoints, and small models to save into it and load from it. What goes
 * wrong here ends the test (cmocka).
 */
#ifndef TESTS_PARALLEL_RUN_FOLDER_H
#define TESTS_PARALLEL_RUN_FOLDER_H

#include "checkpoint/checkpoint.h"

typedef struct run_folder {
    mem *account;
    device *device;
    config *cfg;
    char root[64];
    char text[4][256]; /* what at() returned last */
    int next;
} run_folder;

/* cmocka setup and teardown; the state is a run_folder. Teardown fails the test when memory was leaked. */
int run_folder_setup(void **state);
int run_folder_teardown(void **state);
/* "ROOT/name" as printf makes it; four may be in use at a time. */
const char *at(run_folder *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a run that starts from a Hugging Face folder makes of it. */
model_options folder_model_options(mem *account, const char *folder);
/* Two layers of width 16; the embedding is larger than any buffer a checkpoint is copied through. */
model_options small_options(void);
/* Parameters and moments get bits that depend on `seed`. seed 0: zeros. */
model *small_model(run_folder *f, const model_options *o, model_use use, uint64_t seed);
/* Are parameters (and moments, where both have them) the same bits? */
void assert_same_model(const model *a, const model *b);
/* Is the second, of a rank, this rank's rows of the first? Value, and state where both have it. */
void assert_shard_of(const model *whole, const model *part);
/* The elements on the host, to be freed; and back. */
float *parameter_values(const model *m, const parameter *p);
void set_parameter(const model *m, const parameter *p, const float *values);
run_state state_at(int64_t step);
/* A model of that seed saved as step `step` of the root. */
void save_step(run_folder *f, int64_t step, uint64_t seed, int64_t keep);

/* Whole files. */
char *read_text(run_folder *f, const char *path, int64_t *bytes);
void write_bytes(const char *path, const void *data, int64_t bytes);
/* The names in the root, each followed by a space. */
const char *names_in_root(run_folder *f);
/* The last error is one line and has each of the texts (ends with NULL). */
void assert_error(ott_status status, ott_status expected, ...) __attribute__((sentinel));

#endif
