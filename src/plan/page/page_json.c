/* plan/page/page_json: writes the plan as JSON, in seconds, bytes and FLOP. */
#include "plan/page/page.h"
#include "base/json/json_write.h"

/* Begins an object or a list, by its bracket. */
static void json_open(str *out, const char *name, const char *bracket) {
    json_write_key(out, name);
    str_append(out, bracket);
}

static void write_memory_kinds(const char *name, int64_t all, const int64_t bytes_of_kind[MEM_KIND_COUNT],
                               str *out) {
    json_open(out, name, "{");
    for (int kind = 0; kind < MEM_KIND_COUNT; kind++)
        json_write_integer(out, mem_kind_name((mem_kind)kind), bytes_of_kind[kind]);
    json_write_integer(out, "all", all);
    str_append(out, "}");
}

static void write_fp8_memory(const memory_check_fp8 *c, str *out) {
    json_write_integer(out, "bytes_more_than_bf16", c->excess);
    json_open(out, "settings_that_need_less", "[");
    for (int i = 0; i < c->offer_count; i++) {
        json_open(out, NULL, "{");
        json_write_text(out, "setting", c->offers[i].text);
        json_write_integer(out, "bytes", c->offers[i].total);
        str_append(out, "}");
    }
    str_append(out, "]");
}

static void write_json_work(const planner *p, str *out) {
    json_open(out, "work", "{");
    for (int kind = 0; kind < OP_KINDS; kind++) {
        const count_part *k = &p->estimate.rank.kinds[kind];
        if (k->calls == 0) continue;
        json_open(out, op_kind_name((op_kind)kind), "{");
        json_write_integer(out, "calls", k->calls);
        json_write_real(out, "seconds", k->seconds);
        json_write_real(out, "flops", k->flops);
        json_write_real(out, "bytes", k->bytes);
        str_append(out, "}");
    }
    str_append(out, "}");
}

static void write_json_layer(const layer_row *r, str *out) {
    json_open(out, NULL, "{");
    json_write_text(out, "name", r->name);
    json_write_integer(out, "layers", r->count);
    json_write_integer(out, "m", r->m);
    json_write_integer(out, "n", r->n);
    json_write_integer(out, "k", r->k);
    json_write_bool(out, "converted", r->converted);
    json_write_real(out, "high_precision_seconds", r->high);
    json_write_real(out, "fp8_seconds", r->fp8);
    json_write_real(out, "times", layers_speedup(r));
    str_append(out, "}");
}

static void write_json_sweep(const sweep *s, str *out) {
    char text[SWEEP_TEXT];
    json_open(out, "sweep", "[");
    for (int i = 0; i < s->count; i++) {
        const sweep_row *r = &s->best[i];
        json_open(out, NULL, "{");
        sweep_show(r, text);
        json_write_text(out, "options", text);
        json_write_integer(out, "bytes", r->bytes);
        json_write_real(out, "step_seconds", r->step_seconds);
        json_write_real(out, "tokens_per_second", r->tokens_per_second);
        str_append(out, "}");
    }
    str_append(out, "]");
}

ott_status page_write_json(const planner *p, str *out) {
    const estimate *e = &p->estimate;
    str_append(out, "{");
    json_write_text(out, "device", p->machine.name);
    json_write_text(out, "precision", p->names[0]);
    json_write_integer(out, "ranks", e->ranks);
    json_write_integer(out, "parameters", e->rank.parameters);
    json_write_integer(out, "parameters_of_a_rank", e->rank.on_rank);
    json_write_integer(out, "tokens", e->tokens);
    const memory_need *n = &p->estimate.need;
    write_memory_kinds("memory_bytes", n->total, n->by_kind, out);
    write_memory_kinds("host_memory_bytes", n->host, n->host_by_kind, out);
    json_write_bool(out, "fits", p->estimate.shortfall <= 0);
    json_write_integer(out, "largest_batch_size", p->largest_batch);
    if (p->advice.suggestions.length > 0) json_write_text(out, "suggestions", p->advice.suggestions.text);
    if (p->advice.fp8.excess > 0) write_fp8_memory(&p->advice.fp8, out);
    write_json_work(p, out);
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        const count_traffic *t = &e->rank.traffic[kind];
        json_open(out, count_traffic_name((traffic_kind)kind), "{");
        json_write_integer(out, "calls", t->calls);
        json_write_real(out, "bytes", t->bytes);
        json_write_real(out, "seconds", t->seconds);
        str_append(out, "}");
    }
    json_write_real(out, "waiting_seconds", e->waiting_seconds);
    json_write_real(out, "bubble_seconds", e->bubble_seconds);
    json_write_real(out, "step_seconds", e->step_seconds);
    json_write_real(out, "tokens_per_second", e->tokens_per_second);
    json_write_real(out, "mfu", e->mfu);
    if (p->has_other) json_write_real(out, "other_precision_tokens_per_second", p->other.tokens_per_second);
    json_open(out, "layers", "[");
    for (int i = 0; i < p->layers.count; i++) write_json_layer(&p->layers.rows[i], out);
    str_append(out, "]");
    if (p->options->sweep) write_json_sweep(&p->sweep, out);
    str_append(out, "}\n");
    return str_finish(out);
}
