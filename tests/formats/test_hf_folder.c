/* Tests copying the files of a model other than weights: which files are copied, that their bytes are equal,
   and that no link out of the folder is followed. */
#define _GNU_SOURCE
#include "support/folder.h"
#include "formats/hf/folder.h"
#include "base/file/file.h"
#include "base/rng.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static void make_folder(folder *f, const char *name) {
    assert_int_equal(file_make_folder(folder_file(f, name)), OTT_OK);
}

static void link_to(folder *f, const char *target, const char *name) {
    assert_int_equal(symlink(target, folder_file(f, name)), 0);
}

static ott_status copy(folder *f, const char *from, const char *to, int64_t *copied) {
    char source[128];
    strcpy(source, folder_file(f, from));
    return hf_folder_copy_others(f->account, NULL, source, folder_file(f, to), copied);
}

static void must_equal(folder *f, const char *name, const void *data, int64_t bytes) {
    int64_t size;
    char *text = folder_read(f, name, &size);
    assert_int_equal(size, bytes);
    assert_memory_equal(text, data, (size_t)bytes);
    mem_free(f->account, text);
}

static void which_files(void **state) {
    (void)state;
    static const char *const copied[] = {"tokenizer.json",
                                         "tokenizer.model",
                                         "tokenizer_config.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "special_tokens_map.json",
                                         "generation_config.json",
                                         "chat_template.jinja",
                                         "added_tokens.json",
                                         "LICENSE",
                                         "README.md",
                                         "configuration_x.py"};
    static const char *const left[] = {"config.json",
                                       "model.safetensors",
                                       "model-00001-of-00002.safetensors",
                                       "model.safetensors.index.json",
                                       "pytorch_model.bin",
                                       "training_args.bin",
                                       "pytorch_model.bin.index.json",
                                       "consolidated.00.pth",
                                       "x.gguf",
                                       ".gitattributes",
                                       ".git",
                                       "tokenizer.json.tmp-77"};
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) assert_true(hf_folder_is_copied(copied[i]));
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) assert_false(hf_folder_is_copied(left[i]));
}

static void copies_bytes(void **state) {
    folder *f = *state;
    enum { LARGE = 700001 }; /* so many bytes that several copy buffers are needed */
    int64_t copied;
    file_list names;
    char *data = malloc(LARGE);
    for (int i = 0; i < LARGE; i++) data[i] = (char)rng_u32(1, 1, (uint64_t)i);
    make_folder(f, "from/additional_chat_templates");
    make_folder(f, "from/original");
    folder_write(f, "from/tokenizer.json", data, LARGE);
    folder_write(f, "from/empty.txt", "", 0);
    folder_write_text(f, "from/config.json", "{}");
    folder_write_text(f, "from/model.safetensors", "x");
    folder_write_text(f, "from/original/params.json", "x");
    folder_write_text(f, "from/additional_chat_templates/tool.jinja", "{{ x }}");
    make_folder(f, "to");
    folder_write_text(f, "to/config.json", "mine");
    folder_write_text(f, "to/tokenizer.json", "old");
    assert_int_equal(copy(f, "from", "to", &copied), OTT_OK);
    assert_int_equal(copied, 3);
    must_equal(f, "to/tokenizer.json", data, LARGE);
    must_equal(f, "to/empty.txt", "", 0);
    must_equal(f, "to/config.json", "mine", 4);
    must_equal(f, "to/additional_chat_templates/tool.jinja", "{{ x }}", 7);
    assert_int_equal(file_list_folder(f->account, folder_file(f, "to"), &names), OTT_OK);
    assert_int_equal(names.count, 4); /* the 4 copied files; no temporary file is left */
    file_list_free(&names);
    free(data);
}

static void same_folder_is_not_changed(void **state) {
    folder *f = *state;
    int64_t copied;
    make_folder(f, "from");
    folder_write_text(f, "from/tokenizer.json", "x");
    link_to(f, "from", "alias");
    assert_int_equal(copy(f, "from", "alias", &copied), OTT_OK);
    assert_int_equal(copied, 0);
    must_equal(f, "from/tokenizer.json", "x", 1);
}

