/* formats/hf_folder: the files of a Hugging Face model folder that are neither weights nor config.json. */
#ifndef FORMATS_HF_FOLDER_H
#define FORMATS_HF_FOLDER_H

#include "base/log.h"
#include "base/mem.h"
#include <stdbool.h>

/* Larger files are no tokenizer: they are left behind, with a warning. */
#define HF_FOLDER_MOST_BYTES (INT64_C(512) << 20)

/*
 * Copies, byte for byte, what a model needs beside its weights: tokenizer files, generation_config.json, chat
 * templates (also the folder additional_chat_templates), licence, model card. Not copied: weights in any
 * format and their indexes, config.json (hf_config_write makes it), hidden files, other folders. A file of
 * the same name in `to` (made if absent) is replaced, each atomically; the same folder twice copies nothing.
 *
 * A link is followed inside `from` and into the blobs of a Hugging Face cache (snapshots/REVISION/FILE points
 * to ../../blobs/HASH); any other link is OTT_ERR_UNSUPPORTED, for a folder from elsewhere must not be able
 * to send a file of this machine along. `copied` (may be NULL) gets the number of files.
 */
ott_status hf_folder_copy_others(mem *account, const logger *lg, const char *from, const char *to,
                                 int64_t *copied);
/* Is a file of that name one that is copied? */
bool hf_folder_is_copied(const char *name);

#endif
