/* tokenizer/formats/sentence: SentencePiece's normalizer: replaces the longest text of the charsmap at each
   position, keeps user-defined pieces, and removes or marks white space. */
#include "base/little.h"
#include "tokenizer/formats/formats.h"
#include <inttypes.h>

/* ---- the trie ---- */

/* Units of a double-array trie (darts-clone). A unit has a label, an offset to its children, and a flag for a
   child that holds a value. */
static uint32_t unit_at(const sentence_rules *s, uint32_t at) {
    return at < s->units ? (uint32_t)little_load(s->trie + 4 * (int64_t)at, 4) : UINT32_MAX;
}

static uint32_t unit_offset(uint32_t unit) {
    return unit >> 10 << (unit >> 6 & 8);
}

/* Finds the longest text of the trie that begins `text`. Returns its bytes, 0 if none; *value: its value. */
static int64_t longest_replaced(const sentence_rules *s, text_view text, uint32_t *value) {
    int64_t longest = 0;
    uint32_t at = unit_offset(unit_at(s, 0));
    for (int64_t i = 0; i < text.bytes && s->units > 0; i++) {
        at ^= (unsigned char)text.at[i];
        uint32_t unit = unit_at(s, at);
        if ((unit & 0x800000ff) != (unsigned char)text.at[i]) break;
        at ^= unit_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        *value = unit_at(s, at) & 0x7fffffff;
        longest = i + 1;
    }
    return longest;
}

/* Sets *out to the normalized start of the text. Returns the bytes that it replaces. */
static int64_t normal_start(const tokenizer *t, text_view text, text_view *out) {
    const sentence_rules *s = t->sentence;
    uint32_t value = 0;
    int64_t end;
    if (added_tree_longest(&t->normalized_tree, text, 0, &end) >= 0)
        return *out = (text_view){text.at, end}, end;
    end = longest_replaced(s, text, &value);
    if (end > 0 && value < s->replacements.bytes) return *out = text_view_of(s->replacements.at + value), end;
    end = text_character_bytes((unsigned char)text.at[0]);
    return *out = (text_view){text.at, end}, end;
}

/* ---- white space ---- */

static void append_space(const sentence_rules *s, str *out) {
    str_append(out, s->escapes ? METASPACE : " ");
}

static void append_marked(const sentence_rules *s, text_view text, str *out) {
    for (int64_t i = 0, end; i < text.bytes; i = end + 1) {
        const char *space = memchr(text.at + i, ' ', (size_t)(text.bytes - i));
        end = space ? space - text.at : text.bytes;
        str_append_bytes(out, text.at + i, end - i);
        if (space) append_space(s, out);
    }
}

static text_view after_spaces(text_view text) {
    while (text.bytes > 0 && text.at[0] == ' ') text = (text_view){text.at + 1, text.bytes - 1};
    return text;
}

static void remove_end_spaces(const sentence_rules *s, int64_t least, str *out) {
    const char *space = s->escapes ? METASPACE : " ";
    int64_t bytes = (int64_t)strlen(space);
    while (out->length >= least + bytes && memcmp(out->text + out->length - bytes, space, (size_t)bytes) == 0)
        out->length -= bytes;
}

ott_status sentence_normalize(const tokenizer *t, text_view text, bool at_start, int64_t limit, str *out) {
    const sentence_rules *s = t->sentence;
    const int64_t before = out->length;
    const bool prefix = s->dummy_prefix && (at_start || !s->only_first);
    bool squeeze = s->squeezes, begun = false;
    text_view part;
    for (int64_t at = 0, bytes; at < text.bytes; at += bytes) {
        bytes = normal_start(t, (text_view){text.at + at, text.bytes - at}, &part);
        if (!begun && s->squeezes && text_is(part, " ")) continue;
        if (!begun && prefix) append_space(s, out);
        begun = true;
        if (squeeze) part = after_spaces(part);
        append_marked(s, part, out);
        if (part.bytes > 0) squeeze = s->squeezes && part.at[part.bytes - 1] == ' ';
        if (out->length > limit)
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "its replacements make more than %" PRId64 " bytes of a text", limit);
    }
    TRY(str_finish(out));
    if (s->squeezes) remove_end_spaces(s, before, out);
    return OTT_OK;
}
