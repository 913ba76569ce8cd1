/* hub_fixture: writes the model's files, and starts the server. */
#include "hub_fixture.h"
#include "base/file/file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { WEIGHTS = 300000, HEADER = 72, ROWS = 250 };

static void write_files(folder *f) {
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[74980],\"data_offsets\":[0,299920]}}";
    char bytes[WEIGHTS];
    for (int i = 0; i < WEIGHTS; i++) bytes[i] = (char)(i * 7 + i / 251);
    memset(bytes, 0, 8);
    bytes[0] = HEADER; /* length of the header, in eight bytes */
    memset(bytes + 8, ' ', HEADER);
    memcpy(bytes + 8, header, sizeof header - 1);
    assert_int_equal(file_make_folder(folder_file(f, "repo")), OTT_OK);
    folder_write_text(f, "repo/config.json", "{\"model_type\": \"llama\"}\n");
    folder_write_text(f, "repo/tokenizer.json", "{\"model\": {}}");
    folder_write_text(f, "repo/merges.txt", "");
    folder_write(f, "repo/model.safetensors", bytes, WEIGHTS);
    folder_write_text(f, "repo/pytorch_model.bin", "not needed");
    folder_write_text(f, "repo/consolidated.safetensors", "not needed");
    FILE *rows = fopen(folder_file(f, "rows.jsonl"), "w");
    assert_non_null(rows);
    for (int i = 0; i < ROWS; i++)
        fprintf(rows, "{\"ind\":%d,\"z\":[0.5,true,null],\"a\":\"\303\251 %d\"}\n", i, i * i);
    assert_int_equal(fclose(rows), 0);
}

static bool is_stopped(void *user) {
    const hub_fixture *x = user;
    return x->stop_at && hub_server_count(x->server, x->stop_at, "") > 0;
}

int hub_fixture_setup(void **state) {
    char repo[128];
    hub_fixture *x = calloc(1, sizeof *x);
    void *f;
    if (!x || folder_setup(&f) != 0) return -1;
    x->f = f;
    write_files(x->f);
    snprintf(repo, sizeof repo, "%s/repo", x->f->path);
    x->server = hub_server_open(repo, folder_file(x->f, "rows.jsonl"));
    x->caller = (hub_caller){.cancellation = {.stop = is_stopped, .user = x}, .retry_seconds = 0.01};
    char address[96];
    snprintf(address, sizeof address, "%s/", hub_server_address(x->server));
    setenv("HF_ENDPOINT", address, 1);
    setenv("HF_HOME", x->f->path, 1);
    setenv("no_proxy", "*", 1);
    static const char *const unset[] = {"HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
                                        "HF_HUB_OFFLINE"};
    for (size_t i = 0; i < sizeof unset / sizeof *unset; i++) unsetenv(unset[i]);
    *state = x;
    return 0;
}

int hub_fixture_teardown(void **state) {
    hub_fixture *x = *state;
    void *f = x->f;
    hub_server_close(x->server);
    free(x);
    return folder_teardown(&f);
}
