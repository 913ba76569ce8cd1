/* formats/hf_config_keys: the keys of config.json as a table, for its reader and its writer. */
#ifndef FORMATS_HF_CONFIG_KEYS_H
#define FORMATS_HF_CONFIG_KEYS_H

#include "formats/hf_config.h"
#include <jansson.h>
#include <stddef.h>

#define HF_LARGEST_DIMENSION (1 << 20)

typedef enum hf_type { HF_INT, HF_REAL, HF_BOOL } hf_type;

/* A key whose value is one member of hf_config. */
typedef struct hf_key {
    const char *name;
    hf_type type;
    size_t offset;        /* of the member: int64_t, double or bool */
    double least, most;   /* of a number */
    unsigned families;    /* that have it, 1 << family_index; 0: all */
    double default_value; /* of those, where it is absent (NAN: it must not be), and */
    double other_value;   /* of the others; NAN: they have another key */
} hf_key;

typedef union hf_value {
    int64_t integer;
    double real;
    bool truth;
} hf_value;

const hf_key *hf_keys(int *count);
/* NULL: it is none of them. */
const hf_key *hf_key_find(const char *name, const family *f);
bool hf_key_applies(const hf_key *k, const family *f); /* false: the family does not look at it */
/* Does the family say the same by another key? */
bool hf_key_has_substitute(const hf_key *k, const family *f);
hf_value hf_key_get(const hf_key *k, const hf_config *c);
bool hf_key_equal(const hf_key *k, hf_value a, hf_value b);
/* What an absent or null key means beside c's other members; false when the key is required. */
bool hf_key_default(const hf_key *k, const hf_config *c, hf_value *out);
/* Does null say that the model lacks what the key is about? Else it is the same as no key. */
bool hf_key_can_be_null(const hf_key *k);
/* What the file says with it; *is_said false: it must be there, and is not. */
ott_status hf_key_value_of(const hf_key *k, const char *name, json_t *root, const hf_config *c, hf_value *out,
                           bool *is_given);
/* The value of a key. OTT_ERR_FORMAT names file and key. */
ott_status hf_key_read(const hf_key *k, const char *name, json_t *value, hf_value *out);
ott_status hf_read_keys(const char *name, json_t *root, hf_config *c); /* all of them */

/* "NAME: key 'KEY' = VALUE: MESSAGE" */
ott_status hf_fail(ott_status code, const char *name, const char *key, json_t *value, const char *format, ...)
    __attribute__((format(printf, 5, 6), cold));
json_t *hf_get(json_t *object, const char *key); /* NULL also for null */
ott_status hf_get_bool(const char *name, json_t *root, const char *key, bool default_value, bool *out);

/* What is more than one key, read from `root` as c->family means it, after c's layers and vocab_size. */
ott_status hf_read_rope(const char *name, json_t *root, hf_config *c);
ott_status hf_read_window(const char *name, json_t *root, hf_config *c);
ott_status hf_read_tokens(const char *name, json_t *root, hf_config *c);
ott_status hf_read_dropout(const char *name, json_t *root, hf_config *c);
ott_status hf_read_router_loss(const char *name, json_t *root, hf_config *c);
ott_status hf_read_dtype(const char *name, json_t *root, hf_config *c);
ott_status hf_read_quantization(const char *name, json_t *root, hf_config *c);
bool hf_rope_equal(const hf_config *a, const hf_config *b);
bool hf_can_list_dense_layers(const family *f); /* can its files name single layers without experts? */
bool hf_dense_layers_equal(const hf_config *a, const hf_config *b);
bool hf_has_full_attention(const hf_config *c, int64_t layer);     /* has this layer no window? */
bool hf_full_layers_equal(const hf_config *a, const hf_config *b); /* do the same layers? */
const char *hf_activation_key(const family *f);                    /* "hidden_act" */
const char *hf_activation(const hf_config *c);                     /* what it says */
const char *hf_routing_method(const hf_config *c);                 /* DeepSeek-V2's topk_method */
void hf_window_append(const hf_config *c, str *out);               /* layer_types */
void hf_rope_append(const hf_config *c, str *out); /* the rule, one that is not plain, as a JSON object */
bool hf_tokens_equal(const hf_config *a, const hf_config *b);

#endif
