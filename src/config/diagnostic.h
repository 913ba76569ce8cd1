/*
 * config/diagnostic: collects diagnostics about configuration keys. Errors are reported together, after
 * everything was read. Keys without effect are logged. Diagnostics with the same reason share a line. A
 * diagnostic is removed when its key is set again. It is not printed if its section is switched off. Internal
 * to config.
 */
#ifndef CONFIG_DIAGNOSTIC_H
#define CONFIG_DIAGNOSTIC_H

#include "config/config.h"
#include "config/table.h"

typedef enum diagnostic_kind {
    DIAGNOSTIC_ERROR,   /* an error: the configuration does not run */
    DIAGNOSTIC_INSTEAD, /* the key controls PyTorch only; the reason is what Ottava does instead */
    DIAGNOSTIC_INERT    /* the key has no effect; the reason is a text, or another key that it depends on */
} diagnostic_kind;

typedef struct diagnostic {
    diagnostic_kind kind;
    const char *spelled;   /* the key's name in the file or option */
    const config_key *key; /* the schema key that `spelled` sets; NULL: none */
    /* Start of the message: "run.toml:3: train.seq_len = 512". If `reason` is NULL, it is the full message.
       For DIAGNOSTIC_INERT it is the name of a row in ignored_keys.def ("ci.*"). */
    const char *where;
    const char *reason;
    bool done; /* printed in the line of another diagnostic */
    struct diagnostic *next;
} diagnostic;

/* The switch of a section (`enabled: false`). */
typedef struct diagnostic_switch {
    const char *section;
    bool off;
} diagnostic_switch;

enum { DIAGNOSTIC_SWITCHES = 64 }; /* most switches kept; a file has about twenty */

typedef struct diagnostics {
    diagnostic *first, *last;
    bool collecting;  /* true between config_collect_begin and config_collect_end */
    diagnostic *kept; /* last diagnostic added before config_collect_begin */
    int count;        /* diagnostics ever added, including removed ones */
    diagnostic_switch switches[DIAGNOSTIC_SWITCHES];
    int switch_count;
} diagnostics;

/* Adds a diagnostic. The texts are borrowed and must live as long as the configuration. */
ott_status diagnostic_add(config *cfg, diagnostic_kind kind, const char *spelled, const config_key *key,
                          const char *where, const char *reason);
/* For OTT_ERR_CONFIG, keeps the current error text for the report and returns OTT_OK. Returns any other
   `status` unchanged. */
ott_status diagnostic_failure(config *cfg, const char *spelled, const config_key *key, ott_status status);
/* Removes the diagnostics of a key that was set again. Either `spelled` or `key` may be NULL. */
void diagnostic_remove(config *cfg, const char *spelled, const config_key *key);
/* Removes the diagnostics of a section that was dropped: `--peft=none`. */
void diagnostic_remove_section(config *cfg, const char *section);
/* If `path` ends in .enable or .enabled, records that the user switched its section on or off. */
ott_status diagnostic_switched(config *cfg, const char *path, bool on);
/* True if the key is in a section that is switched off. */
bool diagnostic_is_off(const config *cfg, const char *spelled);

/* True if there is an error for the key `spelled` (NULL: for any key), and its section is not off. */
bool diagnostic_has_error(const config *cfg, const char *spelled);
/* Like diagnostic_has_error, but looks at all keys and sections of the list "a.b|c". */
bool diagnostic_has_error_in(const config *cfg, const char *names);
/* Returns OTT_ERR_CONFIG with all errors, one per line, except in sections that are off. OTT_OK if none. */
ott_status diagnostic_report(config *cfg);
/* Logs the keys without effect. */
void diagnostic_log(const config *cfg);

#endif
