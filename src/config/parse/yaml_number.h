/*
 * config/parse/yaml_number: reads integers by the rules of YAML 1.1, like PyYAML: 010 and 0o10 are 8, 0x1f is
 * 31, 0b11 is 3, 1_000 is 1000, 1:30 is 90. 1e5 is 100000, as in AutoModel.
 */
#ifndef CONFIG_PARSE_YAML_NUMBER_H
#define CONFIG_PARSE_YAML_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Parses a plain scalar as an integer of YAML 1.1. False if it is no integer or exceeds 64 bits. */
bool yaml_integer(const char *text, int64_t *out);

#endif
