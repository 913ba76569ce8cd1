/* data/data: a run's training and validation data, opened from its configuration. */
#ifndef DATA_DATA_H
#define DATA_DATA_H

#include "base/cancellation.h"
#include "config/config.h"
#include "data/dataset.h"
#include <limits.h>

/*
 * Opens both and cuts them into rows; *validation is NULL when nothing is evaluated. Both are closed with
 * dataset_close. What the data decides goes into cfg: train.seq_len, when it was not given and samples are
 * not packed, train.max_steps, when train.num_epochs was given and no checkpoint is loaded, and model.vocab_size, when
 * a preset's is smaller than the tokenizer's (in *vocab, the model's, too), and data.add_bos, when it was not given.
 * Logs to w->log; w may be NULL. OTT_ERR_STOPPED when w says so. OTT_ERR_CONFIG when the vocabulary of the data is larger than
 * the model's, or a batch of validation is more than there is.
 */
ott_status data_open(mem *account, const cancellation *w, config *cfg, int64_t *vocab, dataset **train,
                     dataset **validation);

/* Sets train.max_steps from train.num_epochs, if that is given: `steps` were done before and read `done` rows. is_limit:
   train.max_steps is a limit of its own and stays if it is smaller. */
ott_status data_count_epochs(const logger *log, config *cfg, const dataset *train, int64_t steps,
                             int64_t done, bool is_limit);

/* The tokenizer of a run's text: data.tokenizer_path, or else model.hf_path when it has one; "": text is
 * bytes. */
void data_tokenizer_path(const config *cfg, char out[PATH_MAX]);
/* Why no text can be made of the run's tokens; NULL: it can, by that tokenizer or as bytes. */
const char *data_no_text_reason(const config *cfg);

/* Every file the data is read from, in order; those of a validation set of its own come last. */
typedef ott_status (*data_file_fn)(void *user, bool validation, const char *path);
ott_status data_visit_files(mem *account, const config *cfg, data_file_fn visit, void *user);

#endif
