/* run/folder/sources: collects the files that a configuration reads and compares them with a checkpoint's. */
#include "run/folder/sources.h"
#include "data/data.h"
#include "tokenizer/tokenizer.h"
#include <inttypes.h>

static ott_status add_source_file(void *user, bool validation, const char *path) {
    return run_sources_add(user, validation ? SOURCE_EVAL : SOURCE_DATA, path);
}

static ott_status add_tokenizer(run_sources *out, const char *path) {
    char file[PATH_MAX];
    return run_sources_add_tokenizer(out, tokenizer_file_in(path, file) ? file : path);
}

/* Adds the tokenizer before the data: if the number of files reaches its limit, data files are left out. */
ott_status sources_collect(const config *cfg, run_sources *out) {
    char path[PATH_MAX];
    data_tokenizer_path(cfg, path);
    if (*path) TRY(add_tokenizer(out, path));
    return data_visit_files(out->account, cfg, add_source_file, out);
}

/* Warns about changed files, or that the files cannot be compared. Only lack of memory is an error. */
static ott_status compare_with_checkpoint(const run_sources *now, run_source_role role, const logger *log,
                                          const char *checkpoint) {
    run_sources before = {.account = now->account};
    ott_status status = run_sources_read(&before, checkpoint);
    if (status == OTT_OK)
        run_sources_compare(&before, now, role, log);
    else if (status != OTT_ERR_MEMORY)
        log_warning(log, "%s: cannot compare the run's files with the checkpoint's", status_text());
    run_sources_free(&before);
    return status == OTT_ERR_MEMORY ? status : OTT_OK;
}

ott_status sources_describe(const run_sources *s, str *out) {
    for (int64_t i = 0; i < s->count; i++)
        str_printf(out, "%s of %" PRId64 " bytes, hash %016" PRIx64 "\n", s->files[i].path,
                   s->files[i].mark.bytes, s->files[i].mark.hash);
    return str_finish(out);
}

ott_status sources_open(const run_sources *now, const logger *log, const char *checkpoint, str *text) {
    if (checkpoint) TRY(compare_with_checkpoint(now, SOURCE_ROLES, log, checkpoint));
    return run_sources_text(now, text);
}

ott_status sources_check_tokenizer(mem *account, const logger *log, const char *checkpoint,
                                   const char *tokenizer_path) {
    run_sources now = {.account = account};
    ott_status status = add_tokenizer(&now, tokenizer_path);
    if (status == OTT_OK) status = compare_with_checkpoint(&now, SOURCE_TOKENIZER, log, checkpoint);
    run_sources_free(&now);
    return status;
}
