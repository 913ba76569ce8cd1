/*
 * checkpoint/run_sources: the files a run reads, its data and its tokenizer, with a mark of each (file_mark), so
 * that one that has changed is noticed. A checkpoint has them beside what training needs:
 *
 *     sources.json  {"version": 1, "files": [{"role": "data", "path": ..., "bytes": N, "hash": HEX}, ...], ...}
 */
#ifndef CHECKPOINT_RUN_SOURCES_H
#define CHECKPOINT_RUN_SOURCES_H

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"

#define RUN_SOURCES_NAME "sources.json"

/* "data", "eval" (validation data that is not a part of the data), "tokenizer" */
typedef enum run_source_role { SOURCE_DATA, SOURCE_EVAL, SOURCE_TOKENIZER, SOURCE_ROLES } run_source_role;

typedef struct run_source {
    run_source_role role;
    char *path;
    file_mark mark;
} run_source;

enum { RUN_SOURCES_MOST = 1024 }; /* files beyond have no mark */

/* Zero-initialize with {.account = m}; freed with run_sources_free. */
typedef struct run_sources {
    mem *account;
    int64_t count, capacity;
    run_source *files; /* [count] */
} run_sources;

ott_status run_sources_add(run_sources *s, run_source_role role, const char *path);
/* The tokenizer.json, or that of the folder; nothing when there is none. */
ott_status run_sources_add_tokenizer(run_sources *s, const char *path);
void run_sources_free(run_sources *s);
ott_status run_sources_text(const run_sources *s, str *out); /* appends the text of sources.json */
/* Those of a checkpoint into an empty s; none when it has no such file. */
ott_status run_sources_read(run_sources *s, const char *checkpoint);
/* Warns of what has changed since, of the role, or of all (SOURCE_ROLES). A file that was only moved has not. */
void run_sources_compare(const run_sources *before, const run_sources *now, run_source_role role,
                         const logger *log);

#endif
