/* hub/rows: downloads the rows of a dataset through the hub's rows interface.
   Source: https://huggingface.co/docs/dataset-viewer/rows */
#include "base/file/file.h"
#include "base/json/json_member.h"
#include "hub/client.h"
#include <stdlib.h>
#include <string.h>

enum { PAGE = 100 }; /* most rows of one answer */

typedef struct rows {
    mem *account;
    hub_client *client;
    const char *dataset, *config, *split;
    json_t *names; /* the answer with the names of configurations and splits */
    int64_t done, total;
} rows;

/* Reads the answer to /splits, or to /rows. The address of the rows interface is the hub's, with
   "datasets-server." after "://", as in the library `datasets`. */
static ott_status ask(rows *r, bool for_rows, json_t **out) {
    const char *hub = hub_client_endpoint(r->client), *host = strstr(hub, "://");
    int scheme = host ? (int)(host + 3 - hub) : 0;
    str url = {.account = r->account};
    str_printf(&url, "%.*sdatasets-server.%s/%s?dataset=", scheme, hub, hub + scheme,
               for_rows ? "rows" : "splits");
    hub_client_escape(&url, r->dataset, false);
    if (for_rows) {
        str_append(&url, "&config=");
        hub_client_escape(&url, r->config, false);
        str_append(&url, "&split=");
        hub_client_escape(&url, r->split, false);
        str_printf(&url, "&offset=%lld&length=%d", (long long)r->done, PAGE);
    }
    ott_status status = str_finish(&url);
    if (status == OTT_OK) status = hub_client_json(r->client, url.text, out);
    str_free(&url);
    return status;
}

/* Checks that the dataset has the split, and chooses its configuration. */
static ott_status choose(rows *r) {
    const json_t *splits, *entry;
    const char *found = NULL;
    str names = {.account = r->account};
    int count = 0;
    size_t i;
    TRY(ask(r, false, &r->names));
    TRY(status_context(json_member(r->names, "splits", JSON_KIND_LIST, JSON_NEEDED, &splits), "%s",
                       r->dataset));
    json_array_foreach(splits, i, entry) {
        const char *config = json_string_value(json_object_get(entry, "config"));
        const char *split = json_string_value(json_object_get(entry, "split"));
        if (!config || !split) continue;
        str_printf(&names, "; --config %s --split %s", str_show(config).text, str_show(split).text);
        if (strcmp(split, r->split) != 0 || (r->config && strcmp(config, r->config) != 0)) continue;
        if (!found || strcmp(config, "default") == 0) found = config;
        count++;
    }
    ott_status status = str_finish(&names);
    if (status == OTT_OK && count != 1 && !(found && strcmp(found, "default") == 0))
        status = status_fail(OTT_ERR_NOT_FOUND, "%s: give one of its splits%s", r->dataset,
                             names.text ? names.text : " (it has none)");
    r->config = found;
    str_free(&names);
    return status;
}

static ott_status write_row(rows *r, const json_t *entry, file_writer *w) {
    const json_t *row, *shortened;
    int64_t index;
    TRY(json_member_integer(entry, "row_idx", JSON_NEEDED, r->done, r->done, &index));
    TRY(json_member(entry, "row", JSON_KIND_OBJECT, JSON_NEEDED, &row));
    TRY(json_member(entry, "truncated_cells", JSON_KIND_LIST, JSON_OPTIONAL, &shortened));
    if (json_array_size(shortened) > 0)
        return status_fail(OTT_ERR_UNSUPPORTED, "row %lld is too large: download the dataset's files instead",
                           (long long)index);
    char *text = json_dumps(row, JSON_COMPACT);
    if (!text) return status_fail(OTT_ERR_MEMORY, "out of memory: a row");
    ott_status status = file_writer_append(w, text, (int64_t)strlen(text));
    free(text);
    r->done++;
    return status == OTT_OK ? file_writer_append(w, "\n", 1) : status;
}

static ott_status write_page(rows *r, const json_t *page, file_writer *w) {
    const json_t *list, *entry;
    int64_t total;
    size_t i;
    bool partial;
    TRY(json_member_integer(page, "num_rows_total", JSON_NEEDED, 0, INT64_C(1) << 48, &total));
    TRY(json_member_bool(page, "partial", false, &partial));
    TRY(json_member(page, "rows", JSON_KIND_LIST, JSON_NEEDED, &list));
    if (r->total >= 0 && total != r->total)
        return status_fail(OTT_ERR_IO, "the dataset changed during the download: start again");
    if (partial)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "the hub offers only the first %lld rows: download the dataset's files instead",
                           (long long)total);
    if (r->total < 0) hub_client_expect(r->client, total);
    r->total = total;
    int64_t count = (int64_t)json_array_size(list);
    if ((count == 0 && r->done < total) || count > total - r->done)
        return status_fail(OTT_ERR_FORMAT, "the hub sent %lld rows instead of %lld",
                           (long long)(r->done + count), (long long)total);
    json_array_foreach(list, i, entry) TRY(write_row(r, entry, w));
    hub_client_add(r->client, "rows", count);
    return OTT_OK;
}

static ott_status fetch_page(rows *r, file_writer *w) {
    json_t *page;
    TRY(ask(r, true, &page));
    ott_status status = write_page(r, page, w);
    json_decref(page);
    return status == OTT_OK ? OTT_OK : status_context(status, "%s", r->dataset);
}

static ott_status fetch_rows(rows *r, const char *path) {
    file_writer *w = NULL;
    TRY(choose(r));
    TRY(file_writer_open_output(r->account, path, &w));
    ott_status status;
    do status = fetch_page(r, w);
    while (status == OTT_OK && r->done < r->total);
    if (status == OTT_OK) return file_writer_commit(w);
    file_writer_abandon(w);
    return status;
}

ott_status hub_pull_rows(const hub_caller *caller, const char *dataset, const char *config, const char *split,
                         const char *path) {
    rows r = {.dataset = dataset, .config = config, .split = split, .total = -1};
    TRY(mem_open(&r.account));
    ott_status status = hub_client_open(r.account, caller, "dataset", dataset, &r.client);
    if (status == OTT_OK) status = fetch_rows(&r, path);
    hub_client_close(r.client);
    json_decref(r.names);
    mem_close(r.account);
    return status;
}
