/* base/library: finds and opens a plugin, a shared library that Ottava loads at run time. An environment
   variable names the plugin's file or folder. If it is unset, the folder of this program or library is
   searched, then ../lib from there. The system's folders are not searched. */
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

#include <stdbool.h>

enum { LIBRARY_TEXT = 768 };

typedef struct library_name {
    const char *file;     /* the plugin's file, "libottava_cuda.so" */
    const char *variable; /* the environment variable, "OTTAVA_CUDA_PATH" */
    bool is_global;       /* libraries that are loaded later also see its symbols (RTLD_GLOBAL) */
} library_name;

/* Returns the opened library, which stays loaded. On NULL, `reason` has the error or the searched folder. */
void *library_open(const library_name *name, char reason[LIBRARY_TEXT]);
/* Closes a library that cannot be used. */
void library_close(void *library);
/* Finds a function of the library by its name; NULL if there is none. The function returns a table. */
typedef const void *library_entry(void);
library_entry *library_find(void *library, const char *symbol);

#endif
