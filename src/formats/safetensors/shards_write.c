/* formats/safetensors/shards_write: the writer. Before it writes the first byte, it decides which file gets
   which tensor, as transformers does. One file is open at a time. */
#include "formats/safetensors/shards.h"
#include "base/arena.h"
#include "base/file/file.h"
#include "base/text/str.h"
#include "fp8/cast.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct shard_part {
    const char *name, *path; /* file name; path with the folder */
    int64_t first, count;    /* tensors of the file: declared[first, first + count) */
} shard_part;

typedef struct tensor_file {
    const char *name;
    int64_t part;
} tensor_file;

struct shards_writer {
    mem *account;
    arena *texts;
    const char *folder;
    safetensors_tensor *declared; /* [count], grouped by part; names are copies */
    int64_t *index;               /* [count]: declared[i] is the caller's tensors[index[i]] */
    tensor_file *by_name;         /* [count], sorted by name */
    int64_t count, total;         /* number of tensors; bytes of all tensors */
    shard_part *parts;            /* [part_count] files */
    int64_t part_count, current;  /* files before `current` are complete */
    safetensors_pair *metadata;
    int64_t metadata_count;
    int rank, size;           /* this process, and the number of processes that write together */
    safetensors_writer *file; /* writer of parts[current]; NULL if no file is open */
};

/* ---- assignment to files ---- */

static int64_t data_bytes(const safetensors_tensor *t) {
    int64_t bytes = dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] < 0 || __builtin_mul_overflow(bytes, t->shape[i], &bytes)) return -1;
    return bytes;
}

/* Finds errors that safetensors_writer_open would only find after earlier files of the folder are written. */
static ott_status check_declared(shards_writer *w, const safetensors_tensor *tensors, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const safetensors_tensor *t = &tensors[i];
        bool known = (unsigned)t->dtype < OTT_DTYPE_COUNT && t->rank >= 0 && t->rank <= SAFETENSORS_MAX_RANK;
        if (!known || data_bytes(t) < 0 || __builtin_add_overflow(w->total, data_bytes(t), &w->total))
            return status_fail(OTT_ERR_ARGUMENT,
                               "%s: tensor '%s': no safetensors file can hold its format or shape", w->folder,
                               t->name);
    }
    return OTT_OK;
}

/* Splits tensors as transformers does. A tensor larger than a shard gets its own shard. Others fill a shard
   until the next would exceed its size; then the shard gets a number. part[i] = tensor i's shard. */
static void split_tensors(shards_writer *w, const safetensors_tensor *tensors, int64_t count,
                          int64_t max_bytes, int64_t *part) {
    int64_t held = 0, first_held = 0;
    enum { OPEN = -1 }; /* tensors in the current shard, which has no number yet */
    for (int64_t i = 0; i <= count; i++) {
        int64_t bytes = i < count ? data_bytes(&tensors[i]) : 0;
        if (i < count && bytes > max_bytes) {
            part[i] = w->part_count++;
            continue;
        }
        if (i == count || bytes > max_bytes - held) {
            int64_t closed = 0;
            for (int64_t j = first_held; j < i; j++)
                if (part[j] == OPEN) {
                    part[j] = w->part_count;
                    closed++;
                }
            w->part_count += closed > 0;
            held = 0;
            first_held = i;
        }
        if (i < count) part[i] = OPEN;
        held += bytes;
    }
    if (w->part_count == 0) w->part_count = 1; /* a model without tensors is one file */
}

/* Copies the declared tensors, grouped by part. */
static ott_status group_tensors(shards_writer *w, const safetensors_tensor *tensors, int64_t count,
                                const int64_t *part) {
    for (int64_t i = 0; i < count; i++) w->parts[part[i]].count++;
    for (int64_t p = 1; p < w->part_count; p++)
        w->parts[p].first = w->parts[p - 1].first + w->parts[p - 1].count;
    for (int64_t p = 0; p < w->part_count; p++) w->parts[p].count = 0;
    for (w->count = 0; w->count < count; w->count++) {
        int64_t i = w->count;
        shard_part *to = &w->parts[part[i]];
        int64_t at = to->first + to->count++;
        w->declared[at] = tensors[i];
        w->index[at] = i;
        TRY(arena_strdup(w->texts, tensors[i].name, &w->declared[at].name));
        w->by_name[i] = (tensor_file){w->declared[at].name, part[i]};
    }
    return OTT_OK;
}

static int compare_tensor_names(const void *a, const void *b) {
    return strcmp(((const tensor_file *)a)->name, ((const tensor_file *)b)->name);
}

static ott_status allocate_array(shards_writer *w, int64_t count, int64_t size, void *out) {
    /* cannot overflow: the caller's array of count tensors exists */
    return (arena_alloc)(w->texts, count * size, out);
}

