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

static ott_status gather_on_device(const checkpoint_ranks *r, void *memory, const void *mine, int64_t bytes,
                                   void *all) {
    exec cx = {.device = r->device};
    int64_t own = ranks_own_rank(r) * bytes;
    tensor gathered = tensor_matrix(memory, OTT_U8, ranks_size(r), bytes);
    TRY(device_copy_in(r->device, (char *)memory + own, mine, bytes));
    TRY(group_run(r->group, &cx,
                  &(collective){.kind = COLLECTIVE_ALL_GATHER,
                                .input = tensor_matrix((char *)memory + own, OTT_U8, 1, bytes),
                                .output = gathered}));
    return device_copy_out(r->device, all, memory, ranks_size(r) * bytes);
}

ott_status ranks_gather(const checkpoint_ranks *r, const void *mine, int64_t bytes, void *all) {
    void *memory;
    if (ranks_size(r) == 1) return memcpy(all, mine, (size_t)bytes), OTT_OK;
    TRY(device_allocate(r->device, MEM_OTHER, ranks_size(r) * bytes, "exchange buffer", &memory));
    ott_status status = gather_on_device(r, memory, mine, bytes, all);
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

/* Index of the first error in codes[size], or -1. *failed: number of errors. */
static int first_failed(const int32_t *codes, int size, int *failed) {
    int first = -1;
    *failed = 0;
    for (int i = size - 1; i >= 0; i--) {
        if (codes[i] == OTT_OK) continue;
        first = i;
        ++*failed;
    }
    return first;
}

static ott_status agree_on_codes(const checkpoint_ranks *r, int32_t code, char text[TEXT_BYTES],
                                 int32_t *codes) {
    int failed;
    TRY(ranks_gather(r, &code, sizeof code, codes));
    int first = first_failed(codes, ranks_size(r), &failed);
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

/* *path: rank 0's staging folder; set on the other ranks. */
static ott_status fill_folder(const checkpoint_ranks *r, str *path, ranks_fill fill, void *user) {
    TRY(share_text(r, path));
    return fill(user, path->text);
}

ott_status ranks_write_folder(const checkpoint_ranks *r, ott_status ready, const char *goal, ranks_fill fill,
                              void *user) {
    staging at = {.path.account = r->device->account};
    bool leads = ranks_own_rank(r) == 0;
    if (ready == OTT_OK && leads) ready = staging_open(r->device->account, goal, &at);
    ott_status status = ranks_agree(r, ready);
    if (status == OTT_OK) status = fill_folder(r, &at.path, fill, user);
    if (leads && ready == OTT_OK) status = staging_end(&at, status);
    str_free(&at.path);
    return ranks_agree(r, status);
}
