/*
 * io/dataset: where tokens come from. A dataset is one sequence of token ids, cut into windows; the loader
 * reads its windows in a new random order each epoch. Which sample is which window is a pure function of the
 * seed and the sample's global number, so that number is the whole state of loading data, on any number of
 * ranks.
 */
#ifndef IO_DATASET_H
#define IO_DATASET_H

#include "base/mem.h"

typedef struct dataset dataset; /* read-only once open: any thread may read it */

/*
 * The bytes [floor(from_share * size), floor(to_share * size)) of a text file; a token is a byte, the
 * vocabulary 256. 0 <= from_share < to_share <= 1. The part is held in memory: at most 4 GiB. Errors name the
 * path: not a regular file, empty, too large, not UTF-8 (with the byte offset).
 */
ott_status dataset_open_text(mem *account, const char *path, double from_share, double to_share,
                             dataset **out);
/* `count` tokens drawn uniformly from [0, vocab). */
ott_status dataset_open_synthetic(mem *account, int64_t vocab, uint64_t seed, int64_t count, dataset **out);
void dataset_close(dataset *d); /* NULL is allowed */

/* For messages: the path, followed by the byte range when only a part is read. */
const char *dataset_name(const dataset *d);
int64_t dataset_tokens(const dataset *d);
int64_t dataset_vocab(const dataset *d);

/* Windows of seq_len + 1 tokens at a stride of seq_len: every token is a target once. 0 when there are too
 * few tokens. */
int64_t dataset_windows(const dataset *d, int64_t seq_len);
/* OTT_ERR_CONFIG, naming train.seq_len and the dataset, when it has no window. */
ott_status dataset_check(const dataset *d, int64_t seq_len);
/* Window `index`: tokens (seq_len), and targets (seq_len): the same shifted by one. */
ott_status dataset_window(const dataset *d, int64_t seq_len, int64_t index, int32_t *tokens,
                          int32_t *targets);

/* Sample number `sample` (>= 0, counted over all ranks since the first step) of a run: window
   rng_permute(seed, rng_stream("epoch") + epoch, sample % windows, windows) with epoch = sample / windows. */
ott_status loader_sample(const dataset *d, uint64_t seed, int64_t seq_len, int64_t sample, int32_t *tokens,
                         int32_t *targets);
/* sample / windows; 0 when the dataset has no window. */
int64_t loader_epoch(const dataset *d, int64_t seq_len, int64_t sample);

#endif
