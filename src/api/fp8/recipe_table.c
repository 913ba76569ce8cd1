/* api/fp8/recipe_table: the table of all recipes, as text and as JSON. */
#include "api/fp8/recipe.h"
#include "base/json/json_write.h"
#include "base/text/table.h"
#include "fp8/recipe_text.h"
#include <stdio.h>
#include <string.h>

/* ---- cells ---- */

static void tensor_text(const quant_spec *q, str *out) {
    char row[RECIPE_CAST_TEXT], column[RECIPE_CAST_TEXT];
    recipe_cast_write(&q->rowwise, row);
    recipe_cast_write(&q->columnwise, column);
    str_append(out, row);
    if (strcmp(row, column) != 0) str_printf(out, " / %s", column);
}

static void rule_text(const recipe *r, str *out) {
    static const char *const rules[] = {
#define X(constant, word, format, text) text,
        SCALE_RULE_MAP(X)
#undef X
    };
    const cast_spec *s = &r->input.rowwise;
    if (!cast_spec_is_fp8(s)) return str_append(out, "-");
    str_printf(out, "%s%s%s", rules[s->scale.rule], s->scale.power_of_two ? ", down to 2^k" : "",
               s->policy == AMAX_DELAYED ? ", of earlier steps" : "");
}

static void product_text(const recipe *r, recipe_gemm which, str *out) {
    const gemm_spec *g = &r->gemm[which];
    bool fp8 = recipe_gemm_is_fp8(r, which);
    str_printf(out, "%s%s", fp8 ? "fp8" : dtype_name(r->activation),
               fp8 && g->fast_accumulate ? " fast" : "");
    if (g->accumulate != ACCUMULATE_FP32) str_printf(out, " %s", recipe_accumulate_name(g->accumulate));
}

/* Bytes that a layer keeps for backward per element of its input: the columnwise codes and scale_inv of each
   scale group (nn/activation). Scales per tensor or per column are too few to count. */
static double bytes_kept(const recipe *r) {
    const cast_spec *s = &r->input.columnwise;
    if (!cast_spec_is_fp8(s)) return (double)dtype_bytes(r->activation);
    scale_block share = granularity_block(s->grain);
    double codes = dtype_bits(s->format) / 8.0;
    if (share.k == INT64_MAX) return codes;
    return codes + (double)dtype_bytes(granularity_scale_format(s->grain)) / (double)(share.mn * share.k);
}

/* ---- as text ---- */

static void fill_operands(text_table *t, const recipe *r, const capability_list *c) {
    const quant_spec *tensors[] = {&r->input, &r->weight, &r->grad_output};
    (void)c;
    for (int i = 0; i < 3; i++) {
        tensor_text(tensors[i], &t->cells);
        text_table_end_cell(t);
    }
    rule_text(r, &t->cells);
    text_table_end_cell(t);
}

/* Writes the devices. Without the CUDA backend: "cpu; not built: H100/H200". With the CUDA backend: "cpu;
   cuda: H100/H200", or whether this machine's GPU can run the recipe. */
static void devices_text(const recipe *r, const capability_list *c, str *out) {
    for (const capability *p = c->at; p < c->at + c->count; p++) {
        char gpus[CAPABILITY_TEXT];
        const char *name = p->row->name, *refusal = capability_refusal(p, r);
        const char *state = !p->is_built ? "not built"
                            : !p->device ? ""
                            : refusal    ? "not this GPU, but"
                                         : ", this GPU and";
        if (p->row->is_nvidia)
            capability_gpus(r, gpus);
        else
            snprintf(gpus, sizeof gpus, "%s GPUs", name);
        if (p->row->can)
            str_printf(out, "%s%s%s", p > c->at ? "; " : "", refusal ? "not " : "", name);
        else
            str_printf(out, "; %s%s: %s", p->is_built && !(p->device && refusal) ? name : "", state, gpus);
    }
}

static void fill_products(text_table *t, const recipe *r, const capability_list *c) {
    for (int p = 0; p < GEMM_COUNT; p++) {
        product_text(r, (recipe_gemm)p, &t->cells);
        text_table_end_cell(t);
    }
    str_printf(&t->cells, "%.3g", bytes_kept(r));
    text_table_end_cell(t);
    devices_text(r, c, &t->cells);
    text_table_end_cell(t);
    text_table_cell(t, r->source);
}

/* Adds the cells of a recipe, without its name. */
typedef void fill_row(text_table *t, const recipe *r, const capability_list *c);

static ott_status write_recipes(ott_context *context, const capability_list *c, const char *const *heads,
                                int columns, fill_row *fill, str *out) {
    int count;
    const recipe *table = recipe_table(&count);
    text_table t = {.columns = columns, .gap = "  ", .cells.account = context->account};
    for (int i = 0; i < columns; i++) text_table_cell(&t, heads[i]);
    for (int i = 0; i < count; i++) {
        text_table_cell(&t, table[i].name);
        fill(&t, &table[i], c);
    }
    return text_table_write(&t, out);
}

