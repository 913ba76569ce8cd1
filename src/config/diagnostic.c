/* config/diagnostic: the list of diagnostics in the file's order, and its output as error text or log. */
#include "config/diagnostic.h"
#include "config/state.h"
#include <stdio.h>
#include <string.h>

/* ---- the list ---- */

enum { MOST_DIAGNOSTICS = 1000 }; /* reading a file fails after this many diagnostics */

ott_status diagnostic_add(config *cfg, diagnostic_kind kind, const char *spelled, const config_key *key,
                          const char *where, const char *reason) {
    diagnostics *all = &cfg->state->diagnostics;
    diagnostic *r;
    TRY(arena_alloc(cfg->state->memory, sizeof(diagnostic), &r));
    *r = (diagnostic){.kind = kind, .spelled = spelled, .key = key, .where = where, .reason = reason};
    if (all->last)
        all->last->next = r;
    else
        all->first = r;
    all->last = r;
    all->count++;
    return OTT_OK;
}

ott_status diagnostic_failure(config *cfg, const char *spelled, const config_key *key, ott_status status) {
    const char *text, *name;
    if (status != OTT_ERR_CONFIG) return status;
    TRY(arena_strdup(cfg->state->memory, status_text(), &text));
    TRY(arena_strdup(cfg->state->memory, spelled, &name));
    TRY(diagnostic_add(cfg, DIAGNOSTIC_ERROR, name, key, text, NULL));
    return cfg->state->diagnostics.count < MOST_DIAGNOSTICS ? OTT_OK : diagnostic_report(cfg);
}

static bool is_within(const char *path, const char *section) {
    size_t length = strlen(section);
    return strncmp(path, section, length) == 0 && (path[length] == '.' || !path[length]);
}

/* True if `path` is a name in `names` ("a.b|c": a.b and c), or a key of a section with such a name. */
static bool is_one_of(const char *path, const char *names) {
    for (const char *at = names; *at;) {
        char name[96];
        int span = (int)strcspn(at, "|");
        snprintf(name, sizeof name, "%.*s", span, at);
        if (is_within(path, name)) return true;
        at += span + (at[span] == '|');
    }
    return false;
}

void diagnostic_remove(config *cfg, const char *spelled, const config_key *key) {
    diagnostics *all = &cfg->state->diagnostics;
    diagnostic *before = NULL;
    for (diagnostic *r = all->first; r; r = r->next) {
        bool same = (spelled && strcmp(r->spelled, spelled) == 0) || (key && r->key == key);
        if (!same) {
            before = r;
            continue;
        }
        *(before ? &before->next : &all->first) = r->next;
        if (all->last == r) all->last = before;
    }
}

void diagnostic_remove_section(config *cfg, const char *section) {
    for (const diagnostic *r = cfg->state->diagnostics.first; r;) {
        const diagnostic *next = r->next;
        if (is_within(r->spelled, section)) diagnostic_remove(cfg, r->spelled, NULL);
        r = next;
    }
}

/* ---- active diagnostics ---- */

ott_status diagnostic_switched(config *cfg, const char *path, bool on) {
    diagnostics *all = &cfg->state->diagnostics;
    const char *section, *dot = strrchr(path, '.');
    if (!(dot && (strcmp(dot, ".enable") == 0 || strcmp(dot, ".enabled") == 0))) return OTT_OK;
    TRY(arena_printf(cfg->state->memory, &section, "%.*s", (int)(dot - path), path));
    int at = 0;
    while (at < all->switch_count && strcmp(all->switches[at].section, section) != 0) at++;
    if (at == DIAGNOSTIC_SWITCHES) return OTT_OK;
    all->switches[at] = (diagnostic_switch){section, !on};
    if (at == all->switch_count) all->switch_count++;
    return OTT_OK;
}

bool diagnostic_is_off(const config *cfg, const char *spelled) {
    const diagnostics *all = &cfg->state->diagnostics;
    for (int i = 0; i < all->switch_count; i++)
        if (all->switches[i].off && is_within(spelled, all->switches[i].section)) return true;
    return false;
}

static bool is_active(const config *cfg, const diagnostic *r) {
    if (diagnostic_is_off(cfg, r->spelled)) return false;
    return !r->key || !config_is_replaced(cfg, r->key);
}

bool diagnostic_has_error(const config *cfg, const char *spelled) {
    for (const diagnostic *r = cfg->state->diagnostics.first; r; r = r->next)
        if (r->kind == DIAGNOSTIC_ERROR && is_active(cfg, r) &&
            (!spelled || strcmp(r->spelled, spelled) == 0))
            return true;
    return false;
}

bool diagnostic_has_error_in(const config *cfg, const char *names) {
    for (const diagnostic *r = cfg->state->diagnostics.first; r; r = r->next) {
        const char *path = r->key ? r->key->path : r->spelled;
        if (r->kind == DIAGNOSTIC_ERROR && is_active(cfg, r) && is_one_of(path, names)) return true;
    }
    return false;
}

/* ---- lines ---- */

enum { NAMES_SHOWN = 3 };

/* Appends later keys with the same reason: " (also a, b, c and 4 more)". They get no line of their own. */
static void append_others(const config *cfg, str *out, const diagnostic *first) {
    int count = 0;
    for (diagnostic *r = first->next; r; r = r->next) {
        bool same = r->kind == first->kind && r->reason && strcmp(r->reason, first->reason) == 0;
        if (!same || !is_active(cfg, r)) continue;
        r->done = true;
        if (++count <= NAMES_SHOWN) str_printf(out, "%s%s", count == 1 ? " (also " : ", ", r->spelled);
    }
    if (count > NAMES_SHOWN) str_printf(out, " and %d more", count - NAMES_SHOWN);
    if (count) str_append(out, ")");
}

