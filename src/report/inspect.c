/* report/inspect: lists tensors one after the other, because statistics of a large model take minutes. */
#include "report/inspect.h"
#include "base/json/json_write.h"
#include "base/text/number.h"
#include "formats/safetensors/format.h"
#include "formats/safetensors/shards.h"
#include "formats/safetensors/show.h"
#include "fp8/cast.h"
#include <inttypes.h>
#include <stdlib.h>

enum { BUFFER_FLOATS = 1 << 16 };

typedef struct printer {
    mem *account;
    const inspect_options *options;
    inspect_sink sink;
    void *user;
    shards *model;
    const shard_tensor **order; /* [shards_count], sorted by name; numbers in names are compared as numbers */
    float *buffer;              /* [BUFFER_FLOATS] elements of a tensor */
    int name_width, shape_width;
    str text; /* text that the sink has not received yet */
} printer;

/* ---- statistics ---- */

/* Moments of the finite elements so far. m2: sum of the squared deviations from their mean. */
typedef struct moments {
    int64_t finite, zeros, nans, infinities;
    double least, most, mean, m2;
} moments;

static ott_status add_values(void *user, int64_t first, int64_t count, const float *values) {
    moments *m = user;
    int64_t finite = 0;
    double sum = 0, m2 = 0;
    (void)first;
    for (int64_t i = 0; i < count; i++) {
        double x = values[i];
        m->zeros += x == 0;
        m->nans += isnan(x) != 0;
        m->infinities += isinf(x) != 0;
        if (!isfinite(x)) continue;
        finite++;
        sum += x;
        if (x < m->least) m->least = x;
        if (x > m->most) m->most = x;
    }
    double mean = finite > 0 ? sum / (double)finite : 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(values[i])) m2 += (values[i] - mean) * (values[i] - mean);
    if (finite == 0) return OTT_OK;
    /* merges two sets of elements (Chan, Golub, LeVeque 1979), accurately for any number of them */
    double total = (double)(m->finite + finite), delta = mean - m->mean;
    m->m2 += m2 + delta * delta * ((double)m->finite * (double)finite / total);
    m->mean += delta * ((double)finite / total);
    m->finite += finite;
    return OTT_OK;
}

static ott_status measure_moments(printer *p, const shard_tensor *t, moments *m) {
    *m = (moments){.least = INFINITY, .most = -INFINITY};
    if (!shards_has_floats(t)) return OTT_OK;
    return shards_stream(p->model, t, 0, safetensors_elements(t->entry), p->buffer, BUFFER_FLOATS, add_values,
                         m);
}

/* The moments as texts; "null" if there are no finite elements. */
typedef struct figures {
    char least[32], most[32], mean[32], deviation[32];
} figures;

static figures show_moments(const moments *m, const char *(*show)(double, char[32])) {
    figures f;
    bool any = m->finite > 0;
    show(any ? m->least : NAN, f.least);
    show(any ? m->most : NAN, f.most);
    show(any ? m->mean : NAN, f.mean);
    show(any ? sqrt(m->m2 / (double)m->finite) : NAN, f.deviation);
    return f;
}

/* ---- output ---- */

static ott_status flush_lines(printer *p) {
    TRY(str_finish(&p->text));
    if (p->text.length == 0) return OTT_OK;
    TRY(p->sink(p->user, p->text.text, p->text.length));
    p->text.length = 0;
    return OTT_OK;
}

/* Appends a name. Control characters, which could change the terminal, are replaced. */
static void append_name(printer *p, const char *name) {
    for (const char *c = name; *c; c++) {
        int bytes = str_control(c);
        str_append_bytes(&p->text, bytes ? "?" : c, 1);
        if (bytes == 2) c++;
    }
}

/* ---- totals ---- */

typedef struct format_total {
    const char *format;
    int64_t tensors, elements, bytes;
} format_total;

enum { FORMATS = SAFETENSORS_FORMATS + GGUF_FORMAT_COUNT }; /* F32, F16 and BF16 are listed twice */

typedef struct totals {
    format_total all, by_format[FORMATS];
} totals;

static void add_total(format_total *t, const safetensors_entry *e) {
    t->tensors++;
    t->elements += safetensors_elements(e);
    t->bytes += e->bytes;
}

static totals sum_totals(const shards *model) {
    totals t = {0};
    for (int i = 0; i < FORMATS; i++)
        t.by_format[i].format = i < SAFETENSORS_FORMATS ? safetensors_formats[i].name
                                                        : gguf_formats[i - SAFETENSORS_FORMATS].name;
    for (int64_t i = 0; i < shards_count(model); i++) {
        const safetensors_entry *e = shards_at(model, i)->entry;
        add_total(&t.all, e);
        int at = 0;
        while (strcmp(t.by_format[at].format, e->format) != 0) at++;
        add_total(&t.by_format[at], e);
    }
    return t;
}

/* ---- table ---- */

static int wider(int a, size_t b) {
    return (size_t)a > b ? a : (int)b;
}

