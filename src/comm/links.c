/* comm/links: gathers and compares all ranks' device descriptions, and opens groups on the devices' links. */
#include "comm/links.h"
#include "base/text/str.h"
#include "tensor/exec.h"
#include "tensor/host.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Gathers `bytes` bytes from each rank to lines[rank]. The caller has set lines[control->rank]. */
static ott_status gather_lines(mem *account, group *control, void *lines, int64_t bytes) {
    device host = host_device(account);
    exec cx = {.device = &host};
    tensor all = tensor_matrix(lines, OTT_U8, control->size, bytes);
    tensor part = tensor_rows(all, control->rank, 1);
    return group_run(control, &cx,
                     &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = part, .output = all});
}

/* Description of one rank's device, as all ranks receive it. */
typedef struct device_line {
    device_card card;
    char machine[64];
    bool linked, failed;
} device_line;

/* Checks a rank's device: it must match rank 0's device, and no lower rank may use the same GPU. */
static ott_status check_line(const device_line *lines, int rank) {
    const device_line *own = &lines[rank], *first = &lines[0];
    if (own->failed)
        return status_fail(OTT_ERR_RANK, "rank %d cannot open links between GPUs; see its message", rank);
    if (own->linked != first->linked)
        return status_fail(
            OTT_ERR_RANK,
            "rank %d (%s) computes on %s, and rank 0 (%s) on %s: give all ranks a GPU, or train on "
            "CPUs (train.device = \"cpu\")",
            rank, own->machine, own->card.name, first->machine, first->card.name);
    if (strcmp(own->card.libraries, first->card.libraries) != 0)
        return status_fail(
            OTT_ERR_RANK, "rank %d (%s) has %s, and rank 0 (%s) %s: install the same version on all machines",
            rank, own->machine, own->card.libraries, first->machine, first->card.libraries);
    for (int other = 0; other < rank && own->linked; other++)
        if (strcmp(lines[other].card.place, own->card.place) == 0)
            return status_fail(
                OTT_ERR_RANK,
                "ranks %d and %d have the same GPU, %s (%s) of %s: start at most one process for each GPU, "
                "and let each process see all GPUs or only its own (CUDA_VISIBLE_DEVICES)",
                other, rank, own->card.name, own->card.place, own->machine);
    return OTT_OK;
}

/* Logs the GPUs, one line for each machine. */
static ott_status log_devices(mem *account, const logger *log, const device_line *lines, int count) {
    ott_status status = OTT_OK;
    for (int first = 0, next; first < count && status == OTT_OK; first = next) {
        str text = {.account = account};
        for (next = first; next < count && strcmp(lines[next].machine, lines[first].machine) == 0; next++)
            str_printf(&text, "%srank %d %s", next > first ? ", " : "", next, lines[next].card.name);
        status = str_finish(&text);
        if (status == OTT_OK) log_info(log, "GPUs of %s: %s", lines[first].machine, text.text);
        str_free(&text);
    }
    return status;
}

static ott_status describe_device(device *d, device_line *out) {
    *out = (device_line){.linked = d->table->open_group};
    if (gethostname(out->machine, sizeof out->machine - 1) != 0) strcpy(out->machine, "this machine");
    snprintf(out->card.name, sizeof out->card.name, "%s", d->name);
    ott_status status = out->linked ? d->table->describe(d, &out->card) : OTT_OK;
    out->failed = status != OTT_OK;
    return status;
}

ott_status links_check(mem *account, const logger *log, device *d, group *control) {
    device_line *lines;
    TRY(mem_alloc_array(account, MEM_COMM, control->size, sizeof(device_line), "devices of ranks", &lines));
    ott_status described = describe_device(d, &lines[control->rank]);
    ott_status status = gather_lines(account, control, lines, sizeof *lines);
    if (status == OTT_OK) status = described;
    for (int r = 0; r < control->size && status == OTT_OK; r++) status = check_line(lines, r);
    if (status == OTT_OK && lines[0].linked) status = log_devices(account, log, lines, control->size);
    mem_free(account, lines);
    return status;
}

/* Connection data of one rank, as all ranks receive it. failed: make_link failed on that rank. */
typedef struct link_line {
    device_link link;
    int64_t failed;
} link_line;

/* Gathers the connection data of all ranks. A rank that has none also takes part, so that all ranks fail. */
static ott_status exchange_links(mem *account, const links_options *o, device_group *own, link_line *lines,
                                 device_link *links) {
    link_line *mine = &lines[o->control->rank];
    ott_status made = o->device->table->make_link(o->device, own, &mine->link);
    mine->failed = made != OTT_OK;
    TRY(gather_lines(account, o->control, lines, sizeof *lines));
    TRY(made);
    for (int i = 0; i < o->count; i++) { /* the data of the new group's members */
        const link_line *line = &lines[o->ranks[i]];
        if (line->failed)
            return status_fail(OTT_ERR_RANK,
                               "rank %d cannot join the group of devices%s%s; see that rank's message",
                               o->ranks[i], o->name[0] ? " " : "", o->name);
        links[i] = line->link;
    }
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
    TRY(mem_alloc_array(account, MEM_COMM, o->control->size, sizeof(link_line), "links of ranks", &lines));
    ott_status status =
        mem_alloc_array(account, MEM_COMM, o->count, sizeof(device_link), "links of a group", &links);
    if (status == OTT_OK) status = exchange_links(account, o, &own, lines, links);
    if (status == OTT_OK) status = o->device->table->open_group(o->device, &own, out);
    mem_free(account, links);
    mem_free(account, lines);
    return status;
}
