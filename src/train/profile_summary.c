/* train/profile_summary: the tables of summary.md: by category, and by operation. */
#include "train/profile_summary.h"
#include <stdio.h>
#include <stdlib.h>

static const unsigned char category_of_op[OP_COUNT] = {
    [OP_INDEX_gemm] = PROFILE_GEMM,
    [OP_INDEX_attention_forward] = PROFILE_ATTENTION,
    [OP_INDEX_attention_backward] = PROFILE_ATTENTION,
    [OP_INDEX_quantize] = PROFILE_QUANTIZATION,
    [OP_INDEX_amax] = PROFILE_QUANTIZATION,
    [OP_INDEX_scale] = PROFILE_QUANTIZATION,
    [OP_INDEX_cast] = PROFILE_QUANTIZATION,
    [OP_INDEX_quantize_statistics] = PROFILE_QUANTIZATION,
    [OP_INDEX_dequantize] = PROFILE_QUANTIZATION,
    [OP_INDEX_amax_record] = PROFILE_QUANTIZATION,
    [OP_INDEX_amax_update] = PROFILE_QUANTIZATION,
    [OP_INDEX_convert] = PROFILE_ELEMENTWISE,
    [OP_INDEX_add] = PROFILE_ELEMENTWISE,
    [OP_INDEX_rmsnorm_forward] = PROFILE_ELEMENTWISE,
    [OP_INDEX_rmsnorm_backward] = PROFILE_ELEMENTWISE,
    [OP_INDEX_rope] = PROFILE_ELEMENTWISE,
    [OP_INDEX_swiglu_forward] = PROFILE_ELEMENTWISE,
    [OP_INDEX_swiglu_backward] = PROFILE_ELEMENTWISE,
    [OP_INDEX_sum_squares] = PROFILE_OPTIMIZER,
    [OP_INDEX_grad_norm] = PROFILE_OPTIMIZER,
    [OP_INDEX_adamw] = PROFILE_OPTIMIZER,
};

static const struct {
    const char *word, *text;
} categories[PROFILE_CATEGORIES] = {
    [PROFILE_GEMM_FP8] = {"matmul_fp8", "FP8 matrix products (scaled_mm)"},
    [PROFILE_GEMM] = {"matmul", "other matrix products (gemm)"},
    [PROFILE_ATTENTION] = {"attention", "attention"},
    [PROFILE_QUANTIZATION] = {"quantization", "quantization"},
    [PROFILE_ELEMENTWISE] = {"elementwise", "norms and element-wise"},
    [PROFILE_OPTIMIZER] = {"optimizer", "optimizer"},
    [PROFILE_OTHER] = {"other", "other operations"},
};

profile_category profile_category_of(enum op_index op) {
    return (profile_category)category_of_op[op];
}

const char *profile_category_word(profile_category c) {
    return categories[c].word;
}

profile_count profile_category_count(const profile_counts *c, profile_category category) {
    profile_count sum = {0};
    if (category == PROFILE_GEMM_FP8) return c->scaled_gemm;
    for (int i = 0; i < OP_COUNT; i++) {
        if (category_of_op[i] != category) continue;
        sum.seconds += c->ops[i].seconds;
        sum.calls += c->ops[i].calls;
    }
    return sum;
}

static void write_row(const profile_counts *c, const char *name, profile_count n, str *out) {
    char calls[32];
    str_printf(out, "| %s | %.3f | %.1f %% | %s |\n", name, n.seconds * 1e3 / (double)c->steps,
               100.0 * n.seconds / c->seconds, n.calls ? str_commas(n.calls, calls) : "");
}

/* What lies between operations: reading the batch, copies, the program itself. */
static profile_count outside(const profile_counts *c) {
    profile_count rest = {.seconds = c->seconds};
    for (int i = 0; i < PROFILE_CATEGORIES; i++)
        rest.seconds -= profile_category_count(c, (profile_category)i).seconds;
    return rest;
}

static void write_categories(const profile_counts *c, str *out) {
    str_append(out, "| category | ms a step | share | calls |\n|---|---:|---:|---:|\n");
    for (int i = 1; i <= PROFILE_CATEGORIES; i++) { /* PROFILE_OTHER last */
        profile_category category = (profile_category)(i % PROFILE_CATEGORIES);
        write_row(c, categories[category].text, profile_category_count(c, category), out);
    }
    write_row(c, "outside operations", outside(c), out);
    write_row(c, "all", (profile_count){.seconds = c->seconds}, out);
}

/* How much of the matrix products ran in FP8: the answer a profile of an FP8 run is made for. */
static void write_verdict(const profile_counts *c, str *out) {
    profile_count fp8 = c->scaled_gemm, high = profile_category_count(c, PROFILE_GEMM);
    int64_t calls = fp8.calls + high.calls;
    double seconds = fp8.seconds + high.seconds;
    char a[32], b[32];
    str_printf(out, "Matrix products in FP8: %s of %s, %.1f %% of the time of all matrix products.\n",
               str_commas(fp8.calls, a), str_commas(calls, b),
               seconds > 0 ? 100.0 * fp8.seconds / seconds : 0);
}

typedef struct line {
    const char *name, *category;
    profile_count count;
} line;

static int by_seconds(const void *a, const void *b) {
    double x = ((const line *)a)->count.seconds, y = ((const line *)b)->count.seconds;
    return (x < y) - (x > y);
}

static void write_operations(const profile_counts *c, str *out) {
    line lines[OP_COUNT + 1] = {{"scaled_mm", categories[PROFILE_GEMM_FP8].word, c->scaled_gemm}};
    int count = 1;
    for (int i = 0; i < OP_COUNT; i++)
        lines[count++] = (line){op_at(i)->name, categories[category_of_op[i]].word, c->ops[i]};
    qsort(lines, (size_t)count, sizeof *lines, by_seconds);
    str_append(out, "| operation | category | ms a step | share | calls |\n|---|---|---:|---:|---:|\n");
    for (int i = 0; i < count; i++) {
        char name[80];
        if (lines[i].count.calls == 0) continue;
        snprintf(name, sizeof name, "%s | %s", lines[i].name, lines[i].category);
        write_row(c, name, lines[i].count, out);
    }
}

void profile_summary_write(const profile_counts *c, const char *title, str *out) {
    str_printf(out, "# Profile of step%s %lld", c->steps > 1 ? "s" : "", (long long)c->first);
    if (c->steps > 1) str_printf(out, " to %lld", (long long)c->last);
    str_printf(out, "\n\n%s\n\n", title);
    write_verdict(c, out);
    str_append(out, "\n## By category\n\n");
    write_categories(c, out);
    str_append(out, "\n## By operation\n\n");
    write_operations(c, out);
    str_append(
        out,
        "\nAn operation's time does not hold that of the operations it calls (a norm calls quantize for the "
        "forms its\nconsumers read). Calls are those of all profiled steps.\n");
}
