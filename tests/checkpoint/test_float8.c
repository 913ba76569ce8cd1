/* Tests the checkpoint's file of delayed-scaling state. A layer loads state only if it has the same format
   and margin. A file of an earlier version stores no margin: then its state fits any margin. */
#include "checkpoint/float8.h"
#include "checkpoint/run_folder.h"
#include "fp8/recipe.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

enum { HISTORY = 3 };

/* A layer whose weight has delayed scaling, in the initial state. */
typedef struct layer_case {
    linear layer;
    delayed_store store;
    float8_layer named;
} layer_case;

static void open_layer(run_folder *f, layer_case *c, int margin) {
    const cast_spec spec = {.format = OTT_E4M3,
                            .grain = GRANULARITY_TENSOR,
                            .scale = {.rule = SCALE_TE, .margin = margin},
                            .policy = AMAX_DELAYED,
                            .history = HISTORY};
    *c = (layer_case){0};
    const delayed_request wanted = {.state = &c->layer.delayed[TENSOR_WEIGHT], .spec = &spec};
    assert_int_equal(delayed_store_set(&c->store, f->device, &wanted, 1), OTT_OK);
    c->named = (float8_layer){"a", &c->layer};
}

/* Writes a file with the state of a weight in E4M3. margin NULL: writes no margin, as an earlier version. */
static safetensors *write_file(run_folder *f, const char *margin) {
    const safetensors_tensor tensors[] = {
        {.name = "a.weight.e4m3.amax_history", .dtype = OTT_F32, .rank = 1, .shape = {HISTORY}},
        {.name = "a.weight.e4m3.scale", .dtype = OTT_F32, .rank = 1, .shape = {1}}};
    const float history[HISTORY] = {1, 2, 3}, scale = 7;
    const safetensors_pair note = {"a.weight.margin", (char *)margin};
    const char *path = at(f, "float8.safetensors");
    safetensors_writer *w;
    safetensors *file;
    assert_int_equal(safetensors_writer_open(f->account, path, tensors, 2, &note, margin != NULL, &w),
                     OTT_OK);
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;)
        assert_int_equal(safetensors_writer_append(w, next == 0 ? history : &scale,
                                                   next == 0 ? sizeof history : sizeof scale),
                         OTT_OK);
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
    assert_int_equal(safetensors_open(f->account, path, &file), OTT_OK);
    return file;
}

static void note_event(void *user, const float8_layer *layer, int which, float8_event event) {
    (void)layer;
    if (which == TENSOR_WEIGHT) *(int *)user |= 1 << event;
}

/* Reads the file into a layer with margin 2. Returns the logged events, and checks whether the layer then has
   the file's scale. */
static int read_into_layer(run_folder *f, const char *margin) {
    layer_case c;
    int events = 0;
    float scale;
    open_layer(f, &c, 2);
    safetensors *file = write_file(f, margin);
    assert_int_equal(float8_check(f->account, file), OTT_OK);
    assert_int_equal(float8_read(f->device, file, &c.named, 1, note_event, &events), OTT_OK);
    assert_int_equal(
        device_copy_out(f->device, &scale, c.layer.delayed[TENSOR_WEIGHT].scale.data, sizeof scale), OTT_OK);
    assert_true(scale == (events == 1 << FLOAT8_TAKEN ? 7.0f : 1.0f));
    safetensors_close(file);
    delayed_store_release(&c.store, f->device);
    return events;
}

static void a_state_fits_its_margin(void **state) {
    const int dropped = 1 << FLOAT8_DROPPED | 1 << FLOAT8_FRESH;
    assert_int_equal(read_into_layer(*state, "2"), 1 << FLOAT8_TAKEN);
    assert_int_equal(read_into_layer(*state, "0"), dropped);
    assert_int_equal(read_into_layer(*state, "-99999999999999999999"), dropped);
    assert_int_equal(read_into_layer(*state, NULL), 1 << FLOAT8_TAKEN);
}

/* The file stores the margin of each state, also a margin of 0. */
static void a_margin_is_noted(void **state) {
    run_folder *f = *state;
    for (int margin = 0; margin < 2; margin++) {
        layer_case c;
        tensor_set set;
        open_layer(f, &c, margin);
        assert_int_equal(float8_describe(f->account, &c.named, 1, false, &set), OTT_OK);
        assert_int_equal(set.count, 2);
        assert_string_equal(set.slices[0].note, "a.weight.margin");
        assert_int_equal(set.slices[0].number, margin);
        assert_null(set.slices[1].note);
        tensor_set_close(&set);
        delayed_store_release(&c.store, f->device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_state_fits_its_margin, run_folder_setup, run_folder_teardown),
        cmocka_unit_test_setup_teardown(a_margin_is_noted, run_folder_setup, run_folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
