/*
 * checkpoint/run_sources: the data and tokenizer files that a run reads, with a fingerprint of each
 * (file_mark), to detect changed files. Checkpoints store them as
 *
 *     sources.json  {"version": 1, "files": [{"role": "data", "path": ..., "bytes": N, "hash": HEX}], ...}
 */
#ifndef CHECKPOINT_RUN_SOURCES_H
#define CHECKPOINT_RUN_SOURCES_H

#include "base/file/file.h"
#include "base/log.h"
#include "base/text/str.h"

#define RUN_SOURCES_NAME "sources.json"

/* Which input of the run a file is: "data", "eval" (separate validation data) or "tokenizer". */
typedef enum run_source_role { SOURCE_DATA, SOURCE_EVAL, SOURCE_TOKENIZER, SOURCE_ROLES } run_source_role;

typedef struct run_source {
    run_source_role role;
    char *path;
    file_mark mark;
} run_source;

enum { RUN_SOURCES_MOST = 1024 }; /* files after the first 1024 are not recorded */

/* Zero-initialize with {.account = m}; free with run_sources_free. */
typedef struct run_sources {
    mem *account;
    int64_t count, capacity;
    run_source *files; /* `count` files */
} run_sources;

/* Computes the fingerprint of a file and appends it; the path is copied. */
ott_status run_sources_add(run_sources *s, run_source_role role, const char *path);
/* Adds the tokenizer file `path`, or tokenizer.json in the folder `path`. Does nothing if there is none. */
ott_status run_sources_add_tokenizer(run_sources *s, const char *path);
void run_sources_free(run_sources *s);
ott_status run_sources_text(const run_sources *s, str *out); /* appends the text of sources.json */
/* Reads sources.json of a checkpoint into an empty s. s stays empty if there is no such file. */
ott_status run_sources_read(run_sources *s, const char *checkpoint);
/* Warns about changed files, but not about moved ones, of one role or of all roles (SOURCE_ROLES). */
void run_sources_compare(const run_sources *before, const run_sources *now, run_source_role role,
                         const logger *log);

#endif
