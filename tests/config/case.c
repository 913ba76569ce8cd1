/* config/case: writes a configuration to a file, parses it, and checks errors. */
#include "config/case.h"
#include "base/file/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ARGUMENTS 24

static void keep_line(void *user, ott_log_level level, const char *text) {
    config_case *c = user;
    (void)level;
    size_t length = strlen(c->log);
    snprintf(c->log + length, sizeof c->log - length, "%s\n", text);
}

int case_open(void **state) {
    config_case *c = calloc(1, sizeof *c);
    if (!c || mem_open(&c->account) != OTT_OK) return 1;
    c->lg = (logger){keep_line, c, OTT_LOG_DEBUG};
    *state = c;
    return 0;
}

int case_close(void **state) {
    config_case *c = *state;
    int leaked = mem_read(c->account).now != 0;
    if (c->path[0]) unlink(c->path);
    mem_close(c->account);
    free(c);
    return leaked;
}

static void write_text(config_case *c, const char *extension, const char *text, int64_t bytes) {
    if (c->path[0]) unlink(c->path);
    snprintf(c->path, sizeof c->path, "config_case_XXXXXX%s", extension);
    int descriptor = mkstemps(c->path, (int)strlen(extension));
    assert_true(descriptor >= 0);
    int64_t length = bytes < 0 ? (int64_t)strlen(text) : bytes;
    assert_true(write(descriptor, text, (size_t)length) == length);
    close(descriptor);
}

/* Appends the texts of a list that ends with NULL. */
static int gather(const char **arguments, int count, va_list list) {
    for (const char *next; (next = va_arg(list, const char *)) != NULL;) {
        assert_true(count < ARGUMENTS);
        arguments[count++] = next;
    }
    return count;
}

ott_status case_parse_bytes(config_case *c, const char *extension, const char *text, int64_t bytes,
                            config **out, ...) {
    const char *arguments[ARGUMENTS];
    va_list list;
    write_text(c, extension, text, bytes);
    arguments[0] = c->path;
    va_start(list, out);
    int count = gather(arguments, 1, list);
    va_end(list);
    return config_parse(c->account, &c->lg, count, arguments, out);
}

ott_status case_arguments(config_case *c, config **out, ...) {
    const char *arguments[ARGUMENTS];
    va_list list;
    va_start(list, out);
    int count = gather(arguments, 0, list);
    va_end(list);
    return config_parse(c->account, &c->lg, count, arguments, out);
}

config *case_good(config_case *c, const char *extension, const char *text, ...) {
    const char *arguments[ARGUMENTS];
    config *cfg = NULL;
    va_list list;
    write_text(c, extension, text, -1);
    arguments[0] = c->path;
    va_start(list, text);
    int count = gather(arguments, 1, list);
    va_end(list);
    ott_status status = config_parse(c->account, &c->lg, count, arguments, &cfg);
    if (status != OTT_OK) fail_msg("%s", status_text());
    return cfg;
}

static int count_lines(const char *text) {
    int count = 0;
    for (; (text = strchr(text, '\n')) != NULL; text++) count++;
    return count;
}

static void expect_texts(ott_status status, config *cfg, int lines, va_list list) {
    const char *message = status_text();
    if (status == OTT_OK) {
        config_close(cfg);
        fail_msg("it parsed");
    }
    assert_null(cfg);
    assert_int_equal(status, OTT_ERR_CONFIG);
    if (count_lines(message) != lines)
        fail_msg("%d lines instead of %d: %s", count_lines(message), lines, message);
    for (const char *wanted; (wanted = va_arg(list, const char *)) != NULL;)
        if (!strstr(message, wanted)) fail_msg("\"%s\" is not in: %s", wanted, message);
}

void case_bad(config_case *c, const char *extension, const char *text, ...) {
    config *cfg = NULL;
    va_list list;
    write_text(c, extension, text, -1);
    const char *arguments[] = {c->path};
    ott_status status = config_parse(c->account, &c->lg, 1, arguments, &cfg);
    va_start(list, text);
    expect_texts(status, cfg, 0, list);
    va_end(list);
}

void case_bad_lines(config_case *c, const char *extension, const char *text, int count, ...) {
    config *cfg = NULL;
    va_list list;
    write_text(c, extension, text, -1);
    const char *arguments[] = {c->path};
    ott_status status = config_parse(c->account, &c->lg, 1, arguments, &cfg);
    va_start(list, count);
    expect_texts(status, cfg, count, list);
    va_end(list);
}

void case_bad_argument(config_case *c, const char *argument, ...) {
    config *cfg = NULL;
    va_list list;
    const char *arguments[] = {argument};
    ott_status status = config_parse(c->account, &c->lg, 1, arguments, &cfg);
    va_start(list, argument);
    expect_texts(status, cfg, 0, list);
    va_end(list);
}
