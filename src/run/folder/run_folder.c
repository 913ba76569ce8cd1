/* run/folder/run_folder: chooses, locks and claims the folder of a run. */
#include "run/folder/run_folder.h"
#include "base/file/file.h"
#include "checkpoint/checkpoint.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Name of a run folder from the configuration file: "configs/demo.toml" -> "demo"; no file: "train". */
static void name_from_config(const char *path, char out[64]) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    int length = (int)(dot && dot != name ? dot - name : (ptrdiff_t)strlen(name));
    snprintf(out, 64, "%.*s", length, *name ? name : "train");
    if (!*name) snprintf(out, 64, "train");
}

/* *has is true if the folder's run has checkpoints, even if its metrics.jsonl was deleted. */
static ott_status has_checkpoints(mem *account, const char *folder, const char *dir, bool *has) {
    run_record record;
    char *joined = NULL, *home = NULL;
    ott_status status;
    *has = false;
    TRY(run_record_read(account, folder, &record));
    if (!*record.mark.run) return OTT_OK;
    TRY_OUT(file_resolve(account, folder, dir, &joined));
    TRY_OUT(checkpoint_run_home(account, folder, joined, &home));
    TRY_OUT(checkpoint_has_any(account, home, has));
out:
    mem_free(account, joined);
    mem_free(account, home);
    return status;
}

/* *taken is true if the folder has a run. An empty metrics.jsonl does not count: its run did no step. */
static ott_status is_taken(mem *account, const char *folder, const char *dir, bool *taken) {
    char path[PATH_MAX];
    int64_t bytes = 0;
    TRY(file_join(folder, "metrics.jsonl", path));
    *taken = file_exists(path) && (file_size(path, &bytes) != OTT_OK || bytes > 0);
    return *taken ? OTT_OK : has_checkpoints(account, folder, dir, taken);
}

static ott_status fail_taken(const char *folder) {
    return status_fail(
        OTT_ERR_CONFIG,
        "run.dir \"%s\" already has a run: resume it with --checkpoint.load_path=latest, or give "
        "another folder by --run.dir",
        folder);
}

/* Writes process id and host into the lock file. Other processes show both if the folder is locked. */
static void write_owner(int descriptor) {
    char host[64] = "", line[96];
    gethostname(host, sizeof host - 1);
    int length = snprintf(line, sizeof line, "%ld %s\n", (long)getpid(), host);
    if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, line, (size_t)length, 0) != length)
        return; /* disk full: the folder is locked nevertheless */
}

static ott_status fail_locked(const char *folder, int descriptor) {
    char line[96], host[64] = "";
    long process = 0;
    ssize_t got = pread(descriptor, line, sizeof line - 1, 0);
    line[got > 0 ? got : 0] = '\0';
    bool named = sscanf(line, "%ld %63s", &process, host) >= 1;
    char who[112] = "another process";
    if (named) snprintf(who, sizeof who, "process %ld%s%s", process, *host ? " on " : "", host);
    return status_fail(
        OTT_ERR_IO,
        "run.dir \"%s\" is in use by %s, which trains in it: wait for its end, or give another "
        "folder by --run.dir",
        folder, who);
}

/* Locks the folder. *busy: another process has the lock. If the file system has no locks, only warns. */
static ott_status lock_folder(run_folder *f, const logger *log, const char *folder, bool *busy) {
    char path[PATH_MAX];
    *busy = false;
    TRY(file_join(folder, "lock", path));
    TRY(file_open_own(path, O_RDWR, &f->lock));
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0) return write_owner(f->lock), OTT_OK;
    *busy = errno == EWOULDBLOCK;
    if (!*busy) {
        log_warning(log, "%s cannot be locked (%s): make sure that no other process trains in it", folder,
                    strerror(errno));
        return OTT_OK;
    }
    ott_status status = fail_locked(folder, f->lock);
    close(f->lock);
    f->lock = -1;
    return status;
}