static void measure_columns(printer *p) {
    enum { MOST_WIDTH = 80 };
    p->name_width = (int)strlen("tensor");
    p->shape_width = (int)strlen("shape");
    for (int64_t i = 0; i < shards_count(p->model); i++) {
        const safetensors_entry *e = p->order[i]->entry;
        size_t length = strlen(e->name);
        p->name_width = wider(p->name_width, length < MOST_WIDTH ? length : MOST_WIDTH);
        p->shape_width = wider(p->shape_width, strlen(safetensors_show_shape(e->shape, e->rank).text));
    }
}

static const char *four_digits(double x, char out[32]) {
    return isnan(x) ? strcpy(out, "-") : number_digits(x, 4, out);
}

static void append_tensor_row(printer *p, const shard_tensor *t, const moments *m) {
    const safetensors_entry *e = t->entry;
    char bytes[32];
    int64_t end = p->text.length + p->name_width;
    append_name(p, e->name);
    while (!p->text.failed && p->text.length < end) str_append(&p->text, " ");
    str_printf(&p->text, "  %-7s  %-*s  %15s", e->format, p->shape_width,
               safetensors_show_shape(e->shape, e->rank).text, str_commas(e->bytes, bytes));
    if (p->options->statistics) {
        figures f = show_moments(m, four_digits);
        str_printf(&p->text, "  %11s %11s %11s %11s", f.least, f.most, f.mean, f.deviation);
        if (shards_has_floats(t))
            str_printf(&p->text, " %11" PRId64 " %7" PRId64 " %7" PRId64, m->zeros, m->nans, m->infinities);
        else
            str_printf(&p->text, " %11s %7s %7s", "-", "-", "-");
    }
    if (shards_file_count(p->model) > 1) str_printf(&p->text, "  %s", shards_file_name(p->model, t->file));
    str_append(&p->text, "\n");
}

static void append_count(str *s, const char *before, int64_t count, const char *word) {
    char digits[32];
    str_printf(s, "%s%s %s%s", before, str_commas(count, digits), word, count == 1 ? "" : "s");
}

static void append_total(printer *p, const format_total *t, const char *label) {
    str_printf(&p->text, "%-9s", label);
    append_count(&p->text, "", t->tensors, "tensor");
    append_count(&p->text, ", ", t->elements, "element");
    append_count(&p->text, ", ", t->bytes, "byte");
    str_append(&p->text, "\n");
}

/* Prints the metadata of each file. For later files prints only what differs from the first file. */
static void append_model_metadata(printer *p) {
    for (int64_t file = 0; file < shards_file_count(p->model); file++) {
        int64_t count;
        const safetensors_pair *pairs = safetensors_metadata_pairs(shards_file(p->model, file), &count);
        for (int64_t i = 0; i < count; i++) {
            const char *first = safetensors_metadata(shards_file(p->model, 0), pairs[i].key);
            if (file > 0 && first && strcmp(first, pairs[i].value) == 0) continue;
            if (file > 0) str_printf(&p->text, "%s: ", shards_file_name(p->model, file));
            append_name(p, pairs[i].key);
            str_append(&p->text, " = ");
            append_name(p, pairs[i].value);
            str_append(&p->text, "\n");
        }
    }
}

static ott_status print_tensors(printer *p) {
    totals sum = sum_totals(p->model);
    moments m = {0};
    measure_columns(p);
    append_model_metadata(p);
    if (p->text.length > 0) str_append(&p->text, "\n");
    str_printf(&p->text, "%-*s  dtype    %-*s  %15s", p->name_width, "tensor", p->shape_width, "shape",
               "bytes");
    if (p->options->statistics)
        str_printf(&p->text, "  %11s %11s %11s %11s %11s %7s %7s", "min", "max", "mean", "std", "zeros",
                   "nan", "inf");
    str_append(&p->text, shards_file_count(p->model) > 1 ? "  file\n" : "\n");
    for (int64_t i = 0; i < shards_count(p->model); i++) {
        TRY(flush_lines(p));
        if (p->options->statistics) TRY(measure_moments(p, p->order[i], &m));
        append_tensor_row(p, p->order[i], &m);
    }
    str_append(&p->text, "\n");
    for (int i = 0; i < FORMATS; i++)
        if (sum.by_format[i].tensors > 0) append_total(p, &sum.by_format[i], sum.by_format[i].format);
    append_total(p, &sum.all, "total");
    return flush_lines(p);
}

/* ---- JSON ---- */

static void append_json_files(printer *p) {
    str *out = &p->text;
    for (int64_t file = 0; file < shards_file_count(p->model); file++) {
        const safetensors *f = shards_file(p->model, file);
        int64_t count, bytes = 0;
        const safetensors_pair *pairs = safetensors_metadata_pairs(f, &count);
        for (int64_t i = 0; i < safetensors_count(f); i++) bytes += safetensors_at(f, i)->bytes;
        str_append(out, file ? ",\n    {" : "\n    {");
        json_write_text(out, "name", shards_file_name(p->model, file));
        json_write_integer(out, "bytes", bytes);
        json_write_open(out, "metadata", "{");
        for (int64_t i = 0; i < count; i++) json_write_text(out, pairs[i].key, pairs[i].value);
        str_append(out, "}}");
    }
}

