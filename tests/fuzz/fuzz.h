/*
 * fuzz: functions that all fuzz targets use. A target reads its input as a malicious file. It may refuse the
 * input, but must not crash, hang, leak, read out of bounds or violate a guarantee of the tested header
 * (FUZZ_REQUIRE).
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Functions of a target, which libFuzzer calls. LLVMFuzzerCustomMutator is optional. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t limit, unsigned seed);
/* A function of libFuzzer, which LLVMFuzzerCustomMutator may call. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t limit);

/* Opens an account for one input; mem_close reports leaks. */
mem *fuzz_account(void);
/* Returns the path of `name` in this process's folder in TMPDIR. It is valid for the next three calls. */
const char *fuzz_path(const char *name);
/* Writes these bytes to the file; data = NULL: removes it. Returns its path. */
const char *fuzz_file(const char *name, const void *data, size_t bytes);

/* Prints the place in the source and the last error text, and aborts. */
void fuzz_fail(const char *file, int line, const char *expression) __attribute__((noreturn));
#define FUZZ_REQUIRE(expression)                                                                             \
    do {                                                                                                     \
        if (!(expression)) fuzz_fail(__FILE__, __LINE__, #expression);                                       \
    } while (0)

#endif
