/*
 * Tests expert weights: one parameter [experts, rows, columns]. Each expert's matrix has the same initial
 * values as a separate parameter, on any number of ranks. Checkpoints store one tensor of rank 3. Hugging
 * Face folders store one tensor, or one per matrix.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "folders/hf/model.h"
#include "folders/hf/places.h"
#include "folders/hf/save.h"
#include "folders/tensors.h"
#include "comm/ranks.h"
#include "model/init.h"
#include "model/tiny_model.h"
#include "nn/draw.h"
#include "support/folder.h"

enum { EXPERTS = 3, ROWS = 32, COLUMNS = 48, EACH = ROWS * COLUMNS, ALL = EXPERTS * EACH, RANKS_MAX = 3 };

/* A model in which expert weights replace the down projection of one layer. */
typedef struct expert_test {
    harness h;
    arena *memory;
    linear layer;
    parameter weight;
    model_module module;
    parameter *all, *of_unit;
    store_unit unit;
    model m;
    group ranks;
} expert_test;

static void open_expert_test(expert_test *s, group *ranks) {
    const char *name = "model.layers.0.mlp.down_proj";
    *s = (expert_test){0};
    harness_open(&s->h, 1, NULL);
    HARNESS_OK(arena_open(s->h.account, MEM_OTHER, &s->memory));
    s->module = (model_module){.role = ROLE_DOWN,
                               .kind = MODULE_LINEAR,
                               .name = name,
                               .rank = 3,
                               .of_experts = true,
                               .shape = {EXPERTS, ROWS, COLUMNS},
                               .linear = &s->layer,
                               .weight = &s->weight};
    s->layer = (linear){.name = name, .in = COLUMNS, .out = ROWS, .weight = &s->weight};
    s->m = (model){.options = tiny_options(),
                   .device = s->h.device,
                   .modules = {&s->module, 1},
                   .all_modules = {&s->module, 1},
                   .all_parameters = &s->all,
                   .all_parameter_count = 1,
                   .parameters = &s->weight,
                   .parameter_count = 1,
                   .store = {.ranks = ranks, .units = &s->unit, .unit_count = 1},
                   .activation = OTT_BF16};
    s->all = &s->weight;
    s->m.options.init_style = INIT_HF;
    s->m.options.init_std = 0.3;
    parameter *p = &s->weight;
    *p = parameter_of_experts(s->module.shape);
    p->name = "model.layers.0.mlp.down_proj.weight";
    HARNESS_OK(store_divide(&s->m.store, s->memory, p));
    p->shard.value = harness_tensor(&s->h, OTT_F32, p->shard.value.rows, COLUMNS);
    p->shard.grad = harness_tensor(&s->h, OTT_F32, p->shard.value.rows, COLUMNS);
    p->value = p->grad = tensor_matrix(NULL, OTT_F32, p->rows, COLUMNS);
    if (!p->shard.rows_per_rank) parameter_use_shard(p);
    s->of_unit = p;
    s->unit = (store_unit){.parameters = &s->of_unit, .parameter_count = 1};
    HARNESS_OK(store_open(&s->m.store, s->memory));
    HARNESS_OK(store_set(&s->m.store, s->h.device, OTT_F32));
}

static void close_expert_test(expert_test *s) {
    store_close(&s->m.store, s->h.device);
    arena_close(s->memory);
    harness_close(&s->h);
}

static void open_full(expert_test *s) {
    open_expert_test(s, NULL);
    HARNESS_OK(model_initialize(&s->m, 5, 1));
}

/* Compares a rank's shard with the same elements of the full tensor. */
static void expect_part(expert_test *s, const tensor *part, const float *full) {
    static float values[ALL];
    harness_get(&s->h, part, values);
    assert_memory_equal(values, full + s->weight.shard.first * COLUMNS, (size_t)tensor_bytes(*part));
}

static void expect_full(expert_test *s, const float *full) {
    expect_part(s, &s->weight.shard.value, full);
}

static void full_values(float *out) {
    expert_test s;
    open_full(&s);
    harness_get(&s.h, &s.weight.value, out);
    close_expert_test(&s);
}

/* ---- initial values ---- */

/* Draws the initial values of one expert's matrix, as if it were a separate parameter. */
static void draw_separate(int matrix, float *out) {
    harness h;
    draw w;
    char name[96];
    harness_open(&h, 1, NULL);
    snprintf(name, sizeof name, "model.layers.0.mlp.%d.down_proj.weight", matrix);
    parameter p = parameter_of_shape(2, (int64_t[]){ROWS, COLUMNS});
    p.shard.value = harness_tensor(&h, OTT_F32, ROWS, COLUMNS);
    HARNESS_OK(draw_open(&w, h.device, NULL, EACH, 1));
    HARNESS_OK(draw_rows(&w, (draw_distribution){.deviation = 0.3}, 5, rng_stream(name), &p, 0, ROWS));
    draw_close(&w);
    harness_get(&h, &p.shard.value, out);
    harness_close(&h);
}

