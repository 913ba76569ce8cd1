/*
 * golden: reads the files of tests/golden (contents: tests/golden/README.md). A missing tensor or a wrong
 * shape ends the test.
 */
#ifndef TESTS_NN_GOLDEN_H
#define TESTS_NN_GOLDEN_H

#include "formats/safetensors/safetensors.h"
#include "tensor/tensor.h"

typedef struct golden {
    mem *account;
    safetensors *file;
} golden;

/* A tensor of a file, in host memory. The caller frees it with golden_free. A vector has one row. */
typedef struct golden_tensor {
    tensor t;      /* the elements in the file's format */
    float *values; /* the values as fp32 */
    int64_t count;
} golden_tensor;

/* file: its name without folder and suffix, such as "model_fp32" */
void golden_open(golden *g, mem *account, const char *file);
void golden_close(golden *g);
/* True if the file has this tensor. The name is a printf format and its arguments. */
bool golden_has(const golden *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
golden_tensor golden_read(const golden *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
void golden_free(const golden *g, golden_tensor *t);

#endif
