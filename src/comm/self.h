/* comm/self: the group of one rank. */
#ifndef COMM_SELF_H
#define COMM_SELF_H

#include "tensor/group.h"

/* Owns nothing; group_close on it is allowed and does nothing. */
group *comm_self(void);

#endif