static ott_status declare_shards(shards_writer *w, const safetensors_tensor *tensors, int64_t count,
                                 int64_t max_bytes) {
    int64_t *part;
    TRY(check_declared(w, tensors, count));
    TRY(allocate_array(w, count, sizeof *w->declared, &w->declared));
    TRY(allocate_array(w, count, sizeof *w->index, &w->index));
    TRY(allocate_array(w, count, sizeof *w->by_name, &w->by_name));
    TRY(allocate_array(w, count, sizeof(int64_t), &part));
    split_tensors(w, tensors, count, max_bytes, part);
    TRY(allocate_array(w, w->part_count, sizeof *w->parts, &w->parts));
    TRY(group_tensors(w, tensors, count, part));
    qsort(w->by_name, (size_t)count, sizeof *w->by_name, compare_tensor_names);
    for (int64_t i = 1; i < count; i++)
        if (compare_tensor_names(&w->by_name[i - 1], &w->by_name[i]) == 0)
            return status_fail(OTT_ERR_ARGUMENT, "%s: two tensors are named '%s'", w->folder,
                               w->by_name[i].name);
    return OTT_OK;
}

static ott_status name_parts(shards_writer *w) {
    const char *slash = str_ends_with(w->folder, "/") ? "" : "/";
    for (int64_t i = 0; i < w->part_count; i++) {
        shard_part *p = &w->parts[i];
        if (w->part_count == 1)
            p->name = SHARDS_SINGLE_NAME;
        else
            TRY(arena_printf(w->texts, &p->name, "model-%05" PRId64 "-of-%05" PRId64 ".safetensors", i + 1,
                             w->part_count));
        TRY(arena_printf(w->texts, &p->path, "%s%s%s", w->folder, slash, p->name));
    }
    return OTT_OK;
}

/* ---- opening ---- */

static ott_status refuse_weights(const shards_writer *w) {
    file_list names;
    ott_status status = OTT_OK;
    TRY(file_list_folder(w->account, w->folder, &names));
    for (int64_t i = 0; status == OTT_OK && i < names.count; i++)
        if (str_glob("model*.safetensors", names.names[i]) || strcmp(names.names[i], SHARDS_INDEX_NAME) == 0)
            status = status_fail(OTT_ERR_ARGUMENT,
                                 "%s: already holds weights (%s): choose another folder or remove "
                                 "them",
                                 w->folder, names.names[i]);
    file_list_free(&names);
    return status;
}

/* Opens files until one needs data. Commits files that need none, because all their tensors are empty. */
static ott_status open_next_files(shards_writer *w) {
    while (w->current < w->part_count) {
        const shard_part *part = &w->parts[w->current];
        if (!w->file)
            TRY(safetensors_writer_join(w->account, part->path, w->declared + part->first, part->count,
                                        w->metadata, w->metadata_count, w->rank, w->size, &w->file));
        if (safetensors_writer_next(w->file) >= 0 || w->current == w->part_count - 1)
            return OTT_OK; /* the last file is committed with the index */
        ott_status status = safetensors_writer_commit(w->file);
        w->file = NULL;
        TRY(status);
        w->current++;
    }
    return OTT_OK;
}

static ott_status open_shard(shards_writer *w, const char *folder, const safetensors_tensor *tensors,
                             int64_t count, int64_t max_bytes, const safetensors_pair *metadata,
                             int64_t metadata_count) {
    TRY(arena_open(w->account, MEM_OTHER, &w->texts));
    TRY(arena_strdup(w->texts, folder, &w->folder));
    if (max_bytes < 0)
        return status_fail(OTT_ERR_ARGUMENT, "%s: shards of %" PRId64 " bytes are not possible", folder,
                           max_bytes);
    TRY(declare_shards(w, tensors, count, max_bytes > 0 ? max_bytes : SHARDS_DEFAULT_BYTES));
    TRY(arena_alloc(w->texts, metadata_count * (int64_t)sizeof *metadata, &w->metadata));
    w->metadata_count = metadata_count;
    for (int64_t i = 0; i < metadata_count; i++) {
        TRY(arena_strdup(w->texts, metadata[i].key, &w->metadata[i].key));
        TRY(arena_strdup(w->texts, metadata[i].value, &w->metadata[i].value));
    }
    TRY(name_parts(w));
    if (w->rank == 0) {
        TRY(file_make_folder(folder));
        TRY(refuse_weights(w));
    }
    return open_next_files(w);
}

ott_status shards_writer_join(mem *account, const char *folder, const safetensors_tensor *tensors,
                              int64_t count, int64_t max_bytes, const safetensors_pair *metadata,
                              int64_t metadata_count, int rank, int size, shards_writer **out) {
    shards_writer *w;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(shards_writer), "a writer of shards", &w));
    *w = (shards_writer){.account = account, .rank = rank, .size = size};
    ott_status status = open_shard(w, folder, tensors, count, max_bytes, metadata, metadata_count);
    if (status == OTT_OK)
        *out = w;
    else
        shards_writer_abandon(w);
    return status;
}

