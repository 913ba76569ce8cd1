/* comm/mpi_parts: opens the MPI plugin, and has small functions that the files of comm/mpi share. */
#include "comm/mpi_parts.h"
#include "base/library.h"
#include <stdio.h>

const mpi_api *mpi_functions;

ott_status mpi_load(void) {
    /* is_global, because libraries that Open MPI opens need the symbols of the MPI library */
    static const library_name name = {"libottava_mpi.so", "OTTAVA_MPI_PATH", .is_global = true};
    char reason[LIBRARY_TEXT];
    if (mpi_functions) return OTT_OK;
    void *library = library_open(&name, reason);
    library_entry *entry = library ? library_find(library, MPI_API_SYMBOL) : NULL;
    const mpi_api *found = entry ? entry() : NULL;
    if (library && !(found && found->bytes == sizeof *found)) {
        found = NULL;
        snprintf(reason, sizeof reason, "%s and this program are different builds", name.file);
    }
    mpi_functions = found;
    if (found) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "this process was started as one of several ranks, but %s, which joins them, cannot be opened (%s): "
        "the build creates it if Open MPI is installed (libopenmpi-dev), and %s can name its path",
        name.file, reason, name.variable);
}

ott_status mpi_check(int code, const char *what) {
    char text[MPI_API_TEXT];
    if (code == 0) return OTT_OK;
    mpi_functions->error_text(code, text);
    return status_fail(OTT_ERR_RANK, "%s (%s)", text, what);
}

static mpi_envelope envelope(const mpi_group *g, mpi_channel channel, int member) {
    return (mpi_envelope){channel, g->members[member].rank, g->id};
}

ott_status mpi_send(const mpi_group *g, mpi_channel channel, int member, const void *data, int64_t bytes,
                    mpi_request *out) {
    return mpi_check(mpi_functions->send(envelope(g, channel, member), data, bytes, out), "MPI_Isend");
}

ott_status mpi_receive(const mpi_group *g, mpi_channel channel, int member, void *data, int64_t bytes,
                       mpi_request *out) {
    return mpi_check(mpi_functions->receive(envelope(g, channel, member), data, bytes, out), "MPI_Irecv");
}

ott_status mpi_test(int count, mpi_request *requests, bool *done) {
    int flag = 0;
    TRY(mpi_check(mpi_functions->test(count, requests, &flag), "MPI_Testall"));
    *done = flag;
    return OTT_OK;
}

const char *mpi_shape(const mpi_header *h, char text[64]) {
    snprintf(text, 64, "%lld x %lld %s", (long long)h->rows, (long long)h->columns,
             dtype_name((ott_dtype)h->dtype));
    return text;
}
