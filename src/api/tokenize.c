/* api/tokenize: tokenizes streams and corpora. */
#include "data/tokenize.h"
#include "api/handle.h"
#include "base/pool.h"

void(ott_tokenize_options_init)(ott_tokenize_options *options, size_t size) {
    API_INIT(options, size, .text_field = "text", .separator = "");
}

void(ott_tokenize_result_init)(ott_tokenize_result *result, size_t size) {
    API_INIT(result, size, 0);
}

static ott_status read_tokenize_options(const ott_tokenize_options *given, ott_tokenize_options *o) {
    ott_tokenize_options_init(o);
    TRY(api_read_options(given, o, sizeof *o, "ott_tokenize_options"));
    TRY(pool_check_threads(o->threads));
    if (!o->text_field || !*o->text_field)
        return status_fail(OTT_ERR_ARGUMENT, "text_field is empty: name a field of the rows");
    if (!o->separator) o->separator = "";
    return OTT_OK;
}

ott_status ott_tokenize(ott_context *context, const char *tokenizer_path, const ott_tokenize_options *options,
                        ott_read_fn read, void *read_user, ott_bytes_fn write, void *write_user) {
    ott_tokenize_options o;
    API_REQUIRE_BOTH(context, tokenizer_path);
    API_REQUIRE_CALL(read);
    API_REQUIRE_CALL(write);
    TRY(read_tokenize_options(options, &o));
    if ((o.chat && o.decode) || (o.mask && (!o.chat || o.jsonl)))
        return status_fail(OTT_ERR_ARGUMENT, "ott_tokenize: chat cannot be combined with decode, and mask "
                                             "needs chat without jsonl: leave one out");
    return API_INSIDE(context, tokenize_stream(context->account, &context->log, tokenizer_path, &o, read,
                                               read_user, write, write_user));
}

static ott_status make_file(ott_context *context, const char *tokenizer_path, const char *input,
                            const char *output, const ott_tokenize_options *o, ott_tokenize_result *result) {
    const cancellation w = {.log = &context->log, .stop = api_must_stop, .user = context};
    ott_tokenize_result own;
    ott_status status = tokenize_file(context->account, &w, tokenizer_path, input, output, o, &own);
    atomic_store(&context->stop, false); /* ott_stop affects only one call */
    if (status != OTT_OK || !result) return status;
    return api_write_struct(result, &own, sizeof own, "ott_tokenize_result");
}

ott_status ott_tokenize_file(ott_context *context, const char *tokenizer_path, const char *input,
                             const char *output, const ott_tokenize_options *options,
                             ott_tokenize_result *result) {
    ott_tokenize_options o;
    API_REQUIRE_BOTH(context, tokenizer_path);
    API_REQUIRE_BOTH(input, output);
    TRY(read_tokenize_options(options, &o));
    if (o.jsonl || o.decode || o.chat || o.mask)
        return status_fail(OTT_ERR_ARGUMENT,
                           "ott_tokenize_file: jsonl, decode, chat and mask are options of ott_tokenize; the "
                           "extension of the file determines its format");
    TRY(api_check_struct(result, "ott_tokenize_result"));
    return API_INSIDE(context, make_file(context, tokenizer_path, input, output, &o, result));
}
