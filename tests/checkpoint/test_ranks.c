/*
 * Checkpoints of several ranks, which are threads. Together they write the bytes that one rank writes, with
 * any sharding. Any number of ranks can read these bytes. The same holds for Hugging Face folders. If a rank
 * fails or exits, all ranks report it, and the last checkpoint stays complete.
 */
#define _GNU_SOURCE
#include "backend/open.h"
#include "base/file/file.h"
#include "folders/hf/model.h"
#include "folders/hf/save.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/writer.h"
#include "comm/ranks.h"
#include "model/convert.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS_MAX = 8, HISTORY = 5, STEP = 20 };

/* Returns the shard of a module's weight that a rank holds. */
typedef parameter_part (*layout)(const model_module *e, int rank, int size);

/* The ranks of a job, and the options of their model. If layout_of is NULL, the model shards its parameters
   itself, and `tensor` ranks share each layer (0: 1 rank). */
typedef struct team {
    run_folder *f;
    const model_options *options;
    layout layout_of;
    int size, tensor;
} team;

typedef struct rank_run {
    const team *team;
    int rank;
    mem *account;
    device *device;
    group *group;
    struct group tensor, shard; /* only their rank and size are used; nothing is sent */
    pipeline_stage stage;
    model *m;
    ott_status (*job)(struct rank_run *r);
    const char *folder; /* folder of the checkpoints, or of a Hugging Face model */
    run_state run;
    group leaving; /* a group that passes `calls` collectives on to `inner` and then fails */
    group *inner;
    int calls;
} rank_run;

static rank_run ranks[RANKS_MAX];
static ranks_end ends[RANKS_MAX];

/* ---- models ---- */

/* Model sizes that the number of ranks does not divide. 8 ranks share 6 rows, so some ranks have none. */
static model_options odd_options(void) {
    model_options o = small_options();
    o.vocab = 67;
    o.dim = 18;
    o.head_dim = 6;
    o.hidden = 23;
    return o;
}

/* Splits `rows` rows into `parts` parts. Returns the number of rows of part `at`, and stores the part's first
   row in *first. */
static int64_t shard_rows(int64_t rows, int at, int parts, int64_t *first) {
    int64_t each = rows / parts, more = rows % parts;
    *first = at * each + (at < more ? at : more);
    return each + (at < more);
}

static parameter_part all_of(const model_module *e) {
    return (parameter_part){.rows = e->rank == 2 ? e->shape[0] : 1, .columns = e->shape[e->rank - 1]};
}

/* Returns part `at` of `parts` of p: a matrix is split by rows, a vector by elements. */
static parameter_part shard_part(const model_module *e, parameter_part p, int at, int parts) {
    int64_t first;
    if (e->rank == 2) {
        p.rows = shard_rows(p.rows, at, parts, &first);
        p.row += first;
    } else {
        p.columns = shard_rows(p.columns, at, parts, &first);
        p.column += first;
    }
    return p;
}

/* A layout of two replicas. Each has two data-parallel shards, and size / 4 tensor-parallel ranks per shard.
   Tensor parallelism splits o and down by columns, other matrices by rows, and norms not at all. */
static parameter_part mesh(const model_module *e, int rank, int size) {
    int tp = size / 4, at = rank % tp, shard = rank / tp % 2;
    parameter_part p = all_of(e);
    int64_t first;
    if (e->role == ROLE_O || e->role == ROLE_DOWN) {
        p.columns = shard_rows(p.columns, at, tp, &first);
        p.column = first;
    } else if (e->rank == 2) {
        p = shard_part(e, p, at, tp);
    }
    return shard_part(e, p, shard, 2);
}

/* A layout of two pipeline stages. Each stage's parameters are sharded over the stage's ranks. */
static parameter_part stages(const model_module *e, int rank, int size) {
    int parts = size / 2;
    return shard_part(e, all_of(e), rank % parts, parts);
}

