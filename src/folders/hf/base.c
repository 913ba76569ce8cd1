/* folders/hf/base: fingerprints and loads a base folder. */
#include "folders/hf/base.h"
#include "base/file/file.h"
#include "folders/hf/model.h"
#include "formats/hf/folder.h"
#include "formats/safetensors/shards.h"
#include <inttypes.h>
#include <stdlib.h>

/* Stores the folder's path, and a fingerprint of its files in the order of their names. */
static ott_status mark_folder(mem *account, const char *folder, model_base *out) {
    shards *s;
    *out = (model_base){0};
    if (!realpath(folder, out->folder))
        return status_fail(OTT_ERR_NOT_FOUND, "%s: is not a folder or GGUF file", folder);
    TRY(shards_open(account, folder, &s));
    ott_status status = OTT_OK;
    for (int64_t i = 0; i < shards_file_count(s) && status == OTT_OK; i++) {
        file_mark mark = {0};
        status = file_mark_of(safetensors_path(shards_file(s, i)), &mark);
        uint64_t hash = (uint64_t)out->hash * UINT64_C(0x9E3779B97F4A7C15) + mark.hash;
        out->files++;
        out->bytes += mark.bytes;
        out->hash = (int64_t)(hash & INT64_MAX);
    }
    shards_close(s);
    return status;
}

ott_status hf_base_mark(model *m, const char *folder) {
    return mark_folder(m->device->account, folder, &m->base);
}

static bool is_same_base(const model_base *a, const model_base *b) {
    return a->files == b->files && a->bytes == b->bytes && a->hash == b->hash;
}

ott_status hf_base_fits(mem *account, const char *folder, const model_base *base, bool *fits) {
    model_base now;
    ott_status status = mark_folder(account, folder, &now);
    *fits = status == OTT_OK && is_same_base(base, &now);
    return status == OTT_ERR_MEMORY ? status : OTT_OK;
}

#define HOW_TO_FIX "set the folder with --model.hf_path (train), --base (eval, generate) or --from (export)"

ott_status hf_base_load(model *m, const logger *log, const char *path, const model_base *base) {
    const char *folder = m->options.base ? m->options.base : base->folder;
    if (!hf_folder_is_model(folder))
        return status_fail(
            OTT_ERR_NOT_FOUND,
            "%s: the checkpoint lacks the frozen weights, and %s is not a folder or GGUF file (they were "
            "in %s): " HOW_TO_FIX,
            path, folder, base->folder);
    TRY(hf_base_mark(m, folder));
    if (!is_same_base(base, &m->base))
        return status_fail(OTT_ERR_SHAPE,
                           "%s: its adapters need other base weights than %s has now (%" PRId64
                           " files, %" PRId64 " bytes then; %" PRId64 ", %" PRId64 " now): " HOW_TO_FIX,
                           path, folder, base->files, base->bytes, m->base.files, m->base.bytes);
    TRY(hf_model_load(m, folder));
    log_info(log, "Loaded the frozen weights from %s: the checkpoint has only the trained weights", folder);
    return OTT_OK;
}
