/* support/hub_server: one thread accepts connections, and one thread answers each. */
#include "support/hub_server.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <jansson.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADS = 4096, HEAD_BYTES = 2048 };

struct hub_server {
    char folder[4096], rows[4096], address[64];
    int sockets[2], ports[2]; /* the hub and its content network */
    int active;               /* threads that answer a request */
    pthread_t thread;
    pthread_mutex_t lock;
    bool ends;
    hub_fault fault;
    int times;
    char part[256];
    char *heads[HEADS];
    int head_count;
};

typedef struct connection {
    hub_server *server;
    int socket;
    bool content; /* on the port of the content network */
    char head[HEAD_BYTES], path[1024];
    hub_fault fault;
} connection;

static void require(bool good, const char *what) {
    if (good) return;
    perror(what);
    abort();
}

/* ---- answers ---- */

/* Sends bytes; false if the client has closed the connection. */
static bool send_bytes(const connection *c, const void *data, size_t bytes) {
    for (const char *at = data; bytes > 0;) {
        ssize_t sent = send(c->socket, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static void answer(const connection *c, const char *status, const char *headers, const char *body,
                   size_t length) {
    char head[2048];
    int bytes =
        snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n",
                 status, length, headers);
    if (!send_bytes(c, head, (size_t)bytes)) return;
    if (c->fault != HUB_BREAK && c->fault != HUB_STALL) {
        send_bytes(c, body, length);
        return;
    }
    send_bytes(c, body, length / 2);
    if (c->fault == HUB_BREAK) return;
    char unused;
    struct pollfd wait = {.fd = c->socket, .events = POLLIN};
    for (int i = 0; i < 600 && !c->server->ends; i++)
        if (poll(&wait, 1, 50) > 0 && recv(c->socket, &unused, 1, 0) <= 0) break;
}

static void answer_text(const connection *c, const char *status, const char *headers, const char *body) {
    answer(c, status, headers, body, strlen(body));
}

static void answer_json(const connection *c, json_t *root) {
    char *text = json_dumps(root, 0);
    answer_text(c, "200 OK", "Content-Type: application/json\r\n", text);
    free(text);
    json_decref(root);
}

/* Answers with an error if the connection has such a fault. */
static bool answer_fault(const connection *c) {
    char headers[1200];
    switch (c->fault) {
    case HUB_BUSY: answer_text(c, "503 Service Unavailable", "", "busy"); break;
    case HUB_TOO_MANY: answer_text(c, "429 Too Many Requests", "Retry-After: 1\r\n", "slow down"); break;
    case HUB_UNAUTHORIZED: answer_text(c, "401 Unauthorized", "", "no"); break;
    case HUB_GATED: answer_text(c, "403 Forbidden", "X-Error-Code: GatedRepo\r\n", "no"); break;
    case HUB_MISSING: answer_text(c, "404 Not Found", "X-Error-Code: RepoNotFound\r\n", "no"); break;
    case HUB_NO_REVISION: answer_text(c, "404 Not Found", "X-Error-Code: RevisionNotFound\r\n", "no"); break;
    case HUB_NOT_JSON: answer_text(c, "200 OK", "", "<html>portal</html>"); break;
    case HUB_LOOP:
        snprintf(headers, sizeof headers, "Location: %s\r\n", c->path);
        answer_text(c, "302 Found", headers, "");
        break;
    default: return false;
    }
    return true;
}

/* ---- files ---- */

typedef struct content {
    char *data;
    size_t size;
    char sha256[65], sha1[41]; /* sha1: of the git blob */
} content;

static void hexadecimal(const EVP_MD *kind, const char *head, size_t head_length, const content *f,
                        char *out) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length;
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    EVP_DigestInit_ex(sum, kind, NULL);
    EVP_DigestUpdate(sum, head, head_length);
    EVP_DigestUpdate(sum, f->data, f->size);
    EVP_DigestFinal_ex(sum, digest, &length);
    EVP_MD_CTX_free(sum);
    for (unsigned int i = 0; i < length; i++) sprintf(out + 2 * i, "%02x", digest[i]);
}

static bool read_content(const hub_server *s, const char *name, content *out) {
    char path[8192], head[64];
    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    struct stat info;
    fstat(fileno(f), &info);
    out->size = (size_t)info.st_size;
    out->data = calloc(out->size + 2, 1); /* HUB_LONG sends one byte more */
    require(fread(out->data, 1, out->size, f) == out->size, path);
    fclose(f);
    hexadecimal(EVP_sha256(), "", 0, out, out->sha256);
    hexadecimal(EVP_sha1(), head, (size_t)sprintf(head, "blob %zu", out->size) + 1, out, out->sha1);
    return true;
}

static bool is_lfs(const char *name) {
    const char *end = strrchr(name, '.');
    return end && strcmp(end, ".safetensors") == 0;
}

static void answer_list(const connection *c) {
    json_t *list = json_array();
    DIR *folder = opendir(c->server->folder);
    require(folder, c->server->folder);
    for (struct dirent *e; (e = readdir(folder));) {
        content f;
        if (e->d_name[0] == '.' || !read_content(c->server, e->d_name, &f)) continue;
        bool bad = c->fault == HUB_HOSTILE_SUM;
        json_t *entry = json_pack("{s:s, s:s, s:I}", "rfilename", e->d_name, "blobId",
                                  bad ? "../../../x" : f.sha1, "size", (json_int_t)f.size);
        if (is_lfs(e->d_name))
            json_object_set_new(entry, "lfs",
                                json_pack("{s:s, s:I, s:i}", "sha256", f.sha256, "size", (json_int_t)f.size,
                                          "pointerSize", 130));
        json_array_append_new(list, entry);
        free(f.data);
    }
    closedir(folder);
    if (c->fault == HUB_HOSTILE_NAME)
        json_array_append_new(list, json_pack("{s:s, s:s, s:i}", "rfilename", "a/../../x.json", "blobId",
                                              HUB_SERVER_COMMIT, "size", 1));
    answer_json(c,
                json_pack("{s:s, s:s, s:o}", "id", "org/tiny", "sha", HUB_SERVER_COMMIT, "siblings", list));
}

/* Sends the part of a file that the header Range asks for. */
static void answer_content(const connection *c, content *f, const char *headers) {
    char all[1600];
    unsigned long long from = 0;
    const char *range = strstr(c->head, "\nRange: bytes=");
    bool part = range && sscanf(range + 14, "%llu-", &from) == 1 && c->fault != HUB_NO_RANGE;
    if (!part) from = 0;
    if (part && from >= f->size) {
        answer_text(c, "416 Range Not Satisfiable", "", "");
        return;
    }
    if (part && c->fault == HUB_WRONG_PART) from /= 2;
    if (c->fault == HUB_WRONG_BYTES) f->data[from] ^= 1;
    size_t size = f->size - from;
    if (c->fault == HUB_SHORT) size--;
    if (c->fault == HUB_LONG) size++;
    snprintf(all, sizeof all, "%s", headers);
    if (part)
        snprintf(all + strlen(all), sizeof all - strlen(all), "Content-Range: bytes %llu-%zu/%zu\r\n", from,
                 f->size - 1, f->size);
    answer(c, part ? "206 Partial Content" : "200 OK", all, f->data + from, size);
}

static void answer_file(const connection *c, const char *name) {
    char headers[1400];
    content f;
    if (!read_content(c->server, name, &f)) {
        answer_text(c, "404 Not Found", "X-Error-Code: EntryNotFound\r\n", "no");
        return;
    }
    if (c->content) {
        snprintf(headers, sizeof headers, "ETag: \"%s\"\r\n", f.sha256);
        answer_content(c, &f, headers);
    } else if (is_lfs(name)) {
        snprintf(headers, sizeof headers,
                 "X-Repo-Commit: %s\r\nX-Linked-Etag: \"%s\"\r\nX-Linked-Size: %zu\r\n"
                 "Location: http://localhost:%d/content/%s\r\n",
                 HUB_SERVER_COMMIT, f.sha256, f.size, c->server->ports[1], name);
        answer_text(c, "302 Found", headers, "");
    } else {
        snprintf(headers, sizeof headers, "X-Repo-Commit: %s\r\nETag: \"%s\"\r\n", HUB_SERVER_COMMIT, f.sha1);
        answer_content(c, &f, headers);
    }
    free(f.data);
}

/* ---- rows ---- */

static void answer_rows(const connection *c) {
    json_t *rows = json_array();
    FILE *f = fopen(c->server->rows, "r");
    char *line = NULL;
    size_t capacity = 0;
    const char *at = strstr(c->path, "offset=");
    long offset = at ? atol(at + 7) : 0, total = 0;
    require(f, c->server->rows);
    for (; getline(&line, &capacity, f) > 0; total++) {
        if (total < offset || total >= offset + 100) continue;
        json_t *shortened = json_array();
        if (c->fault == HUB_TRUNCATED_CELL) json_array_append_new(shortened, json_string("text"));
        json_array_append_new(rows, json_pack("{s:i, s:o, s:o}", "row_idx", (int)total, "row",
                                              json_loads(line, 0, NULL), "truncated_cells", shortened));
    }
    free(line);
    fclose(f);
    if (c->fault == HUB_LONG_TOTAL) total++;
    answer_json(c, json_pack("{s:o, s:i, s:b}", "rows", rows, "num_rows_total", (int)total, "partial", 0));
}

static void answer_splits(const connection *c) {
    json_t *list = json_array();
    static const char *const names[][2] = {
        {"default", "train"}, {"default", "validation"}, {"small", "train"}};
    for (int i = 0; i < 3; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "dataset", "org/rows", "config", names[i][0],
                                              "split", names[i][1]));
    answer_json(c, json_pack("{s:o}", "splits", list));
}

