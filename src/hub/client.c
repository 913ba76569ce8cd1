/* hub/client: HTTP requests with libcurl. */
#include "hub/client.h"
#include "base/clock.h"
#include "base/file/file.h"
#include "base/json/json_text.h"
#include "formats/hf/hub_name.h"
#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define ANSWER_LIMIT (INT64_C(64) << 20) /* largest accepted JSON answer, in bytes */
enum { FAILURES = 5, LONGEST_WAIT = 300, TOKEN_BYTES = 512 };

struct hub_client {
    mem *account;
    const hub_caller *caller;
    const char *kind, *name;
    CURL *curl;
    char endpoint[PATH_MAX], token[TOKEN_BYTES], reason[CURL_ERROR_SIZE];
    bool reached; /* a server has answered, so failures to connect are temporary */
    int64_t done;
    cancellation_progress progress;
};

/* One request, or its repetitions. */
typedef struct transfer {
    hub_client *c;
    const char *url, *what, *path; /* what: name for the progress; path: the file */
    int file;                      /* descriptor of the file that is downloaded; -1: a text */
    int64_t have, size, from;      /* bytes in the file, of the complete file, offset that the server sends */
    str text;                      /* the answer, unless it goes to the file */
    long code;                     /* HTTP status; 0: no body yet */
    bool is_gated, is_too_long;
    int disk_error; /* errno of a failed write */
} transfer;

/* ---- token and addresses ---- */

const char *hub_client_endpoint(const hub_client *c) {
    return c->endpoint;
}

static ott_status read_endpoint(hub_client *c) {
    const char *given = getenv("HF_ENDPOINT");
    TRY(file_path(c->endpoint, "%s", given && *given ? given : "https://huggingface.co"));
    size_t length = strlen(c->endpoint);
    while (length > 0 && c->endpoint[length - 1] == '/') c->endpoint[--length] = '\0';
    return OTT_OK;
}

bool hub_client_is_offline(void) {
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *value = getenv("HF_HUB_OFFLINE");
    for (int i = 0; value && i < 4; i++)
        if (strcasecmp(value, words[i]) == 0) return true;
    return false;
}

/* Copies a token without white space around it. */
static ott_status copy_token(hub_client *c, const char *from, const char *text) {
    text += strspn(text, " \t\r\n");
    size_t length = strcspn(text, " \t\r\n");
    if (length >= TOKEN_BYTES || text[length + strspn(text + length, " \t\r\n")])
        return status_fail(OTT_ERR_ARGUMENT, "%s: is not a token of the hub: it must be one word", from);
    snprintf(c->token, sizeof c->token, "%.*s", (int)length, text);
    return OTT_OK;
}

/* Reads HF_TOKEN, else the file HF_TOKEN_PATH, else the file `token` that `hf auth login` writes. */
static ott_status read_token(hub_client *c) {
    const char *given = getenv("HF_TOKEN"), *named = getenv("HF_TOKEN_PATH");
    char path[PATH_MAX], home[PATH_MAX], *text;
    int64_t bytes;
    if (given && *given) return copy_token(c, "HF_TOKEN", given);
    TRY(hub_name_home(home));
    TRY(named && *named ? file_path(path, "%s", named) : file_join(home, "token", path));
    if (!file_exists(path)) return OTT_OK;
    TRY(file_read(c->account, path, 1 << 16, &text, &bytes));
    ott_status status = copy_token(c, path, text);
    mem_free(c->account, text);
    return status;
}

void hub_client_escape(str *url, const char *text, bool keep_slash) {
    for (; *text; text++) {
        bool plain = isalnum((unsigned char)*text) || strchr("-._~", *text) || (keep_slash && *text == '/');
        str_printf(url, plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
}

/* ---- progress and stop requests ---- */

ott_status hub_client_wait(const hub_client *c, double seconds) {
    for (double end = clock_seconds() + seconds; clock_seconds() < end; usleep(20000))
        TRY(cancellation_check(&c->caller->cancellation));
    return OTT_OK;
}

void hub_client_expect(hub_client *c, int64_t total) {
    c->progress = cancellation_progress_begin(&c->caller->cancellation, "Downloading", total);
}

/* Reports that `more` is done after c->done. */
static void show(hub_client *c, const char *what, int64_t more) {
    int64_t done = c->done + more;
    if (c->caller->progress) c->caller->progress(c->caller->cancellation.user, what, done, c->progress.total);
    cancellation_progress_update(&c->progress, done); /* check_stop ends the transfer */
}

void hub_client_add(hub_client *c, const char *what, int64_t done) {
    show(c, what, done);
    c->done += done;
}

/* ---- callbacks of curl ---- */

static int check_stop(void *user, curl_off_t a, curl_off_t b, curl_off_t d, curl_off_t e) {
    const transfer *t = user;
    (void)a, (void)b, (void)d, (void)e;
    return cancellation_check(&t->c->caller->cancellation) != OTT_OK;
}

/* Reads the headers of each answer, also of redirects. */
static size_t take_header(char *line, size_t one, size_t count, void *user) {
    transfer *t = user;
    size_t length = one * count;
    char text[128];
    long long from;
    t->c->reached = true;
    snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text - 1), line);
    if (strncasecmp(text, "HTTP/", 5) == 0) t->from = 0;
    if (strncasecmp(text, "content-range:", 14) == 0 && sscanf(text + 14, " bytes %lld-", &from) == 1)
        t->from = from;
    if (strncasecmp(text, "x-error-code:", 13) == 0 && strstr(text, "GatedRepo")) t->is_gated = true;
    return length;
}

