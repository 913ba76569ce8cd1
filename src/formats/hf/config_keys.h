/* formats/hf/config_keys: the keys of config.json as a table, shared by the reader and the writer. */
#ifndef FORMATS_HF_CONFIG_KEYS_H
#define FORMATS_HF_CONFIG_KEYS_H

#include "formats/hf/config.h"
#include <jansson.h>
#include <stddef.h>

#define HF_LARGEST_DIMENSION (1 << 20)

typedef enum hf_type { HF_INT, HF_REAL, HF_BOOL } hf_type;

/* A key that sets one member of hf_config. */
typedef struct hf_key {
    const char *name;
    hf_type type;
    size_t offset;        /* offset of the member, an int64_t, double or bool */
    double least, most;   /* range of a number */
    unsigned families;    /* bit mask of 1 << family_index: families with this key; 0: all */
    double default_value; /* value of a missing key; NAN: the key is required */
    double other_value;   /* value in families without the key; NAN: another key sets it in these families */
} hf_key;

const hf_key *hf_keys(int *count);
bool hf_key_applies(const hf_key *k, const family *f); /* false if the family ignores the key */
/* True if the family has another key that sets the same member of hf_config as k. */
bool hf_key_has_substitute(const hf_key *k, const family *f);
/* The value of a key as a number: true is 1. All integers of the table are exact in a double. */
double hf_key_get(const hf_key *k, const hf_config *c);
bool hf_key_equal(const hf_key *k, double a, double b);
/* *out = value of a missing or null key, which may depend on other members of c. False if it is required. */
bool hf_key_default(const hf_key *k, const hf_config *c, double *out);
/* True if null means 0 for the key. For other keys, null means that the key is missing. */
bool hf_key_can_be_null(const hf_key *k);
/* *out = the key's value in the file, or its default. *is_given is false if a required key is missing. */
ott_status hf_key_value_of(const hf_key *k, const char *name, json_t *root, const hf_config *c, double *out,
                           bool *is_given);
/* Checks and converts a key's value. OTT_ERR_FORMAT names file and key. */
ott_status hf_key_read(const hf_key *k, const char *name, json_t *value, double *out);
ott_status hf_read_keys(const char *name, json_t *root, hf_config *c); /* reads all keys of hf_keys */

/* Puts "NAME: key 'KEY' = VALUE: " before the error text, or "NAME: has no key 'KEY': ". */
ott_status hf_fail_key(ott_status code, const char *name, const char *key, json_t *value);
/* Fails with "NAME: key 'KEY' = VALUE: MESSAGE". */
#define hf_fail(code, name, key, value, ...) hf_fail_key(status_fail(code, __VA_ARGS__), name, key, value)
json_t *hf_get(json_t *object, const char *key); /* NULL if `key` is missing or null */
ott_status hf_get_bool(const char *name, json_t *root, const char *key, bool default_value, bool *out);

/* Each function reads a setting that several keys or spellings can give. `root` is the parsed config.json.
   c->family, c->layers and c->vocab_size must be set before. */
ott_status hf_read_rope(const char *name, json_t *root, hf_config *c);
ott_status hf_read_window(const char *name, json_t *root, hf_config *c);
ott_status hf_read_tokens(const char *name, json_t *root, hf_config *c);
ott_status hf_read_dropout(const char *name, json_t *root, hf_config *c);
ott_status hf_read_router_loss(const char *name, json_t *root, hf_config *c);
ott_status hf_read_dtype(const char *name, json_t *root, hf_config *c);
ott_status hf_read_quantization(const char *name, json_t *root, hf_config *c);
bool hf_rope_equal(const hf_config *a, const hf_config *b);
bool hf_can_list_dense_layers(const family *f); /* true if the family has the key mlp_only_layers */
bool hf_dense_layers_equal(const hf_config *a, const hf_config *b);
bool hf_has_full_attention(const hf_config *c, int64_t layer);     /* the layer has no window */
bool hf_full_layers_equal(const hf_config *a, const hf_config *b); /* true if the same layers have a window */
const char *hf_activation_key(const family *f);                    /* key of the activation, "hidden_act" */
const char *hf_activation(const hf_config *c);                     /* value of the activation key, "silu" */
const char *hf_routing_method(const hf_config *c);                 /* value of DeepSeek-V2's topk_method */
void hf_window_append(const hf_config *c, str *out);               /* appends the value of layer_types */
void hf_rope_append(const hf_config *c, str *out); /* appends rope_scaling's value; not for HF_ROPE_PLAIN */
void hf_append_real(str *out, double x);           /* as Python prints it: with a point or an exponent */
bool hf_tokens_equal(const hf_config *a, const hf_config *b);

#endif
