/* base/little: numbers as little-endian bytes, the order of all file formats that Ottava reads and writes. */
#ifndef BASE_LITTLE_H
#define BASE_LITTLE_H

#include <stdint.h>

static inline uint64_t little_load(const void *from, int bytes) {
    const unsigned char *p = from;
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | p[i];
    return value;
}

static inline void little_store(void *to, uint64_t value, int bytes) {
    unsigned char *p = to;
    for (int i = 0; i < bytes; i++) p[i] = (unsigned char)(value >> 8 * i);
}

#endif
