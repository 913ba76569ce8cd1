/* support/hub_server: a server on the loopback address that implements the protocol of the Hugging Face hub,
   and fails on request. It serves one model, org/tiny, and one dataset, org/rows. Files that end in
   .safetensors are stored as LFS files: they are redirected to a second port, the content network. */
#ifndef SUPPORT_HUB_SERVER_H
#define SUPPORT_HUB_SERVER_H

#define HUB_SERVER_COMMIT "0123456789abcdef0123456789abcdef01234567"

typedef enum hub_fault {
    HUB_NO_FAULT,
    HUB_BREAK,         /* closes the connection after half of the body */
    HUB_STALL,         /* stops after half of the body, without closing */
    HUB_BUSY,          /* 503 */
    HUB_TOO_MANY,      /* 429 with Retry-After: 1 */
    HUB_NO_RANGE,      /* ignores Range */
    HUB_WRONG_PART,    /* answers Range with another part */
    HUB_WRONG_BYTES,   /* the first byte of the answer is wrong */
    HUB_SHORT,         /* the last byte is missing */
    HUB_LONG,          /* one byte too many */
    HUB_LOOP,          /* redirects to itself */
    HUB_UNAUTHORIZED,  /* 401 */
    HUB_GATED,         /* 403, X-Error-Code: GatedRepo */
    HUB_MISSING,       /* 404 */
    HUB_NO_REVISION,   /* 404, X-Error-Code: RevisionNotFound */
    HUB_HOSTILE_NAME,  /* the list has the file name a/../../x.json */
    HUB_HOSTILE_SUM,   /* the list has the checksum ../../../x */
    HUB_NOT_JSON,      /* an HTML page */
    HUB_LONG_TOTAL,    /* the rows interface reports another total */
    HUB_TRUNCATED_CELL /* the rows interface shortens a cell */
} hub_fault;

typedef struct hub_server hub_server;

/* Serves the files of `folder`, and the lines of the JSONL file `rows` (may be NULL). Aborts on failure. */
hub_server *hub_server_open(const char *folder, const char *rows);
void hub_server_close(hub_server *s);
/* Value for HF_ENDPOINT. Valid until hub_server_close. */
const char *hub_server_address(const hub_server *s);
/* The next `times` requests with `part` in their first line fail. Replaces the fault before. */
void hub_server_fail(hub_server *s, hub_fault fault, int times, const char *part);
/* Number of requests with `part` and `other` in their head (request line and headers). */
int hub_server_count(hub_server *s, const char *part, const char *other);

#endif