static ott_status write_table_text(ott_context *context, const capability_list *c, str *out) {
    static const char *const operands[] = {"recipe", "input", "weight", "grad_output", "scale"};
    static const char *const products[] = {"recipe", "output",  "grad_input", "grad_weight",
                                           "kept",   "devices", "source"};
    str_append(out,
               "How each tensor of a linear layer is stored, rowwise / columnwise if the two differ:\n\n");
    TRY(write_recipes(context, c, operands, 5, fill_operands, out));
    str_append(
        out, "\nFormat of the three GEMMs (fast: with the fast accumulator of a GPU; the CPU sums in fp32),\n"
             "bytes per input element that are kept for backward (bf16: 2), devices, source:\n\n");
    return write_recipes(context, c, products, 7, fill_products, out);
}

/* ---- as JSON ---- */

static void json_tensor(str *out, const char *name, const quant_spec *q) {
    char row[RECIPE_CAST_TEXT], column[RECIPE_CAST_TEXT];
    recipe_cast_write(&q->rowwise, row);
    recipe_cast_write(&q->columnwise, column);
    json_write_key(out, name);
    str_append(out, "{");
    json_write_text(out, "by_rows", row);
    json_write_text(out, "by_columns", column);
    str_append(out, "}");
}

static void json_product(str *out, const recipe *r, recipe_gemm which) {
    const gemm_spec *g = &r->gemm[which];
    json_write_key(out, recipe_product_names[which]);
    str_append(out, "{");
    json_write_bool(out, "fp8", recipe_gemm_is_fp8(r, which));
    json_write_text(out, "accumulate", recipe_accumulate_name(g->accumulate));
    json_write_bool(out, "fast_accumulate", g->fast_accumulate);
    str_append(out, "}");
}

/* Opens the JSON object of a backend. The caller closes it. */
static void json_backend(str *out, const char *name, bool built, const char *refusal) {
    json_write_key(out, name);
    str_append(out, "{");
    json_write_bool(out, "built", built);
    json_write_bool(out, "supported", !refusal);
    if (refusal) json_write_text(out, "reason", refusal);
}

static void json_devices(str *out, const recipe *r, const capability_list *c) {
    char names[CAPABILITY_TEXT];
    json_write_key(out, "devices");
    str_append(out, "{");
    for (const capability *p = c->at; p < c->at + c->count; p++) {
        json_backend(out, p->row->name, p->is_built, capability_refusal(p, r));
        const gpu *first = p->row->is_nvidia ? capability_gpus(r, names) : NULL;
        if (first) {
            json_write_key(out, "compute_capability");
            str_printf(out, "\"%d.%d\"", first->capability / 10, first->capability % 10);
            json_write_text(out, "gpus", names);
        }
        str_append(out, "}");
    }
    str_append(out, "}");
}

static void json_recipe(str *out, const recipe *r, const capability_list *c) {
    str_append(out, "    {");
    json_write_text(out, "name", r->name);
    json_write_text(out, "activation", dtype_name(r->activation));
    json_tensor(out, "input", &r->input);
    json_tensor(out, "weight", &r->weight);
    json_tensor(out, "grad_output", &r->grad_output);
    json_write_key(out, "scale");
    str_append(out, "\"");
    rule_text(r, out); /* has no characters that JSON escapes */
    str_append(out, "\"");
    json_write_key(out, "products");
    str_append(out, "{");
    for (int p = 0; p < GEMM_COUNT; p++) json_product(out, r, (recipe_gemm)p);
    str_printf(out, "}, \"bytes_kept\": %.6g, \"bytes_kept_bf16\": 2", bytes_kept(r));
    json_devices(out, r, c);
    json_write_text(out, "source", r->source);
    str_append(out, "}");
}

static void write_json(const capability_list *c, str *out) {
    int count;
    const recipe *table = recipe_table(&count);
    str_append(out, "{\n  \"recipes\": [\n");
    for (int i = 0; i < count; i++) {
        json_recipe(out, &table[i], c);
        str_append(out, i + 1 < count ? ",\n" : "\n");
    }
    str_append(out, "  ]\n}\n");
}

/* ---- the public call ---- */

static ott_status write_table(ott_context *context, int json, ott_text_fn write, void *user) {
    str text = {.account = context->account};
    ott_status status = OTT_OK;
    capability_list c;
    TRY(capability_open(context->account, &c));
    if (json)
        write_json(&c, &text);
    else
        status = write_table_text(context, &c, &text);
    capability_close(&c);
    if (status == OTT_OK) status = api_write(&text, write, user);
    str_free(&text);
    return status;
}

ott_status ott_recipe_table(ott_context *context, int json, ott_text_fn write, void *user) {
    API_REQUIRE(context);
    API_REQUIRE_CALL(write);
    return API_INSIDE(context, write_table(context, json, write, user));
}
