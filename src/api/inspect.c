/* api/inspect: lists the tensors of a safetensors file or a model folder. */
#include "report/inspect.h"
#include "api/handle.h"
#include "base/file/file.h"
#include "checkpoint/checkpoint.h"
#include "folders/peft.h"

void(ott_inspect_options_init)(ott_inspect_options *options, size_t size) {
    API_INIT(options, size, 0);
}

typedef struct receiver {
    ott_text_fn write;
    void *user;
    str piece; /* NUL-terminated copy of the text for `write` */
} receiver;

static ott_status receive_text(void *user, const char *text, int64_t length) {
    receiver *r = user;
    r->piece.length = 0;
    str_append_bytes(&r->piece, text, length);
    return api_write(&r->piece, r->write, r->user);
}

/* Finds the path to inspect: the newest checkpoint of a run folder, the tensors of a PEFT folder, or `path`
   itself. Free *out with mem_free. */
static ott_status resolve_path(mem *account, const char *path, char **out) {
    char inside[PATH_MAX];
    bool is_run;
    TRY(file_join(path, PEFT_TENSORS_NAME, inside));
    if (file_is_in(path, PEFT_CONFIG_NAME)) return mem_strdup(account, inside, out);
    TRY(file_join(path, "checkpoints", inside));
    TRY(checkpoint_has_any(account, inside, &is_run));
    return is_run ? checkpoint_find(account, path, path, out) : mem_strdup(account, path, out);
}

/* For a PEFT folder writes a line about its adapters. */
static ott_status describe_adapters(mem *account, const char *path, receiver *r) {
    str line = {.account = account};
    if (!file_is_in(path, PEFT_CONFIG_NAME)) return OTT_OK;
    ott_status status = peft_describe(account, path, &line);
    if (status == OTT_OK) status = receive_text(r, line.text, line.length);
    str_free(&line);
    return status;
}

static ott_status inspect_path(ott_context *context, const char *path, const ott_inspect_options *o,
                               ott_text_fn write, void *user) {
    const inspect_options options = {.statistics = o->statistics != 0, .json = o->json != 0};
    receiver r = {.write = write, .user = user, .piece.account = context->account};
    char *found;
    TRY(resolve_path(context->account, path, &found));
    ott_status status = checkpoint_check(context->account, found);
    if (status == OTT_OK && !o->json) status = describe_adapters(context->account, path, &r);
    if (status == OTT_OK) status = inspect_print(context->account, found, &options, receive_text, &r);
    mem_free(context->account, found);
    str_free(&r.piece);
    return status;
}

ott_status ott_inspect(ott_context *context, const char *path, const ott_inspect_options *options,
                       ott_text_fn write, void *user) {
    ott_inspect_options o;
    API_REQUIRE_BOTH(context, path);
    API_REQUIRE_CALL(write);
    ott_inspect_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_inspect_options"));
    return API_INSIDE(context, inspect_path(context, path, &o, write, user));
}
