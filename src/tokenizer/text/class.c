/* tokenizer/text/class: white space, word characters and letter case. */
#include "tokenizer/text/text.h"
#include <utf8proc.h>

static bool is_unicode_space(int32_t c, bool python) {
    return (c >= '\t' && c <= '\r') || c == ' ' || (python && c >= 0x1c && c <= 0x1f) || c == 0x85 ||
           c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* True for letters (also circled or squared), marks, decimal digits, letter numbers, connectors, joiners. */
static bool is_word(int32_t c) {
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
    }
    return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

/* Decodes the first character. Returns its length in bytes; 0 for an empty text. */
static int64_t first_character(text_view text, int32_t *c) {
    return text.bytes == 0 ? 0 : utf8proc_iterate((const utf8proc_uint8_t *)text.at, text.bytes, c);
}

static int64_t last_character(text_view text, int32_t *c) {
    int64_t at = text.bytes;
    while (at > 0 && ((unsigned char)text.at[--at] & 0xc0) == 0x80) {
    }
    return first_character((text_view){text.at + at, text.bytes - at}, c);
}

int64_t text_spaces_at_start(text_view text, bool python) {
    int64_t done = 0, step;
    int32_t c;
    while ((step = first_character((text_view){text.at + done, text.bytes - done}, &c)) > 0 &&
           is_unicode_space(c, python))
        done += step;
    return done;
}

int64_t text_spaces_at_end(text_view text, bool python) {
    int64_t left = text.bytes, step;
    int32_t c;
    while ((step = last_character((text_view){text.at, left}, &c)) > 0 && is_unicode_space(c, python))
        left -= step;
    return text.bytes - left;
}

bool text_starts_with_word(text_view text) {
    int32_t c;
    return first_character(text, &c) > 0 && is_word(c);
}

bool text_ends_with_word(text_view text) {
    int32_t c;
    return last_character(text, &c) > 0 && is_word(c);
}

void text_change_case(text_view text, text_case to, str *out) {
    for (int64_t i = 0, bytes; i < text.bytes; i += bytes) {
        int32_t c;
        utf8proc_uint8_t encoded[4];
        bytes = utf8proc_iterate((const utf8proc_uint8_t *)text.at + i, text.bytes - i, &c);
        if (bytes <= 0) return; /* the text is not valid UTF-8 */
        bool first = to == TEXT_CAPITAL && i == 0;
        c = first ? utf8proc_totitle(c) : to == TEXT_UPPER ? utf8proc_toupper(c) : utf8proc_tolower(c);
        str_append_bytes(out, encoded, utf8proc_encode_char(c, encoded));
    }
}
