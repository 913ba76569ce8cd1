/* api/export: exports a model for other programs. */
#include "export/export.h"
#include "api/handle.h"
#include "fp8/dtype.h"

void(ott_export_options_init)(ott_export_options *options, size_t size) {
    API_INIT(options, size, .dtype = OTT_BF16, .method = OTT_EXPORT_COMPRESSED_TENSORS,
             .granularity = OTT_EXPORT_CHANNEL);
}

static ott_status check_fp8(const ott_export_options *o) {
    if (o->method != OTT_EXPORT_FP8 && o->method != OTT_EXPORT_COMPRESSED_TENSORS)
        return status_fail(OTT_ERR_ARGUMENT,
                           "method = %d: give OTT_EXPORT_FP8 or OTT_EXPORT_COMPRESSED_TENSORS",
                           (int)o->method);
    if ((unsigned)o->granularity > OTT_EXPORT_AS_TRAINED)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "granularity = %d: give OTT_EXPORT_TENSOR, OTT_EXPORT_CHANNEL, OTT_EXPORT_BLOCK or "
            "OTT_EXPORT_AS_TRAINED",
            (int)o->granularity);
    if (o->method == OTT_EXPORT_FP8 && o->granularity == OTT_EXPORT_CHANNEL)
        return status_fail(OTT_ERR_ARGUMENT,
                           "the method \"fp8\" has no channel scales: use compressed-tensors or "
                           "another granularity");
    if (o->dtype != OTT_BF16)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "dtype = %s: an FP8 export keeps all other tensors in bf16, as serving programs expect",
            dtype_name(o->dtype));
    return OTT_OK;
}

static ott_status export_inside(ott_context *context, const char *run, const char *folder,
                                const ott_export_options *o, ott_text_fn write, void *user) {
    str summary = {.account = context->account};
    ott_status status = export_run(context->account, &context->log, run, folder, o, &summary);
    if (status == OTT_OK) status = api_write(&summary, write, user);
    str_free(&summary);
    return status;
}

ott_status ott_export(ott_context *context, const char *run, const char *folder,
                      const ott_export_options *options, ott_text_fn write, void *user) {
    ott_export_options o;
    API_REQUIRE_BOTH(context, run);
    API_REQUIRE(folder);
    API_REQUIRE_CALL(write);
    ott_export_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_export_options"));
    if ((unsigned)o.format > OTT_EXPORT_GGUF_Q8)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "format = %d: give OTT_EXPORT_HF, OTT_EXPORT_HF_FP8, OTT_EXPORT_PEFT, OTT_EXPORT_GGUF or "
            "OTT_EXPORT_GGUF_Q8",
            (int)o.format);
    if ((unsigned)o.dtype >= OTT_DTYPE_COUNT || !dtype_is_high_precision(o.dtype))
        return status_fail(OTT_ERR_ARGUMENT, "dtype = %d: give OTT_BF16, OTT_F32 or OTT_F16", (int)o.dtype);
    if (o.format == OTT_EXPORT_HF_FP8) TRY(check_fp8(&o));
    if (!*folder) return status_fail(OTT_ERR_ARGUMENT, "the name of the export folder is empty");
    return API_INSIDE(context, export_inside(context, run, folder, &o, write, user));
}
