/* tests/fuzz: what every target shares. A target reads one input as a hostile file: it may be refused, never
 * crash, hang, leak, read out of bounds or break a promise of the header (FUZZ_REQUIRE). */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "base/mem.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry points; the second only where a target defines it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t limit, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t limit); /* libFuzzer's own, for the second */

/* An account for one input; mem_close reports what was leaked. */
mem *fuzz_account(void);
/* "FOLDER/name" in this process's folder below TMPDIR; valid until the fourth call from now. */
const char *fuzz_path(const char *name);
/* Makes that file hold these bytes; data = NULL: there is no such file. Returns its path. */
const char *fuzz_file(const char *name, const void *data, size_t bytes);

/* Aborts with the place and the last error text. */
void fuzz_fail(const char *file, int line, const char *expression) __attribute__((noreturn));
#define FUZZ_REQUIRE(expression)                                                                             \
    do {                                                                                                     \
        if (!(expression)) fuzz_fail(__FILE__, __LINE__, #expression);                                       \
    } while (0)

#endif