static void append_json_tensor(printer *p, const shard_tensor *t, const moments *m) {
    const safetensors_entry *e = t->entry;
    str *out = &p->text;
    str_append(out, "{");
    json_write_text(out, "name", e->name);
    json_write_text(out, "dtype", e->format);
    json_write_open(out, "shape", safetensors_show_shape(e->shape, e->rank).text);
    json_write_integer(out, "bytes", e->bytes);
    json_write_text(out, "file", shards_file_name(p->model, t->file));
    if (p->options->statistics && shards_has_floats(t)) {
        figures f = show_moments(m, number_json);
        json_write_open(out, "statistics", "{");
        str_printf(out, "\"min\": %s, \"max\": %s, \"mean\": %s, \"std\": %s", f.least, f.most, f.mean,
                   f.deviation);
        json_write_integer(out, "zeros", m->zeros);
        json_write_integer(out, "nan", m->nans);
        json_write_integer(out, "inf", m->infinities);
        str_append(out, "}");
    } else if (p->options->statistics)
        json_write_open(out, "statistics", "null");
    str_append(out, "}");
}

static void append_json_total(const format_total *t, str *out) {
    json_write_integer(out, "tensors", t->tensors);
    json_write_integer(out, "elements", t->elements);
    json_write_integer(out, "bytes", t->bytes);
    str_append(out, "}");
}

static void append_json_totals(printer *p) {
    totals sum = sum_totals(p->model);
    str_append(&p->text, "\n  ],\n  \"total\": {");
    append_json_total(&sum.all, &p->text);
    str_append(&p->text, ",\n  \"dtypes\": {");
    for (int i = 0; i < FORMATS; i++) {
        if (sum.by_format[i].tensors == 0) continue;
        json_write_open(&p->text, sum.by_format[i].format, "{");
        append_json_total(&sum.by_format[i], &p->text);
    }
    str_append(&p->text, "}\n}\n");
}

static ott_status print_listing_json(printer *p) {
    moments m = {0};
    str_append(&p->text, "{\n  \"path\": ");
    str_append_json(&p->text, shards_path(p->model), (int64_t)strlen(shards_path(p->model)));
    str_append(&p->text, ",\n  \"files\": [");
    append_json_files(p);
    str_append(&p->text, "\n  ],\n  \"tensors\": [");
    for (int64_t i = 0; i < shards_count(p->model); i++) {
        TRY(flush_lines(p));
        if (p->options->statistics) TRY(measure_moments(p, p->order[i], &m));
        str_append(&p->text, i ? ",\n    " : "\n    ");
        append_json_tensor(p, p->order[i], &m);
    }
    append_json_totals(p);
    return flush_lines(p);
}

/* ---- order ---- */

static bool is_decimal(char c) {
    return c >= '0' && c <= '9';
}

/* Compares runs of digits as numbers, so that layer 9 comes before layer 10. */
static int compare_natural(const char *a, const char *b) {
    while (*a && *b) {
        if (is_decimal(*a) && is_decimal(*b)) {
            while (*a == '0' && is_decimal(a[1])) a++;
            while (*b == '0' && is_decimal(b[1])) b++;
            size_t x = strspn(a, "0123456789"), y = strspn(b, "0123456789");
            int order = x != y ? (x < y ? -1 : 1) : memcmp(a, b, x);
            if (order != 0) return order;
            a += x;
            b += y;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return (*a != 0) - (*b != 0);
}

static int compare_tensors(const void *a, const void *b) {
    const safetensors_entry *x = (*(const shard_tensor *const *)a)->entry;
    const safetensors_entry *y = (*(const shard_tensor *const *)b)->entry;
    int order = compare_natural(x->name, y->name);
    return order != 0 ? order : strcmp(x->name, y->name);
}

/* ---- printing ---- */

static ott_status print_model(printer *p) {
    int64_t count = shards_count(p->model);
    TRY(mem_alloc_array(p->account, MEM_OTHER, count, sizeof *p->order, "tensors to show", &p->order));
    for (int64_t i = 0; i < count; i++) p->order[i] = shards_at(p->model, i);
    qsort(p->order, (size_t)count, sizeof *p->order, compare_tensors);
    if (p->options->statistics)
        TRY(mem_alloc_array(p->account, MEM_OTHER, BUFFER_FLOATS, sizeof(float), "statistics buffer",
                            &p->buffer));
    return p->options->json ? print_listing_json(p) : print_tensors(p);
}

ott_status inspect_print(mem *account, const char *path, const inspect_options *options, inspect_sink sink,
                         void *user) {
    printer p = {.account = account, .options = options, .sink = sink, .user = user, .text.account = account};
    TRY(shards_open(account, path, &p.model));
    ott_status status = print_model(&p);
    str_free(&p.text);
    mem_free(account, p.buffer);
    mem_free(account, (void *)p.order);
    shards_close(p.model);
    return status;
}