static bool restart_file(transfer *t) {
    t->have = 0;
    if (ftruncate(t->file, 0) == 0 && lseek(t->file, 0, SEEK_SET) == 0) return true;
    t->disk_error = errno;
    return false;
}

static bool append_to_file(transfer *t, const char *data, size_t length) {
    t->is_too_long = (int64_t)length > t->size - t->have;
    while (length > 0 && !t->is_too_long) {
        ssize_t written = write(t->file, data, length);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return t->disk_error = written < 0 ? errno : ENOSPC, false;
        data += written;
        length -= (size_t)written;
        t->have += written;
    }
    show(t->c, t->what, t->have);
    return !t->is_too_long;
}

/* Bodies of errors go to t->text. A server may send the full file, or another part. Any return value other
   than the number of bytes ends the transfer. */
static size_t take_body(char *data, size_t one, size_t count, void *user) {
    transfer *t = user;
    size_t length = one * count;
    bool begins = t->code == 0;
    if (begins) curl_easy_getinfo(t->c->curl, CURLINFO_RESPONSE_CODE, &t->code);
    if (t->file >= 0 && (t->code == 200 || t->code == 206)) {
        if (begins && t->from != t->have && (!restart_file(t) || t->from != 0)) return 0;
        return append_to_file(t, data, length) ? length : 0;
    }
    if (t->text.length + (int64_t)length > ANSWER_LIMIT) return t->is_too_long = true, 0;
    str_append_bytes(&t->text, data, (int64_t)length);
    return length;
}

/* ---- errors ---- */

static ott_status fail_access(const transfer *t) {
    const hub_client *c = t->c;
    const char *folder = strcmp(c->kind, "dataset") == 0 ? "datasets/" : "";
    if (t->is_gated || t->code == 403)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: access to this %s is restricted: accept its license at %s/%s%s, %s "
                           "(https://huggingface.co/settings/tokens)",
                           c->name, c->kind, c->endpoint, folder, c->name,
                           *c->token ? "with the account of your token" : "then set HF_TOKEN");
    return status_fail(OTT_ERR_NOT_FOUND,
                       "%s: %s has no such %s or revision, or it is private (%s): check the name, the "
                       "revision and the token (HF_TOKEN%s)",
                       c->name, c->endpoint, c->kind, c->reason, *c->token ? "" : " is not set");
}

static ott_status fail_request(const transfer *t) {
    if (t->disk_error)
        return status_fail(status_from_errno(t->disk_error),
                           "%s: cannot write byte %lld of %lld: %s; free space, or set HF_HOME to a folder "
                           "on a larger disk; the next call resumes",
                           t->path, (long long)t->have, (long long)t->size, strerror(t->disk_error));
    if (t->code == 401 || t->code == 403 || t->code == 404) return fail_access(t);
    return status_fail(OTT_ERR_IO, "%s: %.*s: %s: check the network, HF_ENDPOINT and proxies%s", t->c->name,
                       (int)strcspn(t->url, "?"), t->url, t->c->reason,
                       t->c->reached ? "; the next call resumes" : "");
}

/* True if the request may succeed when it is repeated. */
static bool is_temporary(const transfer *t, CURLcode result) {
    if (t->disk_error) return false;
    if (result == CURLE_OK) return t->code == 408 || t->code == 416 || t->code == 429 || t->code >= 500;
    return t->c->reached && result != CURLE_TOO_MANY_REDIRECTS;
}

/* ---- requests ---- */

static CURLcode request(transfer *t) {
    CURL *curl = t->c->curl;
    char range[32], *reason = t->c->reason;
    snprintf(range, sizeof range, "%lld-", (long long)t->have);
    curl_easy_setopt(curl, CURLOPT_URL, t->url);
    curl_easy_setopt(curl, CURLOPT_RANGE, t->have > 0 ? range : NULL);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    t->code = 0;
    t->is_gated = false;
    t->text.length = 0;
    *reason = '\0'; /* curl writes it, but not for every error */
    CURLcode result = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &t->code);
    if (result == CURLE_OK) snprintf(reason, CURL_ERROR_SIZE, "HTTP %ld", t->code);
    if (!*reason) snprintf(reason, CURL_ERROR_SIZE, "%s", curl_easy_strerror(result));
    return result;
}

