/* kinds/family: the table of families. */
#include "kinds/family.h"
#include <stddef.h>
#include <string.h>

const family family_table[FAMILY_COUNT] = {
#define ROW(argument, constant, word, classes, head, ...)                                                    \
    {.name = word, .architecture = classes head, __VA_ARGS__},
    FAMILIES(ROW, )
#undef ROW
};

const family *family_find(const char *name) {
    for (int i = 0; i < FAMILY_COUNT; i++)
        if (strcmp(family_table[i].name, name) == 0) return &family_table[i];
    return NULL;
}