static void matrices_start_as_if_separate(void **state) {
    (void)state;
    static float full[ALL], separate[EACH];
    full_values(full);
    for (int i = 0; i < EXPERTS; i++) {
        draw_separate(i, separate);
        assert_memory_equal(full + i * EACH, separate, sizeof separate);
    }
    for (int size = 2; size <= RANKS_MAX; size++)
        for (int rank = 0; rank < size; rank++) {
            expert_test s;
            open_expert_test(&s, &(group){.rank = rank, .size = size});
            HARNESS_OK(model_initialize(&s.m, 5, 1));
            expect_full(&s, full);
            close_expert_test(&s);
        }
}

/* ---- ranks ---- */

typedef struct rank_run {
    expert_test s;
    group *group;
    tensor gathered, added;
} rank_run;

static ott_status gather_and_reduce(exec *cx, void *user) {
    rank_run *r = user;
    parameter *p = &r->s.weight;
    parameter_store *store = &r->s.m.store;
    TRY(store_gather(cx, store, 0, WEIGHT_ROWWISE));
    TRY(op_add(cx, &(add_args){.x = &p->value, .delta = &r->added, .y = &r->gathered}));
    TRY(store_release(cx, store, 0));
    TRY(store_open_gradients(cx, store, 0));
    TRY(op_add(cx, &(add_args){.x = &p->grad, .delta = &r->gathered, .y = &p->grad}));
    TRY(store_reduce_gradients(cx, store, 0));
    return store_finish_gradients(cx, store);
}

static ott_status run_rank(void *argument) {
    rank_run *r = argument;
    plan_replay(r->s.h.plan);
    ott_status status = gather_and_reduce(&r->s.h.cx, r);
    group_close(r->group);
    return status;
}

static void open_rank(rank_run *r, group *ranks) {
    r->group = ranks;
    open_expert_test(&r->s, ranks);
    HARNESS_OK(model_initialize(&r->s.m, 5, 1));
    r->gathered = harness_tensor(&r->s.h, OTT_F32, EXPERTS * ROWS, COLUMNS);
    r->added = harness_tensor(&r->s.h, OTT_F32, EXPERTS * ROWS, COLUMNS); /* all elements zero */
    harness_record(&r->s.h, gather_and_reduce, r);
}

static void run_ranks(int size, const float *full) {
    static rank_run ranks[RANKS_MAX];
    static float values[ALL], sums[ALL];
    group *groups[RANKS_MAX];
    thread_groups opened = {0};
    ranks_groups(&opened, size, 1, size, groups);
    for (int r = 0; r < size; r++) open_rank(&ranks[r], groups[r]);
    ranks_run("expert weights", size, ranks, sizeof *ranks, run_rank);
    for (int i = 0; i < ALL; i++) {
        sums[i] = full[i];
        for (int r = 1; r < size; r++) sums[i] += full[i];
    }
    for (int r = 0; r < size; r++) {
        harness_get(&ranks[r].s.h, &ranks[r].gathered, values);
        assert_memory_equal(values, full, sizeof values);
        expect_part(&ranks[r].s, &ranks[r].s.weight.shard.grad, sums);
        close_expert_test(&ranks[r].s);
    }
    ranks_close(&opened);
}

static void ranks_gather_the_full_tensor(void **state) {
    (void)state;
    static float full[ALL];
    full_values(full);
    for (int size = 2; size <= RANKS_MAX; size++) run_ranks(size, full);
}

/* ---- a checkpoint's tensor ---- */

static void write_tensor(mem *account, const char *path, const safetensors_tensor *t, int count,
                         const float *const *values) {
    safetensors_writer *w;
    HARNESS_OK(safetensors_writer_open(account, path, t, count, NULL, 0, &w));
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;) {
        int64_t bytes = 4;
        for (int i = 0; i < t[next].rank; i++) bytes *= t[next].shape[i];
        HARNESS_OK(safetensors_writer_append(w, values[next], bytes));
    }
    HARNESS_OK(safetensors_writer_commit(w));
}

static void read_on_rank(const safetensors *file, group *ranks, const float *full) {
    expert_test s;
    tensor_set set;
    cancellation_progress progress = cancellation_progress_begin(NULL, "", 1);
    int64_t done = 0;
    open_expert_test(&s, ranks);
    HARNESS_OK(tensor_set_of_model(&set, &s.m, false));
    assert_int_equal(set.declared[0].rank, 3);
    assert_memory_equal(set.declared[0].shape, s.module.shape, sizeof s.module.shape);
    HARNESS_OK(tensor_set_check(&set, file));
    HARNESS_OK(tensor_set_read(&set, file, s.h.device, &progress, &done));
    tensor_set_close(&set);
    expect_full(&s, full);
    close_expert_test(&s);
}

