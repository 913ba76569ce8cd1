/* folders/ranks: host-side collectives, built on the group's device collectives. */
#include "folders/ranks.h"
#include "base/staging.h"
#include "tensor/group/group_host.h"
#include <stdio.h>
#include <string.h>

int ranks_size(const checkpoint_ranks *r) {
    return r->group ? r->group->size : 1;
}

int ranks_own_rank(const checkpoint_ranks *r) {
    return r->group ? r->group->rank : 0;
}

ott_status ranks_gather(const checkpoint_ranks *r, const void *mine, int64_t bytes, void *all) {
    int size = ranks_size(r);
    exec cx = {.device = r->device};
    void *memory;
    ott_status status;
    if (size == 1) return memcpy(all, mine, (size_t)bytes), OTT_OK;
    TRY(device_allocate(r->device, MEM_OTHER, size * bytes, "exchange buffer", &memory));
    tensor gathered = tensor_matrix(memory, OTT_U8, size, bytes);
    tensor own = tensor_rows(gathered, ranks_own_rank(r), 1);
    TRY_OUT(device_copy_in(r->device, own.data, mine, bytes));
    TRY_OUT(group_run(r->group, &cx,
                      &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = own, .output = gathered}));
    TRY_OUT(device_copy_out(r->device, all, memory, size * bytes));
out:
    device_release(r->device, memory);
    return status;
}

static ott_status open_exchange_buffer(const checkpoint_ranks *r, int64_t bytes, group_host *out) {
    *out = (group_host){.group = r->group, .device = r->device, .bytes = bytes};
    return device_allocate(r->device, MEM_OTHER, bytes, "exchange buffer", &out->buffer);
}

/* Sends text[bytes] of rank `root` to all ranks. */
static ott_status broadcast_text(const checkpoint_ranks *r, char *text, int64_t bytes, int root) {
    group_host h;
    TRY(open_exchange_buffer(r, bytes, &h));
    ott_status status = group_host_broadcast(&h, text, bytes, root);
    device_release(r->device, h.buffer);
    return status;
}

enum { TEXT_BYTES = 8192 };

/* Replaces the text of every rank with rank 0's text. */
static ott_status share_text(const checkpoint_ranks *r, str *text) {
    char buffer[TEXT_BYTES] = "";
    if (ranks_size(r) == 1) return OTT_OK;
    if (ranks_own_rank(r) == 0) snprintf(buffer, sizeof buffer, "%s", text->text);
    TRY(broadcast_text(r, buffer, sizeof buffer, 0));
    text->length = 0;
    str_append(text, buffer);
    return str_finish(text);
}

static ott_status agree_on_codes(const checkpoint_ranks *r, int32_t code, char text[TEXT_BYTES],
                                 int32_t *codes) {
    int first = -1, failed = 0; /* the lowest rank that failed; number of ranks that failed */
    TRY(ranks_gather(r, &code, sizeof code, codes));
    for (int i = ranks_size(r) - 1; i >= 0; i--)
        if (codes[i] != OTT_OK) first = i, failed++;
    if (first < 0) return OTT_OK;
    if (failed == ranks_size(r)) return status_fail((ott_status)code, "%s", text);
    TRY(broadcast_text(r, text, TEXT_BYTES, first));
    return status_fail((ott_status)codes[first], "rank %d: %s", first, text);
}

ott_status ranks_agree(const checkpoint_ranks *r, ott_status status) {
    char text[TEXT_BYTES] = "";
    void *codes;
    if (ranks_size(r) == 1) return status;
    if (status != OTT_OK) snprintf(text, sizeof text, "%s", status_text());
    TRY(mem_alloc_array(r->device->account, MEM_OTHER, ranks_size(r), sizeof(int32_t), "status of ranks",
                        &codes));
    status = agree_on_codes(r, (int32_t)status, text, codes);
    mem_free(r->device->account, codes);
    return status;
}

ott_status ranks_max(const checkpoint_ranks *r, float *values, int64_t count) {
    group_host h;
    if (ranks_size(r) == 1) return OTT_OK;
    TRY(open_exchange_buffer(r, count * (int64_t)sizeof *values, &h));
    ott_status status = group_host_reduce(&h, values, count, REDUCE_MAX);
    device_release(r->device, h.buffer);
    return status;
}

ott_status ranks_write_folder(const checkpoint_ranks *r, ott_status ready, const char *goal, ranks_fill fill,
                              void *user) {
    staging at = {.path.account = r->device->account};
    bool leads = ranks_own_rank(r) == 0;
    if (ready == OTT_OK && leads) ready = staging_open(r->device->account, goal, &at);
    ott_status status = ranks_agree(r, ready);
    if (status == OTT_OK) status = share_text(r, &at.path); /* rank 0's path */
    if (status == OTT_OK) status = fill(user, at.path.text);
    if (leads && ready == OTT_OK) status = staging_end(&at, status);
    str_free(&at.path);
    return ranks_agree(r, status);
}
