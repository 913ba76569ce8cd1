/*
 * checkpoint/state: reads and writes state.json, both by the same tables of fields. The reader accepts each
 * member exactly once, with its type and range, and no other members.
 */
#include "checkpoint/state.h"
#include "base/file/file.h"
#include "base/text/number.h"
#include "folders/json_file.h"
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STATE_VERSION 3
#define STATE_OLDEST  2                  /* oldest version of state.json that is read */
#define STATE_LIMIT   (INT64_C(1) << 20) /* largest accepted state.json; a real one has about 1,000 bytes */

typedef enum field_type { FIELD_INT, FIELD_REAL, FIELD_BOOL, FIELD_WORD } field_type;

typedef struct field {
    const char *name;
    field_type type;
    int64_t low; /* low, high: smallest and largest allowed integer */
    int64_t high;
} field;

/* ---- tables ---- */

/* Arguments of X: member of run_state, type. */
#define RUN_MAP(X)                                                                                           \
    X(step, INT)                                                                                             \
    X(updates, INT)                                                                                          \
    X(samples, INT)                                                                                          \
    X(tokens, INT)                                                                                           \
    X(nan_steps, INT)                                                                                        \
    X(loss_scale, REAL)                                                                                      \
    X(good_steps, REAL)

static const field run_fields[] = {
#define X(name, type) {#name, FIELD_##type, 0, INT64_MAX},
    RUN_MAP(X)
#undef X
};
enum { RUN_FIELDS = sizeof run_fields / sizeof *run_fields };

/* Calls X(key in [model], type, minimum, value) for each dimension. Rope fields are 0 except for Llama 3. */
#define STRETCHED(o, member) ((o)->rope.kind == ROPE_LLAMA3 ? (o)->rope.member : 0)
#define SHAPE_MAP(X)                                                                                         \
    X(dim, INT, 1, o->dim)                                                                                   \
    X(n_layers, INT, 1, o->layers)                                                                           \
    X(n_heads, INT, 1, o->heads)                                                                             \
    X(n_kv_heads, INT, 1, o->kv_heads)                                                                       \
    X(head_dim, INT, 1, o->head_dim)                                                                         \
    X(ffn_hidden_dim, INT, 1, o->hidden)                                                                     \
    X(vocab_size, INT, 1, o->vocab)                                                                          \
    X(tie_embeddings, BOOL, 0, o->tied)                                                                      \
    X(attention_bias, BOOL, 0, o->qkv_bias)                                                                  \
    X(qk_norm, BOOL, 0, o->qk_norm)                                                                          \
    X(sliding_window, INT, 0, o->window)                                                                     \
    X(norm_eps, REAL, 0, o->norm_epsilon)                                                                    \
    X(rope_theta, REAL, 0, o->rope.theta)                                                                    \
    X(rope_scaling, WORD, 0, o->rope.kind)                                                                   \
    X(rope_factor, REAL, 0, STRETCHED(o, factor))                                                            \
    X(rope_low_freq_factor, REAL, 0, STRETCHED(o, low_frequency_factor))                                     \
    X(rope_high_freq_factor, REAL, 0, STRETCHED(o, high_frequency_factor))                                   \
    X(rope_original_max_position, INT, 0, STRETCHED(o, original_max_position))

static const field shape_fields[] = {
#define X(name, type, least, value) {#name, FIELD_##type, least, INT64_MAX},
    SHAPE_MAP(X)
#undef X
};
_Static_assert(sizeof shape_fields / sizeof *shape_fields == CHECKPOINT_SHAPE_FIELDS, "one value a field");

static const char *const rope_words[] = {
    [ROPE_PLAIN] = "none", [ROPE_LLAMA3] = "llama3",     [ROPE_LINEAR] = "linear",
    [ROPE_YARN] = "yarn",  [ROPE_LONGROPE] = "longrope", [ROPE_DYNAMIC] = "dynamic"};
enum { ROPE_WORDS = sizeof rope_words / sizeof *rope_words };

