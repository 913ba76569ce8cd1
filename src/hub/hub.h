/*
 * hub: downloads models and datasets of the Hugging Face hub. Part of the program, not of the library. Reads
 * huggingface_hub's variables HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_TOKEN_PATH and HF_HUB_OFFLINE.
 *
 * Requests are repeated after temporary failures (a broken connection, HTTP 429 and 5xx). The token is sent
 * to the host of HF_ENDPOINT only. After a stop request or an error, the next download resumes.
 *
 * Errors. OTT_ERR_NOT_FOUND: no such model, dataset, revision or split. OTT_ERR_ARGUMENT: a wrong name, or no
 * access. OTT_ERR_FORMAT: an answer that is not the hub's. OTT_ERR_IO: network or disk.
 */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include "base/cancellation.h"
#include <limits.h>

typedef struct hub_caller {
    cancellation cancellation; /* receives log lines; its `stop` ends a download */
    /* Called often during a download; `what` is the file. NULL: no calls. `user` is cancellation.user. */
    void (*progress)(void *user, const char *what, int64_t done, int64_t total);
    double retry_seconds; /* wait before the first repeated request; the wait doubles each time */
} hub_caller;

/*
 * Downloads the model's files that Ottava reads, and writes the snapshot's folder to `folder`. The cache is
 * shared with huggingface_hub. revision: branch, tag or commit. weights: false leaves out the weights.
 * prefer_cache: true makes no request if the cache has the model; false looks for a newer commit. A file is
 * in the snapshot only if its size and its checksum (SHA-256, or git's SHA-1 for small files) are right.
 * Processes that download the same file wait for each other.
 */
ott_status hub_pull(const hub_caller *caller, const char *name, const char *revision, bool weights,
                    bool prefer_cache, char folder[PATH_MAX]);
/* True if `path` looks like "organization/model" and no such file exists. */
bool hub_is_name(const char *path);
/* Writes all rows of a dataset's split to the JSONL file `path`, which is complete or absent. config NULL:
   the only configuration, or `default`. */
ott_status hub_pull_rows(const hub_caller *caller, const char *dataset, const char *config, const char *split,
                         const char *path);

#endif
