/* data/ends: logs the tokens that begin and end texts. */
#include "data/ends.h"

static const char *text_of(const tokenizer *t, int32_t id) {
    const char *text = id >= 0 ? tokenizer_token(t, id) : NULL;
    return text ? text : "";
}

void ends_log(const logger *log, const tokenizer *t, const char *what, int32_t bos, int32_t eos,
              const char *how) {
    if (bos < 0 && eos < 0) return;
    log_info(log, "Each %s %s%s%s%s%s (%s)", what, bos >= 0 ? "begins with " : "", text_of(t, bos),
             bos >= 0 && eos >= 0 ? " and " : "", eos >= 0 ? "ends with " : "", text_of(t, eos), how);
}
