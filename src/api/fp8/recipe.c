/* api/fp8/recipe: recipe objects: a row of the recipe table, with or without changed keys of [float8]. */
#include "api/fp8/recipe.h"
#include "config/config.h"
#include "config/table.h"
#include "fp8/recipe_names.h"
#include "fp8/recipe_text.h"
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* The recipe that ott_recipe_set defines. The recipe table has no row for it. */
static const char custom[] = "custom";

static ott_status fail_recipe_name(const char *name, const char *function) {
    const char *advice = recipe_word_advice(name), *nearest = recipe_nearest_name(name);
    if (advice)
        return status_fail(OTT_ERR_CONFIG, "%s: there is no recipe \"%s\": %s", function, name, advice);
    if (nearest)
        return status_fail(OTT_ERR_CONFIG, "%s: there is no recipe \"%s\"; did you mean \"%s\"?", function,
                           name, nearest);
    return status_fail(OTT_ERR_CONFIG, "%s: there is no recipe \"%s\"; ott_recipe_table lists all recipes",
                       function, name);
}

ott_status recipe_named(const char *name, const char *function, const recipe **out) {
    const char *own = recipe_canonical_name(name);
    *out = own ? recipe_find(own) : NULL;
    return own || strcmp(name, custom) == 0 ? OTT_OK : fail_recipe_name(name, function);
}

/* ---- opening and closing ---- */

static ott_status open_values(ott_context *context, const char *name, struct config **out) {
    char choice[96];
    snprintf(choice, sizeof choice, "--float8.recipe_name=%s", name);
    const char *const arguments[] = {"--train.mixed_precision=fp8", choice};
    return config_parse(context->account, &context->log, 2, arguments, out);
}

/* Opens a recipe object. row NULL: the custom recipe. */
static ott_status open_recipe(ott_context *context, const recipe *row, ott_recipe **out) {
    ott_recipe *r;
    struct config *values = NULL;
    bool fp8 = !row || recipe_gemm_is_fp8(row, GEMM_COUNT);
    if (fp8) TRY(open_values(context, row ? row->name : custom, &values));
    ott_status status = handle_open(context, HANDLE_RECIPE, sizeof(ott_recipe), &r);
    if (status != OTT_OK) return config_close(values), status;
    r->values = values;
    r->plain = values ? NULL : row;
    r->stale = values != NULL;
    return *out = r, OTT_OK;
}

ott_status ott_recipe_open(ott_context *context, const char *name, ott_recipe **out) {
    const recipe *row;
    API_REQUIRE_BOTH(context, out);
    *out = NULL;
    API_REQUIRE(name);
    TRY(recipe_named(name, __func__, &row));
    return API_INSIDE(context, open_recipe(context, row, out));
}

void ott_recipe_close(ott_recipe *r) {
    if (!handle_is_open(r, HANDLE_RECIPE)) return;
    ott_context *context = r->handle.context;
    if (api_enter(context, __func__) != OTT_OK) return;
    config_close(r->values);
    r->values = NULL;
    handle_close(&r->handle);
    api_leave(context);
}

/* ---- the current recipe ---- */

static void attach_to_spec(quant_spec *q, const delayed_callbacks *callbacks) {
    if (q->rowwise.policy == AMAX_DELAYED) q->rowwise.callbacks = callbacks;
    if (q->columnwise.policy == AMAX_DELAYED) q->columnwise.callbacks = callbacks;
}

static void attach_callbacks(ott_recipe *r) {
    recipe *row = &r->plan.fp8;
    const delayed_callbacks *callbacks = r->callbacks.amax || r->callbacks.scale ? &r->callbacks : NULL;
    attach_to_spec(&row->input, callbacks);
    attach_to_spec(&row->weight, callbacks);
    attach_to_spec(&row->grad_output, callbacks);
}

/* Replaces every `from` in the text by `to`, as long as the result fits into `size` bytes. */
static void replace_all(char *text, size_t size, const char *from, const char *to) {
    size_t old = strlen(from), new = strlen(to);
    for (char *at = text; (at = strstr(at, from)) != NULL; at += new) {
        if (strlen(text) - old + new >= size) return;
        memmove(at + new, at + old, strlen(at + old) + 1);
        memcpy(at, to, new);
    }
}

/* Rewords the error of a configuration check: "float8.x" becomes "x", the key that ott_recipe_set takes. */
static ott_status reword_error(ott_status status) {
    char text[1024];
    if (status == OTT_OK) return status;
    snprintf(text, sizeof text, "%s", status_text());
    replace_all(text, sizeof text, "float8.recipe_name = ", "recipe ");
    replace_all(text, sizeof text, "--float8.", "");
    replace_all(text, sizeof text, "float8.", "");
    replace_all(text, sizeof text, "float8: ", "");
    return status_fail(status, "%s", text);
}

static ott_status read_values(ott_recipe *r) {
    TRY(config_check(r->values));
    return precision_plan_read(r->values, &r->plan);
}

/* Checks the current values and builds the recipe *out, which is valid until the next ott_recipe_set. The
   recipe's delayed scaling uses the callbacks of `r`, if they are set. */
static ott_status refresh_recipe(ott_recipe *r, const recipe **out) {
    *out = r->plain ? r->plain : &r->plan.fp8;
    if (!r->stale) return OTT_OK;
    TRY(reword_error(read_values(r)));
    attach_callbacks(r);
    r->stale = false;
    return OTT_OK;
}

