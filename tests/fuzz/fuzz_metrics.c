/*
 * metrics.jsonl. Input: a byte (the step to resume after), then the file. Curves and health lines are read
 * from any content. When a run resumes, the truncated file must be a prefix of the old one.
 */
#include "fuzz.h"
#include "formats/metrics.h"
#include "base/file/file.h"
#include <string.h>

static void read_all(mem *account, const char *path) {
    const char *const keys[] = {"loss", "lr"};
    metrics_series s[2];
    metrics_health h;
    FUZZ_REQUIRE(metrics_read(account, path, keys, 2, s) == OTT_OK);
    for (int i = 0; i < 2; i++) metrics_series_free(&s[i]);
    if (metrics_read_health(account, path, &h) == OTT_OK) metrics_health_free(&h);
}

static void continue_run(mem *account, const char *path, int64_t step, const uint8_t *data, size_t bytes) {
    metrics_writer *w;
    char *left;
    int64_t count;
    FUZZ_REQUIRE(metrics_open(account, NULL, path, step, &w) == OTT_OK);
    metrics_close(w);
    FUZZ_REQUIRE(file_read(account, path, INT64_MAX, &left, &count) == OTT_OK);
    FUZZ_REQUIRE(count <= (int64_t)bytes && memcmp(left, data, (size_t)count) == 0);
    FUZZ_REQUIRE(count == 0 || left[count - 1] == '\n');
    mem_free(account, left);
    read_all(account, path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 1) return 0;
    const char *path = fuzz_file("metrics.jsonl", data + 1, bytes - 1);
    mem *account = fuzz_account();
    read_all(account, path);
    continue_run(account, path, data[0], data + 1, bytes - 1);
    mem_close(account);
    return 0;
}