static void links(void **state) {
    folder *f = *state;
    int64_t copied;
    make_folder(f, "from");
    folder_write_text(f, "secret", "secret");
    folder_write_text(f, "from/vocab.json", "v");
    link_to(f, "vocab.json", "from/tokenizer.json");
    assert_int_equal(copy(f, "from", "to", &copied), OTT_OK);
    assert_int_equal(copied, 2);
    must_equal(f, "to/tokenizer.json", "v", 1);
    link_to(f, "../secret", "from/merges.txt");
    assert_int_equal(copy(f, "from", "to2", &copied), OTT_ERR_UNSUPPORTED);
    assert_error_names("/from/merges.txt: is a link to ");
    assert_false(file_exists(folder_file(f, "to2/merges.txt")));
    unlink(folder_file(f, "from/merges.txt"));
    link_to(f, "..", "from/additional_chat_templates");
    assert_int_equal(copy(f, "from", "to3", &copied), OTT_ERR_UNSUPPORTED);
    unlink(folder_file(f, "from/additional_chat_templates"));
    make_folder(f, "fromage"); /* "fromage" begins like the folder's name "from", but is not in it */
    folder_write_text(f, "fromage/x", "x");
    link_to(f, "../fromage/x", "from/x.txt");
    assert_int_equal(copy(f, "from", "to4", &copied), OTT_ERR_UNSUPPORTED);
    unlink(folder_file(f, "from/x.txt"));
    link_to(f, "nowhere", "from/gone.txt");
    assert_int_equal(copy(f, "from", "to5", &copied), OTT_ERR_NOT_FOUND);
    assert_error_names("/from/gone.txt: cannot open");
}

static void hugging_face_cache(void **state) {
    folder *f = *state;
    int64_t copied;
    make_folder(f, "models--a--b/blobs");
    make_folder(f, "models--a--b/snapshots/abc");
    folder_write_text(f, "models--a--b/blobs/0123", "tokens");
    link_to(f, "../../blobs/0123", "models--a--b/snapshots/abc/tokenizer.json");
    assert_int_equal(copy(f, "models--a--b/snapshots/abc", "to", &copied), OTT_OK);
    must_equal(f, "to/tokenizer.json", "tokens", 6);
    struct stat info;
    assert_int_equal(lstat(folder_file(f, "to/tokenizer.json"), &info), 0);
    assert_true(S_ISREG(info.st_mode));
    folder_write_text(f, "models--a--b/secret", "secret");
    link_to(f, "../../secret", "models--a--b/snapshots/abc/merges.txt");
    assert_int_equal(copy(f, "models--a--b/snapshots/abc", "to", &copied), OTT_ERR_UNSUPPORTED);
    /* folders like the ones of Hugging Face's cache, but with other names, are no cache */
    make_folder(f, "plain/other/abc");
    make_folder(f, "plain/blobs");
    folder_write_text(f, "plain/blobs/0123", "tokens");
    link_to(f, "../../blobs/0123", "plain/other/abc/tokenizer.json");
    assert_int_equal(copy(f, "plain/other/abc", "to6", &copied), OTT_ERR_UNSUPPORTED);
}

static void goal_is_no_link(void **state) {
    folder *f = *state;
    int64_t copied;
    make_folder(f, "from");
    make_folder(f, "to");
    folder_write_text(f, "from/tokenizer.json", "x");
    folder_write_text(f, "precious", "precious");
    link_to(f, "../precious", "to/tokenizer.json");
    assert_int_equal(copy(f, "from", "to", &copied), OTT_ERR_ARGUMENT);
    assert_error_names("/to/tokenizer.json: is not a regular file");
    must_equal(f, "precious", "precious", 8);
}

static void odd_files(void **state) {
    folder *f = *state;
    int64_t copied;
    assert_int_equal(copy(f, "absent", "to", &copied), OTT_ERR_NOT_FOUND);
    make_folder(f, "from");
    FILE *large = fopen(folder_file(f, "from/large.txt"), "wb");
    assert_non_null(large);
    /* a hole, which takes no disk space */
    assert_int_equal(ftruncate(fileno(large), HF_FOLDER_MOST_BYTES + 1), 0);
    fclose(large);
    assert_int_equal(copy(f, "from", "to", &copied), OTT_OK);
    assert_int_equal(copied, 0);
    assert_int_equal(mkfifo(folder_file(f, "from/pipe.txt"), 0600), 0);
    assert_int_equal(copy(f, "from", "to", &copied), OTT_ERR_ARGUMENT);
    assert_error_names("/from/pipe.txt: is a device");
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    ott_status status = OTT_ERR_MEMORY;
    make_folder(f, "from");
    folder_write_text(f, "from/tokenizer.json", "x");
    for (int64_t n = 1; status == OTT_ERR_MEMORY; n++) {
        mem_fail_after(f->account, n);
        status = copy(f, "from", "to", NULL);
    }
    mem_fail_after(f->account, 0);
    assert_int_equal(status, OTT_OK);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(which_files), TEST(copies_bytes),       TEST(same_folder_is_not_changed),
        TEST(links),       TEST(hugging_face_cache), TEST(goal_is_no_link),
        TEST(odd_files),   TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
