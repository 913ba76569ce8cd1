/* JSONL rows. Input: a byte that selects the kind of rows (texts, prompts, HellaSwag), then the file. */
#include "fuzz.h"
#include "rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 1) return 0;
    const char *path = fuzz_file("x.jsonl", data + 1, bytes - 1);
    int kind = data[0] % 3;
    mem *account = fuzz_account();
    dataset_source source = {.paths = &path, .count = 1, .to_share = 1, .separator = ""};
    source.text_field = "text";
    source.prompt_field = kind == 1 ? "prompt" : "";
    source.completion_field = kind == 1 ? "completion" : "";
    dataset *d;
    dataset_row_kind first;
    (void)dataset_first_row(account, path, &first);
    if (dataset_open_rows(account, &source, kind == 2 ? ROWS_HELLASWAG : ROWS_OTHER, &d) == OTT_OK)
        read_some_rows(d);
    mem_close(account);
    return 0;
}
