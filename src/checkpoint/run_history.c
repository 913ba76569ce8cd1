/* checkpoint/run_history: updates a history, and reads and writes history.json. */
#include "checkpoint/run_history.h"
#include "base/file/file.h"
#include "base/json/json_member.h"
#include "folders/json_file.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HISTORY_VERSION = 1 };
#define HISTORY_LIMIT (INT64_C(1) << 20) /* largest accepted file; a real one has a few thousand bytes */
#define UNKNOWN       "unknown"          /* recipe of steps that have no history */

void run_history_begin(run_history *h) {
    *h = (run_history){.val_loss = NAN, .last_good_loss = NAN};
}

static void add_to_phase(report_phase *to, const report_phase *p) {
    to->steps += p->steps;
    to->tokens += p->tokens;
    to->seconds += p->seconds;
    to->gemms += p->gemms;
    to->fp8_gemms += p->fp8_gemms;
}

/* Merges the phases of each recipe. */
static void join_phases(run_history *h) {
    int kept = 0;
    for (int i = 0; i < h->phase_count; i++) {
        int k = 0;
        while (k < kept && strcmp(h->phases[k].recipe, h->phases[i].recipe) != 0) k++;
        if (k < kept)
            add_to_phase(&h->phases[k], &h->phases[i]);
        else
            h->phases[kept++] = h->phases[i];
    }
    h->phase_count = kept;
}

report_phase *run_history_phase(run_history *h, const char *recipe) {
    report_phase *last = &h->phases[h->phase_count > 0 ? h->phase_count - 1 : 0];
    if (h->phase_count > 0 && strcmp(last->recipe, recipe) == 0) return last;
    if (h->phase_count == REPORT_MOST_PHASES) join_phases(h);
    if (h->phase_count == REPORT_MOST_PHASES) return last; /* impossible: fewer recipes exist */
    report_phase *next = &h->phases[h->phase_count++];
    *next = (report_phase){0};
    snprintf(next->recipe, sizeof next->recipe, "%s", recipe);
    return next;
}

void run_history_add_loss(run_history *h, int64_t step, double loss) {
    if (!isfinite(loss)) return;
    h->losses[h->loss_count++ % RUN_LOSSES] = loss;
    h->last_good_loss = loss;
    h->last_good_step = step;
}

double run_history_loss(const run_history *h) {
    int64_t count = h->loss_count < RUN_LOSSES ? h->loss_count : RUN_LOSSES;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += h->losses[i];
    return count ? sum / (double)count : (double)NAN;
}

report_phase run_history_sum(const run_history *h) {
    report_phase sum = {0};
    for (int i = 0; i < h->phase_count; i++) add_to_phase(&sum, &h->phases[i]);
    return sum;
}

double run_history_speed(const run_history *h) {
    double tokens = 0, seconds = 0;
    for (int i = 0; i < h->phase_count; i++) {
        if (!(h->phases[i].seconds > 0)) continue;
        tokens += (double)h->phases[i].tokens;
        seconds += h->phases[i].seconds;
    }
    return seconds > 0 ? tokens / seconds : 0;
}

static json_t *real_or_null(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *phases_json(const run_history *h) {
    json_t *list = json_array();
    for (int i = 0; i < h->phase_count; i++) {
        const report_phase *p = &h->phases[i];
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:f, s:I, s:I}", "recipe", p->recipe, "steps",
                                              (json_int_t)p->steps, "tokens", (json_int_t)p->tokens,
                                              "seconds", p->seconds, "gemms", (json_int_t)p->gemms,
                                              "fp8_gemms", (json_int_t)p->fp8_gemms));
    }
    if ((int)json_array_size(list) == h->phase_count) return list;
    json_decref(list);
    return NULL;
}

static json_t *losses_json(const run_history *h) {
    json_t *list = json_array();
    size_t count = (size_t)(h->loss_count < RUN_LOSSES ? h->loss_count : RUN_LOSSES);
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_real(h->losses[i]));
    if (json_array_size(list) == count) return list;
    json_decref(list);
    return NULL;
}

