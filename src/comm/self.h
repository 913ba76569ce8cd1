/* comm/self: the group of one rank. */
#ifndef COMM_SELF_H
#define COMM_SELF_H

#include "tensor/group/group.h"

/* Returns the static group of one rank. It need not be closed. */
group *comm_self(void);

#endif
