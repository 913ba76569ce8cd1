/*
 * comm/mpi_api: a table of the MPI functions that Ottava uses. The plugin libottava_mpi.so (src/mpi) fills
 * it with functions of the MPI library that it was built for. So neither libottava nor the program links MPI.
 *
 * Functions that return int (except is_done) return 0 or MPI's error code. Only one thread calls them.
 */
#ifndef COMM_MPI_API_H
#define COMM_MPI_API_H

#include <stdint.h>

/* Three MPI communicators of all processes, one for each kind of message. */
typedef enum mpi_channel {
    CHANNEL_COLLECTIVES,
    CHANNEL_MESSAGES,
    CHANNEL_FAILURES,
    CHANNEL_COUNT
} mpi_channel;

/* MPI's handle of a message that is being sent or received. */
typedef struct mpi_request {
    uint64_t handle;
} mpi_request;

/* Destination or source of a message: channel, rank of the other process, tag. */
typedef struct mpi_envelope {
    mpi_channel channel;
    int rank, tag;
} mpi_envelope;

enum {
    ANY_RANK = -1, /* instead of a rank: a message from any process */
    /* MPI counts with int. So a message of more than MESSAGE_LONG bytes is sent as blocks of MESSAGE_BLOCK
       bytes, and the memory at `data` must be large enough for a full last block. */
    MESSAGE_BLOCK = 4096,
    MESSAGE_LONG = 1 << 16,
    MPI_API_TEXT = 256
};

typedef struct mpi_api {
    uint64_t bytes;      /* sizeof(mpi_api) when the plugin was built */
    const char *version; /* name and version of the MPI library */
    mpi_request no_request;
    /* Starts MPI and opens the channels. May be called once in a process. */
    int (*start)(int *rank, int *size);
    void (*finish)(void);
    void (*abort)(int exit_code);                          /* ends all processes of the job */
    void (*error_text)(int code, char text[MPI_API_TEXT]); /* MPI's text and this process's rank */
    /* Begin to send or receive `bytes` bytes. */
    int (*send)(mpi_envelope to, const void *data, int64_t bytes, mpi_request *out);
    int (*receive)(mpi_envelope from, void *data, int64_t bytes, mpi_request *out);
    /* Frees the handle of a message that is being sent. The message is still sent. */
    void (*forget)(mpi_request *r);
    /* *done: 1 if all requests are complete; all of them are then set to no_request. */
    int (*test)(int count, mpi_request *requests, int *done);
    int (*is_done)(const mpi_request *r); /* 1 if the request is complete; does not change it */
    /* *sender: the rank whose message can be received now; -1: none. from.rank may be ANY_RANK. */
    int (*probe)(mpi_envelope from, int *sender);
    int (*receive_now)(mpi_envelope from, void *data, int bytes);
} mpi_api;

/* The function that the plugin exports; it returns a const mpi_api *. */
#define MPI_API_SYMBOL "mpi_api_entry"

#endif
