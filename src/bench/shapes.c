/* bench/shapes: the named lists of shapes, and lists of products in the options. */
#include "bench/harness.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The first list is the default. llama-*: the linear layers of Llama 3.2 1B and Llama 3.1 8B, and the norms
   and activations between them. tiny: for a quick check. */
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

#define LONGEST_SIDE (INT64_C(1) << 20)

/* Reads a number, and, if `comma` is true, the comma after it. Advances *text. */
static bool take_size(const char **text, bool comma, int64_t *out) {
    char *end;
    errno = 0;
    *out = isdigit((unsigned char)**text) ? strtoll(*text, &end, 10) : 0;
    if (*out < 1 || *out > LONGEST_SIDE || errno != 0 || (comma && *end != ',')) return false;
    *text = end + comma;
    return true;
}

/* Reads "M,K,N M,K,N", in torchao's order. */
static bool take_products(const char *text, bench_shapes *s) {
    while (*text) {
        bench_product *p = &s->product[s->products];
        if (s->products == BENCH_SHAPES_MOST) return false;
        if (!take_size(&text, true, &p->m) || !take_size(&text, true, &p->k) ||
            !take_size(&text, false, &p->n))
            return false;
        s->matrix[s->products++] = (bench_matrix){p->m, p->k};
        if (*text && !strchr(" ;", *text)) return false;
        text += strspn(text, " ;");
    }
    s->matrices = s->products;
    return s->products > 0;
}

static ott_status parse_shapes(bench *b, const char *text, const bench_shapes **out) {
    bench_shapes *s;
    TRY(bench_alloc(b, sizeof(bench_shapes), &s));
    s->name = "given";
    *out = s;
    if (take_products(text, s)) return OTT_OK;
    return status_fail(
        OTT_ERR_ARGUMENT,
        "shapes = \"%s\": a product is M,K,N, each from 1 to %lld; up to %d of them, with spaces or "
        "semicolons between them, as in \"1024,2048,512 1024,8192,2048\"",
        text, (long long)LONGEST_SIDE, BENCH_SHAPES_MOST);
}

ott_status bench_find_shapes(bench *b, const bench_shapes **out) {
    char names[96] = "";
    const char *wanted = b->options->shapes ? b->options->shapes : lists[0].name;
    if (isdigit((unsigned char)*wanted)) return parse_shapes(b, wanted, out);
    for (int i = 0; i < LISTS; i++) {
        if (strcmp(lists[i].name, wanted) == 0) return *out = &lists[i], OTT_OK;
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", lists[i].name);
    }
    return status_fail(OTT_ERR_ARGUMENT, "shapes = \"%s\": give %s, or M,K,N of each product", wanted, names);
}
