/*
 * Token files. Input: a byte that selects the format, a byte that selects the share to read, then the file.
 * The formats are: 0, a .bin file; 1, the first 16 bytes of llm.c's header (the target adds the other 1008),
 * then the tokens; 2, a .npy file; 3, a byte n, then n bytes of Megatron's .bin, then its .idx.
 */
#include "fuzz.h"
#include "rows.h"
#include <string.h>

static const char *write_llmc(const uint8_t *data, size_t bytes) {
    uint8_t file[1024 + 4096] = {0};
    size_t head = bytes < 16 ? bytes : 16, left = bytes - head;
    if (left > 4096) left = 4096;
    memcpy(file, data, head);
    memcpy(file + 1024, data + head, left);
    return fuzz_file("x.bin", file, 1024 + left);
}

static const char *write_megatron(const uint8_t *data, size_t bytes) {
    size_t tokens = bytes ? data[0] : 0;
    if (tokens + 1 > bytes) return NULL;
    fuzz_file("x.idx", data + 1 + tokens, bytes - 1 - tokens);
    return fuzz_file("x.bin", data + 1, tokens);
}

static const char *write_file(int kind, const uint8_t *data, size_t bytes) {
    fuzz_file("x.idx", NULL, 0);
    if (kind == 0) return fuzz_file("x.bin", data, bytes);
    if (kind == 1) return write_llmc(data, bytes);
    if (kind == 2) return fuzz_file("x.npy", data, bytes);
    return write_megatron(data, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 2) return 0;
    const char *path = write_file(data[0] % 4, data + 2, bytes - 2);
    if (!path) return 0;
    mem *account = fuzz_account();
    dataset_source source = {.paths = &path, .count = 1, .vocab = data[1] & 1 ? 100 : 1 << 20};
    source.from_share = (data[1] >> 1 & 7) / 8.0;
    source.to_share = data[1] & 0x80 ? source.from_share + 0.125 : 1;
    dataset *d;
    if (dataset_open_tokens(account, &source, &d) == OTT_OK) read_some_rows(d);
    mem_close(account);
    return 0;
}
