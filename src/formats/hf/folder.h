/* formats/hf/folder: copies a model folder's files that are neither weights nor config.json. */
#ifndef FORMATS_HF_FOLDER_H
#define FORMATS_HF_FOLDER_H

#include "base/log.h"
#include "base/mem.h"
#include <stdbool.h>

/* Larger files cannot be tokenizer files; they are skipped with a warning. */
#define HF_FOLDER_MOST_BYTES (INT64_C(512) << 20)

/*
 * Copies tokenizer files, generation_config.json, chat templates (also the folder additional_chat_templates),
 * licence and model card, byte for byte. Skips weights in any format and their indexes, config.json
 * (hf_config_write makes it), hidden files and other folders. `to` is created if needed; existing files are
 * replaced, each atomically. Does nothing if from and to are the same folder. `copied` may be NULL; it
 * receives the number of files.
 *
 * Follows links inside `from` and into the blobs of a Hugging Face cache (snapshots/REVISION/FILE points to
 * ../../blobs/HASH). Any other link is OTT_ERR_UNSUPPORTED: a downloaded folder must not be able to export
 * files of this machine.
 */
ott_status hf_folder_copy_others(mem *account, const logger *lg, const char *from, const char *to,
                                 int64_t *copied);
/* True for the path of a model: a folder or a GGUF file. */
bool hf_folder_is_model(const char *path);
/* True if a file of this name is copied. */
bool hf_folder_is_copied(const char *name);

#endif
