/* monitor/profile_summary: writes the tables of summary.md. */
#include "monitor/profile_summary.h"
#include <stdio.h>
#include <stdlib.h>

profile_count profile_kind_count(const profile_counts *c, op_kind kind) {
    profile_count sum = {0};
    if (kind == OP_KIND_GEMM_FP8) return c->scaled_gemm;
    for (int i = 0; i < OP_COUNT; i++) {
        if (op_kind_of((enum op_index)i) != kind) continue;
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

/* Writes communication on its own line, because collectives overlap with the operations in the table. */
static void write_communication(const profile_counts *c, str *out) {
    char calls[32];
    double steps = (double)c->steps;
    if (c->collectives.calls == 0) return;
    str_printf(out,
               "\nCommunication: %s collectives, %.3f MB and %.3f ms a step; operations wait for "
               "%.3f ms.\n",
               str_commas(c->collectives.calls, calls), c->collective_bytes / 1e6 / steps,
               c->collectives.seconds * 1e3 / steps, c->waited * 1e3 / steps);
}

typedef struct line {
    const char *name, *kind;
    profile_count count;
} line;

static int by_seconds(const void *a, const void *b) {
    double x = ((const line *)a)->count.seconds, y = ((const line *)b)->count.seconds;
    return (x < y) - (x > y);
}

static void write_operations(const profile_counts *c, str *out) {
    line lines[OP_COUNT + 1] = {{"scaled_mm", op_kind_name(OP_KIND_GEMM_FP8), c->scaled_gemm}};
    int count = 1;
    for (int i = 0; i < OP_COUNT; i++)
        lines[count++] = (line){op_at(i)->name, op_kind_name(op_kind_of((enum op_index)i)), c->ops[i]};
    qsort(lines, (size_t)count, sizeof *lines, by_seconds);
    str_append(out, "| operation | kind | ms a step | share | calls |\n|---|---|---:|---:|---:|\n");
    for (int i = 0; i < count; i++) {
        char name[80];
        if (lines[i].count.calls == 0) continue;
        snprintf(name, sizeof name, "%s | %s", lines[i].name, lines[i].kind);
        write_row(c, name, lines[i].count, out);
    }
}

void profile_summary_write(const profile_counts *c, const char *title, str *out) {
    str_printf(out, "# Profile of step%s %lld", c->steps > 1 ? "s" : "", (long long)c->first);
    if (c->steps > 1) str_printf(out, " to %lld", (long long)c->last);
    str_printf(out, "\n\n%s\n\n", title);
    profile_count fp8 = c->scaled_gemm, high = profile_kind_count(c, OP_KIND_GEMM);
    int64_t calls = fp8.calls + high.calls;
    double seconds = fp8.seconds + high.seconds;
    char a[32], b[32];
    str_printf(out, "Matrix products in FP8: %s of %s, %.1f %% of the time of all matrix products.\n",
               str_commas(fp8.calls, a), str_commas(calls, b),
               seconds > 0 ? 100.0 * fp8.seconds / seconds : 0);
    str_append(out, "\n## By kind of work\n\n");
    str_append(out, "| kind of work | ms a step | share | calls |\n|---|---:|---:|---:|\n");
    /* time that is not spent in operations: reading the batch, copies, host code */
    profile_count rest = {.seconds = c->seconds - c->waited};
    for (int k = 0; k < OP_KINDS; k++) {
        profile_count n = profile_kind_count(c, (op_kind)k);
        write_row(c, op_kind_text((op_kind)k), n, out);
        rest.seconds -= n.seconds;
    }
    if (c->collectives.calls > 0)
        write_row(c, "communication that operations wait for",
                  (profile_count){c->waited, c->collectives.calls}, out);
    write_row(c, "outside operations", rest, out);
    write_row(c, "all", (profile_count){.seconds = c->seconds}, out);
    write_communication(c, out);
    str_append(out, "\n## By operation\n\n");
    write_operations(c, out);
    str_append(out, "\nQuantizing that is fused into an operation is timed as part of that operation. Calls "
                    "are counted\nover all profiled steps.\n");
}
