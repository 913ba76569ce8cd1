/* data/data: a run's training and validation data, opened from its configuration. */
#ifndef DATA_DATA_H
#define DATA_DATA_H

#include "base/cancellation.h"
#include "config/config.h"
#include "data/dataset.h"
#include <limits.h>

/*
 * Opens the training and validation data and makes their rows. Close both with dataset_close. *validation is
 * NULL if the run does not evaluate. *vocab: size of the model's vocabulary. Sets these keys of cfg:
 * - train.seq_len, if it was not given and samples are not packed;
 * - train.max_steps, if train.num_epochs was given and no checkpoint is loaded;
 * - model.vocab_size (and *vocab), if a preset's vocabulary is smaller than the tokenizer's;
 * - data.add_bos, if it was not given.
 * Logs to w->log; w may be NULL. OTT_ERR_STOPPED if w is canceled. OTT_ERR_CONFIG if the data's vocabulary is
 * larger than the model's, or if a validation batch has more rows than the validation data.
 */
ott_status data_open(mem *account, const cancellation *w, config *cfg, int64_t *vocab, dataset **train,
                     dataset **validation);

/* If train.num_epochs is given, computes train.max_steps from it. `steps`, `done`: the steps and rows before
   the run was resumed. is_limit: train.max_steps was given, too, and the smaller number is used. */
ott_status data_count_epochs(const logger *log, config *cfg, const dataset *train, int64_t steps,
                             int64_t done, bool is_limit);

/* Path of the run's tokenizer: data.tokenizer_path, or the one in model.hf_path; "": bytes are tokens. */
void data_tokenizer_path(const config *cfg, char out[PATH_MAX]);
/* Returns why ids cannot be decoded to text; NULL if they are bytes or there is a tokenizer. */
const char *data_no_text_reason(const config *cfg);

/* Visits every file of the data, in order; files of a separate validation set come last. */
typedef ott_status (*data_file_fn)(void *user, bool validation, const char *path);
ott_status data_visit_files(mem *account, const config *cfg, data_file_fn visit, void *user);

#endif
