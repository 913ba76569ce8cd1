/* train/bench_shapes: the named lists of shapes. */
#include "train/bench_harness.h"
#include <stdio.h>
#include <string.h>

/* The first is the default. llama-*: the linear layers of Llama 3.2 1B and Llama 3.1 8B, and what stands
   before and between them. tiny: to see that it works. */
static const bench_shapes lists[] = {
    {"small",
     7,
     4,
     {{512, 512, 512},
      {1024, 1024, 1024},
      {2048, 2048, 2048},
      {2048, 768, 768},
      {2048, 3072, 768},
      {2048, 768, 3072},
      {512, 4096, 4096}},
     {{2048, 768}, {2048, 3072}, {512, 4096}, {4096, 4096}}},
    {"square",
     4,
     4,
     {{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096}},
     {{512, 512}, {1024, 1024}, {2048, 2048}, {4096, 4096}}},
    {"llama-1b",
     4,
     2,
     {{1024, 2048, 2048}, {1024, 512, 2048}, {1024, 8192, 2048}, {1024, 2048, 8192}},
     {{1024, 2048}, {1024, 8192}}},
    {"llama-8b",
     4,
     2,
     {{512, 4096, 4096}, {512, 1024, 4096}, {512, 14336, 4096}, {512, 4096, 14336}},
     {{512, 4096}, {512, 14336}}},
    {"tiny", 2, 2, {{32, 48, 64}, {64, 64, 32}}, {{16, 64}, {33, 48}}},
};
enum { LISTS = sizeof lists / sizeof *lists };

ott_status bench_find_shapes(const ott_bench_options *o, const bench_shapes **out) {
    char names[96] = "";
    const char *wanted = o->shapes ? o->shapes : lists[0].name;
    for (int i = 0; i < LISTS; i++) {
        if (strcmp(lists[i].name, wanted) == 0) {
            *out = &lists[i];
            return OTT_OK;
        }
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", lists[i].name);
    }
    return status_fail(OTT_ERR_ARGUMENT, "shapes = \"%s\": there are %s", wanted, names);
}
