/* backend/loader: loads plugins (backend/plugin.h). base/library finds a plugin's file. A plugin stays
   loaded. */
#ifndef BACKEND_LOADER_H
#define BACKEND_LOADER_H

#include "backend/backend.h"
#include "backend/plugin.h"

/* Loads the backend's plugin on the first call. OTT_ERR_UNSUPPORTED if that fails; the text has the searched
   places, the reason, and what to do. */
ott_status loader_find(const backend_row *row, const plugin **out);
/* Returns the library's functions that a plugin calls. */
const plugin_services *loader_services(void);
/* Writes the names of the ops that the plugin lacks, "rope, adamw". Returns the number of these ops. */
int loader_list_missing(const plugin *p, char out[LIBRARY_TEXT]);

#endif
