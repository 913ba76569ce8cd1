/*
 * The index of a sharded model, next to two valid shards. Input: the index. Files that the index names must
 * be in the index's folder.
 */
#include "fuzz.h"
#include "formats/safetensors/shards.h"
#include <string.h>

static void write_shard(const char *name, const char *header, int64_t bytes) {
    char file[256] = {0};
    file[0] = (char)strlen(header);
    strcpy(file + 8, header);
    fuzz_file(name, file, 8 + strlen(header) + (size_t)bytes);
}

static void write_shards(void) {
    static bool written;
    if (written) return;
    written = true;
    write_shard("1.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8);
    write_shard("2.safetensors", "{\"b\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}", 4);
}

static void use(shards *s) {
    float values[2];
    for (int64_t i = 0; i < shards_file_count(s); i++) FUZZ_REQUIRE(!strchr(shards_file_name(s, i), '/'));
    for (int64_t i = 0; i < shards_count(s); i++) {
        const shard_tensor *t = shards_at(s, i);
        FUZZ_REQUIRE(shards_find(s, t->entry->name) == t && shards_has_floats(t));
        FUZZ_REQUIRE(shards_read_floats(s, t, 0, 2, values) == OTT_OK);
        FUZZ_REQUIRE(shards_read_floats(s, t, 1, 2, values) != OTT_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    shards *s;
    write_shards();
    if (shards_open(account, fuzz_file("x.safetensors.index.json", data, bytes), &s) == OTT_OK) {
        use(s);
        shards_close(s);
    }
    mem_close(account);
    return 0;
}