static void shard_tensor(tensor *t, const parameter_part *part) {
    t->rows = part->rows;
    t->columns = t->ld = part->columns;
}

/* Reduces a full model to this rank's shards. */
static void shard_model(model *m, layout layout_of, int rank, int size) {
    for (int i = 0; i < m->modules.count; i++) {
        model_module *e = &m->modules.items[i];
        parameter *p = e->weight;
        if (e->tied) continue;
        parameter_part part = layout_of(e, rank, size);
        p->local = part;
        shard_tensor(&p->shard.value, &part);
        for (int j = 0; j < PARAMETER_SLOTS; j++) shard_tensor(&p->shard.slot[j], &part);
    }
}

static void put(device *d, const tensor *t, const float *values) {
    assert_int_equal(device_copy_in(d, t->data, values, tensor_bytes(*t)), OTT_OK);
}

/* Gives weights and inputs of down projections delayed scaling. `values`: true sets scales and histories. */
static void set_delayed(model *m, device *d, bool values) {
    delayed_request wanted[8] = {{0}};
    cast_spec specs[8];
    int count = 0;
    for (int i = 0; i < m->modules.count; i++) {
        model_module *e = &m->modules.items[i];
        if (e->role != ROLE_DOWN) continue;
        for (int t = 0; t < 2; t++, count++) {
            specs[count] = (cast_spec){.format = t ? OTT_E4M3 : OTT_E5M2,
                                       .grain = GRANULARITY_TENSOR,
                                       .scale = {.rule = SCALE_TE, .margin = e->layer},
                                       .policy = AMAX_DELAYED,
                                       .history = HISTORY};
            wanted[count] = (delayed_request){.state = &e->linear->delayed[t], .spec = &specs[count]};
        }
        e->linear->low_sqnr_count = values ? (float)(3 + e->layer) : 0;
    }
    assert_int_equal(delayed_store_set(&m->delayed, d, wanted, count), OTT_OK);
    for (int i = 0; values && i < count; i++) {
        const float scale = (float)(7 + 2 * specs[i].scale.margin + i % 2),
                    history[HISTORY] = {1, 2, 3, 4, scale};
        put(d, &wanted[i].state->scale, &scale);
        put(d, &wanted[i].state->amax_history, history);
    }
}

static float *fetch(const model *m, const tensor *t) {
    return test_device_fetch(m->device, t->data, tensor_bytes(*t));
}

/* Called for a parameter's value, and for each moment. `part` is the rank's shard, full[] the full tensor. */
typedef void (*tensor_visit)(const model *m, const parameter *p, const tensor *part, const float *full);

static const parameter *find_parameter(const model *m, const char *name) {
    int i = 0;
    while (strcmp(m->parameters[i].name, name) != 0) i++;
    return &m->parameters[i];
}

static void visit_tensors(const model *full, const model *m, int slots, tensor_visit visit) {
    for (int i = 0; i < m->parameter_count; i++) {
        const parameter *p = &m->parameters[i], *all = find_parameter(full, p->name);
        for (int j = -1; j < (p->frozen ? 0 : slots); j++) {
            const tensor *part = j < 0 ? &p->shard.value : &p->shard.slot[j];
            float *values = fetch(full, j < 0 ? &all->shard.value : &all->shard.slot[j]);
            if (tensor_count(*part) > 0) visit(m, p, part, values);
            free(values);
        }
    }
}

/* Returns those elements of the full tensor that are in this rank's shard. The caller frees them. */
static float *select_part(const parameter *p, const tensor *part, const float *full) {
    float *out = malloc((size_t)tensor_bytes(*part));
    const parameter_part at = parameter_shard_part(p);
    for (int64_t i = 0; i < tensor_count(*part); i++)
        out[i] = full[parameter_run_at(&at, p->columns, i, 1).first];
    return out;
}

static void fill_part(const model *m, const parameter *p, const tensor *part, const float *full) {
    float *values = select_part(p, part, full);
    put(m->device, part, values);
    free(values);
}

