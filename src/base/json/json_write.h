/* base/json/json_write: writes JSON, member by member. The caller writes brackets and braces with
   str_append. */
#ifndef BASE_JSON_JSON_WRITE_H
#define BASE_JSON_JSON_WRITE_H

#include "base/text/str.h"

/* Each function writes ", " (except after "{" or "["), then key and value. In a list the key is NULL. */
void json_write_key(str *out, const char *key); /* writes a key without a value */
/* Writes a key, and `json` unchanged: the opening bracket of the value, or a complete value. */
void json_write_open(str *out, const char *key, const char *json);
void json_write_text(str *out, const char *key, const char *text);
void json_write_integer(str *out, const char *key, int64_t value);
void json_write_real(str *out, const char *key, double value); /* writes null for NaN and infinity */
void json_write_bool(str *out, const char *key, bool value);

#endif
