/* cuda/nccl/library: opens libnccl.so.2 and finds its functions. */
#include "cuda/nccl/nccl.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define REMEDY "several GPUs need NCCL " NCCL_LEAST_TEXT " or later: " NCCL_INSTALL

static struct {
    pthread_mutex_t lock;
    bool open;
    nccl_calls calls;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ott_status find_call(void *library, const char *name, void *member, size_t size) {
    void *symbol = dlsym(library, name);
    if (!symbol) return status_fail(OTT_ERR_UNSUPPORTED, "nccl: " NCCL_FILE " has no %s; " REMEDY, name);
    memcpy(member, &symbol, size);
    return OTT_OK;
}

static ott_status open_nccl(nccl_calls *out) {
    void *library = dlopen(NCCL_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!library) return status_fail(OTT_ERR_UNSUPPORTED, "nccl: %s; " REMEDY, dlerror());
#define X(member, name, result, arguments) TRY(find_call(library, name, &out->member, sizeof out->member));
    NCCL_CALL_MAP(X)
#undef X
    int version = 0;
    out->version(&version);
    if (version >= NCCL_LEAST) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "nccl: " NCCL_FILE " has version %d.%d; " REMEDY, version / 10000,
                       version / 100 % 100);
}

ott_status nccl_library(const nccl_calls **out) {
    pthread_mutex_lock(&loaded.lock);
    ott_status status = loaded.open ? OTT_OK : open_nccl(&loaded.calls);
    loaded.open = status == OTT_OK;
    pthread_mutex_unlock(&loaded.lock);
    *out = &loaded.calls;
    return status;
}
