/* export/export: writes a trained model as a Hugging Face folder, a PEFT folder, or a GGUF file. */
#ifndef EXPORT_EXPORT_H
#define EXPORT_EXPORT_H

#include "base/log.h"
#include "base/text/str.h"
#include "ottava/ottava.h"

/* Implements ott_export. Appends to `report` the text that ott_export returns. */
ott_status export_run(mem *account, const logger *log, const char *path, const char *folder,
                      const ott_export_options *options, str *report);

#endif
