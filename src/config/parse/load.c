/* config/parse/load: reads a configuration file and checks its name, size and encoding before parsing it. */
#include "config/parse/load.h"
#include "base/file/file.h"
#include "config/parse/toml.h"
#include "config/parse/yaml.h"
#include <string.h>

static bool is_yaml(const char *path) {
    return str_ends_with(path, ".yaml") || str_ends_with(path, ".yml");
}

bool load_is_config(const char *path) {
    return is_yaml(path) || str_ends_with(path, ".toml");
}

static int line_at(const char *text, int64_t offset) {
    int line = 1;
    for (int64_t i = 0; i < offset; i++) line += text[i] == '\n';
    return line;
}

static ott_status check_file_text(const char *path, const char *text, int64_t bytes) {
    int64_t bad = str_utf8_error(text, bytes);
    if (bad >= 0)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: not UTF-8: byte 0x%02x at offset %lld", path,
                           line_at(text, bad), (unsigned char)text[bad], (long long)bad);
    const char *nul = memchr(text, 0, (size_t)bytes);
    if (nul)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: a zero byte at offset %lld; this is not a text file", path,
                           line_at(text, nul - text), (long long)(nul - text));
    for (int64_t i = 0; i < bytes; i++)
        if (!strchr(" \t\r\n", text[i])) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "%s: the file is empty", path);
}

/* True for a config.toml without "version 2" in line 1. For such files read_as_older changes a key. */
static bool is_older(const char *text, int64_t bytes) {
    static const char line[] = "# Ottava: the configuration of a run with every value it used.\n";
    return bytes >= (int64_t)sizeof line - 1 && memcmp(text, line, sizeof line - 1) == 0;
}

static ott_status parse_config_text(tree_builder *b, const char *text, int64_t bytes, node **out) {
    TRY(check_file_text(b->place, text, bytes));
    b->is_older = is_older(text, bytes);
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3, bytes -= 3; /* byte order mark */
    return is_yaml(b->place) ? yaml_read(b, text, bytes, out) : toml_read(b, text, bytes, out);
}

ott_status load_file(tree_builder *b, node **out) {
    char *text;
    int64_t bytes;
    TRY(file_refuse_gguf(b->place));
    if (!load_is_config(b->place))
        return status_fail(OTT_ERR_CONFIG, "%s: a configuration file ends in .toml, .yaml or .yml", b->place);
    if (!file_exists(b->place)) return status_fail(OTT_ERR_NOT_FOUND, "Config file not found: %s", b->place);
    TRY(file_read(b->account, b->place, LOAD_SIZE_LIMIT, &text, &bytes));
    ott_status status = parse_config_text(b, text, bytes, out);
    mem_free(b->account, text);
    if (status == OTT_OK && !(*out)->first)
        status = status_fail(OTT_ERR_CONFIG, "%s: the file sets no key", b->place);
    return status;
}
