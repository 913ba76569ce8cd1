/* train/budget: the search for what is recomputed. */
#include "train/budget.h"
#include "base/size.h"

/* Choice number n of 2 L + 1, L being the layers: the first n recompute all but products; beyond L, the first n - L everything. */
static void choose(model *m, int64_t n) {
    int64_t layers = m->options.layers;
    for (int64_t i = 0; i < layers; i++)
        m->blocks[i].checkpointing = i < n - layers ? CHECKPOINT_FULL
                                     : i < n        ? CHECKPOINT_OP
                                                    : CHECKPOINT_NONE;
}

static ott_status measure(const budget *b, model *m, int64_t n, int64_t *bytes) {
    choose(m, n);
    return b->measure(b->user, bytes);
}

/* The first choice that needs at most `limit`, of those that need less and less. */
static ott_status search(const budget *b, model *m, int64_t limit, int64_t *found) {
    int64_t low = 0, high = 2 * m->options.layers, bytes;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        TRY(measure(b, m, middle, &bytes));
        if (bytes <= limit)
            high = middle;
        else
            low = middle + 1;
    }
    *found = low;
    return OTT_OK;
}

/* What ranks do together in a recomputed block all of them do. */
static ott_status agree(const budget *b, int64_t *n) {
    float most = (float)*n;
    if (!b->host_exchange || b->host_exchange->group->size == 1) return OTT_OK;
    TRY(group_host_reduce(b->host_exchange, &most, 1, REDUCE_MAX));
    *n = (int64_t)most;
    return OTT_OK;
}

ott_status budget_fit(const budget *b, model *m) {
    int64_t layers = m->options.layers, most, least, bytes, n;
    char size[3][SIZE_TEXT];
    TRY(measure(b, m, 0, &most));
    TRY(measure(b, m, 2 * layers, &least));
    TRY(search(b, m, least + (int64_t)(b->share * (double)(most - least)), &n));
    TRY(agree(b, &n));
    TRY(measure(b, m, n, &bytes));
    int64_t full = n > layers ? n - layers : 0;
    log_info(
        b->log,
        "Memory budget %g: %lld of %lld blocks recompute everything, %lld all but matrix products; a step "
        "takes %s, between %s with all recomputed and %s with none",
        b->share, (long long)full, (long long)layers, (long long)((n < layers ? n : layers) - full),
        size_text(bytes, size[0]), size_text(least, size[1]), size_text(most, size[2]));
    return OTT_OK;
}
