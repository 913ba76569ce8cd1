/* module.json of a module's checkpoint. Input: the file; its checksum is put right. The tensors beside it are
 * those of a module with delayed scaling that was saved. */
#include "fuzz.h"
#include "api/state.h"
#include "ottava/ottava.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ott_module *open_module(ott_context *c) {
    ott_linear_options o;
    ott_module *m;
    ott_linear_options_init(&o);
    o.in_features = o.out_features = 16;
    FUZZ_REQUIRE(ott_linear_open(c, &o, &m) == OTT_OK);
    return m;
}

/* Gives it the amax history that delayed scaling keeps. */
static void forward_delayed(ott_context *c, ott_module *m) {
    ott_autocast_options region;
    ott_recipe *recipe;
    ott_tensor *x, *y;
    FUZZ_REQUIRE(ott_recipe_open(c, "delayed", &recipe) == OTT_OK);
    FUZZ_REQUIRE(ott_tensor_open(c, OTT_BF16, 16, 16, &x) == OTT_OK);
    FUZZ_REQUIRE(ott_tensor_open(c, OTT_BF16, 16, 16, &y) == OTT_OK);
    FUZZ_REQUIRE(ott_tensor_fill(x, 1.0) == OTT_OK);
    ott_autocast_options_init(&region);
    region.recipe = recipe;
    FUZZ_REQUIRE(ott_autocast_begin(c, &region) == OTT_OK);
    FUZZ_REQUIRE(ott_module_forward(m, x, y) == OTT_OK);
    FUZZ_REQUIRE(ott_autocast_end(c) == OTT_OK);
}

static void write_json(const char *path, const uint8_t *data, size_t bytes) {
    json_t *root = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    uint32_t crc;
    char *text = NULL;
    if (json_is_object(root)) {
        json_object_del(root, "crc32c");
        FUZZ_REQUIRE(state_json_crc(root, &crc) == OTT_OK);
        json_object_set_new(root, "crc32c", json_integer(crc));
        text = json_dumps(root, 0);
    }
    fuzz_file(path, text ? (const void *)text : data, text ? strlen(text) : bytes);
    free(text);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static ott_context *c;
    static ott_module *m;
    static char folder[512];
    if (!m) {
        FUZZ_REQUIRE(ott_context_open(NULL, &c) == OTT_OK);
        m = open_module(c);
        forward_delayed(c, m);
        snprintf(folder, sizeof folder, "%s", fuzz_path("module"));
        FUZZ_REQUIRE(ott_checkpoint_save(folder, m, NULL) == OTT_OK);
    }
    write_json("module/module.json", data, bytes);
    (void)ott_checkpoint_load(folder, m, NULL);
    return 0;
}
