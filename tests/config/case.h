/* config/case: functions that parse a configuration text, so that a test case needs only one line. */
#ifndef CONFIG_CASE_H
#define CONFIG_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "config/config.h"

/* State of a test: a memory account, the log, and the path of the configuration file that it writes. */
typedef struct config_case {
    mem *account;
    logger lg;
    char log[16384];
    char path[64];
} config_case;

int case_open(void **state);  /* cmocka set-up */
int case_close(void **state); /* cmocka tear-down; fails if memory is still allocated */

/* Writes `bytes` of text (-1: up to its NUL) to a file with `extension`. Parses the file with the arguments
   that follow. The list ends with NULL. */
ott_status case_parse_bytes(config_case *c, const char *extension, const char *text, int64_t bytes,
                            config **out, ...);
#define case_parse(c, extension, text, out, ...)                                                             \
    case_parse_bytes(c, extension, text, -1, out, ##__VA_ARGS__, (const char *)NULL)
/* Parses a list of arguments, which ends with NULL, without a file. */
ott_status case_arguments(config_case *c, config **out, ...);

/* Parses the text. The test fails if the text is not valid. */
config *case_good(config_case *c, const char *extension, const char *text, ...);
/* Expects OTT_ERR_CONFIG with a one-line message that contains each of the texts. The list ends with NULL. */
void case_bad(config_case *c, const char *extension, const char *text, ...);
/* Expects OTT_ERR_CONFIG with a message of `count` errors: a first line, and a line for each error. */
void case_bad_lines(config_case *c, const char *extension, const char *text, int count, ...);
/* Expects OTT_ERR_CONFIG with a one-line message for this command-line argument. The message must contain all
   texts of the list, which ends with NULL. */
void case_bad_argument(config_case *c, const char *argument, ...);

#define CASE(name) cmocka_unit_test_setup_teardown(name, case_open, case_close)

#endif
