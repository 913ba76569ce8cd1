/* api_case: what the tests of the public API share. */
#ifndef API_CASE_H
#define API_CASE_H

#include <ottava/ottava.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/collected.h"

void succeed(ott_status status);
/* The status, and an error text that has the part in it. */
void assert_error(ott_status status, ott_status expected, const char *part);
/* A context with two threads; what it logs goes nowhere. */
ott_context *open_context(void);
/* From then on the context's device wants columnwise codes to lie transposed (tensor/backend.h). */
void want_contiguous_contraction(ott_context *context);
/* Does it already? */
bool wants_contiguous_contraction(ott_context *context);
/* Makes everything a test needs, and fails the test otherwise. */
ott_recipe *open_recipe(ott_context *context, const char *name);
ott_tensor *open_tensor(ott_context *context, ott_dtype dtype, int64_t rows, int64_t columns);
ott_tensor *open_normal(ott_context *context, ott_dtype dtype, int64_t rows, int64_t columns, uint64_t seed);
ott_qtensor *open_qtensor(ott_context *context, int64_t rows, int64_t columns, ott_recipe *r, ott_role role);

/* Host copies of a tensor's elements and of the arrays of one use of a quantized tensor. The last COPIES_KEPT arrays
   stay. */
#define COPIES_KEPT 32
const void *tensor_on_host(ott_tensor *t);
ott_qdata use_on_host(ott_qtensor *q, ott_usage use);
/* Skips the test where the context's device does not work on the host's own memory. */
void needs_host_memory(void);

#endif
