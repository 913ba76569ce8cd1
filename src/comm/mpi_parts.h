/*
 * comm/mpi_parts: what the files of comm/mpi share. An operation is one call of a collective; those of a group wait in
 * line, and the progress thread advances them. All but the line and what an operation came to belong to
 * that thread; those two are guarded by the lock.
 */
#ifndef COMM_MPI_PARTS_H
#define COMM_MPI_PARTS_H

#include "base/mem.h"
#include "tensor/exec.h"
#include "tensor/group.h"
#include <mpi.h>
#include <pthread.h>

enum {
    KIND_LEFT = -1,
    REASON_BYTES = 256,
    BLOCK_BYTES = 4096 /* MPI counts in int: a message goes as blocks, and its memory is a multiple of them */
};

/* What a rank says before it sends data. */
typedef struct mpi_header {
    int32_t kind; /* collective_kind, or KIND_LEFT: the rank closes the group */
    int32_t reduce, peer, dtype;
    int64_t number, rows, columns; /* of the input */
    int64_t part_rows;             /* of them for the rank this goes to */
} mpi_header;

/* What moves between this rank and one other in a pass over a collective: bytes from `first` on of its input, to
   `first` on of its output. */
typedef struct mpi_span {
    int64_t first, bytes;
} mpi_span;

typedef struct mpi_member {
    int rank; /* among all processes */
    mpi_header out, in;
    mpi_span send, receive;
    char *send_piece, *receive_piece; /* staging, one piece each */
} mpi_member;

typedef enum mpi_stage { STAGE_WAITING, STAGE_HEADERS, STAGE_PIECES, STAGE_DONE } mpi_stage;

/* A message between two ranks is copied whole: its sender does not wait for the receiver. */
typedef struct mpi_message {
    mpi_header header;
    MPI_Request requests[2];
    int64_t capacity;
    char *data;
} mpi_message;

typedef struct mpi_operation {
    struct mpi_operation *next;          /* in line, or idle */
    struct mpi_operation *next_of_group; /* of the group */
    int kind;                            /* collective_kind, or KIND_LEFT */
    collective call;
    device *device;
    int64_t number; /* of a collective, counted by each rank */
    mpi_stage stage;
    int pass;                   /* 1: the second one of an all-reduce, which gathers */
    int64_t piece;              /* of the pass */
    bool reducing, shared_send; /* this pass adds up; every rank is sent the same */
    double moved;               /* when it last advanced */
    mpi_message message;
    bool abandoned; /* nobody waits for it */
    bool done;      /* with the lock: it has left its line */
    ott_status status;
    char text[REASON_BYTES];
} mpi_operation;

typedef struct mpi_group {
    group group; /* first: a group is cast to this */
    struct mpi_group *next;
    mem *account;
    const char *name;
    int id; /* the tag of its messages */
    double timeout;
    int64_t number; /* collectives started */
    mpi_operation *queue, *idle,
        *operations; /* idle: they and their memory, for use again; operations: all */
    mpi_member *members;
    MPI_Request *requests; /* [2 size] of the collective under way: from and to each rank */
    int64_t piece_bytes;
    float *sum;
    char *staging;
    bool failed, is_notified, left; /* heard: another rank said that it failed */
    ott_status code;
    char reason[REASON_BYTES]; /* why it failed, also on its way to the others */
} mpi_group;

/* One for a kind of messages, so that they do not overtake each other where they must not. */
typedef struct mpi_channels {
    MPI_Comm collectives, messages, failures;
} mpi_channels;

extern mpi_channels mpi_channel;

/* Of ranks (of all), `own` this one: laid out, in no line. */
ott_status mpi_allocate_group(mem *account, const int *ranks, int count, int own, mpi_group **out);
void mpi_release_group(mpi_group *g);
/* Of a group that failed MPI may still use the memory: it stays, on another account. */
void mpi_move_group(mpi_group *g, mem *to);
/* With the lock held: an operation with memory for a message of so many bytes. */
ott_status mpi_allocate_operation(mpi_group *g, int64_t bytes, mpi_operation **out);
void mpi_give_back(mpi_group *g, mpi_operation *o);

/* Advances an operation at the head of its line as far as it goes without waiting; *moved when it did. */
ott_status mpi_collective_step(mpi_group *g, mpi_operation *o, bool *moved);
ott_status mpi_message_step(mpi_group *g, mpi_operation *o, bool *moved);
/* Sets late[member] of those that the collective under way still waits for. */
void mpi_collective_late(const mpi_group *g, bool *late);

ott_status mpi_check(int code, const char *what); /* OTT_ERR_RANK with MPI's own words */
/* All `count` requests are done? */
ott_status mpi_test(int count, MPI_Request *requests, bool *done);
int mpi_blocks(int64_t bytes); /* that hold so many */
/* "2 x 5 fp32" */
const char *mpi_shape(const mpi_header *h, char text[64]);

#endif