static void expect_part(const model *m, const parameter *p, const tensor *part, const float *full) {
    float *expected = select_part(p, part, full), *found = fetch(m, part);
    if (memcmp(expected, found, (size_t)tensor_bytes(*part)) != 0) fail_msg("the bits of %s differ", p->name);
    free(expected);
    free(found);
}

static void expect_delayed(const model *full, const model *m) {
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i], *all = &full->all_modules.items[i];
        if (e->role != ROLE_DOWN || !e->linear) continue; /* a layer of another stage has no state here */
        assert_true(e->linear->low_sqnr_count == all->linear->low_sqnr_count);
        for (int t = 0; t < 2; t++) {
            float *a = fetch(full, &all->linear->delayed[t].amax_history),
                  *b = fetch(m, &e->linear->delayed[t].amax_history);
            assert_memory_equal(a, b, HISTORY * sizeof *a);
            free(a);
            free(b);
        }
    }
}

/* ---- ranks ---- */

static void open_rank(rank_run *r, const team *t, group *own, int rank) {
    *r = (rank_run){.team = t, .rank = rank};
    model_options o = *t->options;
    r->group = r->inner = t->size > 1 ? own : NULL;
    if (t->layout_of == stages) {
        r->stage =
            (pipeline_stage){.schedule = PP_1F1B, .stages = 2, .rank = rank / (t->size / 2), .chunks = 1};
        o.stage = &r->stage;
    }
    o.shard_ranks = t->layout_of ? NULL : r->group;
    if (t->tensor) {
        r->tensor = (group){.rank = rank % t->tensor, .size = t->tensor};
        r->shard = (group){.rank = rank / t->tensor, .size = t->size / t->tensor};
        o.tensor_ranks = &r->tensor;
        o.shard_ranks = &r->shard;
    }
    assert_int_equal(mem_open(&r->account), OTT_OK);
    assert_int_equal(test_device_open(r->account, 1, NULL, &r->device), OTT_OK);
    assert_int_equal(model_open(r->device, &o, MODEL_TRAINING, 8, &r->m), OTT_OK);
    if (t->layout_of && t->size > 1) shard_model(r->m, t->layout_of, rank, t->size);
}

static void close_rank(rank_run *r) {
    model_close(r->m);
    device_close(r->device);
    assert_int_equal(mem_read(r->account).now, 0);
    mem_close(r->account);
}

static ott_status run_rank(void *argument) {
    rank_run *r = argument;
    ott_status status = r->job(r);
    group_close(r->inner);
    return status;
}

/* Copies the state of model `full` (NULL: none) to the ranks. Then runs `job` on all ranks in parallel. */
static void run_team(const team *t, const model *full, ott_status (*job)(rank_run *r), const char *folder,
                     void (*prepare)(rank_run *r)) {
    group *groups[RANKS_MAX];
    thread_groups opened = {0};
    ranks_groups(&opened, t->size, 1, t->size, groups);
    for (int i = 0; i < t->size; i++) {
        rank_run *r = &ranks[i];
        open_rank(r, t, groups[i], i);
        r->job = job;
        r->folder = folder;
        if (full) visit_tensors(full, r->m, 2, fill_part);
        set_delayed(r->m, r->device, full != NULL);
        if (prepare) prepare(r);
    }
    ranks_try(t->size, ranks, sizeof *ranks, run_rank, ends);
    ranks_close(&opened);
}

static void expect_success(const team *t) {
    for (int i = 0; i < t->size; i++)
        if (ends[i].status != OTT_OK) fail_msg("rank %d of %d: %s", i, t->size, ends[i].text);
}

static void close_team(const team *t) {
    for (int i = 0; i < t->size; i++) close_rank(&ranks[i]);
}

static ott_status save_job(rank_run *r) {
    run_state run = state_at(STEP);
    return checkpoint_save(r->m, r->team->f->cfg, "delayed", &run, r->group, r->folder, 0, NULL);
}

