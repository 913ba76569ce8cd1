/* train/budget: finds the smallest number of blocks that must be recomputed. */
#include "train/budget.h"
#include "base/text/size.h"

/* Applies choice n of 0 to 2 * layers. Up to `layers`, the first n blocks recompute all but matrix products.
   Above, the first n - layers blocks recompute everything, and the others all but matrix products. */
static void apply_choice(model *m, int64_t n) {
    int64_t layers = m->options.layers;
    for (int64_t i = 0; i < layers; i++)
        m->blocks[i].checkpointing = i < n - layers ? CHECKPOINT_FULL
                                     : i < n        ? CHECKPOINT_OP
                                                    : CHECKPOINT_NONE;
}

static ott_status measure_choice(const budget *b, model *m, int64_t n, int64_t *bytes) {
    apply_choice(m, n);
    return b->measure(b->user, bytes);
}

/* Finds by binary search the fewest recomputations with which a step needs at most `limit` bytes. */
static ott_status search_choice(const budget *b, model *m, int64_t limit, int64_t *found) {
    int64_t low = 0, high = 2 * m->options.layers, bytes;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        TRY(measure_choice(b, m, middle, &bytes));
        if (bytes <= limit)
            high = middle;
        else
            low = middle + 1;
    }
    return *found = low, OTT_OK;
}

/* Sets *n, the choice of recomputed blocks, to the maximum of all ranks, because blocks have collectives. */
static ott_status share_choice(const budget *b, int64_t *n) {
    float most = (float)*n;
    if (!b->host_exchange || b->host_exchange->group->size == 1) return OTT_OK;
    TRY(group_host_reduce(b->host_exchange, &most, 1, REDUCE_MAX));
    *n = (int64_t)most;
    return OTT_OK;
}

ott_status budget_fit(const budget *b, model *m) {
    int64_t layers = m->options.layers, most, least, bytes, n;
    char size[3][SIZE_TEXT];
    TRY(measure_choice(b, m, 0, &most));
    TRY(measure_choice(b, m, 2 * layers, &least));
    TRY(search_choice(b, m, least + (int64_t)(b->share * (double)(most - least)), &n));
    TRY(share_choice(b, &n));
    TRY(measure_choice(b, m, n, &bytes));
    int64_t full = n > layers ? n - layers : 0;
    log_info(
        b->log,
        "Memory budget %g: %lld of %lld blocks recompute everything, %lld all but matrix products; a step "
        "takes %s, between %s with all recomputed and %s with none",
        b->share, (long long)full, (long long)layers, (long long)((n < layers ? n : layers) - full),
        size_text(bytes, size[0]), size_text(least, size[1]), size_text(most, size[2]));
    return OTT_OK;
}
