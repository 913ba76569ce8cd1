/* jinja/scope: finds and sets the names of a rendering. */
#include "tokenizer/jinja/render.h"

ott_status scope_find(rendering *r, text_view name, jinja_value *out) {
    const jinja_value *v;
    for (const scope *s = r->here; s; s = s->around) {
        TRY(jinja_dict_find_text(&r->work, s->names, name, &v));
        if (v) return *out = *v, OTT_OK;
    }
    *out = jinja_value_undefined(name);
    if (jinja_function_exists(&r->work, name)) out->kind = JINJA_FUNCTION;
    return OTT_OK;
}

ott_status scope_set(rendering *r, text_view name, jinja_value v) {
    return jinja_dict_set(&r->work, r->here->names, jinja_value_string(name), v);
}

ott_status scope_open(rendering *r, const scope *around, scope *own) {
    jinja_value names;
    TRY(jinja_value_dict(&r->work, &names));
    *own = (scope){.names = names.dict, .around = around};
    r->here = own;
    return OTT_OK;
}

static ott_status set_namespace(rendering *r, const jinja_node *target, jinja_value v) {
    jinja_value object;
    TRY(scope_find(r, target->child[0]->name, &object));
    if (object.kind != JINJA_NAMESPACE)
        return FAIL(r, OTT_ERR_FORMAT, "a member of %s cannot be set, only a member of a namespace",
                    jinja_value_kind(&object));
    TRY(jinja_value_fix(&r->work, &v));
    if (r->branches && r->branches->running)
        TRY(jinja_undos_note(&r->work, &r->branches->undos, object.dict, target->name));
    return jinja_dict_set(&r->work, object.dict, jinja_value_string(target->name), v);
}

ott_status scope_assign(rendering *r, const jinja_node *target, jinja_value v) {
    if (target->kind == JINJA_NODE_NAME) return scope_set(r, target->name, v);
    if (target->kind == JINJA_NODE_MEMBER) return set_namespace(r, target, v);
    int64_t count = 0;
    for (const jinja_node *n = target->list; n; n = n->next) count++;
    TRY(jinja_work_steps(&r->work, count));
    TRY(jinja_value_fix(&r->work, &v));
    if (v.kind != JINJA_LIST || v.list->count != count)
        return FAIL(r, OTT_ERR_FORMAT, "%s cannot be unpacked into %d names", jinja_value_kind(&v),
                    (int)count);
    const jinja_value *element = v.list->items;
    for (const jinja_node *n = target->list; n; n = n->next) TRY(scope_set(r, n->name, *element++));
    return OTT_OK;
}