static ott_status load_job(rank_run *r) {
    bool fell_back;
    return checkpoint_load(r->m, NULL, r->group, r->folder, &r->run, &fell_back);
}

/* Saves a checkpoint, with the writer thread if the configuration has asynchronous checkpoints. */
static ott_status writer_job(rank_run *r) {
    checkpoint_writer *w;
    run_state run = state_at(STEP);
    TRY(checkpoint_writer_open(r->m, NULL, r->team->f->cfg, r->folder, r->group, &w));
    ott_status status = checkpoint_writer_save(w, "delayed", &run, NULL);
    if (status == OTT_OK) status = checkpoint_writer_wait(w);
    checkpoint_writer_close(w);
    return status;
}

/* ---- comparisons ---- */

static model *open_full(run_folder *f, const model_options *o) {
    model *full = small_model(f, o, MODEL_TRAINING, 7);
    set_delayed(full, f->device, true);
    return full;
}

static void save_full(run_folder *f, const model *full, const char *folder, int64_t step) {
    run_state run = state_at(step);
    if (checkpoint_save(full, f->cfg, "delayed", &run, NULL, folder, 0, NULL) != OTT_OK)
        fail_msg("%s", status_text());
}

static void expect_same_path(run_folder *f, const char *a, const char *b) {
    int64_t bytes[2];
    char *x = read_text(f, a, &bytes[0]), *y = read_text(f, b, &bytes[1]);
    if (bytes[0] != bytes[1] || memcmp(x, y, (size_t)bytes[0]) != 0) fail_msg("%s differs from %s", b, a);
    mem_free(f->account, x);
    mem_free(f->account, y);
}

static void expect_same_file(run_folder *f, const char *a, const char *b, const char *name) {
    char path[2][512];
    snprintf(path[0], sizeof path[0], "%s/step-20/%s", a, name);
    snprintf(path[1], sizeof path[1], "%s/step-20/%s", b, name);
    expect_same_path(f, path[0], path[1]);
}

static void expect_same_files(run_folder *f, const char *a, const char *b) {
    file_list list;
    char folder[300];
    static const char *const names[] = {"config.toml", "float8.safetensors", "model.safetensors",
                                        "optimizer.safetensors", "state.json"};
    snprintf(folder, sizeof folder, "%s/step-20", b);
    assert_int_equal(file_list_folder(f->account, folder, &list), OTT_OK);
    assert_int_equal(list.count, 5);
    file_list_free(&list);
    for (int i = 0; i < 5; i++) expect_same_file(f, a, b, names[i]);
}

static void check_saving(const team *t, const model *full, ott_status (*job)(rank_run *r)) {
    char many[128];
    snprintf(many, sizeof many, "%s/many", t->f->root);
    run_team(t, full, job, many, NULL);
    expect_success(t);
    close_team(t);
    expect_same_files(t->f, at(t->f, "one"), many);
    assert_int_equal(file_remove_tree(many), OTT_OK);
}

static void check_loading(const team *t, const model *full) {
    run_team(t, NULL, load_job, at(t->f, "one/step-20"), NULL);
    expect_success(t);
    const run_state run = state_at(STEP);
    for (int i = 0; i < t->size; i++) {
        visit_tensors(full, ranks[i].m, 2, expect_part);
        expect_delayed(full, ranks[i].m);
        assert_true(ranks[i].run.samples == run.samples && ranks[i].run.tokens == run.tokens);
    }
    close_team(t);
}

typedef struct arrangement {
    layout layout_of;
    int size, tensor;
} arrangement;

static const arrangement any_sizes[] = {{NULL, 1, 0},   {NULL, 2, 0},   {NULL, 3, 0},
                                        {NULL, 8, 0},   {mesh, 4, 0},   {mesh, 8, 0},
                                        {stages, 2, 0}, {stages, 8, 0}, {0}};
/* Numbers of ranks at which all ranks have equal shares of the model. Each layer is split between 2 ranks. */
static const arrangement even_sizes[] = {{NULL, 2, 2}, {NULL, 6, 2}, {0}};

