/* tests/config: a configuration from text, in one line. */
#ifndef CONFIG_CASE_H
#define CONFIG_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "config/config.h"

/* What a test works with: an account, everything logged so far, and the file the text is written to. */
typedef struct config_case {
    mem *account;
    logger lg;
    char log[16384];
    char path[64];
} config_case;

int case_open(void **state);  /* cmocka set-up */
int case_close(void **state); /* cmocka tear-down: every byte must have been given back */

/* Writes `bytes` of text (-1: all of it) to a file that ends in `extension` and parses it with the arguments
   after it, which end with NULL. */
ott_status case_parse_bytes(config_case *c, const char *extension, const char *text, int64_t bytes,
                            config **out, ...);
#define case_parse(c, extension, text, out, ...)                                                             \
    case_parse_bytes(c, extension, text, -1, out, ##__VA_ARGS__, (const char *)NULL)
/* Parses arguments only. */
ott_status case_arguments(config_case *c, config **out, ...);

/* The text parses into a config. */
config *case_good(config_case *c, const char *extension, const char *text, ...);
/* It does not: OTT_ERR_CONFIG with one line that contains each of the texts, which end with NULL. */
void case_bad(config_case *c, const char *extension, const char *text, ...);
/* The same with `count` obstacles, a line each after the first. */
void case_bad_lines(config_case *c, const char *extension, const char *text, int count, ...);
/* The same for one argument. */
void case_bad_argument(config_case *c, const char *argument, ...);

#define CASE(name) cmocka_unit_test_setup_teardown(name, case_open, case_close)

#endif