ott_status run_history_text(const run_history *h, str *out) {
    json_t *root = json_pack(
        "{s:i, s:o, s:o, s:I, s:o, s:o, s:I, s:I}", "version", HISTORY_VERSION, "phases", phases_json(h),
        "losses", losses_json(h), "loss_count", (json_int_t)h->loss_count, "val_loss",
        real_or_null(h->val_loss), "last_good_loss", real_or_null(h->last_good_loss), "last_good_step",
        (json_int_t)h->last_good_step, "peak_memory_bytes", (json_int_t)h->peak_memory_bytes);
    ott_status status = json_file_print(root, out);
    json_decref(root);
    return status;
}

/* Reads a count; -1 if it is missing or invalid. */
static int64_t count_or_invalid(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static bool parse_history_phase(const json_t *object, report_phase *p) {
    const char *recipe = json_string_value(json_object_get(object, "recipe"));
    if (!recipe || !*recipe || strlen(recipe) >= sizeof p->recipe) return false;
    *p = (report_phase){.steps = count_or_invalid(object, "steps"),
                        .tokens = count_or_invalid(object, "tokens"),
                        .seconds = json_real_or_nan(object, "seconds"),
                        .gemms = count_or_invalid(object, "gemms"),
                        .fp8_gemms = count_or_invalid(object, "fp8_gemms")};
    memcpy(p->recipe, recipe, strlen(recipe));
    const int64_t most = INT64_MAX / (2 * REPORT_MOST_PHASES); /* the sum of all phases must not overflow */
    return p->steps >= 0 && p->tokens >= 0 && p->tokens <= most && p->seconds >= 0 && p->gemms >= 0 &&
           p->gemms <= most && p->fp8_gemms >= 0 && p->fp8_gemms <= p->gemms && p->steps <= most;
}

static bool parse_history(const json_t *root, run_history *h) {
    const json_t *phases = json_object_get(root, "phases"), *losses = json_object_get(root, "losses");
    size_t count = json_array_size(phases), kept = json_array_size(losses);
    run_history_begin(h);
    if (count_or_invalid(root, "version") != HISTORY_VERSION || count > REPORT_MOST_PHASES ||
        kept > RUN_LOSSES)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!parse_history_phase(json_array_get(phases, i), &h->phases[i])) return false;
    for (size_t i = 0; i < kept; i++) h->losses[i] = json_number_value(json_array_get(losses, i));
    h->phase_count = (int)count;
    h->loss_count = count_or_invalid(root, "loss_count");
    h->val_loss = json_real_or_nan(root, "val_loss");
    h->last_good_loss = json_real_or_nan(root, "last_good_loss");
    h->last_good_step = count_or_invalid(root, "last_good_step");
    h->peak_memory_bytes = count_or_invalid(root, "peak_memory_bytes");
    return h->loss_count >= (int64_t)kept && (kept == RUN_LOSSES || h->loss_count == (int64_t)kept) &&
           h->loss_count < INT64_MAX / 2 && h->last_good_step >= 0 && h->peak_memory_bytes >= 0;
}

static void set_unknown(run_history *h, int64_t steps, int64_t tokens) {
    run_history_begin(h);
    if (steps == 0) return;
    report_phase *p = run_history_phase(h, UNKNOWN);
    p->steps = steps;
    p->tokens = tokens;
}

ott_status run_history_read(mem *account, const char *checkpoint, int64_t steps, int64_t tokens,
                            run_history *out, bool *known) {
    char path[PATH_MAX];
    json_t *root;
    *known = false;
    set_unknown(out, steps, tokens);
    TRY(file_join(checkpoint, RUN_HISTORY_NAME, path));
    if (!file_exists(path)) return OTT_OK;
    ott_status status = json_file_read(account, path, HISTORY_LIMIT, &root);
    *known = status == OTT_OK && parse_history(root, out);
    if (status == OTT_OK && !*known)
        status = status_fail(OTT_ERR_FORMAT, "%s: is not the history of a run", path);
    json_decref(root);
    if (!*known) set_unknown(out, steps, tokens);
    return status;
}