static team team_of(run_folder *f, const model_options *o, const arrangement *how) {
    return (team){f, o, how->layout_of, how->size, how->tensor};
}

static void check_model(run_folder *f, const model_options *o, const arrangement *how) {
    model *full = open_full(f, o);
    save_full(f, full, at(f, "one"), STEP);
    for (; how->size; how++) {
        const team t = team_of(f, o, how);
        check_saving(&t, full, save_job);
        check_loading(&t, full);
    }
    model_close(full);
    assert_int_equal(file_remove_tree(at(f, "one")), OTT_OK);
}

/* ---- the tests ---- */

static void ranks_write_what_one_does(void **state) {
    model_options o = odd_options();
    check_model(*state, &o, any_sizes);
}

static void tied_and_frozen_too(void **state) {
    const char *const patterns[] = {"model.layers.0.mlp.*"};
    const str_list freeze = {.items = (void *)patterns, .count = 1};
    model_options o = odd_options();
    o.tied = true;
    o.freeze = &freeze;
    check_model(*state, &o, any_sizes);
}

static void write_in_background(run_folder *f) {
    assert_int_equal(config_set(f->cfg, "checkpoint.async_mode", "async"), OTT_OK);
    assert_int_equal(config_set(f->cfg, "checkpoint.interval", "1"), OTT_OK);
}

static void during_training_too(void **state) {
    run_folder *f = *state;
    model_options o = odd_options();
    const team t = {f, &o, mesh, 8, 0};
    write_in_background(f);
    model *full = open_full(f, &o);
    save_full(f, full, at(f, "one"), STEP);
    check_saving(&t, full, writer_job);
    model_close(full);
}

/* Checks that all ranks report the same error, and that it names rank `rank`. */
static void expect_failure(const team *t, int rank, const char *what) {
    char named[32];
    snprintf(named, sizeof named, "rank %d: ", rank);
    for (int i = 0; i < t->size; i++) {
        assert_int_equal(ends[i].status, OTT_ERR_IO);
        if (!strstr(ends[i].text, named) || !strstr(ends[i].text, what))
            fail_msg("rank %d says: %s", i, ends[i].text);
    }
}

/* Simulates a full disk: file sizes are limited to 4 bytes less than the largest file. Only the last rank,
   which writes the end of the file, fails. */
