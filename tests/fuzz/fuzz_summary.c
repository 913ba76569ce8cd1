/*
 * A run's summary.json, as read by a report. Input: the file. An accepted summary is written in every output
 * format.
 */
#include "fuzz.h"
#include "report/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    const char *folders[] = {fuzz_path("."), fuzz_path(".")};
    str text = {.account = account};
    report *r;
    fuzz_file("summary.json", data, bytes);
    if (report_open(account, folders, 2, &r) == OTT_OK) {
        FUZZ_REQUIRE(report_table(r, &text) == OTT_OK);
        FUZZ_REQUIRE(report_plot(r, 80, 20, &text) == OTT_OK);
        FUZZ_REQUIRE(report_html(r, NULL, &text) == OTT_OK);
        FUZZ_REQUIRE(report_summary_write(account, folders[0], &r->runs[0].summary) == OTT_OK);
        report_close(r);
    }
    str_free(&text);
    mem_close(account);
    return 0;
}
