/* base/json/json_write: writes JSON, member by member. */
#include "base/json/json_write.h"
#include "base/text/number.h"
#include <inttypes.h>
#include <string.h>

void json_write_key(str *out, const char *key) {
    bool first = out->length == 0 || strchr("{[", out->text[out->length - 1]);
    if (!first) str_append(out, ", ");
    if (!key) return;
    str_append_json(out, key, (int64_t)strlen(key));
    str_append(out, ": ");
}

void json_write_open(str *out, const char *key, const char *json) {
    json_write_key(out, key);
    str_append(out, json);
}

void json_write_text(str *out, const char *key, const char *text) {
    json_write_key(out, key);
    str_append_json(out, text, (int64_t)strlen(text));
}

void json_write_integer(str *out, const char *key, int64_t value) {
    json_write_key(out, key);
    str_printf(out, "%" PRId64, value);
}

void json_write_real(str *out, const char *key, double value) {
    char number[32];
    json_write_key(out, key);
    str_append(out, number_metric(value, number));
}

void json_write_bool(str *out, const char *key, bool value) {
    json_write_key(out, key);
    str_append(out, value ? "true" : "false");
}