static void fill_disk(const team *t, const model *full, int64_t bytes, ott_status (*job)(rank_run *r)) {
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    limit = (struct rlimit){.rlim_cur = (rlim_t)bytes - 4, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    run_team(t, full, job, at(t->f, "one"), NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, old);
    expect_failure(t, 7, "optimizer.safetensors: cannot write");
    close_team(t);
}

static void a_full_disk_of_one_rank(void **state) {
    run_folder *f = *state;
    model_options o = odd_options();
    const team t = {f, &o, NULL, 8, 0};
    int64_t bytes;
    file_list list;
    model *full = open_full(f, &o);
    save_full(f, full, at(f, "one"), 4);
    assert_int_equal(file_size(at(f, "one/step-4/optimizer.safetensors"), &bytes), OTT_OK);
    fill_disk(&t, full, bytes, save_job);
    write_in_background(f);
    fill_disk(&t, full, bytes, writer_job);
    assert_int_equal(file_list_folder(f->account, at(f, "one"), &list), OTT_OK);
    assert_int_equal(list.count, 1); /* the older checkpoint is the only entry of the folder */
    file_list_free(&list);
    assert_int_equal(checkpoint_check(f->account, at(f, "one/step-4")), OTT_OK);
    model_close(full);
}

/* ---- a rank that exits ---- */

static ott_status start_or_leave(group *g, exec *cx, group_request *request) {
    rank_run *r = (rank_run *)((char *)g - offsetof(rank_run, leaving));
    if (r->calls-- <= 0) {
        group_close(r->inner);
        r->inner = NULL;
        return status_fail(OTT_ERR_RANK, "the rank was killed");
    }
    TRY(r->inner->table->start(r->inner, cx, request));
    return OTT_OK;
}

static ott_status wait_inner(group *g, exec *cx, group_request *request) {
    rank_run *r = (rank_run *)((char *)g - offsetof(rank_run, leaving));
    return r->inner->table->wait(r->inner, cx, request);
}

static const group_table leaving_table = {.start = start_or_leave, .wait = wait_inner};
static int calls_before_leaving;

static void let_last_leave(rank_run *r) {
    if (r->rank != r->team->size - 1) return;
    r->leaving = *r->group;
    r->leaving.table = &leaving_table;
    r->group = &r->leaving;
    r->calls = calls_before_leaving;
}

/* Checks how many names a folder has. Staging folders do not count: a rank may have written into one while
   another rank removed it. */
static void expect_names(run_folder *f, const char *folder, int expected) {
    file_list list;
    int count = 0;
    assert_int_equal(file_list_folder(f->account, folder, &list), OTT_OK);
    for (int64_t i = 0; i < list.count; i++) count += !strstr(list.names[i], FILE_STAGING_MARK);
    assert_int_equal(count, expected);
    file_list_free(&list);
}

/* A rank exits after each possible number of collectives. Afterwards the checkpoint is complete or absent. */
static void a_rank_that_leaves(void **state) {
    run_folder *f = *state;
    model_options o = odd_options();
    const team t = {f, &o, NULL, 3, 0};
    model *full = open_full(f, &o);
    bool saved = false;
    int absent = 0;
    save_full(f, full, at(f, "one"), 4);
    for (calls_before_leaving = 0; !saved; calls_before_leaving++) {
        run_team(&t, full, save_job, at(f, "one"), let_last_leave);
        saved = ends[2].status == OTT_OK;
        for (int i = 0; i < 2; i++) assert_int_equal(ends[i].status, saved ? OTT_OK : OTT_ERR_RANK);
        bool is_there = file_exists(at(f, "one/step-20"));
        close_team(&t);
        absent += !is_there;
        if (is_there) assert_int_equal(checkpoint_check(f->account, at(f, "one/step-20")), OTT_OK);
        assert_int_equal(checkpoint_check(f->account, at(f, "one/step-4")), OTT_OK);
        expect_names(f, at(f, "one"), 1 + is_there);
        assert_int_equal(file_remove_tree(at(f, "one/step-20")), OTT_OK);
    }
    assert_true(absent > 5);
    model_close(full);
}

/* A wrong layout: one row of the head is on no rank. */
static parameter_part with_a_gap(const model_module *e, int rank, int size) {
    parameter_part p = shard_part(e, all_of(e), rank, size);
    if (e->role == ROLE_HEAD && rank == 1) p.rows--;
    return p;
}

static void incomplete_shards_are_refused(void **state) {
    run_folder *f = *state;
    model_options o = odd_options();
    const team t = {f, &o, with_a_gap, 2, 0};
    model *full = open_full(f, &o);
    run_team(&t, full, save_job, at(f, "many"), NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ends[i].status, OTT_ERR_RANK);
        assert_non_null(strstr(ends[i].text, "not parts of one model"));
    }
    assert_false(file_exists(at(f, "many/step-20")));
    close_team(&t);
    model_close(full);
}

/* ---- Hugging Face folders ---- */

/* Sets finite values, because the FP8 export refuses NaN. */
static void set_numbers(model *m) {
    for (int i = 0; i < m->parameter_count; i++) {
        const tensor *t = &m->parameters[i].shard.value;
        float *values = malloc((size_t)tensor_bytes(*t));
        for (int64_t j = 0; j < tensor_count(*t); j++)
            values[j] = (float)((uint32_t)(j + 31 * i) * 2654435761u >> 16 & 1023) / 300.0f - 1.5f;
        put(m->device, t, values);
        free(values);
    }
}

