/* comm/links: what each rank says of itself reaches all, and each picks those of its group. */
#include "comm/links.h"
#include "tensor/exec.h"
#include "tensor/host.h"

/* A rank's line. */
typedef struct line {
    device_link link;
    int64_t failed;
} line;

static ott_status gather(mem *account, group *control, const line *own, line *lines) {
    device host = host_device(account);
    exec cx = {.device = &host};
    tensor all = tensor_matrix(lines, OTT_U8, control->size, sizeof(line));
    tensor part = tensor_rows(all, control->rank, 1);
    lines[control->rank] = *own;
    return group_run(control, &cx,
                     &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = part, .output = all});
}

/* links[count] of the group's own ranks. */
static ott_status pick(const links_options *o, const line *lines, device_link *links) {
    for (int i = 0; i < o->count; i++) {
        const line *of = &lines[o->ranks[i]];
        if (of->failed)
            return status_fail(OTT_ERR_RANK,
                               "rank %d cannot join the group of devices%s%s; its own message says why",
                               o->ranks[i], o->name[0] ? " " : "", o->name);
        links[i] = of->link;
    }
    return OTT_OK;
}

/* Everybody hears of everybody, also of who has failed. */
static ott_status exchange(mem *account, const links_options *o, device_group *own, line *lines,
                           device_link *links) {
    line mine = {.failed = 0};
    ott_status made = o->device->table->make_link(o->device, own, &mine.link);
    mine.failed = made != OTT_OK;
    TRY(gather(account, o->control, &mine, lines));
    TRY(made);
    TRY(pick(o, lines, links));
    own->links = links;
    return OTT_OK;
}

ott_status links_open(mem *account, const links_options *o, group **out) {
    device_group own = {
        .name = o->name, .size = o->count, .timeout = o->timeout, .messages = o->messages, .rank = -1};
    void *lines = NULL, *links = NULL;
    *out = NULL;
    for (int i = 0; i < o->count; i++)
        if (o->ranks[i] == o->control->rank) own.rank = i;
    STATUS_REQUIRE(own.rank >= 0);
    TRY(mem_alloc_array(account, MEM_COMM, o->control->size, sizeof(line), "links of ranks", &lines));
    ott_status status =
        mem_alloc_array(account, MEM_COMM, o->count, sizeof(device_link), "links of a group", &links);
    if (status == OTT_OK) status = exchange(account, o, &own, lines, links);
    if (status == OTT_OK) status = o->device->table->open_group(o->device, &own, out);
    mem_free(account, links);
    mem_free(account, lines);
    return status;
}
