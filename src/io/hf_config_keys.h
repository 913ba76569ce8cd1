/* io/hf_config_keys: the keys of config.json as a table, for its reader and its writer. */
#ifndef IO_HF_CONFIG_KEYS_H
#define IO_HF_CONFIG_KEYS_H

#include "io/hf_config.h"
#include <jansson.h>
#include <stddef.h>

typedef enum hf_type { HF_INT, HF_REAL, HF_BOOL } hf_type;

/* A key whose value is one member of hf_config. */
typedef struct hf_key {
    const char *name;
    hf_type type;
    size_t offset;       /* of the member: int64_t, double or bool */
    double least, most;  /* of a number */
} hf_key;

enum { HF_KEY_COUNT = 12 };
extern const hf_key hf_keys[HF_KEY_COUNT];

typedef union hf_value {
    int64_t integer;
    double real;
    bool truth;
} hf_value;

hf_value hf_key_get(const hf_key *k, const hf_config *c);
/* What c has when the key is absent or null, given c's other members; false when the key is required. */
bool hf_key_default(const hf_key *k, const hf_config *c, hf_value *out);

/* The parts of the file that are more than one key. They read `root` as a file of c->family, after the keys of
 * the table are in c. */
ott_status hf_read_rope(const char *name, json_t *root, hf_config *c);
ott_status hf_read_window(const char *name, json_t *root, hf_config *c);
ott_status hf_read_tokens(const char *name, json_t *root, hf_config *c);

#endif