static const field file_fields[] = {{"bytes", FIELD_INT, 0, INT64_MAX}, {"crc32c", FIELD_INT, 0, UINT32_MAX}};

static const char *const file_names[] = {
#define X(id, name) name,
    CHECKPOINT_FILE_MAP(X)
#undef X
};

/* read_state removes the optional members first */
static const char *const top_names[] = {"version", "run", "model", "files"};

const char *checkpoint_file_name(enum checkpoint_file_id id) {
    return file_names[id];
}

#define VALUE_INT(x)                                                                                         \
    (state_value) {                                                                                          \
        .integer = (int64_t)(x)                                                                              \
    }
#define VALUE_BOOL(x) VALUE_INT(x)
#define VALUE_WORD(x) VALUE_INT(x)
#define VALUE_REAL(x)                                                                                        \
    (state_value) {                                                                                          \
        .real = (double)(x)                                                                                  \
    }

void checkpoint_state_describe(const model_options *o, checkpoint_state *s) {
    int i = 0;
#define X(name, type, least, value) s->shape[i++] = VALUE_##type(value);
    SHAPE_MAP(X)
#undef X
}

/* ---- writing ---- */

static json_t *json_of(field_type type, state_value v) {
    switch (type) {
    case FIELD_INT: return json_integer(v.integer);
    case FIELD_REAL: return json_real(v.real);
    case FIELD_BOOL: return json_boolean(v.integer);
    case FIELD_WORD: return json_string(rope_words[v.integer]);
    }
    return NULL;
}

