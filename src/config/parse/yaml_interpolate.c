/* config/parse/yaml_interpolate: replaces environment variables in YAML scalars, as in AutoModel's files. */
#include "config/parse/yaml.h"
#include <stdlib.h>
#include <string.h>

#define NAME_LIMIT   128
#define RESULT_LIMIT 65536

static bool is_name(const char *text, size_t length) {
    if (length == 0 || length >= NAME_LIMIT) return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(i > 0 && c >= '0' && c <= '9')) return false;
    }
    return true;
}

/* Appends an environment variable's value or default. `inside`: text in ${ }, as [oc.env:]VAR[,default]. */
static ott_status append_variable(tree_builder *b, int line, const char *inside, size_t length, str *out) {
    const char *comma = memchr(inside, ',', length), *end = inside + length;
    if (length > 7 && memcmp(inside, "oc.env:", 7) == 0) inside += 7;
    size_t span = (size_t)((comma ? comma : end) - inside);
    if (!is_name(inside, span))
        return status_fail(OTT_ERR_CONFIG,
                           "%s:%d: ${%.*s}: only environment variables are replaced, as ${VAR,default}",
                           b->place, line, length > 60 ? 60 : (int)length, end - length);
    char name[NAME_LIMIT];
    memcpy(name, inside, span);
    name[span] = '\0';
    const char *value = getenv(name);
    if (value && str_utf8_error(value, (int64_t)strlen(value)) >= 0)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: environment variable %s is not UTF-8", b->place, line,
                           name);
    if (!value && !comma)
        return status_fail(OTT_ERR_CONFIG,
                           "%s:%d: environment variable %s is not set; set it or write ${%s,default}",
                           b->place, line, name, name);
    if (value) return str_append(out, value), OTT_OK;
    for (comma++; comma < end && *comma == ' ';) comma++;
    return str_append_bytes(out, comma, end - comma), OTT_OK;
}

static ott_status replace_variables(tree_builder *b, int line, const char *text, str *out) {
    const char *at = text;
    for (const char *open; (open = strstr(at, "${")) != NULL;) {
        const char *close = strchr(open, '}');
        if (!close) return status_fail(OTT_ERR_CONFIG, "%s:%d: ${ is not closed", b->place, line);
        str_append_bytes(out, at, open - at);
        TRY(append_variable(b, line, open + 2, (size_t)(close - open - 2), out));
        at = close + 1;
        if (out->length > RESULT_LIMIT)
            return status_fail(OTT_ERR_CONFIG,
                               "%s:%d: a text is longer than %d bytes after its variables are replaced",
                               b->place, line, RESULT_LIMIT);
    }
    str_append(out, at);
    return str_finish(out);
}

ott_status yaml_interpolate(tree_builder *b, int line, const char *text, const char **out) {
    *out = text;
    if (!strstr(text, "${")) return OTT_OK;
    str buffer = {.account = b->account};
    ott_status status = replace_variables(b, line, text, &buffer);
    if (status == OTT_OK) status = arena_strdup(b->memory, buffer.text, out);
    str_free(&buffer);
    return status;
}
