/* mpi/plugin: libottava_mpi.so. It implements the functions of comm/mpi_api.h with one MPI library. */
#include "comm/mpi_api.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(mpi_request), "a request must be able to hold MPI's handle");

static MPI_Comm channels[CHANNEL_COUNT];
static MPI_Datatype block_type;

static mpi_request request_of(MPI_Request r) {
    mpi_request out = {0};
    memcpy(&out, &r, sizeof r);
    return out;
}

static MPI_Request handle_of(const mpi_request *r) {
    MPI_Request out;
    memcpy(&out, r, sizeof out);
    return out;
}

static int start_mpi(int *rank, int *size) {
    int provided, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS) return code;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    for (int i = 0; i < CHANNEL_COUNT && code == MPI_SUCCESS; i++)
        code = MPI_Comm_dup(MPI_COMM_WORLD, &channels[i]);
    if (code == MPI_SUCCESS) code = MPI_Type_contiguous(MESSAGE_BLOCK, MPI_BYTE, &block_type);
    return code == MPI_SUCCESS ? MPI_Type_commit(&block_type) : code;
}

static void finish(void) {
    MPI_Finalize();
}

static void abort_all(int exit_code) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static void error_text(int code, char text[MPI_API_TEXT]) {
    char full[MPI_MAX_ERROR_STRING] = "";
    int length, rank = -1;
    MPI_Error_string(code, full, &length);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(text, MPI_API_TEXT, "rank %d: %.200s", rank, full);
}

static MPI_Datatype mpi_type_of(int64_t bytes) {
    return bytes > MESSAGE_LONG ? block_type : MPI_BYTE;
}

static int mpi_count_of(int64_t bytes) {
    return (int)(bytes > MESSAGE_LONG ? (bytes + MESSAGE_BLOCK - 1) / MESSAGE_BLOCK : bytes);
}

static int send(mpi_envelope to, const void *data, int64_t bytes, mpi_request *out) {
    MPI_Request r = MPI_REQUEST_NULL;
    int code =
        MPI_Isend(data, mpi_count_of(bytes), mpi_type_of(bytes), to.rank, to.tag, channels[to.channel], &r);
    *out = request_of(r);
    return code;
}

static int receive(mpi_envelope from, void *data, int64_t bytes, mpi_request *out) {
    MPI_Request r = MPI_REQUEST_NULL;
    int code = MPI_Irecv(data, mpi_count_of(bytes), mpi_type_of(bytes), from.rank, from.tag,
                         channels[from.channel], &r);
    *out = request_of(r);
    return code;
}

static void forget(mpi_request *r) {
    MPI_Request handle = handle_of(r);
    MPI_Request_free(&handle);
    *r = request_of(handle);
}

static int test(int count, mpi_request *requests, int *done) {
    MPI_Request handles[count];
    for (int i = 0; i < count; i++) handles[i] = handle_of(&requests[i]);
    int code = MPI_Testall(count, handles, done, MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; i++) requests[i] = request_of(handles[i]);
    return code;
}

static int is_done(const mpi_request *r) {
    int done = 1;
    MPI_Request_get_status(handle_of(r), &done, MPI_STATUS_IGNORE);
    return done;
}

static int mpi_rank_of(mpi_envelope from) {
    return from.rank == ANY_RANK ? MPI_ANY_SOURCE : from.rank;
}

static int probe(mpi_envelope from, int *sender) {
    MPI_Status status;
    int there = 0;
    int code = MPI_Iprobe(mpi_rank_of(from), from.tag, channels[from.channel], &there, &status);
    *sender = there ? status.MPI_SOURCE : -1;
    return code;
}

static int receive_now(mpi_envelope from, void *data, int bytes) {
    return MPI_Recv(data, bytes, MPI_BYTE, mpi_rank_of(from), from.tag, channels[from.channel],
                    MPI_STATUS_IGNORE);
}

__attribute__((visibility("default"))) const void *mpi_api_entry(void);

const void *mpi_api_entry(void) {
    static mpi_api api = {.bytes = sizeof api,
                          .start = start_mpi,
                          .finish = finish,
                          .abort = abort_all,
                          .error_text = error_text,
                          .send = send,
                          .receive = receive,
                          .forget = forget,
                          .test = test,
                          .is_done = is_done,
                          .probe = probe,
                          .receive_now = receive_now};
    static char name[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(name, &length);
    name[strcspn(name, ",\n")] = '\0';
    api.version = name;
    api.no_request = request_of(MPI_REQUEST_NULL);
    return &api;
}
