/* jinja/undo: restores namespaces after a branch of a rendering. */
#include "tokenizer/jinja/value.h"

struct jinja_undo {
    jinja_dict *dict, before; /* the changed namespace, and its jinja_dict before the change */
    int64_t changed;          /* index of the overwritten entry; -1: an entry was added */
    jinja_value value;        /* value that the change overwrote */
};

ott_status jinja_undos_note(jinja_work *w, jinja_undos *u, jinja_dict *dict, text_view name) {
    const jinja_value *there;
    TRY(mem_reserve(w->account, MEM_OTHER, u->count + 1, "changes of a template's namespaces", &u->capacity,
                    &u->items));
    TRY(jinja_work_steps(w, (int64_t)sizeof *u->items / 64 + 1));
    TRY(jinja_dict_find_text(w, dict, name, &there));
    jinja_undo *last = &u->items[u->count++];
    *last = (jinja_undo){.dict = dict, .before = *dict, .changed = -1};
    if (!there) return OTT_OK;
    last->changed = (const jinja_entry *)((const char *)there - offsetof(jinja_entry, value)) - dict->entries;
    last->value = *there;
    return OTT_OK;
}

void jinja_undos_run(jinja_undos *u) {
    while (u->count > 0) {
        const jinja_undo *last = &u->items[--u->count];
        jinja_dict *d = last->dict;
        if (d->count > last->before.count && d->slots == last->before.slots) jinja_dict_drop_last(d);
        *d = last->before;
        if (last->changed >= 0) d->entries[last->changed].value = last->value;
    }
}