ott_status recipe_to_run(ott_context *context, ott_recipe *r, const char *otherwise, const recipe **out) {
    device *d;
    if (r)
        TRY(refresh_recipe(r, out));
    else
        *out = recipe_find(otherwise);
    TRY(api_device(context, &d));
    return backend_check_recipe(d->can, *out);
}

/* ---- options ---- */

static ott_status check_recipe_key(const char *key) {
    int count;
    const char *const *keys = config_recipe_keys(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(keys[i], key) == 0) return OTT_OK;
    const char *nearest = str_nearest(key, keys, count);
    char path[64];
    snprintf(path, sizeof path, "float8.%s", key);
    if (table_find(path))
        return status_fail(OTT_ERR_CONFIG,
                           "ott_recipe_set: %s selects layers or steps, which a recipe does not: set %s with "
                           "ott_config_set, or the member of that name in ott_convert_options",
                           key, path);
    if (nearest)
        return status_fail(OTT_ERR_CONFIG, "ott_recipe_set: a recipe has no key \"%s\"; did you mean \"%s\"?",
                           key, nearest);
    return status_fail(OTT_ERR_CONFIG,
                       "ott_recipe_set: a recipe has no key \"%s\"; give a key of [float8] such as "
                       "amax_history_len or input",
                       key);
}

static ott_status set_recipe_key(ott_recipe *r, const char *key, const char *value) {
    char path[64];
    if (!r->values)
        return status_fail(OTT_ERR_CONFIG,
                           "ott_recipe_set: %s: recipe %s has no FP8 operands, so it has no keys", key,
                           r->plain->name);
    TRY(check_recipe_key(key));
    snprintf(path, sizeof path, "float8.%s", key);
    r->stale = true;
    return status_context(reword_error(config_set(r->values, path, value)), "ott_recipe_set");
}

ott_status ott_recipe_set(ott_recipe *r, const char *key, const char *value) {
    API_HANDLE(r, RECIPE);
    API_REQUIRE_BOTH(key, value);
    return API_INSIDE(r->handle.context, set_recipe_key(r, key, value));
}

void(ott_delayed_callbacks_init)(ott_delayed_callbacks *callbacks, size_t size) {
    API_INIT(callbacks, size, 0);
}

static ott_status set_callbacks(ott_recipe *r, const ott_delayed_callbacks *own) {
    const recipe *row;
    TRY(refresh_recipe(r, &row));
    if (!delayed_cast(&row->input) && !delayed_cast(&row->weight) && !delayed_cast(&row->grad_output))
        return status_fail(
            OTT_ERR_ARGUMENT,
            "ott_recipe_set_callbacks: recipe %s has no delayed scaling: its scales need no history",
            row->name);
    r->callbacks = (delayed_callbacks){.amax = own->amax, .scale = own->scale, .user = own->user};
    attach_callbacks(r);
    return OTT_OK;
}

ott_status ott_recipe_set_callbacks(ott_recipe *r, const ott_delayed_callbacks *callbacks) {
    ott_delayed_callbacks own;
    API_HANDLE(r, RECIPE);
    ott_delayed_callbacks_init(&own);
    TRY(api_read_options(callbacks, &own, sizeof own, "ott_delayed_callbacks"));
    return API_INSIDE(r->handle.context, set_callbacks(r, &own));
}

/* ---- as text ---- */

static void describe_tensor(const char *name, const quant_spec *q, str *out) {
    char row[RECIPE_CAST_TEXT], column[RECIPE_CAST_TEXT];
    recipe_cast_write(&q->rowwise, row);
    recipe_cast_write(&q->columnwise, column);
    if (strcmp(row, column) == 0)
        str_printf(out, "  %-12s %s\n", name, row);
    else
        str_printf(out, "  %-12s %s, columnwise %s\n", name, row, column);
}

const char *const recipe_product_names[GEMM_COUNT] = {"output", "grad_input", "grad_weight"};

static void describe_product(const recipe *r, recipe_gemm which, str *out) {
    const gemm_spec *g = &r->gemm[which];
    bool fp8 = recipe_gemm_is_fp8(r, which);
    str_printf(out, "  %-12s multiplies %s, sums in %s%s\n", recipe_product_names[which],
               fp8 ? "fp8" : dtype_name(r->activation), recipe_accumulate_name(g->accumulate),
               fp8 && g->fast_accumulate ? ", fast accumulator where a GPU has one" : "");
}

static ott_status describe_recipe(ott_recipe *r, ott_text_fn write, void *user) {
    const recipe *row;
    str text = {.account = r->handle.context->account};
    TRY(refresh_recipe(r, &row));
    str_printf(&text, "%s (%s)\n", row->name, row->source);
    describe_tensor("input", &row->input, &text);
    describe_tensor("weight", &row->weight, &text);
    describe_tensor("grad_output", &row->grad_output, &text);
    for (int g = 0; g < GEMM_COUNT; g++) describe_product(row, (recipe_gemm)g, &text);
    ott_status status = api_write(&text, write, user);
    str_free(&text);
    return status;
}

ott_status ott_recipe_describe(ott_recipe *r, ott_text_fn write, void *user) {
    API_HANDLE(r, RECIPE);
    API_REQUIRE_CALL(write);
    return API_INSIDE(r->handle.context, describe_recipe(r, write, user));
}