/* ---- requests ---- */

static void answer_request(const connection *c) {
    static const char list[] = "/api/models/org/tiny/revision/";
    static const char file[] = "/org/tiny/resolve/";
    const char *commit = strlen(c->path) > sizeof file ? c->path + sizeof file - 1 : "";
    if (answer_fault(c)) return;
    if (c->content && strncmp(c->path, "/content/", 9) == 0)
        answer_file(c, c->path + 9);
    else if (strncmp(c->path, list, sizeof list - 1) == 0)
        answer_list(c);
    else if (strncmp(c->path, file, sizeof file - 1) == 0 && strchr(commit, '/'))
        answer_file(c, strchr(commit, '/') + 1);
    else if (strstr(c->head, "Host: datasets-server.") && strstr(c->path, "dataset=org%2Frows"))
        strncmp(c->path, "/splits", 7) == 0 ? answer_splits(c) : answer_rows(c);
    else
        answer_text(c, "404 Not Found", "X-Error-Code: RepoNotFound\r\n", "no");
}

static bool read_head(connection *c) {
    size_t length = 0;
    while (!strstr(c->head, "\r\n\r\n")) {
        ssize_t got = recv(c->socket, c->head + length, sizeof c->head - 1 - length, 0);
        if (got <= 0) return false;
        length += (size_t)got;
    }
    return sscanf(c->head, "%*s %1023s", c->path) == 1;
}

