/*
 * fuzz: shared by all targets. A target reads one input as a malicious file. It may refuse the input, but
 * must not crash, hang, leak, read out of bounds or violate a guarantee of the header (FUZZ_REQUIRE).
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry points; the second one is optional. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t limit, unsigned seed);
/* provided by libFuzzer, for the second */
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t limit);

/* Opens an account for one input; mem_close reports leaks. */
mem *fuzz_account(void);
/* Returns "FOLDER/name" in this process's folder inside TMPDIR. Valid until the fourth call from now. */
const char *fuzz_path(const char *name);
/* Writes these bytes to the file; data = NULL: removes it. Returns its path. */
const char *fuzz_file(const char *name, const void *data, size_t bytes);

/* Aborts with the place and the last error text. */
void fuzz_fail(const char *file, int line, const char *expression) __attribute__((noreturn));
#define FUZZ_REQUIRE(expression)                                                                             \
    do {                                                                                                     \
        if (!(expression)) fuzz_fail(__FILE__, __LINE__, #expression);                                       \
    } while (0)

#endif
