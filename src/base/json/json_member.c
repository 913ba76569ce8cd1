/* base/json/json_member: checked access to the members of a JSON object. */
#include "base/json/json_member.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool is_kind(const json_t *value, json_kind kind) {
    switch (kind) {
    case JSON_KIND_TEXT: return json_is_string(value);
    case JSON_KIND_INTEGER: return json_is_integer(value);
    case JSON_KIND_REAL: return json_is_number(value);
    case JSON_KIND_BOOL: return json_is_boolean(value);
    case JSON_KIND_LIST: return json_is_array(value);
    case JSON_KIND_OBJECT: return json_is_object(value);
    }
    return false;
}

const char *json_kind_name(const json_t *value) {
    static const char *const names[] = {"an object", "a list", "a text", "a whole number",
                                        "a number",  "true",   "false",  "null"};
    return value ? names[json_typeof(value)] : "missing";
}

ott_status json_member(const json_t *object, const char *key, json_kind kind, json_need need,
                       const json_t **out) {
    static const char *const kinds[] = {"a text",        "a whole number", "a number",
                                        "true or false", "a list",         "an object"};
    const json_t *value = json_object_get(object, key);
    if (need == JSON_OPTIONAL && json_is_null(value)) value = NULL;
    *out = value;
    if (!value && need == JSON_OPTIONAL) return OTT_OK;
    if (!value) return status_fail(OTT_ERR_FORMAT, "%s is missing", key);
    if (is_kind(value, kind)) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "%s is %s, not %s", key, json_kind_name(value), kinds[kind]);
}

ott_status json_member_text(const json_t *object, const char *key, json_need need, const char **out) {
    const json_t *value;
    TRY(json_member(object, key, JSON_KIND_TEXT, need, &value));
    if (value) *out = json_string_value(value);
    return OTT_OK;
}

ott_status json_member_integer(const json_t *object, const char *key, json_need need, int64_t least,
                               int64_t most, int64_t *out) {
    const json_t *value;
    TRY(json_member(object, key, JSON_KIND_INTEGER, need, &value));
    if (!value) return OTT_OK;
    *out = json_integer_value(value);
    if (*out >= least && *out <= most) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "%s is %" PRId64 "; %" PRId64 " to %" PRId64 " are allowed", key, *out,
                       least, most);
}

ott_status json_member_real(const json_t *object, const char *key, json_need need, double *out) {
    const json_t *value;
    TRY(json_member(object, key, JSON_KIND_REAL, need, &value));
    if (value) *out = json_number_value(value);
    return OTT_OK;
}

ott_status json_member_bool(const json_t *object, const char *key, bool fallback, bool *out) {
    const json_t *value;
    TRY(json_member(object, key, JSON_KIND_BOOL, JSON_OPTIONAL, &value));
    *out = value ? json_is_true(value) : fallback;
    return OTT_OK;
}

/* Writes the field names of a data row to out, as many as fit. */
static void list_fields(const json_t *row, char out[200]) {
    size_t length = 0;
    const char *name;
    json_t *value, *members = (json_t *)row; /* json_object_foreach takes no const object */
    out[0] = 0;
    json_object_foreach(members, name, value) {
        if (length + strlen(name) + 3 >= 200) return;
        if (length) memcpy(out + length, ", ", 2), length += 2;
        memcpy(out + length, name, strlen(name) + 1);
        length += strlen(name);
    }
}

ott_status json_row_field(const json_t *row, const char *name, const json_t **out) {
    char fields[200];
    *out = json_object_get(row, name);
    if (*out) return OTT_OK;
    list_fields(row, fields);
    return status_fail(OTT_ERR_FORMAT, "the row has no field \"%s\"; it has %s", name,
                       fields[0] ? fields : "none");
}

ott_status json_row_text(const json_t *row, const char *name, const json_t **out) {
    TRY(json_row_field(row, name, out));
    return json_member(row, name, JSON_KIND_TEXT, JSON_NEEDED, out);
}

double json_real_or_nan(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}