static void take_fault(connection *c) {
    hub_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    if (s->head_count < HEADS) s->heads[s->head_count++] = strdup(c->head);
    if (s->times > 0 && strstr(c->path, s->part)) {
        s->times--;
        c->fault = s->fault;
    }
    pthread_mutex_unlock(&s->lock);
}

static void *serve(void *user) {
    connection *c = user;
    hub_server *s = c->server;
    if (read_head(c)) {
        take_fault(c);
        answer_request(c);
    }
    shutdown(c->socket, SHUT_WR);
    close(c->socket);
    free(c);
    pthread_mutex_lock(&s->lock);
    s->active--;
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void accept_one(hub_server *s, int which) {
    pthread_t thread;
    connection *c = calloc(1, sizeof *c);
    require(c, "calloc");
    *c = (connection){.server = s, .content = which == 1, .socket = accept(s->sockets[which], NULL, NULL)};
    pthread_mutex_lock(&s->lock);
    s->active++;
    pthread_mutex_unlock(&s->lock);
    require(pthread_create(&thread, NULL, serve, c) == 0, "pthread_create");
    pthread_detach(thread);
}

static void *accept_all(void *user) {
    hub_server *s = user;
    while (!s->ends) {
        struct pollfd ready[2] = {{.fd = s->sockets[0], .events = POLLIN},
                                  {.fd = s->sockets[1], .events = POLLIN}};
        if (poll(ready, 2, 20) <= 0) continue;
        for (int i = 0; i < 2; i++)
            if (ready[i].revents & POLLIN) accept_one(s, i);
    }
    return NULL;
}

static void listen_on_loopback(int *descriptor, int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    *descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(*descriptor >= 0 && bind(*descriptor, (struct sockaddr *)&address, length) == 0, "bind");
    require(listen(*descriptor, 64) == 0, "listen");
    require(getsockname(*descriptor, (struct sockaddr *)&address, &length) == 0, "getsockname");
    *port = ntohs(address.sin_port);
}

hub_server *hub_server_open(const char *folder, const char *rows) {
    hub_server *s = calloc(1, sizeof *s);
    require(s, "calloc");
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    snprintf(s->rows, sizeof s->rows, "%s", rows ? rows : "");
    pthread_mutex_init(&s->lock, NULL);
    for (int i = 0; i < 2; i++) listen_on_loopback(&s->sockets[i], &s->ports[i]);
    snprintf(s->address, sizeof s->address, "http://localhost:%d", s->ports[0]);
    require(pthread_create(&s->thread, NULL, accept_all, s) == 0, "pthread_create");
    return s;
}

void hub_server_close(hub_server *s) {
    s->ends = true;
    pthread_join(s->thread, NULL);
    for (bool waits = true; waits; usleep(1000)) {
        pthread_mutex_lock(&s->lock);
        waits = s->active > 0;
        pthread_mutex_unlock(&s->lock);
    }
    for (int i = 0; i < 2; i++) close(s->sockets[i]);
    for (int i = 0; i < s->head_count; i++) free(s->heads[i]);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

const char *hub_server_address(const hub_server *s) {
    return s->address;
}

void hub_server_fail(hub_server *s, hub_fault fault, int times, const char *part) {
    pthread_mutex_lock(&s->lock);
    s->fault = fault;
    s->times = times;
    snprintf(s->part, sizeof s->part, "%s", part);
    pthread_mutex_unlock(&s->lock);
}

int hub_server_count(hub_server *s, const char *part, const char *other) {
    int count = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->head_count; i++) count += strstr(s->heads[i], part) && strstr(s->heads[i], other);
    pthread_mutex_unlock(&s->lock);
    return count;
}
