/* cuda/nccl/nccl: the NCCL functions that groups of GPUs use (NCCL 2.22 and later), declared here so that
   building needs no NCCL. The NCCL library is opened with the first group. */
#ifndef CUDA_NCCL_NCCL_H
#define CUDA_NCCL_NCCL_H

#include "base/status.h"
#include "cuda/packages.h"
#include <cuda_runtime_api.h>

typedef struct ncclComm nccl_comm;

typedef struct nccl_id {
    char bytes[128];
} nccl_id;

/* NCCL ignores members that are newer than `version`. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config;
#define NCCL_CONFIG_SET(is_blocking)                                                                         \
    { sizeof(nccl_config), 0xcafebeef, 21400, is_blocking }

enum { NCCL_SUCCESS = 0, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7, NCCL_BYTES = 1 /* NCCL's ncclUint8 */ };

/* Calls X(member of nccl_calls, NCCL's name, result type, arguments) for each function of NCCL. */
#define NCCL_CALL_MAP(X)                                                                                     \
    X(version, "ncclGetVersion", int, (int *version))                                                        \
    X(make_id, "ncclGetUniqueId", int, (nccl_id * id))                                                       \
    X(open, "ncclCommInitRankConfig", int,                                                                   \
      (nccl_comm * *comm, int ranks, nccl_id id, int rank, nccl_config *config))                             \
    X(finalize, "ncclCommFinalize", int, (nccl_comm * comm))                                                 \
    X(close, "ncclCommDestroy", int, (nccl_comm * comm))                                                     \
    X(abort, "ncclCommAbort", int, (nccl_comm * comm))                                                       \
    X(state, "ncclCommGetAsyncError", int, (nccl_comm * comm, int *state))                                   \
    X(begin, "ncclGroupStart", int, (void))                                                                  \
    X(end, "ncclGroupEnd", int, (void))                                                                      \
    X(all_gather, "ncclAllGather", int,                                                                      \
      (const void *from, void *to, size_t count, int type, nccl_comm *comm, cudaStream_t stream))            \
    X(broadcast, "ncclBroadcast", int,                                                                       \
      (const void *from, void *to, size_t count, int type, int root, nccl_comm *comm, cudaStream_t stream))  \
    X(send, "ncclSend", int,                                                                                 \
      (const void *from, size_t count, int type, int peer, nccl_comm *comm, cudaStream_t stream))            \
    X(receive, "ncclRecv", int,                                                                              \
      (void *to, size_t count, int type, int peer, nccl_comm *comm, cudaStream_t stream))                    \
    X(error_text, "ncclGetErrorString", const char *, (int result))

typedef struct nccl_calls {
#define X(member, name, result, arguments) result(*member) arguments;
    NCCL_CALL_MAP(X)
#undef X
} nccl_calls;

#define NCCL_FILE       "libnccl.so.2"
#define NCCL_INSTALL    CUDA_INSTALL("nvidia-nccl", "nccl")
#define NCCL_LEAST      22200 /* 2.22.0: from then on NCCL connects ranks lazily */
#define NCCL_LEAST_TEXT "2.22"

/* Opens NCCL on the first call and keeps it open. OTT_ERR_UNSUPPORTED if NCCL is missing or too old; the
   message says how to install NCCL. */
ott_status nccl_library(const nccl_calls **out);

#endif
