/* base/json/json_member: checked access to the members of a JSON object. Errors say "KEY is missing" or "KEY
   is a number, not a text". The caller adds the file's name (status_context). */
#ifndef BASE_JSON_JSON_MEMBER_H
#define BASE_JSON_JSON_MEMBER_H

#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>

typedef enum json_kind {
    JSON_KIND_TEXT,
    JSON_KIND_INTEGER,
    JSON_KIND_REAL, /* also accepts an integer */
    JSON_KIND_BOOL,
    JSON_KIND_LIST,
    JSON_KIND_OBJECT
} json_kind;

/* If a member is absent or null, JSON_NEEDED fails the call; JSON_OPTIONAL keeps the output's value. */
typedef enum json_need { JSON_OPTIONAL, JSON_NEEDED } json_need;

/* Names the kind of a JSON value: "a list", "true", ... */
const char *json_kind_name(const json_t *value);
/* Sets *out to the member, which the object owns. Sets it to NULL if the member is optional and absent. */
ott_status json_member(const json_t *object, const char *key, json_kind kind, json_need need,
                       const json_t **out);
ott_status json_member_text(const json_t *object, const char *key, json_need need,
                            const char **out); /* *out is owned by the object */
ott_status json_member_integer(const json_t *object, const char *key, json_need need, int64_t least,
                               int64_t most, int64_t *out);
ott_status json_member_real(const json_t *object, const char *key, json_need need, double *out);
ott_status json_member_bool(const json_t *object, const char *key, bool fallback,
                            bool *out); /* fallback: value if the member is absent */

/* Finds a required field of a row of data. If the field is missing, the error lists the row's fields. */
ott_status json_row_field(const json_t *row, const char *name, const json_t **out);
ott_status json_row_text(const json_t *row, const char *name, const json_t **out);

/* Returns NaN if the member is absent or not a number. */
double json_real_or_nan(const json_t *object, const char *key);

#endif
