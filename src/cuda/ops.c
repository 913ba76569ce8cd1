/* cuda/ops: the op table. An op that is not in it is refused by its name. */
#include "cuda/ops.h"
#include <stddef.h>

const op_table cuda_ops = {
    .pack = cuda_pack,
};
