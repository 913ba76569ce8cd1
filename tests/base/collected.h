/* collected: joins the pieces of text that a function writes with an ott_text_fn. */
#ifndef TEST_BASE_COLLECTED_H
#define TEST_BASE_COLLECTED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* The text so far. All zero: empty. */
typedef struct collected {
    char text[1 << 15];
    size_t length;
    int pieces;
} collected;

/* An ott_text_fn. user: a `collected`. The test fails if the text does not fit. */
static inline void collect(void *user, const char *text) {
    collected *c = user;
    size_t length = strlen(text);
    assert_true(c->length + length < sizeof c->text);
    memcpy(c->text + c->length, text, length + 1);
    c->length += length;
    c->pieces++;
}

#endif
