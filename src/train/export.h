/* train/export: a trained model as a Hugging Face folder, a folder of adapters, or a GGUF file. */
#ifndef TRAIN_EXPORT_H
#define TRAIN_EXPORT_H

#include "base/log.h"
#include "base/str.h"
#include "ottava/ottava.h"

/* See ott_export. `said` gets the text. */
ott_status export_run(mem *account, const logger *log, const char *path, const char *folder,
                      const ott_export_options *options, str *report);

#endif
