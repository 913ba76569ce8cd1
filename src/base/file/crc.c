/* base/file/crc: CRC-32C, eight bytes a step ("slicing by 8"). effect[k][b] is what a byte b with k bytes
   after it changes in the CRC. CRC is linear over xor: the entry of b is the xor of the entries of b's
   bits. */
#include "base/file/file.h"

#define BITS(n, b0, b1, b2, b3, b4, b5, b6, b7)                                                              \
    ((n)&1 ? b0 : 0) ^ ((n)&2 ? b1 : 0) ^ ((n)&4 ? b2 : 0) ^ ((n)&8 ? b3 : 0) ^ ((n)&16 ? b4 : 0) ^          \
        ((n)&32 ? b5 : 0) ^ ((n)&64 ? b6 : 0) ^ ((n)&128 ? b7 : 0)
#define FOUR(n, ...)                                                                                         \
    BITS(n, __VA_ARGS__), BITS(n + 1, __VA_ARGS__), BITS(n + 2, __VA_ARGS__), BITS(n + 3, __VA_ARGS__)
#define SIXTEEN(n, ...)                                                                                      \
    FOUR(n, __VA_ARGS__), FOUR(n + 4, __VA_ARGS__), FOUR(n + 8, __VA_ARGS__), FOUR(n + 12, __VA_ARGS__)
#define HALF_ROW(n, ...)                                                                                     \
    SIXTEEN(n, __VA_ARGS__), SIXTEEN(n + 16, __VA_ARGS__), SIXTEEN(n + 32, __VA_ARGS__),                     \
        SIXTEEN(n + 48, __VA_ARGS__), SIXTEEN(n + 64, __VA_ARGS__), SIXTEEN(n + 80, __VA_ARGS__),            \
        SIXTEEN(n + 96, __VA_ARGS__), SIXTEEN(n + 112, __VA_ARGS__)
#define ROW(...)                                                                                             \
    { HALF_ROW(0, __VA_ARGS__), HALF_ROW(128, __VA_ARGS__) }

/* Polynomial 0x82f63b78 (Castagnoli, reflected). */
static const uint32_t effect[8][256] = {
    ROW(0xf26b8303u, 0xe13b70f7u, 0xc79a971fu, 0x8ad958cfu, 0x105ec76fu, 0x20bd8edeu, 0x417b1dbcu,
        0x82f63b78u),
    ROW(0x13a29877u, 0x274530eeu, 0x4e8a61dcu, 0x9d14c3b8u, 0x3fc5f181u, 0x7f8be302u, 0xff17c604u,
        0xfbc3faf9u),
    ROW(0xa541927eu, 0x4f6f520du, 0x9edea41au, 0x38513ec5u, 0x70a27d8au, 0xe144fb14u, 0xc76580d9u,
        0x8b277743u),
    ROW(0xdd45aab8u, 0xbf672381u, 0x7b2231f3u, 0xf64463e6u, 0xe964b13du, 0xd725148bu, 0xaba65fe7u,
        0x52a0c93fu),
    ROW(0x38116facu, 0x7022df58u, 0xe045beb0u, 0xc5670b91u, 0x8f2261d3u, 0x1ba8b557u, 0x37516aaeu,
        0x6ea2d55cu),
    ROW(0xef306b19u, 0xdb8ca0c3u, 0xb2f53777u, 0x6006181fu, 0xc00c303eu, 0x85f4168du, 0x0e045bebu,
        0x1c08b7d6u),
    ROW(0x68032cc8u, 0xd0065990u, 0xa5e0c5d1u, 0x4e2dfd53u, 0x9c5bfaa6u, 0x3d5b83bdu, 0x7ab7077au,
        0xf56e0ef4u),
    ROW(0x493c7d27u, 0x9278fa4eu, 0x211d826du, 0x423b04dau, 0x847609b4u, 0x0d006599u, 0x1a00cb32u,
        0x34019664u),
};

static uint32_t load_little_endian(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t file_crc32c(uint32_t crc, const void *data, int64_t bytes) {
    const unsigned char *p = data;
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint32_t a = crc ^ load_little_endian(p), b = load_little_endian(p + 4);
        crc = effect[7][a & 255] ^ effect[6][a >> 8 & 255] ^ effect[5][a >> 16 & 255] ^ effect[4][a >> 24] ^
              effect[3][b & 255] ^ effect[2][b >> 8 & 255] ^ effect[1][b >> 16 & 255] ^ effect[0][b >> 24];
    }
    for (; bytes > 0; bytes--, p++) crc = crc >> 8 ^ effect[0][(crc ^ *p) & 255];
    return ~crc;
}

/* Returns a * b modulo the polynomial. Bit 31 is x^0. */
static uint32_t multiply_modulo(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        if (a >> bit & 1) product ^= b;
        b = b >> 1 ^ (b & 1 ? 0x82f63b78u : 0);
    }
    return product;
}

uint32_t file_crc32c_before(uint32_t crc, int64_t bytes) {
    uint32_t power = 0x00800000u; /* x^8, the factor for one byte that follows; then for 2, 4, 8, ... bytes */
    for (; bytes > 0; bytes >>= 1, power = multiply_modulo(power, power))
        if (bytes & 1) crc = multiply_modulo(power, crc);
    return crc;
}
