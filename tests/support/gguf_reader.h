/*
 * support/gguf_reader: reads a GGUF file by its specification, without the code that wrote it. An error in
 * the file fails the test.
 */
#ifndef TESTS_SUPPORT_GGUF_READER_H
#define TESTS_SUPPORT_GGUF_READER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gguf_value {
    char key[96];
    int type; /* 4 unsigned integer, 5 signed integer, 6 real, 7 bool, 8 text, 9 list */
    double number;
    const char *text; /* [bytes] bytes, without a NUL at the end */
    int64_t bytes;
    int element_type; /* type of a list's elements, which begin at `text` */
    int64_t count;
} gguf_value;

typedef struct gguf_entry {
    char name[80];
    int rank, type;
    int64_t size[4]; /* in the file's order: size[0] is the length of a row */
    const unsigned char *data;
    int64_t count; /* number of elements */
} gguf_entry;

typedef struct gguf_reader {
    unsigned char *file;
    int64_t bytes, at;
    gguf_value *value; /* metadata [value_count] */
    gguf_entry *entry; /* tensors [entry_count] */
    int64_t value_count, entry_count;
} gguf_reader;

gguf_reader gguf_reader_open(const char *path);
void gguf_reader_close(gguf_reader *r);
const gguf_value *gguf_reader_find(const gguf_reader *r, const char *key); /* NULL if there is no such key */
/* fails the test if the key is absent */
double gguf_reader_number(const gguf_reader *r, const char *key);
bool gguf_reader_says(const gguf_reader *r, const char *key, const char *text);
/* `list` is an array of texts for gguf_reader_item_is, which compares element `index` with `text`, and an
   array of numbers for gguf_reader_item, which returns the element. */
bool gguf_reader_item_is(const gguf_value *list, int64_t index, const char *text);
double gguf_reader_item(const gguf_value *list, int64_t index);
/* fails the test if the tensor is absent */
const gguf_entry *gguf_reader_tensor(const gguf_reader *r, const char *name);
float gguf_reader_element(const gguf_entry *e, int64_t index);

#endif
