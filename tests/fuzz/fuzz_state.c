/*
 * The JSON files of a checkpoint: state.json, history.json, sources.json. Input: a byte that selects the
 * file, then its text. The checksum is corrected, because a fuzzer cannot guess it. An accepted file must be
 * written back the same.
 */
#include "fuzz.h"
#include "folders/json_file.h"
#include "checkpoint/state.h"
#include "checkpoint/run_history.h"
#include "checkpoint/run_sources.h"
#include <string.h>

/* Writes the input, with a correct checksum, as the file `name` of a checkpoint. */
static const char *write_sealed(mem *account, const char *name, const uint8_t *data, size_t bytes) {
    str text = {.account = account};
    json_t *root = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *path;
    if (json_is_object(root) && json_file_print(root, &text) == OTT_OK)
        path = fuzz_file(name, text.text, (size_t)text.length);
    else
        path = fuzz_file(name, data, bytes);
    json_decref(root);
    str_free(&text);
    return path;
}

static void read_state(mem *account, const char *path) {
    checkpoint_state s, again;
    if (checkpoint_state_read(account, path, &s) != OTT_OK) return;
    FUZZ_REQUIRE(checkpoint_state_write(account, fuzz_path("again.json"), &s) == OTT_OK);
    FUZZ_REQUIRE(checkpoint_state_read(account, fuzz_path("again.json"), &again) == OTT_OK);
    FUZZ_REQUIRE(again.run.step == s.run.step && again.run.tokens == s.run.tokens);
    FUZZ_REQUIRE(again.is_bare_module == s.is_bare_module &&
                 memcmp(again.files, s.files, sizeof s.files) == 0);
    FUZZ_REQUIRE(memcmp(again.shape, s.shape, sizeof s.shape) == 0);
}

/* Reads the history.json in `folder`. */
static void read_history(mem *account, const char *folder) {
    run_history h, again;
    bool known;
    str text = {.account = account};
    if (run_history_read(account, folder, 3, 30, &h, &known) != OTT_OK || !known) return;
    report_phase sum = run_history_sum(&h);
    FUZZ_REQUIRE(sum.steps >= 0 && sum.tokens >= 0 && sum.gemms >= sum.fp8_gemms);
    (void)run_history_loss(&h);
    (void)run_history_speed(&h);
    run_history_phase(&h, "another")->steps++;
    run_history_add_loss(&h, 1, 2.0);
    FUZZ_REQUIRE(run_history_text(&h, &text) == OTT_OK);
    fuzz_file("history.json", text.text, (size_t)text.length);
    FUZZ_REQUIRE(run_history_read(account, folder, 3, 30, &again, &known) == OTT_OK && known);
    FUZZ_REQUIRE(again.phase_count == h.phase_count && again.loss_count == h.loss_count);
    str_free(&text);
}

static void read_sources(mem *account, const char *folder) {
    run_sources s = {.account = account}, again = {.account = account};
    str text = {.account = account};
    if (run_sources_read(&s, folder) == OTT_OK) {
        run_sources_compare(&s, &again, SOURCE_ROLES, NULL);
        FUZZ_REQUIRE(run_sources_text(&s, &text) == OTT_OK);
        fuzz_file("sources.json", text.text, (size_t)text.length);
        FUZZ_REQUIRE(run_sources_read(&again, folder) == OTT_OK && again.count == s.count);
    }
    str_free(&text);
    run_sources_free(&s);
    run_sources_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *const names[] = {"state.json", "history.json", "sources.json"};
    if (bytes < 1) return 0;
    int which = data[0] % 3;
    mem *account = fuzz_account();
    const char *path = write_sealed(account, names[which], data + 1, bytes - 1);
    const char *folder = fuzz_path(".");
    if (which == 0) read_state(account, path);
    if (which == 1) read_history(account, folder);
    if (which == 2) read_sources(account, folder);
    mem_close(account);
    return 0;
}
