/* formats/safetensors/show: formats names and shapes of untrusted files for messages. */
#include "formats/safetensors/show.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* maximum number of names that are compared with the missing one (takes about 0.1 s) */
enum { MOST_OFFERS = 100000 };

safetensors_shown safetensors_show_shape(const int64_t *shape, int rank) {
    safetensors_shown s = {"["};
    size_t at = 1;
    for (int i = 0; i < rank; i++)
        at += (size_t)snprintf(s.text + at, sizeof s.text - at, "%s%" PRId64, i ? ", " : "", shape[i]);
    snprintf(s.text + at, sizeof s.text - at, "]");
    return s;
}

safetensors_nearest safetensors_nearest_begin(const char *wanted) {
    return (safetensors_nearest){.wanted = wanted, .distance = (int)strlen(wanted) / 3 + 1};
}

void safetensors_nearest_offer(safetensors_nearest *n, const char *name) {
    if (n->offers++ >= MOST_OFFERS) return;
    int distance = str_distance(n->wanted, name);
    if (distance >= n->distance) return;
    n->distance = distance;
    n->found = name;
}

ott_status safetensors_nearest_fail(const safetensors_nearest *n, const char *path) {
    return status_fail(OTT_ERR_NOT_FOUND, "%s: has no tensor '%s'%s%s%s", path, str_show(n->wanted).text,
                       n->found ? "; the nearest is '" : "", n->found ? str_show(n->found).text : "",
                       n->found ? "'" : "");
}