static hf_save_options folder_options;
static const char *folder_recipe; /* the recipe that models are converted to; NULL: not converted */

/* Converts all layers except the last, which stays in bf16. */
static ott_status convert_folder(model *m) {
    const char *kept = "layers.1.mlp.down_proj";
    const convert_options o = {.recipe = recipe_find(folder_recipe), .filter = &kept, .filter_count = 1};
    return model_convert(m, &o, NULL);
}

static ott_status save_folder_job(rank_run *r) {
    hf_save_options o = folder_options;
    hf_save_summary sum;
    if (folder_recipe) TRY(convert_folder(r->m));
    o.ranks = r->group;
    return hf_model_save(r->m, &o, r->folder, &sum);
}

static ott_status load_folder_job(rank_run *r) {
    return hf_model_load(r->m, r->folder);
}

static void expect_same_folder(run_folder *f, const char *a, const char *b) {
    static const char *const names[] = {"config.json", "model.safetensors"};
    file_list list;
    assert_int_equal(file_list_folder(f->account, b, &list), OTT_OK);
    assert_int_equal(list.count, 2);
    file_list_free(&list);
    for (int i = 0; i < 2; i++) {
        char path[2][512];
        snprintf(path[0], sizeof path[0], "%s/%s", a, names[i]);
        snprintf(path[1], sizeof path[1], "%s/%s", b, names[i]);
        expect_same_path(f, path[0], path[1]);
    }
}

static void check_folder(const team *t, const model *full, const char *one) {
    char many[128];
    snprintf(many, sizeof many, "%s/many", t->f->root);
    run_team(t, full, save_folder_job, many, NULL);
    expect_success(t);
    close_team(t);
    expect_same_folder(t->f, one, many);
    assert_int_equal(file_remove_tree(many), OTT_OK);
    if (folder_options.dtype != OTT_F32 || folder_options.fp8) return;
    run_team(t, NULL, load_folder_job, one, NULL);
    expect_success(t);
    for (int i = 0; i < t->size; i++) visit_tensors(full, ranks[i].m, 0, expect_part);
    close_team(t);
}

static void check_folder_kind(run_folder *f, const model_options *o, model *full, const hf_save_options *kind,
                              const arrangement *how) {
    char one[128];
    hf_save_summary sum;
    snprintf(one, sizeof one, "%s/folder", f->root);
    folder_options = *kind;
    if (hf_model_save(full, kind, one, &sum) != OTT_OK) fail_msg("%s", status_text());
    for (int i = 0; how[i].size; i++) {
        const team t = team_of(f, o, &how[i]);
        check_folder(&t, full, one);
    }
    assert_int_equal(file_remove_tree(one), OTT_OK);
}

static void check_folders(run_folder *f, const model_options *o, const arrangement *how) {
    static const hf_save_options kinds[] = {
        {.dtype = OTT_F32},
        {.dtype = OTT_BF16},
        {.dtype = OTT_BF16, .fp8 = true, .method = HF_METHOD_COMPRESSED, .granularity = HF_SCALE_TENSOR},
        {.dtype = OTT_BF16, .fp8 = true, .method = HF_METHOD_COMPRESSED, .granularity = HF_SCALE_CHANNEL},
        {.dtype = OTT_BF16, .fp8 = true, .method = HF_METHOD_FP8, .granularity = HF_SCALE_BLOCK},
    };
    model *full = open_full(f, o);
    set_numbers(full);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        if (!kinds[k].fp8 || !o->family->transposed) check_folder_kind(f, o, full, &kinds[k], how);
    model_close(full);
}

static void folders_of_ranks(void **state) {
    model_options o = odd_options();
    check_folders(*state, &o, any_sizes);
}

/* Saves separate projections to a folder that fuses them, and the reverse. Some scale blocks span ranks. */
static void fused_folders_of_ranks(void **state) {
    model_options o = odd_options();
    o.hidden = 300;
    o.family = family_find("phi3");
    check_folders(*state, &o, any_sizes);
    o.family = family_find("llama");
    o.fused_qkv = o.fused_gate_up = true;
    check_folders(*state, &o, any_sizes);
}