ott_status shards_writer_open(mem *account, const char *folder, const safetensors_tensor *tensors,
                              int64_t count, int64_t max_bytes, const safetensors_pair *metadata,
                              int64_t metadata_count, shards_writer **out) {
    return shards_writer_join(account, folder, tensors, count, max_bytes, metadata, metadata_count, 0, 1,
                              out);
}

/* ---- data ---- */

int64_t shards_writer_next(const shards_writer *w) {
    if (!w->file) return -1;
    int64_t next = safetensors_writer_next(w->file);
    return next < 0 ? -1 : w->index[w->parts[w->current].first + next];
}

ott_status shards_writer_append(shards_writer *w, const void *data, int64_t bytes) {
    if (!w->file) return status_fail(OTT_ERR_ARGUMENT, "%s: an earlier write failed", w->folder);
    TRY(safetensors_writer_append(w->file, data, bytes));
    return open_next_files(w);
}

ott_status shards_writer_skip(shards_writer *w, int64_t bytes) {
    if (!w->file) return status_fail(OTT_ERR_ARGUMENT, "%s: an earlier write failed", w->folder);
    TRY(safetensors_writer_skip(w->file, bytes));
    return open_next_files(w);
}

/* The tensor that the next byte belongs to; NULL if none. */
static const safetensors_tensor *next_tensor(const shards_writer *w) {
    int64_t next = w->file ? safetensors_writer_next(w->file) : -1;
    return next < 0 ? NULL : &w->declared[w->parts[w->current].first + next];
}

ott_status shards_writer_append_floats(shards_writer *w, const float *values, int64_t count) {
    enum { PIECE = 2048 };
    _Alignas(8) char piece[PIECE * 4];
    const safetensors_tensor *t = next_tensor(w);
    if (!t || t->dtype == OTT_F32) return shards_writer_append(w, values, 4 * count);
    if (!dtype_is_high_precision(t->dtype))
        return status_fail(OTT_ERR_DTYPE, "%s: tensor '%s' is %s: its codes are needed, not floats",
                           w->folder, t->name, dtype_safetensors_name(t->dtype));
    for (int64_t at = 0, n; at < count; at += n) {
        n = count - at < PIECE ? count - at : PIECE;
        for (int64_t i = 0; i < n; i++) cast_store(piece, t->dtype, i, values[at + i]);
        if (next_tensor(w) != t)
            return status_fail(OTT_ERR_ARGUMENT, "%s: tensor '%s' has fewer elements than were passed",
                               w->folder, t->name);
        TRY(shards_writer_append(w, piece, n * dtype_bytes(t->dtype)));
    }
    return OTT_OK;
}

/* ---- closing ---- */

/* Formats the index as transformers does: indented by two, names sorted. */
static void append_index(const shards_writer *w, str *s) {
    str_printf(s, "{\n  \"metadata\": {\n    \"total_size\": %" PRId64 "\n  },\n  \"weight_map\": {",
               w->total);
    for (int64_t i = 0; i < w->count; i++) {
        const tensor_file *place = &w->by_name[i];
        str_append(s, i ? ",\n    " : "\n    ");
        str_append_json(s, place->name, (int64_t)strlen(place->name));
        str_printf(s, ": \"%s\"", w->parts[place->part].name);
    }
    str_append(s, "\n  }\n}\n");
}

static ott_status write_index(const shards_writer *w) {
    char path[PATH_MAX];
    str text = {.account = w->account};
    TRY(file_join(w->folder, SHARDS_INDEX_NAME, path));
    append_index(w, &text);
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = file_write_atomic(path, text.text, text.length);
    str_free(&text);
    return status;
}

static ott_status finish_shards(shards_writer *w) {
    const safetensors_tensor *t = next_tensor(w);
    if (!w->file) return status_fail(OTT_ERR_ARGUMENT, "%s: an earlier write failed", w->folder);
    if (t)
        return status_fail(OTT_ERR_ARGUMENT, "%s: tensor '%s' and later tensors lack data: incomplete",
                           w->folder, t->name);
    ott_status status = safetensors_writer_commit(w->file);
    w->file = NULL;
    TRY(status);
    w->current++;
    return w->part_count > 1 && w->rank == 0 ? write_index(w) : OTT_OK;
}

static void free_shards(shards_writer *w) {
    if (w->texts) arena_close(w->texts);
    mem_free(w->account, w);
}

ott_status shards_writer_commit(shards_writer *w) {
    ott_status status = finish_shards(w);
    if (status == OTT_OK)
        free_shards(w);
    else
        shards_writer_abandon(w);
    return status;
}

/* Deletes the files that this writer made. If several processes write, these include the current file, which
   already has its final name. */
void shards_writer_abandon(shards_writer *w) {
    if (!w) return;
    int64_t made = w->current + (w->file && w->size > 1);
    safetensors_writer_abandon(w->file);
    for (int64_t i = 0; i < made && w->rank == 0; i++) (void)unlink(w->parts[i].path);
    free_shards(w);
}
