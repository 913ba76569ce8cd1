/* tensor/group: the checked calls over the group table; a group of one has nothing to do. */
#include "tensor/group.h"
#include "tensor/exec.h"

static bool nothing_to_do(const group *g, const exec *cx) {
    return g->size == 1 || (cx->plan && plan_recording(cx->plan));
}

ott_status group_all_reduce(group *g, exec *cx, const tensor *t, reduce_kind kind) {
    if (nothing_to_do(g, cx)) return OTT_OK;
    return g->table->all_reduce(g, cx, t, kind);
}

ott_status group_broadcast(group *g, exec *cx, const tensor *t, int root) {
    STATUS_REQUIRE(root >= 0 && root < g->size);
    if (nothing_to_do(g, cx)) return OTT_OK;
    return g->table->broadcast(g, cx, t, root);
}

ott_status group_barrier(group *g) {
    return g->size == 1 ? OTT_OK : g->table->barrier(g);
}

void group_close(group *g) {
    if (g) g->table->close(g);
}
