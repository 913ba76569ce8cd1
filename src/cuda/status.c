/* cuda/status: implements base/status.h in the plugin by calls to the library that opened the plugin. */
#include "cuda/library.h"
#include <stdarg.h>
#include <stdio.h>

ott_status status_fail(ott_status code, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cuda_library->fail(code, text);
}

ott_status status_context(ott_status code, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cuda_library->context(code, text);
}
