/* JSONL rows. Input: a byte that selects the kind of rows (texts, prompts, HellaSwag), then the file. */
#include "fuzz.h"
#include "rows.h"

static ott_status open_rows(mem *account, int kind, const dataset_source *s, dataset **out) {
    return kind == 2 ? dataset_open_hellaswag(account, s, out) : dataset_open_jsonl(account, s, out);
}

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
    if (open_rows(account, kind, &source, &d) == OTT_OK) read_some_rows(d);
    mem_close(account);
    return 0;
}