/* Creates and locks the folder. *taken: the run is new (`fresh`), but the folder has a run or is locked. */
static ott_status try_run_folder(run_folder *f, const logger *log, const char *folder, const char *dir,
                                 bool fresh, bool *taken) {
    bool busy;
    *taken = false;
    /* Checks that all files of the run can be written, as summary.json is written only after the training. */
    static const char *const names[] = {"lock", RUN_RECORD_NAME, "config.toml", "metrics.jsonl",
                                        "summary.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        TRY(file_join(folder, names[i], path));
        TRY(file_check_own(path));
    }
    if (fresh) TRY(is_taken(f->account, folder, dir, taken));
    if (*taken) return fail_taken(folder);
    TRY(file_make_folder(folder));
    ott_status status = lock_folder(f, log, folder, &busy);
    *taken = fresh && busy;
    TRY(status);
    if (fresh) TRY(is_taken(f->account, folder, dir, taken)); /* second check, under the lock */
    if (!*taken) return OTT_OK;
    close(f->lock);
    f->lock = -1;
    return fail_taken(folder);
}

static ott_status choose_folder(run_folder *f, const logger *log, config *cfg, bool fresh) {
    char name[64], candidate[96];
    bool taken;
    name_from_config(cfg->path, name);
    snprintf(candidate, sizeof candidate, "runs/%s", name);
    ott_status status = try_run_folder(f, log, candidate, cfg->checkpoint.dir, fresh, &taken);
    for (int n = 2; taken; n++) {
        snprintf(candidate, sizeof candidate, "runs/%s-%d", name, n);
        status = try_run_folder(f, log, candidate, cfg->checkpoint.dir, fresh, &taken);
    }
    TRY(status);
    return config_set(cfg, "run.dir", candidate);
}

static ott_status claim_checkpoints(run_folder *f, const logger *log, const config *cfg, bool adopts,
                                    char **checkpoints) {
    char *dir;
    TRY(file_resolve(f->account, f->path, cfg->checkpoint.dir, &dir));
    ott_status status = checkpoint_run_claim(f->account, log, f->path, dir, adopts, &f->record, checkpoints);
    mem_free(f->account, dir);
    return status;
}

ott_status run_folder_open(mem *account, const logger *log, config *cfg, run_folder *out) {
    bool fresh = !cfg->checkpoint.load_path[0], taken;
    *out = (run_folder){.account = account, .lock = -1};
    if (cfg->run.dir[0])
        TRY(try_run_folder(out, log, cfg->run.dir, cfg->checkpoint.dir, fresh, &taken));
    else
        TRY(choose_folder(out, log, cfg, fresh));
    TRY(file_resolve(account, "", cfg->run.dir, &out->path));
    TRY(config_set(cfg, "run.dir", out->path));
    out->attempted = file_is_in(out->path, "metrics.jsonl");
    TRY(checkpoint_run_begin(account, out->path, &out->record));
    bool latest = strcmp(cfg->checkpoint.load_path, "latest") == 0;
    return claim_checkpoints(out, log, cfg, out->attempted || latest, &out->checkpoints);
}

ott_status run_folder_restore(run_folder *f, const logger *log, const config *cfg) {
    run_record there;
    char *checkpoints;
    bool busy;
    TRY(file_make_folder(f->path));
    if (f->lock >= 0) close(f->lock); /* release the lock of the removed folder */
    TRY(lock_folder(f, log, f->path, &busy));
    TRY(run_record_read(f->account, f->path, &there));
    if (!*there.mark.run) TRY(run_record_write(f->account, f->path, &f->record));
    TRY(claim_checkpoints(f, log, cfg, true, &checkpoints)); /* the result equals f->checkpoints */
    mem_free(f->account, checkpoints);
    return OTT_OK;
}

void run_folder_close(run_folder *f) {
    if (!f->account) return;
    mem_free(f->account, f->path);
    mem_free(f->account, f->checkpoints);
    if (f->lock >= 0) close(f->lock);
    *f = (run_folder){.lock = -1};
}
