/* A row of HellaSwag. Input: one line of its file. */
#include "fuzz.h"
#include "eval/row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    eval_row row;
    if (eval_row_read(account, (const char *)data, (int64_t)bytes, &row) == OTT_OK) {
        FUZZ_REQUIRE(row.label >= 0 && row.label < EVAL_ENDINGS);
        for (int i = 0; i < EVAL_ENDINGS; i++) {
            const text_view *e = &row.ending[i];
            FUZZ_REQUIRE(e->bytes >= 0 && row.characters[i] >= 0 && row.characters[i] <= e->bytes);
        }
        FUZZ_REQUIRE(text_spaces_at_end(row.context, true) <= row.context.bytes);
    }
    eval_row_free(&row);
    mem_close(account);
    return 0;
}
