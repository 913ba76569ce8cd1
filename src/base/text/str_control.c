/* base/text/str_control: control characters, in a separate file because a plugin uses it without base/mem. */
#include "base/text/str.h"

int str_control(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    if ((*c < 0x20 && *c) || *c == 0x7f) return 1;
    return c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f ? 2 : 0;
}

bool str_has_control(const char *text) {
    while (*text && !str_control(text)) text++;
    return *text;
}

void str_replace_controls(char *text, char with) {
    while (*text) {
        int bytes = str_control(text);
        for (int i = 0; i < bytes; i++) text[i] = with;
        text += bytes ? bytes : 1;
    }
}
