/* comm/self: a group of one rank. tensor/group/group skips its collectives, so only `close` is defined. */
#include "comm/self.h"

static void self_close(group *g) {
    (void)g;
}

static const group_table self_table = {.close = self_close};

group *comm_self(void) {
    static group self = {.table = &self_table, .rank = 0, .size = 1};
    return &self;
}
