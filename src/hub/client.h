/* hub/client: HTTP requests to the hub, repeated after temporary failures. Internal to hub. */
#ifndef HUB_CLIENT_H
#define HUB_CLIENT_H

#include "base/text/str.h"
#include "hub/hub.h"
#include <jansson.h>

typedef struct hub_client hub_client;

bool hub_client_is_offline(void); /* HF_HUB_OFFLINE is 1, on, yes or true */
/* Fails if hub_client_is_offline. kind: "model" or "dataset". The texts are borrowed. */
ott_status hub_client_open(mem *account, const hub_caller *caller, const char *kind, const char *name,
                           hub_client **out);
void hub_client_close(hub_client *c); /* NULL is allowed */
/* The address of the hub, without a trailing slash: HF_ENDPOINT, or https://huggingface.co. */
const char *hub_client_endpoint(const hub_client *c);
/* Appends `text`, percent-encoded. keep_slash: "/" is not encoded. */
void hub_client_escape(str *url, const char *text, bool keep_slash);
/* Reads a JSON answer. *out is owned by the caller (json_decref). */
ott_status hub_client_json(hub_client *c, const char *url, json_t **out);
/* Downloads a file of `size` bytes to `path`, and resumes at the end of a file that exists. *fits: false if
   the hub sent another number of bytes; the caller then removes the file. */
ott_status hub_client_file(hub_client *c, const char *url, const char *path, const char *name, int64_t size,
                           bool *fits);
/* Sets the total bytes or rows; adds bytes or rows that are done. Both are for the progress. */
void hub_client_expect(hub_client *c, int64_t total);
void hub_client_add(hub_client *c, const char *what, int64_t done);
/* Sleeps, in short pieces. Returns OTT_ERR_STOPPED after a stop request. */
ott_status hub_client_wait(const hub_client *c, double seconds);

#endif
