/* formats/safetensors_show: names and shapes of files we do not trust, made fit for a message. */
#include "formats/safetensors_show.h"
#include "base/str.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_OFFERS = 100000
}; /* an edit distance takes a microsecond: a message may take a tenth of a second */

shown show(const char *text) {
    shown s;
    size_t length = strlen(text), room = sizeof s.text - 4; /* 3 dots, NUL */
    size_t kept = length > room ? room : length;
    for (size_t i = 0; i < kept; i++)
        s.text[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    strcpy(s.text + kept, length > room ? "..." : "");
    return s;
}

shown show_shape(const int64_t *shape, int rank) {
    shown s = {"["};
    size_t at = 1;
    for (int i = 0; i < rank; i++)
        at += (size_t)snprintf(s.text + at, sizeof s.text - at, "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(s.text + at, sizeof s.text - at, "]");
    return s;
}

nearest_name nearest_begin(const char *wanted) {
    return (nearest_name){.wanted = wanted, .distance = (int)strlen(wanted) / 3 + 1};
}

void nearest_offer(nearest_name *n, const char *name) {
    if (n->offers++ >= MOST_OFFERS) return;
    int distance = str_distance(n->wanted, name);
    if (distance >= n->distance) return;
    n->distance = distance;
    n->found = name;
}