static void checkpoints_have_one_tensor(void **state) {
    folder *f = *state;
    static float full[ALL];
    const float *values[] = {full};
    expert_test s;
    tensor_set set;
    safetensors *file;
    open_full(&s);
    harness_get(&s.h, &s.weight.value, full);
    HARNESS_OK(tensor_set_of_model(&set, &s.m, false));
    write_tensor(f->account, folder_file(f, "state.safetensors"), set.declared, 1, values);
    tensor_set_close(&set);
    close_expert_test(&s);
    HARNESS_OK(safetensors_open(f->account, folder_file(f, "state.safetensors"), &file));
    read_on_rank(file, NULL, full);
    for (int size = 2; size <= RANKS_MAX; size++)
        for (int rank = 0; rank < size; rank++)
            read_on_rank(file, &(group){.rank = rank, .size = size}, full);
    safetensors_close(file);
}

/* ---- Hugging Face folders ---- */

static void load_on_ranks(const char *path, const float *full) {
    for (int size = 1; size <= RANKS_MAX; size++)
        for (int rank = 0; rank < size; rank++) {
            expert_test s;
            group ranks = {.rank = rank, .size = size};
            open_expert_test(&s, size > 1 ? &ranks : NULL);
            HARNESS_OK(hf_model_load(&s.m, path));
            expect_full(&s, full);
            close_expert_test(&s);
        }
}

static void folders_have_it_packed_or_apart(void **state) {
    folder *f = *state;
    static float full[ALL];
    const float *packed[] = {full}, *apart[] = {full, full + EACH, full + 2 * EACH};
    char path[160];
    full_values(full);
    const safetensors_tensor one = {
        "model.layers.0.mlp.down_proj.weight", OTT_F32, 3, {EXPERTS, ROWS, COLUMNS}};
    const safetensors_tensor each[] = {
        {"model.layers.0.mlp.0.down_proj.weight", OTT_F32, 2, {ROWS, COLUMNS}},
        {"model.layers.0.mlp.1.down_proj.weight", OTT_F32, 2, {ROWS, COLUMNS}},
        {"model.layers.0.mlp.2.down_proj.weight", OTT_F32, 2, {ROWS, COLUMNS}}};
    snprintf(path, sizeof path, "%s/model.safetensors", f->path);
    write_tensor(f->account, path, &one, 1, packed);
    load_on_ranks(f->path, full);
    write_tensor(f->account, path, each, EXPERTS, apart);
    load_on_ranks(f->path, full);
}

static void saved_folders_are_read_again(void **state) {
    folder *f = *state;
    static float full[ALL];
    char path[160];
    expert_test s;
    hf_save_summary summary;
    const hf_save_options o = {.dtype = OTT_F32};
    open_full(&s);
    harness_get(&s.h, &s.weight.value, full);
    snprintf(path, sizeof path, "%s/saved", f->path);
    HARNESS_OK(hf_model_save(&s.m, &o, path, &summary));
    assert_int_equal(summary.tensors, EXPERTS);
    close_expert_test(&s);
    load_on_ranks(path, full);
}

/* The model fuses gate and up of each expert. hf_places must find them in a folder that stores gate and up
   separately, and in one that fuses them. */
static void fused_experts_have_places(void **state) {
    (void)state;
    enum { HIDDEN = 48 };
    expert_test s;
    hf_places places;
    int64_t shape[PARAMETER_RANKS];
    open_expert_test(&s, NULL);
    s.module = (model_module){.role = ROLE_GATE_UP,
                              .kind = MODULE_LINEAR,
                              .rank = 3,
                              .of_experts = true,
                              .shape = {2, 2 * HIDDEN, 32},
                              .weight = &s.weight};
    s.weight = parameter_of_experts(s.module.shape);
    HARNESS_OK(hf_places_open(&s.m, family_find("llama"), false, &places));
    assert_int_equal(places.count, 4);
    assert_string_equal(places.items[3].name, "model.layers.0.mlp.1.up_proj.weight");
    assert_int_equal(places.items[3].first, 3 * HIDDEN);
    assert_int_equal(places.items[3].tensor_row, 0);
    assert_int_equal(hf_place_shape(&places.items[3], shape), 2);
    assert_memory_equal(shape, ((int64_t[]){HIDDEN, 32}), 2 * sizeof *shape);
    hf_places_close(&places);
    HARNESS_OK(hf_places_open(&s.m, family_find("phi3"), true, &places));
    assert_string_equal(places.items[3].name, "model.layers.0.mlp.gate_up_proj.weight");
    assert_int_equal(places.items[3].tensor_row, 3 * HIDDEN);
    assert_int_equal(hf_place_shape(&places.items[3], shape), 3);
    assert_memory_equal(shape, s.module.shape, sizeof shape);
    hf_places_close(&places);
    close_expert_test(&s);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_start_as_if_separate), cmocka_unit_test(ranks_gather_the_full_tensor),
        WITH_FOLDER(checkpoints_have_one_tensor),        WITH_FOLDER(folders_have_it_packed_or_apart),
        WITH_FOLDER(saved_folders_are_read_again),       cmocka_unit_test(fused_experts_have_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
