/*
 * config/yaml_number: integers as PyYAML and the frameworks on top of it read them (YAML 1.1): 010 and 0o10
 * are 8, 0x1f is 31, 0b11 is 3, 1_000 is 1000, 1:30 is 90, and 1e5 is 100000.
 */
#ifndef CONFIG_YAML_NUMBER_H
#define CONFIG_YAML_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Is the whole of the plain scalar such an integer, of 64 bits? */
bool yaml_integer(const char *text, int64_t *out);

#endif
