/* base/log: formats a line and passes it to the logger's callback. */
#include "base/log.h"
#include "base/text/str.h"
#include "base/text/text.h"
#include <string.h>

enum { LOG_LINE_SIZE = 4096 };

void log_line(const logger *lg, ott_log_level level, const char *format, ...) {
    if (!lg || !lg->callback || level > lg->level) return;
    char line[LOG_LINE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    int needed = text_vformat(line, sizeof line, format, arguments);
    va_end(arguments);
    if (needed < 0) return;
    if (needed >= LOG_LINE_SIZE) memcpy(line + LOG_LINE_SIZE - 4, "...", 4);
    str_replace_controls(line,
                         ' '); /* a name from a file must not forge a second line or control a terminal */
    lg->callback(lg->user, level, line);
}
