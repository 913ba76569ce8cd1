/* comm/mpi_parts: structures that the files of comm/mpi share. An operation is one call of a collective. It
   waits in the queue of its group until the progress thread has run it. The lock guards the queues and the
   results of operations. Only the progress thread uses the other members of the structures. */
#ifndef COMM_MPI_PARTS_H
#define COMM_MPI_PARTS_H

#include "base/mem.h"
#include "comm/mpi_api.h"
#include "tensor/exec.h"
#include "tensor/group/group.h"
#include <pthread.h>

enum { KIND_LEFT = -1, REASON_BYTES = 256 };

/* The header that a rank sends before its data. */
typedef struct mpi_header {
    int32_t kind; /* collective_kind, or KIND_LEFT: the rank closes the group */
    int32_t reduce, peer, dtype;
    int64_t number, rows, columns; /* number of the collective; rows and columns of its input */
    int64_t part_rows;             /* rows of the input that go to the receiver */
} mpi_header;

/* Bytes that a rank sends or receives in one pass: an offset into the input or output, and a length. */
typedef struct mpi_span {
    int64_t first, bytes;
} mpi_span;

typedef struct mpi_member {
    int rank; /* the member's rank from mpi_join */
    mpi_header out, in;
    mpi_span send, receive;
    char *send_piece, *receive_piece; /* staging memory for a piece to send, and for a received piece */
} mpi_member;

typedef enum mpi_stage { STAGE_WAITING, STAGE_HEADERS, STAGE_PIECES, STAGE_DONE } mpi_stage;

/* A message between two ranks. It is copied here completely, so the sender does not wait for the receiver. */
typedef struct mpi_message {
    mpi_header header;
    mpi_request requests[2];
    int64_t capacity;
    char *data;
} mpi_message;

typedef struct mpi_operation {
    struct mpi_operation *next;          /* next in the queue, or in the list of idle operations */
    struct mpi_operation *next_of_group; /* next in the list of all operations of the group */
    int kind;                            /* collective_kind, or KIND_LEFT: the group is closed */
    collective call;
    device *device;
    int64_t number; /* number of the collective in its group; all ranks must agree on it */
    mpi_stage stage;
    int pass;                   /* 1 in the second pass of an all-reduce, which gathers; else 0 */
    int64_t piece;              /* index of the piece in the pass */
    bool reducing, shared_send; /* in this pass: adds values; sends equal bytes to all ranks */
    double moved;               /* clock_seconds() at the last progress */
    mpi_message message;
    bool abandoned; /* no caller waits for the operation; it becomes idle when it ends */
    bool done;      /* guarded by the lock: the operation has left the queue */
    ott_status status;
    char text[REASON_BYTES];
} mpi_operation;

typedef struct mpi_group {
    group group; /* must be first: a pointer to it is cast to mpi_group * */
    struct mpi_group *next;
    mem *account;
    const char *name;
    int id; /* tag of the group's messages */
    double timeout;
    int64_t number;                           /* number of collectives started */
    mpi_operation *queue, *idle, *operations; /* queue: pending; idle: reusable; operations: all */
    mpi_member *members;
    mpi_request *requests; /* [2 size] for rank r: entry 2r receives, entry 2r + 1 sends */
    int64_t piece_bytes;
    float *sum;
    char *staging;
    bool failed, is_notified, left; /* is_notified: another rank reported the failure */
    ott_status code;
    char reason[REASON_BYTES]; /* why the group failed; sent to the other ranks */
} mpi_group;

/* MPI's functions; set by mpi_load. */
extern const mpi_api *mpi_functions;
/* Opens libottava_mpi.so. The text of OTT_ERR_UNSUPPORTED has the searched places and what to do. */
ott_status mpi_load(void);

/* Allocates a group of the processes ranks[count]; `own` is this process's rank. Ranks are numbered as by
   mpi_join. The caller adds the group to the list of groups. */
ott_status mpi_allocate_group(mem *account, const int *ranks, int count, int own, mpi_group **out);
void mpi_release_group(mpi_group *g);
/* Moves a failed group's memory to another account, because MPI may still use it. */
void mpi_move_group(mpi_group *g, mem *to);
/* Takes an idle or new operation, with memory for a message of `bytes` bytes. Call with the lock held. */
ott_status mpi_allocate_operation(mpi_group *g, int64_t bytes, mpi_operation **out);
void mpi_give_back(mpi_group *g, mpi_operation *o);

/* Advance an operation without waiting. Set *moved to true if there was progress. */
ott_status mpi_collective_step(mpi_group *g, mpi_operation *o, bool *moved);
ott_status mpi_message_step(mpi_group *g, mpi_operation *o, bool *moved);
/* Sets late[r] to true for each member r that the current collective waits for. */
void mpi_collective_late(const mpi_group *g, bool *late);

/* OTT_ERR_RANK with MPI's error text, unless the code is 0. */
ott_status mpi_check(int code, const char *what);
/* Begin to send bytes to a member of the group, or to receive them. */
ott_status mpi_send(const mpi_group *g, mpi_channel channel, int member, const void *data, int64_t bytes,
                    mpi_request *out);
ott_status mpi_receive(const mpi_group *g, mpi_channel channel, int member, void *data, int64_t bytes,
                       mpi_request *out);
/* Sets *done to true if all `count` requests are complete. */
ott_status mpi_test(int count, mpi_request *requests, bool *done);
/* Writes the header's shape and format, "2 x 5 fp32", to `text`; returns text. */
const char *mpi_shape(const mpi_header *h, char text[64]);

#endif