/* Appends one line for r, and for all later diagnostics of the same kind with the same reason. */
static void append_diagnostic(const config *cfg, str *out, const diagnostic *r) {
    str_append(out, r->where);
    if (!r->reason) return;
    append_others(cfg, out, r);
    str_printf(out, ": %s%s", r->kind == DIAGNOSTIC_INSTEAD ? "controls PyTorch only; Ottava " : "",
               r->reason);
}

static const diagnostic *next_diagnostic(const config *cfg, const diagnostic *r, diagnostic_kind kind) {
    while (r && (r->kind != kind || r->done || !is_active(cfg, r))) r = r->next;
    return r;
}

static void begin_lines(const config *cfg) {
    for (diagnostic *r = cfg->state->diagnostics.first; r; r = r->next) r->done = false;
}

enum { MOST_BYTES = 3800 }; /* bytes of the message; status_fail keeps at most 4095 */

/* Appends the line for r. Returns false, and appends nothing, if the text would be longer than MOST_BYTES. */
static bool append_if_it_fits(const config *cfg, str *lines, const diagnostic *r) {
    str line = {.account = lines->account};
    append_diagnostic(cfg, &line, r);
    bool fits = line.text && lines->length + line.length + 3 <= MOST_BYTES;
    if (fits) str_printf(lines, "\n  %s", line.text);
    str_free(&line);
    return fits;
}

static ott_status fail_lines(const config *cfg, const str *lines, int count, int shown) {
    const char *name = *cfg->path ? cfg->path : "this configuration";
    if (count == 1 && shown == 1) return status_fail(OTT_ERR_CONFIG, "%s", lines->text + 3);
    if (count == shown)
        return status_fail(OTT_ERR_CONFIG, "%d errors keep %s from running:%s", count, name, lines->text);
    return status_fail(OTT_ERR_CONFIG, "%d errors keep %s from running:%s\n  and %d more", count, name,
                       lines->text ? lines->text : "", count - shown);
}

ott_status diagnostic_report(config *cfg) {
    str lines = {.account = cfg->state->account};
    int count = 0, shown = 0;
    begin_lines(cfg);
    const diagnostic *r = next_diagnostic(cfg, cfg->state->diagnostics.first, DIAGNOSTIC_ERROR);
    for (; r; r = next_diagnostic(cfg, r->next, DIAGNOSTIC_ERROR), count++)
        shown += append_if_it_fits(cfg, &lines, r);
    ott_status status = str_finish(&lines);
    if (status == OTT_OK && count) status = fail_lines(cfg, &lines, count, shown);
    str_free(&lines);
    return status;
}

/* True if the reason is the name of a key ("distributed.pp") and not a sentence. */
static bool is_key(const char *reason) {
    return memchr(reason, '.', strcspn(reason, " ")) != NULL;
}

/* Appends "a, b.* (only with distributed.pp)". b.* is a row of ignored_keys.def, named once for all its
   keys. */
static void append_inert(const config *cfg, str *out, const diagnostic *r) {
    const char *shown = r->where;
    int more = 0;
    str_append(out, shown);
    for (diagnostic *other = r->next; other; other = other->next) {
        bool same = other->kind == DIAGNOSTIC_INERT && strcmp(other->reason, r->reason) == 0;
        if (!same || !is_active(cfg, other)) continue;
        other->done = true;
        if (strcmp(other->where, shown) == 0 || strcmp(other->where, r->where) == 0) continue;
        shown = other->where;
        if (++more < NAMES_SHOWN) str_printf(out, ", %s", shown);
    }
    if (more >= NAMES_SHOWN) str_printf(out, " and %d more", more - NAMES_SHOWN + 1);
    str_printf(out, " (%s%s)", is_key(r->reason) ? "only with " : "", r->reason);
}

static void log_inert(const config *cfg) {
    str line = {.account = cfg->state->account};
    const diagnostic *r = next_diagnostic(cfg, cfg->state->diagnostics.first, DIAGNOSTIC_INERT);
    for (; r; r = next_diagnostic(cfg, r->next, DIAGNOSTIC_INERT)) {
        str_append(&line, line.length ? "; " : "");
        append_inert(cfg, &line, r);
    }
    if (line.text && str_finish(&line) == OTT_OK)
        log_info(cfg->state->lg, "%s: these keys have no effect: %s", *cfg->path ? cfg->path : "options",
                 line.text);
    str_free(&line);
}

void diagnostic_log(const config *cfg) {
    begin_lines(cfg);
    const diagnostic *r = next_diagnostic(cfg, cfg->state->diagnostics.first, DIAGNOSTIC_INSTEAD);
    for (; r; r = next_diagnostic(cfg, r->next, DIAGNOSTIC_INSTEAD)) {
        str line = {.account = cfg->state->account};
        append_diagnostic(cfg, &line, r);
        if (str_finish(&line) == OTT_OK) log_info(cfg->state->lg, "%s", line.text);
        str_free(&line);
    }
    log_inert(cfg);
}

/* ---- several checks ---- */

void config_collect_begin(config *cfg) {
    cfg->state->diagnostics.kept = cfg->state->diagnostics.last;
    cfg->state->diagnostics.collecting = true;
}

ott_status config_collect(config *cfg, ott_status status) {
    return diagnostic_failure(cfg, "", NULL, status);
}

/* Reports the collected errors and removes them, so that the next check starts without errors. */
ott_status config_collect_end(config *cfg) {
    diagnostics *all = &cfg->state->diagnostics;
    ott_status status = diagnostic_report(cfg);
    *(all->kept ? &all->kept->next : &all->first) = NULL;
    all->last = all->kept;
    all->collecting = false;
    return status;
}
