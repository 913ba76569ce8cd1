/* base/json_text: JSON from a text, through jansson, with what jansson leaves open: whether a text that was
   not read is wrong, or memory ran out. */
#ifndef BASE_JSON_TEXT_H
#define BASE_JSON_TEXT_H

#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>

/* As json_loadb(text, bytes, flags, error), with *out NULL and OTT_OK for a text that is wrong: `error` says why, and
   the caller of which file. OTT_ERR_MEMORY when memory ran out. */
ott_status json_text_parse(const char *text, int64_t bytes, size_t flags, json_t **out, json_error_t *error);
/* The same for a row of data: duplicate members are refused, texts may hold the byte 0, and integers that do not fit 64 bits become
   floating-point numbers. */
ott_status json_row_parse(const char *text, int64_t bytes, json_t **out, json_error_t *error);
/* Is it one JSON value, by its grammar alone? Takes no memory; deeper than jansson reads is not. */
bool json_text_is_valid(const char *text, int64_t bytes);
/* Is there nothing but white space? */
bool json_text_is_blank(const char *text, int64_t bytes);

#endif
