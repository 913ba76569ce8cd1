/* base/json/json_text: parses JSON with jansson, and also distinguishes invalid text from a lack of
   memory. */
#ifndef BASE_JSON_JSON_TEXT_H
#define BASE_JSON_JSON_TEXT_H

#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>

/* Like json_loadb(text, bytes, flags, error). For invalid text returns OTT_OK, *out NULL and the reason in
   `error`; the caller reports the reason with the file's name. OTT_ERR_MEMORY if memory ran out. */
ott_status json_text_parse(const char *text, int64_t bytes, size_t flags, json_t **out, json_error_t *error);
/* Like json_text_parse, for a row of data: refuses duplicate members, allows NUL bytes in strings, and
   converts integers that do not fit in 64 bits to floating-point numbers. */
ott_status json_row_parse(const char *text, int64_t bytes, json_t **out, json_error_t *error);
/* True if text is one valid JSON value, nested no deeper than jansson allows. Allocates nothing. */
bool json_text_is_valid(const char *text, int64_t bytes);
/* True if text is empty or white space. */
bool json_text_is_blank(const char *text, int64_t bytes);

#endif