/* Waits before a request is repeated: as long as the server asks for, or longer each time. */
static ott_status wait_to_repeat(const transfer *t, int failures) {
    curl_off_t asked = 0;
    curl_easy_getinfo(t->c->curl, CURLINFO_RETRY_AFTER, &asked);
    double seconds = ldexp(t->c->caller->retry_seconds, failures - 1);
    if (asked > 0) seconds = asked < LONGEST_WAIT ? (double)asked : LONGEST_WAIT;
    log_warning(t->c->caller->cancellation.log, "%s: %s; trying again in %.0f s", t->what, t->c->reason,
                seconds);
    return hub_client_wait(t->c, seconds);
}

/* Requests the address until it succeeds, or fails FAILURES times without new bytes. */
static ott_status perform(transfer *t) {
    for (int failures = 0;;) {
        int64_t before = t->have;
        CURLcode result = request(t);
        TRY(cancellation_check(&t->c->caller->cancellation));
        if (result == CURLE_OK && (t->code == 200 || t->code == 206)) return str_finish(&t->text);
        if (t->is_too_long) return OTT_OK;
        failures = t->have > before ? 1 : failures + 1;
        if (!is_temporary(t, result) || failures >= FAILURES) return fail_request(t);
        if (t->code == 416 && !restart_file(t)) return fail_request(t);
        TRY(wait_to_repeat(t, failures));
    }
}

ott_status hub_client_json(hub_client *c, const char *url, json_t **out) {
    transfer t = {.c = c, .url = url, .what = c->name, .file = -1, .text = {.account = c->account}};
    json_error_t error;
    *out = NULL;
    ott_status status = perform(&t);
    if (status == OTT_OK && !t.is_too_long)
        status = json_row_parse(t.text.text ? t.text.text : "", t.text.length, out, &error);
    if (status == OTT_OK && !*out)
        status = status_fail(OTT_ERR_FORMAT,
                             "%s: the answer of %s is not JSON: check HF_ENDPOINT and proxies", c->name, url);
    str_free(&t.text);
    return status;
}

ott_status hub_client_file(hub_client *c, const char *url, const char *path, const char *name, int64_t size,
                           bool *fits) {
    transfer t = {
        .c = c, .url = url, .what = name, .path = path, .size = size, .text = {.account = c->account}};
    TRY(file_open_own(path, O_WRONLY, &t.file));
    t.have = lseek(t.file, 0, SEEK_END);
    ott_status status = t.have > size && !restart_file(&t) ? fail_request(&t) : OTT_OK;
    if (status == OTT_OK && (t.have < size || size == 0)) status = perform(&t);
    *fits = t.have == size && !t.is_too_long;
    if (status == OTT_OK && *fits) status = file_sync_descriptor(t.file, path);
    close(t.file);
    str_free(&t.text);
    return status;
}

ott_status hub_client_open(mem *account, const hub_caller *caller, const char *kind, const char *name,
                           hub_client **out) {
    hub_client *c;
    const char *certificates = getenv("SSL_CERT_FILE");
    if (hub_client_is_offline())
        return status_fail(OTT_ERR_NOT_FOUND,
                           "%s: must be downloaded, but HF_HUB_OFFLINE forbids it: unset HF_HUB_OFFLINE",
                           name);
    TRY(mem_alloc(account, MEM_OTHER, sizeof *c, "the hub's client", &c));
    *c = (hub_client){.account = account, .caller = caller, .kind = kind, .name = name};
    *out = c;
    TRY(read_endpoint(c));
    TRY(read_token(c));
    c->curl = curl_easy_init();
    if (!c->curl) return status_fail(OTT_ERR_MEMORY, "out of memory: libcurl");
    curl_easy_setopt(c->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->curl, CURLOPT_USERAGENT, "ottava");
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else /* Ubuntu 22.04 has libcurl 7.81 */
    curl_easy_setopt(c->curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(c->curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c->curl, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(c->curl, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_LIMIT, 1L); /* a transfer that stalls for 60 s fails */
    curl_easy_setopt(c->curl, CURLOPT_LOW_SPEED_TIME, 60L);
    curl_easy_setopt(c->curl, CURLOPT_ERRORBUFFER, c->reason);
    curl_easy_setopt(c->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c->curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(c->curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(c->curl, CURLOPT_XFERINFOFUNCTION, check_stop);
    if (certificates && *certificates) curl_easy_setopt(c->curl, CURLOPT_CAINFO, certificates);
    if (!*c->token) return OTT_OK;
    curl_easy_setopt(c->curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(c->curl, CURLOPT_XOAUTH2_BEARER, c->token); /* curl drops it when the host changes */
    return OTT_OK;
}

void hub_client_close(hub_client *c) {
    if (!c) return;
    curl_easy_cleanup(c->curl);
    mem_free(c->account, c);
}
