/* Safetensors files. Input: the file. It is opened, its tensors are listed and searched for, and the ends of
   every tensor are read. */
#include "fuzz.h"
#include "formats/safetensors/safetensors.h"
#include <string.h>

static void read_tensor(const safetensors *f, const safetensors_entry *e) {
    char first, last;
    FUZZ_REQUIRE(e->rank >= 0 && e->rank <= SAFETENSORS_MAX_RANK && e->bytes >= 0);
    FUZZ_REQUIRE(safetensors_find(f, e->name));
    FUZZ_REQUIRE(safetensors_elements(e) >= 0);
    FUZZ_REQUIRE(safetensors_check_shape(f, e, e->rank, e->shape) == OTT_OK);
    FUZZ_REQUIRE(safetensors_read(f, e, e->bytes, 1, &last) != OTT_OK);
    if (e->bytes == 0) return;
    FUZZ_REQUIRE(safetensors_read(f, e, 0, 1, &first) == OTT_OK);
    FUZZ_REQUIRE(safetensors_read(f, e, e->bytes - 1, 1, &last) == OTT_OK);
}

static void use(safetensors *f) {
    int64_t pairs;
    safetensors_metadata_pairs(f, &pairs);
    safetensors_metadata(f, "format");
    safetensors_find(f, "model.layer.weight"); /* a failed lookup searches for the nearest name */
    const safetensors_entry *e;
    int64_t shape[] = {2};
    (void)safetensors_expect(f, "absent", OTT_F32, 1, shape, &e);
    safetensors_suspend(f);
    FUZZ_REQUIRE(safetensors_reopen(f) == OTT_OK);
    for (int64_t i = 0; i < safetensors_count(f); i++) read_tensor(f, safetensors_at(f, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    safetensors *f;
    if (safetensors_open(account, fuzz_file("x.safetensors", data, bytes), &f) == OTT_OK) {
        use(f);
        safetensors_close(f);
    }
    mem_close(account);
    return 0;
}

static uint64_t header_length(const uint8_t *data) {
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | data[i];
    return length;
}

/* Most mutations change only the header, and then correct its length field. With a wrong length the file
   would be refused before anything else is read. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t limit, unsigned seed) {
    uint8_t tail[4096];
    if (bytes < 8 || seed % 8 == 0) return LLVMFuzzerMutate(data, bytes, limit);
    uint64_t length = header_length(data);
    size_t left = length < bytes - 8 ? bytes - 8 - (size_t)length : 0;
    if (left > sizeof tail || 8 + left >= limit) return LLVMFuzzerMutate(data, bytes, limit);
    memcpy(tail, data + bytes - left, left);
    size_t changed = LLVMFuzzerMutate(data + 8, bytes - 8 - left, limit - 8 - left);
    for (int i = 0; i < 8; i++) data[i] = (uint8_t)((uint64_t)changed >> 8 * i);
    memcpy(data + 8 + changed, tail, left);
    return 8 + changed + left;
}
