/* comm/mpi_parts: small functions that the files of comm/mpi share. */
#include "comm/mpi_parts.h"
#include <stdio.h>

mpi_channels mpi_channel;

ott_status mpi_check(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING];
    int length, rank;
    if (code == MPI_SUCCESS) return OTT_OK;
    MPI_Error_string(code, text, &length);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return status_fail(OTT_ERR_RANK, "rank %d: %s: %s", rank, what, text);
}

ott_status mpi_test(int count, MPI_Request *requests, bool *done) {
    int flag = 0;
    TRY(mpi_check(MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE), "MPI_Testall"));
    *done = flag;
    return OTT_OK;
}

int mpi_blocks(int64_t bytes) {
    return (int)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
}

const char *mpi_shape(const mpi_header *h, char text[64]) {
    snprintf(text, 64, "%lld x %lld %s", (long long)h->rows, (long long)h->columns,
             dtype_name((ott_dtype)h->dtype));
    return text;
}
