/*
 * comma_locale: sets a locale with a decimal comma: the system's German locale, or a locale that localedef
 * makes in a temporary folder.
 */
#ifndef COMMA_LOCALE_H
#define COMMA_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define COMMA_LOCALE "de_DE.UTF-8"

static char comma_locale_folder[] = "/tmp/ottava-locale-XXXXXX";

static inline void comma_locale_leave(void) {
    char command[96];
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof command, "rm -rf %s", comma_locale_folder);
    if (getenv("LOCPATH") && system(command) != 0) perror(command);
    unsetenv("LOCPATH");
}

/* Sets the locale. False if no such locale is available. */
static inline bool comma_locale_enter(void) {
    char command[160];
    if (setlocale(LC_ALL, COMMA_LOCALE)) return true;
    if (!mkdtemp(comma_locale_folder)) return false;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/" COMMA_LOCALE " >/dev/null 2>&1",
             comma_locale_folder);
    setenv("LOCPATH", comma_locale_folder, 1);
    if (system(command) == 0 && setlocale(LC_ALL, COMMA_LOCALE)) return true;
    comma_locale_leave();
    return false;
}

#endif