/* NULL if memory ran out: jansson's functions pass NULL on. */
static json_t *object_of(const field *fields, const state_value *values, int count) {
    json_t *object = json_object();
    for (int i = 0; i < count; i++)
        if (json_object_set_new(object, fields[i].name, json_of(fields[i].type, values[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

static json_t *run_object(const run_state *run) {
    state_value values[RUN_FIELDS];
    int i = 0;
#define X(name, type) values[i++] = VALUE_##type(run->name);
    RUN_MAP(X)
#undef X
    return object_of(run_fields, values, RUN_FIELDS);
}

static json_t *files_object(const checkpoint_file *files) {
    json_t *object = json_object();
    for (int i = 0; i < CHECKPOINT_FILE_COUNT; i++) {
        if (files[i].absent) continue;
        json_t *file =
            json_pack("{s:I, s:I}", "bytes", (json_int_t)files[i].bytes, "crc32c", (json_int_t)files[i].crc);
        if (json_object_set_new(object, file_names[i], file) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static ott_status fill_root(json_t *root, const checkpoint_state *s) {
    int failed = json_object_set_new(root, "version", json_integer(STATE_VERSION));
    failed |= json_object_set_new(root, "run", run_object(&s->run));
    if (*s->mark.run)
        failed |= json_object_set_new(
            root, "owner", json_pack("{s:s, s:I}", "run", s->mark.run, "branch", (json_int_t)s->mark.branch));
    if (s->run.schedule_start > 0)
        failed |= json_object_set_new(root, "schedule_start", json_integer(s->run.schedule_start));
    if (s->run.step_rows > 0)
        failed |= json_object_set_new(root, "step_rows", json_integer(s->run.step_rows));
    if (s->base.files > 0)
        failed |= json_object_set_new(root, "base",
                                      json_pack("{s:s, s:I, s:I, s:I}", "folder", s->base.folder, "files",
                                                (json_int_t)s->base.files, "bytes", (json_int_t)s->base.bytes,
                                                "hash", (json_int_t)s->base.hash));
    failed |= json_object_set_new(
        root, "model",
        s->is_bare_module ? json_null() : object_of(shape_fields, s->shape, CHECKPOINT_SHAPE_FIELDS));
    failed |= json_object_set_new(root, "files", files_object(s->files));
    return failed ? status_fail(OTT_ERR_MEMORY, "out of memory: a checkpoint's state") : OTT_OK;
}

ott_status checkpoint_state_write(mem *account, const char *path, const checkpoint_state *s) {
    json_t *root = json_object();
    str json = {.account = account};
    ott_status status;
    TRY_OUT(fill_root(root, s));
    TRY_OUT(json_file_print(root, &json));
    TRY_OUT(file_write_atomic(path, json.text, json.length));
out:
    str_free(&json);
    json_decref(root);
    return status;
}

/* ---- reading ---- */

/* Place of a value, for messages: path of the file, and section such as "run" or "files.config.toml". */
typedef struct member_path {
    const char *path, *section;
} member_path;

/* For messages: returns the name, or "(a long name)" if it is long or not valid UTF-8. */
static const char *show_member(const char *name) {
    return strlen(name) <= 40 && str_utf8_error(name, (int64_t)strlen(name)) < 0 ? name : "(a long name)";
}

static ott_status fail_member(const member_path *at, const char *name, const char *what) {
    return status_fail(OTT_ERR_FORMAT, "%s: '%s%s%s' %s", at->path, at->section, *at->section ? "." : "",
                       show_member(name), what);
}

static ott_status take_state_int(const member_path *at, const field *f, const json_t *value, int64_t *out) {
    if (!json_is_integer(value)) return fail_member(at, f->name, "is not an integer");
    int64_t x = json_integer_value(value);
    if (x >= f->low && x <= f->high) return *out = x, OTT_OK;
    char what[96];
    snprintf(what, sizeof what, "is %" PRId64 "; %" PRId64 " to %" PRId64 " is allowed", x, f->low, f->high);
    return fail_member(at, f->name, what);
}

static ott_status take_state_real(const member_path *at, const field *f, const json_t *value, double *out) {
    if (!json_is_number(value)) return fail_member(at, f->name, "is not a number");
    *out = json_number_value(value);
    return *out >= 0 && *out <= FLT_MAX ? OTT_OK : fail_member(at, f->name, "is negative or too large");
}

static ott_status take_word(const member_path *at, const field *f, const json_t *value, int64_t *out) {
    const char *word = json_string_value(value);
    for (int i = 0; word && i < ROPE_WORDS; i++)
        if (strcmp(word, rope_words[i]) == 0) return *out = i, OTT_OK;
    return fail_member(at, f->name, "is not one of none, llama3, linear, yarn, longrope, dynamic");
}

static ott_status take_field(const member_path *at, const field *f, const json_t *value, state_value *out) {
    if (!value) return fail_member(at, f->name, "is missing");
    switch (f->type) {
    case FIELD_INT: return take_state_int(at, f, value, &out->integer);
    case FIELD_REAL: return take_state_real(at, f, value, &out->real);
    case FIELD_WORD: return take_word(at, f, value, &out->integer);
    case FIELD_BOOL:
        if (!json_is_boolean(value)) return fail_member(at, f->name, "is not true or false");
        out->integer = json_is_true(value);
        break;
    }
    return OTT_OK;
}

/* Checks that the value is an object with exactly the members `names`. */
static ott_status check_member_names(const member_path *at, json_t *object, const char *const *names,
                                     int count) {
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return status_fail(OTT_ERR_FORMAT, "%s: '%s' is not an object", at->path, at->section);
    for (int i = 0; i < count; i++)
        if (!json_object_get(object, names[i])) return fail_member(at, names[i], "is missing");
    json_object_foreach(object, name, value) {
        bool known = false;
        for (int i = 0; i < count; i++) known |= strcmp(name, names[i]) == 0;
        if (!known) return fail_member(at, name, "is not a member of a checkpoint");
    }
    return OTT_OK;
}

static ott_status read_fields(const member_path *at, json_t *object, const field *fields, int count,
                              state_value *values) {
    const char *names[CHECKPOINT_SHAPE_FIELDS] = {0};
    STATUS_REQUIRE(count <= CHECKPOINT_SHAPE_FIELDS);
    for (int i = 0; i < count; i++) names[i] = fields[i].name;
    TRY(check_member_names(at, object, names, count));
    for (int i = 0; i < count; i++)
        TRY(take_field(at, &fields[i], json_object_get(object, fields[i].name), &values[i]));
    return OTT_OK;
}

static ott_status read_run_counters(const char *path, json_t *object, run_state *run) {
    const member_path at = {path, "run"};
    state_value values[RUN_FIELDS] = {0};
    TRY(read_fields(&at, object, run_fields, RUN_FIELDS, values));
    int i = 0;
#define TAKEN_INT     integer
#define TAKEN_REAL    real
#define X(name, type) run->name = (__typeof__(run->name))values[i++].TAKEN_##type;
    RUN_MAP(X)
#undef X
    if (run->nan_steps > run->step) return fail_member(&at, "nan_steps", "is more than the number of steps");
    if (run->schedule_start > run->step)
        return fail_member(&(member_path){path, ""}, "schedule_start", "is more than the number of steps");
    return run->loss_scale > 0 ? OTT_OK : fail_member(&at, "loss_scale", "is not positive");
}

/* Reads the optional member "owner" and removes it from the root. */
static ott_status take_owner(const char *path, json_t *root, run_mark *mark) {
    static const char *const names[] = {"run", "branch"};
    static const field branch = {"branch", FIELD_INT, 1, INT64_MAX};
    const member_path at = {path, "owner"};
    json_t *object = json_object_get(root, "owner");
    *mark = (run_mark){.branch = 1};
    if (!object) return OTT_OK;
    TRY(check_member_names(&at, object, names, 2));
    const char *id = json_string_value(json_object_get(object, "run"));
    if (!id || !run_id_is_valid(id)) return fail_member(&at, "run", "is not the id of a run");
    strcpy(mark->run, id);
    TRY(take_state_int(&at, &branch, json_object_get(object, "branch"), &mark->branch));
    json_object_del(root, "owner");
    return OTT_OK;
}

/* Reads "base", which exists if frozen weights are in another folder, and removes it from the JSON object. */
static ott_status take_base(const char *path, json_t *root, model_base *base) {
    static const char *const names[] = {"folder", "files", "bytes", "hash"};
    static const field counts[] = {{"files", FIELD_INT, 1, INT64_MAX},
                                   {"bytes", FIELD_INT, 0, INT64_MAX},
                                   {"hash", FIELD_INT, 0, INT64_MAX}};
    int64_t *const to[] = {&base->files, &base->bytes, &base->hash};
    const member_path at = {path, "base"};
    json_t *object = json_object_get(root, "base");
    *base = (model_base){0};
    if (!object) return OTT_OK;
    TRY(check_member_names(&at, object, names, 4));
    const char *folder = json_string_value(json_object_get(object, "folder"));
    if (!folder || !*folder || strlen(folder) >= sizeof base->folder)
        return fail_member(&at, "folder", "is not the path of a folder");
    strcpy(base->folder, folder);
    for (int i = 0; i < 3; i++)
        TRY(take_state_int(&at, &counts[i], json_object_get(object, counts[i].name), to[i]));
    json_object_del(root, "base");
    return OTT_OK;
}

/* Reads a counter, which the file omits if it is 0, and removes it from the JSON object. */
static ott_status take_counter(const char *path, json_t *root, const char *name, int64_t *out) {
    const field f = {name, FIELD_INT, 1, INT64_MAX};
    json_t *value = json_object_get(root, f.name);
    *out = 0;
    if (!value) return OTT_OK;
    TRY(take_state_int(&(member_path){path, ""}, &f, value, out));
    json_object_del(root, f.name);
    return OTT_OK;
}

static ott_status read_files(const char *path, json_t *object, checkpoint_state *s) {
    const member_path at = {path, "files"};
    const char *names[CHECKPOINT_FILE_COUNT];
    int count = 0;
    for (int i = 0; i < CHECKPOINT_FILE_COUNT; i++) {
        bool optional = s->is_bare_module && i != CHECKPOINT_MODEL;
        s->files[i].absent = optional && !json_object_get(object, file_names[i]);
        if (!s->files[i].absent) names[count++] = file_names[i];
    }
    TRY(check_member_names(&at, object, names, count));
    for (int i = 0; i < CHECKPOINT_FILE_COUNT; i++) {
        state_value values[2] = {0};
        if (s->files[i].absent) continue;
        TRY(read_fields(&(member_path){path, file_names[i]}, json_object_get(object, file_names[i]),
                        file_fields, 2, values));
        s->files[i] = (checkpoint_file){.bytes = values[0].integer, .crc = (uint32_t)values[1].integer};
    }
    return OTT_OK;
}

/* Checks the version before the checksum: a newer version may use another checksum. */
static ott_status check_state_version(const char *path, const json_t *root) {
    const json_t *version = json_object_get(root, "version");
    if (!json_is_integer(version))
        return status_fail(OTT_ERR_FORMAT, "%s: is not the state of a checkpoint: it has no version", path);
    int64_t number = json_integer_value(version);
    if (number >= STATE_OLDEST && number <= STATE_VERSION) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s: is of version %" PRId64
                       ", this program reads up to version %d: use the program that wrote it",
                       path, number, STATE_VERSION);
}

static ott_status read_state(const char *path, json_t *root, checkpoint_state *s) {
    TRY(check_state_version(path, root));
    TRY(json_file_check(path, root));
    TRY(take_owner(path, root, &s->mark));
    TRY(take_base(path, root, &s->base));
    TRY(take_counter(path, root, "schedule_start", &s->run.schedule_start));
    TRY(take_counter(path, root, "step_rows", &s->run.step_rows));
    TRY(check_member_names(&(member_path){path, ""}, root, top_names, sizeof top_names / sizeof *top_names));
    s->lacks_owner = json_integer_value(json_object_get(root, "version")) < STATE_VERSION;
    s->is_bare_module = json_is_null(json_object_get(root, "model"));
    TRY(read_run_counters(path, json_object_get(root, "run"), &s->run));
    TRY(read_files(path, json_object_get(root, "files"), s));
    if (s->is_bare_module) return OTT_OK;
    if (s->run.updates > s->run.step)
        return fail_member(&(member_path){path, "run"}, "updates", "is more than the number of steps");
    return read_fields(&(member_path){path, "model"}, json_object_get(root, "model"), shape_fields,
                       CHECKPOINT_SHAPE_FIELDS, s->shape);
}

ott_status checkpoint_state_read(mem *account, const char *path, checkpoint_state *s) {
    json_t *root;
    *s = (checkpoint_state){0};
    TRY(json_file_load(account, path, STATE_LIMIT, &root));
    ott_status status = read_state(path, root, s);
    json_decref(root);
    return status;
}

static void show_value(const field *f, state_value v, char out[32]) {
    switch (f->type) {
    case FIELD_INT: snprintf(out, 32, "%" PRId64, v.integer); break;
    case FIELD_REAL: number_metric(v.real, out); break;
    case FIELD_BOOL: snprintf(out, 32, "%s", v.integer ? "true" : "false"); break;
    case FIELD_WORD: snprintf(out, 32, "%s", rope_words[v.integer]); break;
    }
}

ott_status checkpoint_state_match(const checkpoint_state *s, const model_options *o, const char *folder) {
    checkpoint_state own;
    if (s->is_bare_module)
        return status_fail(OTT_ERR_SHAPE,
                           "%s: is the checkpoint of a module (ott_checkpoint_save), not of a run: load a "
                           "checkpoint of this model",
                           folder);
    checkpoint_state_describe(o, &own);
    for (int i = 0; i < CHECKPOINT_SHAPE_FIELDS; i++) {
        const field *f = &shape_fields[i];
        if (s->shape[i].integer == own.shape[i].integer && s->shape[i].real == own.shape[i].real) continue;
        char theirs[32], ours[32];
        show_value(f, s->shape[i], theirs);
        show_value(f, own.shape[i], ours);
        return status_fail(OTT_ERR_SHAPE,
                           "%s: its model has model.%s = %s, this run's has %s: set --model.%s=%s, or load a "
                           "checkpoint of this model",
                           folder, f->name, theirs, ours, f->name, theirs);
    }
    return OTT_OK;
}