/* GPT-2's folders have transposed matrices, and fused q, k, v. The model's projections are fused or not. */
static void transposed_folders_of_ranks(void **state) {
    model_options o = odd_options();
    o.family = family_find("gpt2");
    o.heads = o.kv_heads = 3;
    o.qkv_bias = o.o_bias = o.mlp_bias = o.tied = true;
    for (int fused = 0; fused < 2; fused++) {
        o.fused_qkv = fused;
        check_folders(*state, &o, any_sizes);
    }
}

/* Tensor-parallel ranks; projections are fused or separate, in the model and in the folder. */
static void ranks_that_shard_layers(void **state) {
    model_options o = odd_options();
    o.heads = 4;
    o.kv_heads = 2;
    o.hidden = 300;
    o.vocab = 68;
    for (int fused = 0; fused < 2; fused++) {
        o.fused_qkv = o.fused_gate_up = fused;
        o.qkv_bias = true;
        check_model(*state, &o, even_sizes);
        o.qkv_bias = false;
        o.family = family_find("phi3");
        check_folders(*state, &o, even_sizes);
        o.family = family_find("llama");
        check_folders(*state, &o, even_sizes);
    }
}

/* Tensor-parallel ranks with latent attention. Experts and the projections from latents to heads are sharded,
   the projections to latents are not. */
static void ranks_that_shard_latents(void **state) {
    model_options o = odd_options();
    o.family = family_find("deepseek_v3");
    o.heads = o.kv_heads = 4;
    o.latent = (latent_shape){.query_rank = 10, .key_rank = 7, .nope_dim = 5, .rope_dim = 4, .value = 6};
    o.head_dim = latent_key_width(&o.latent);
    o.hidden = 300;
    o.vocab = 68;
    o.moe = (moe_options){.experts = 2,
                          .choices = 1,
                          .hidden = 24,
                          .shared_hidden = 24,
                          .rule = {.score = ROUTE_SIGMOID, .normalized = true, .scale = 1},
                          .biased = true};
    o.moe_every = o.moe_first = 1;
    check_model(*state, &o, even_sizes);
    check_folders(*state, &o, even_sizes);
}

/* Exports FP8 weights as trained. Rank 0 receives the other stages' casts. If ranks shard a tensor, its
   scales must equal the full tensor's scales. */
static void folders_as_trained(void **state) {
    static const char *const recipes[] = {"tensorwise", "rowwise", "block"};
    const hf_save_options kind = {
        .dtype = OTT_BF16, .fp8 = true, .method = HF_METHOD_COMPRESSED, .granularity = HF_SCALE_AS_TRAINED};
    model_options o = small_options();
    o.vocab = 64;
    o.dim = 144;
    o.heads = 6;
    o.kv_heads = 2;
    o.head_dim = 32;
    o.hidden = 224;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        folder_recipe = recipes[i];
        model *full = open_full(*state, &o);
        set_numbers(full);
        assert_int_equal(convert_folder(full), OTT_OK);
        check_folder_kind(*state, &o, full, &kind, any_sizes);
        if (strcmp(recipes[i], "block") != 0) /* for `block`, a shard must have complete scale blocks */
            check_folder_kind(*state, &o, full, &kind, even_sizes);
        model_close(full);
    }
    folder_recipe = NULL;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, run_folder_setup, run_folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(ranks_write_what_one_does), TEST(tied_and_frozen_too),      TEST(during_training_too),
        TEST(a_full_disk_of_one_rank),   TEST(a_rank_that_leaves),       TEST(incomplete_shards_are_refused),
        TEST(folders_of_ranks),          TEST(fused_folders_of_ranks),   TEST(transposed_folders_of_ranks),
        TEST(ranks_that_shard_layers),   TEST(ranks_that_shard_latents), TEST(folders_as_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
