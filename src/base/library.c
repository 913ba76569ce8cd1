/* base/library: opens a plugin by dlopen. */
#include "base/library.h"
#include "base/file/file.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the path of the folder of this program, or of the library that contains this code. */
static bool own_folder(char out[PATH_MAX]) {
    static const char here;
    Dl_info info;
    char path[PATH_MAX];
    if (!dladdr(&here, &info) || !info.dli_fname) return false;
    if (!realpath(strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe", path)) return false;
    *strrchr(path, '/') = '\0';
    strcpy(out, path);
    return true;
}

/* Opens a library. If the file exists but cannot be opened, sets `reason`, unless it is already set. dlopen
   gets a full path, because it searches the system's folders for a name without a slash. */
static void *try_file(const library_name *n, const char *path, char reason[LIBRARY_TEXT]) {
    char full[PATH_MAX];
    if (!realpath(path, full)) return NULL;
    void *library = dlopen(full, RTLD_NOW | (n->is_global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library && !reason[0]) {
        const char *text = dlerror();
        snprintf(reason, LIBRARY_TEXT, "%s", text ? text : path);
    }
    return library;
}

static void *try_library_folder(const library_name *n, const char *folder, const char *subfolder,
                                char reason[LIBRARY_TEXT]) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s%s/%s", folder, subfolder, n->file);
    return try_file(n, path, reason);
}

void *library_open(const library_name *n, char reason[LIBRARY_TEXT]) {
    const char *given = getenv(n->variable);
    char folder[PATH_MAX];
    reason[0] = '\0';
    if (given && *given) {
        bool is_folder = file_is_folder(given);
        void *library = is_folder ? try_library_folder(n, given, "", reason) : try_file(n, given, reason);
        if (!library && !reason[0])
            snprintf(reason, LIBRARY_TEXT, "%.512s%s%s is not there", given, is_folder ? "/" : "",
                     is_folder ? n->file : "");
        return library;
    }
    if (!own_folder(folder)) return NULL;
    void *library = try_library_folder(n, folder, "", reason);
    if (!library) library = try_library_folder(n, folder, "/../lib", reason);
    if (!library && !reason[0])
        snprintf(reason, LIBRARY_TEXT, "%s is neither in %.512s nor in its ../lib", n->file, folder);
    return library;
}

void library_close(void *library) {
    dlclose(library);
}

library_entry *library_find(void *library, const char *symbol) {
    union {
        void *symbol;
        library_entry *entry;
    } found = {.symbol = dlsym(library, symbol)};
    return found.entry;
}
