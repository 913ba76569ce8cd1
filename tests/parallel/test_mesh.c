/* The mesh: its sizes for the requested dimensions, errors, and the members of each group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "parallel/mesh.h"

/* Opens a mesh with these numbers of ranks along pp, dp_replicate, dp_shard, cp, ep and tp. */
static mesh open_mesh(int64_t pp, int64_t replicate, int64_t shard, int64_t cp, int64_t ep, int64_t tp,
                      int64_t ranks) {
    mesh m;
    if (mesh_open((int64_t[]){pp, replicate, shard, cp, ep, tp}, ranks, &m) != OTT_OK)
        fail_msg("%s", status_text());
    return m;
}

static void expect_refused(const int64_t asked[MESH_DIMENSIONS], int64_t ranks, const char *text) {
    mesh m;
    assert_int_equal(mesh_open(asked, ranks, &m), OTT_ERR_CONFIG);
    if (!strstr(status_text(), text)) fail_msg("\"%s\" lacks \"%s\"", status_text(), text);
}

static void shards_take_what_remains(void **state) {
    (void)state;
    for (int64_t ranks = 1; ranks <= 1024; ranks *= 2)
        assert_int_equal(open_mesh(1, 1, -1, 1, 1, 1, ranks).size[MESH_DP_SHARD], ranks);
    mesh m = open_mesh(2, 3, -1, 1, 1, 4, 120);
    assert_int_equal(m.size[MESH_DP_SHARD], 5);
    assert_int_equal(mesh_ranks(&m), 120);
    m = open_mesh(-1, -1, -1, -1, -1, -1, 7);
    assert_int_equal(m.size[MESH_DP_SHARD], 7);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    expect_refused((int64_t[]){1, 2, 2, 1, 1, 1}, 8,
                   "Parallelism dimensions (1 × 2 × 2 × 1 × 1 × 1 = 4) do not match world_size (8)");
    expect_refused((int64_t[]){1, 1, 4, 1, 1, 1}, 1, "do not match world_size (1): start 4 ranks");
    expect_refused((int64_t[]){1, 3, -1, 1, 1, 1}, 4, "4 is not a multiple of 3");
    expect_refused((int64_t[]){INT64_MAX, INT64_MAX, 2, 1, 1, 1}, 4, "do not match world_size (4)");
}

static void neighbours_share_a_layer(void **state) {
    (void)state;
    mesh m = open_mesh(2, 2, 2, 1, 1, 2, 16);
    int ranks[16];
    mesh_group(&m, MESH_SET(TP), 5, ranks);
    assert_memory_equal(ranks, ((int[]){4, 5}), 2 * sizeof(int));
    mesh_group(&m, MESH_SET(DP_SHARD), 5, ranks);
    assert_memory_equal(ranks, ((int[]){5, 7}), 2 * sizeof(int));
    mesh_group(&m, MESH_SET(DP_REPLICATE), 5, ranks);
    assert_memory_equal(ranks, ((int[]){1, 5}), 2 * sizeof(int));
    mesh_group(&m, MESH_SET(PP), 5, ranks);
    assert_memory_equal(ranks, ((int[]){5, 13}), 2 * sizeof(int));
    mesh_group(&m, MESH_DATA, 5, ranks);
    assert_memory_equal(ranks, ((int[]){1, 3, 5, 7}), 4 * sizeof(int));
    char text[128];
    mesh_describe(&m, text);
    assert_string_equal(text, "pp 2 x dp_replicate 2 x dp_shard 2 x tp 2");
    m = open_mesh(1, 1, -1, 1, 1, 1, 1);
    mesh_describe(&m, text);
    assert_string_equal(text, "1 rank");
}

/* For every set of dimensions, each rank is in exactly one group, at the expected index. */
static void groups_part_the_ranks(void **state) {
    (void)state;
    mesh m = open_mesh(2, 3, 2, 2, 1, 2, 48);
    int ranks[48];
    for (mesh_set set = 0; set <= MESH_ALL; set++)
        for (int64_t r = 0; r < 48; r++) {
            int64_t size = mesh_group_size(&m, set), own = mesh_group_rank(&m, set, r);
            mesh_group(&m, set, r, ranks);
            assert_true(own < size);
            assert_int_equal(ranks[own], r);
            for (int64_t i = 1; i < size; i++) assert_true(ranks[i] > ranks[i - 1]);
        }
    for (int64_t r = 0; r < 48; r++) assert_int_equal(mesh_group_rank(&m, MESH_ALL, r), r);
}

/* Checks that mesh_fit changes the requested sizes to `wanted`, and that the mesh then opens. */
static void expect_fit(const int64_t asked[MESH_DIMENSIONS], int64_t ranks,
                       const int64_t wanted[MESH_DIMENSIONS]) {
    int64_t sizes[MESH_DIMENSIONS];
    mesh m;
    memcpy(sizes, asked, sizeof sizes);
    assert_int_equal(mesh_fit(sizes, ranks, NULL), OTT_OK);
    if (mesh_open(sizes, ranks, &m) != OTT_OK) fail_msg("%s", status_text());
    assert_memory_equal(m.size, wanted, sizeof m.size);
}

static void sizes_are_reduced_to_the_ranks(void **state) {
    (void)state;
    expect_refused((int64_t[]){1, 1, -1, 1, 1, 8}, 2, "--distributed.fit=true");
    expect_refused((int64_t[]){1, 1, 8, 1, 1, 1}, 2, "--distributed.fit=true");
    expect_fit((int64_t[]){1, 1, -1, 1, 1, 8}, 2, (int64_t[]){1, 1, 1, 1, 1, 2});
    expect_fit((int64_t[]){4, 2, 16, 2, 8, 8}, 1, (int64_t[]){1, 1, 1, 1, 1, 1});
    expect_fit((int64_t[]){1, 1, -1, 1, 1, 8}, 6,
               (int64_t[]){1, 1, 3, 1, 1, 2}); /* tp 6 would not divide 8 heads */
    expect_fit((int64_t[]){4, 1, 8, 1, 1, 4}, 8, (int64_t[]){2, 1, 1, 1, 1, 4});
    expect_fit((int64_t[]){1, 2, 2, 1, 1, 1}, 8,
               (int64_t[]){1, 2, 4, 1, 1, 1}); /* the mesh uses fewer ranks than are available */
    /* the requested sizes fit and stay */
    expect_fit((int64_t[]){2, 1, -1, 1, 1, 2}, 8, (int64_t[]){2, 1, 2, 1, 1, 2});
    expect_fit((int64_t[]){INT64_MAX, INT64_MAX, 2, 1, 1, 1}, 4, (int64_t[]){1, 1, 4, 1, 1, 1});
    for (int64_t ranks = 1; ranks <= 64; ranks++) {
        int64_t sizes[MESH_DIMENSIONS] = {4, 3, -1, 2, 6, 8};
        mesh m;
        assert_int_equal(mesh_fit(sizes, ranks, NULL), OTT_OK);
        assert_int_equal(mesh_open(sizes, ranks, &m), OTT_OK);
        assert_int_equal(mesh_ranks(&m), ranks);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_take_what_remains),       cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(neighbours_share_a_layer),       cmocka_unit_test(groups_part_the_ranks),
        cmocka_unit_test(sizes_are_reduced_to_the_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
