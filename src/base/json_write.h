/* base/json_write: a JSON text, member by member. Objects and lists are opened and closed by hand:
   str_append(out, "{"). */
#ifndef BASE_JSON_WRITE_H
#define BASE_JSON_WRITE_H

#include "base/str.h"

/* Each writes ", " unless it is the first behind "{" or "[", then the key (NULL: an element of a list) and the value. */
void json_write_key(str *out, const char *key); /* what follows is the caller's */
void json_write_text(str *out, const char *key, const char *text);
void json_write_integer(str *out, const char *key, int64_t value);
void json_write_real(str *out, const char *key, double value); /* null for NaN and infinity */
void json_write_bool(str *out, const char *key, bool value);

#endif
