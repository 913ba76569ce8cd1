/*
 * op_args: replaces every address in an op's arguments. The generated op test and the fenced device use it to
 * move a call from one memory to another.
 */
#ifndef TESTS_BACKEND_OP_ARGS_H
#define TESTS_BACKEND_OP_ARGS_H

#include "tensor/ops.h"

#define OP_ARGS_FIELDS_MAX 20
#define OP_ARGS_BYTES_MAX  512

/* Replaces an address of an op's arguments. The op reads or writes `bytes` bytes there (never 0). what: the
   name of the argument, such as "q[1].column.amax". */
typedef ott_status (*op_args_replace)(void *user, const char *what, void **address, int64_t bytes);

/* A copy of the arguments, without pointers into the original. */
typedef struct op_args {
    _Alignas(16) unsigned char args[OP_ARGS_BYTES_MAX]; /* the op's argument struct */
    union {
        tensor tensor;
        operand operand;
        qtensor qtensor;
        qlist qlist;
    } field[OP_ARGS_FIELDS_MAX];
} op_args;

/* Copies arguments that op_check accepts, and replaces every address. Stops at the first failure. The error
   names the op and the field. */
ott_status op_args_copy(const op_info *op, const void *args, op_args_replace replace, void *user,
                        op_args *out);

#endif
