/* report/text: formats numbers and verdicts as text. */
#include "base/text/text.h"
#include "report/internal.h"
#include <math.h>
#include <string.h>

/* Formats a loss: "1.6721"; "-" if there is none. */
static const char *loss_text(double loss, char out[32]) {
    if (!isfinite(loss)) return strcpy(out, "-");
    text_format(out, 32, fabs(loss) < 1e6 ? "%.4f" : "%.4g", loss);
    return out;
}

static const char *gap_text(double gap, char out[32]) {
    if (!isfinite(gap)) return strcpy(out, "-");
    text_format(out, 32, fabs(gap) < 1e6 ? "%+.2f%%" : "%+.3g%%", gap);
    return out;
}

const char *report_bytes_text(int64_t bytes, char out[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes <= 0) return strcpy(out, "-");
    double size = (double)bytes;
    int unit = 0;
    for (; size >= 1024 && unit < 6; unit++) size /= 1024;
    text_format(out, 32, unit ? "%.2f %s" : "%.0f %s", size, units[unit]);
    return out;
}

const char *report_count_text(double count, char out[32]) {
    if (!(count >= 0 && count < 9e18)) return strcpy(out, "-");
    return str_commas((int64_t)llround(count), out);
}

void report_loss_and_error(double loss, double error, str *out) {
    char text[32];
    str_append(out, loss_text(loss, text));
    if (isfinite(loss) && isfinite(error)) str_printf(out, " ± %s", loss_text(error, text));
}

void report_gap_and_error(const report_gap *gap, str *out) {
    char text[32];
    str_append(out, gap_text(gap->percent, text));
    if (isfinite(gap->error)) str_printf(out, " ± %.2f%%", gap->error);
}

static void one_seed_text(report_verdict verdict, const char *reference, str *out) {
    if (verdict == REPORT_VERDICT_ONE_SEED)
        str_printf(out,
                   "one seed each cannot distinguish it from %s (seeds alone differ by up to about %g%%)",
                   reference, REPORT_SEED_NOISE);
    else if (verdict == REPORT_VERDICT_WORSE)
        str_printf(out, "worse than %s, by more than seeds differ (about %g%%)", reference,
                   REPORT_SEED_NOISE);
    else
        str_printf(out, "no worse than %s", reference);
}

void report_verdict_text(const report *r, int index, str *out) {
    char text[32];
    report_verdict verdict = report_judge(r, index);
    report_gap gap = report_gap_of(r, index);
    const char *reference = report_reference_name(r);
    if (!isfinite(gap.percent)) {
        str_printf(out, "no loss at the end: worse than %s", reference);
        return;
    }
    str_printf(out, "%s loss ", gap.validation ? "validation" : "training");
    report_gap_and_error(&gap, out);
    str_append(out, ": ");
    if (!isfinite(gap.error)) {
        one_seed_text(verdict, reference, out);
        return;
    }
    str_printf(out, "at most %g%% worse than %s: ", REPORT_WORSE, reference);
    if (verdict == REPORT_VERDICT_OPEN)
        str_printf(out, "not settled by these seeds (at most %s with 95%% confidence)",
                   gap_text(gap.percent + gap.margin, text));
    else
        str_append(out, verdict == REPORT_VERDICT_NO_WORSE ? "yes" : "no");
}

const char *report_verdict_name(report_verdict verdict) {
    static const char *const names[] = {[REPORT_VERDICT_NONE] = "",
                                        [REPORT_VERDICT_NO_WORSE] = "no worse",
                                        [REPORT_VERDICT_WORSE] = "worse",
                                        [REPORT_VERDICT_OPEN] = "not settled",
                                        [REPORT_VERDICT_ONE_SEED] = "one seed"};
    return names[verdict];
}
