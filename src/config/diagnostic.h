/*
 * config/diagnostic: what there is to say about the keys of a file and the options beside it: what keeps the
 * configuration from running, reported together once all of it has been read, and what has no effect, told in
 * the log. Remarks of one reason share a line. A remark counts until its key is given anew, and does not
 * count while the section it was made in is switched off. Internal to this floor.
 */
#ifndef CONFIG_DIAGNOSTIC_H
#define CONFIG_DIAGNOSTIC_H

#include "config/config.h"
#include "config/table.h"

typedef enum diagnostic_kind {
    DIAGNOSTIC_ERROR,   /* the configuration does not run */
    DIAGNOSTIC_INSTEAD, /* something of PyTorch is steered; the reason says what Ottava does */
    DIAGNOSTIC_INERT    /* no effect; the reason says why, or the key without which there is none */
} diagnostic_kind;

typedef struct diagnostic {
    diagnostic_kind kind;
    const char *spelled;   /* the key as it was written */
    const config_key *key; /* the key of the schema it is about; NULL: none */
    const char *where;     /* "run.toml:3: train.seq_len = 512"; without a reason all there is to say;
                              DIAGNOSTIC_INERT: the row of nothing.def */
    const char *reason;    /* NULL: `where` says it */
    bool done;             /* already part of another remark's line */
    struct diagnostic *next;
} diagnostic;

/* A feature's own switch (`enabled: false`) and the section it rules. */
typedef struct diagnostic_switch {
    const char *section;
    bool off;
} diagnostic_switch;

enum { DIAGNOSTIC_SWITCHES = 64 }; /* there are some twenty; more are not kept */

typedef struct diagnostics {
    diagnostic *first, *last;
    bool collecting;  /* between config_collect_begin and config_collect_end */
    diagnostic *kept; /* the last one before config_collect_begin */
    int count;        /* ever added */
    diagnostic_switch switches[DIAGNOSTIC_SWITCHES];
    int switch_count;
} diagnostics;

/* The texts are borrowed and must live as long as the configuration. */
ott_status diagnostic_add(config *cfg, diagnostic_kind kind, const char *spelled, const config_key *key,
                          const char *where, const char *reason);
/* Keeps the error text of a failed `status` for the report and returns OTT_OK. Other failures than
   OTT_ERR_CONFIG are returned: nothing more can be read then. */
ott_status diagnostic_failure(config *cfg, const char *spelled, const config_key *key, ott_status status);
/* The key (either may be NULL) was given anew. */
void diagnostic_remove(config *cfg, const char *spelled, const config_key *key);
/* All of a section was given up: `--peft=none`. */
void diagnostic_remove_section(config *cfg, const char *section);
/* Notes the value of a key that ends in .enable or .enabled. */
ott_status diagnostic_switched(config *cfg, const char *path, bool on);
/* Is the key of that name in a section that is switched off? */
bool diagnostic_is_off(const config *cfg, const char *spelled);

/* Is there an obstacle that counts? For `spelled` only, unless it is NULL. */
bool diagnostic_has_error(const config *cfg, const char *spelled);
/* Is there one on a key, or in a section, of "a.b|c"? */
bool diagnostic_has_error_in(const config *cfg, const char *names);
/* OTT_ERR_CONFIG with all obstacles, one a line, or OTT_OK when there is none. */
ott_status diagnostic_report(config *cfg);
/* Logs what has no effect. */
void diagnostic_log(const config *cfg);

#endif
