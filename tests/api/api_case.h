/* api_case: helpers for the tests of the public API. */
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
/* Asserts the status, and that the error text contains `part`. */
void assert_error(ott_status status, ott_status expected, const char *part);
/* Opens a context with two threads and no log. */
ott_context *open_context(void);
/* Makes the context's device require transposed columnwise codes (see tensor/backend.h). */
void set_contiguous_contraction(ott_context *context);
/* True if the context's device requires transposed columnwise codes. */
bool needs_contiguous_contraction(ott_context *context);
/* Open an object. If the call fails, the test fails. */
ott_recipe *open_recipe(ott_context *context, const char *name);
ott_tensor *open_tensor(ott_context *context, ott_dtype dtype, int64_t rows, int64_t columns);
ott_tensor *open_normal(ott_context *context, ott_dtype dtype, int64_t rows, int64_t columns, uint64_t seed);
ott_qtensor *open_qtensor(ott_context *context, int64_t rows, int64_t columns, ott_recipe *r, ott_role role);

/* Copy to host memory: tensor_on_host copies a tensor's elements, use_on_host the rowwise or columnwise copy
   of a quantized tensor. The last COPIES_KEPT arrays stay valid. */
#define COPIES_KEPT 32
const void *tensor_on_host(ott_tensor *t);
ott_qdata use_on_host(ott_qtensor *q, ott_usage use);
/* Skips the test if device memory is not host memory. */
void needs_host_memory(void);

#endif
