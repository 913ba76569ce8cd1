/* data/tokenize_file: tokenizes a corpus into a token file. The file is read in rounds. The threads share a
   round's documents; each thread has complete documents and its own ids, which are written in file order. So
   the result does not depend on the number of threads, and memory holds one round instead of the file. */
#include "base/clock.h"
#include "base/file/file.h"
#include "base/json/json_member.h"
#include "base/json/json_text.h"
#include "base/pool.h"
#include "data/dataset_internal.h"
#include "data/ends.h"
#include "data/jsonl/row_text.h"
#include "data/text_file/text_file.h"
#include "data/tokenize.h"
#include "formats/token_writer.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define ROUND (INT64_C(4) << 20) /* bytes of text that a round reads per thread */

typedef struct document {
    int64_t begin, bytes; /* range of the document in the round's text */
} document;

/* The documents that one thread tokenizes in a round, and their tokens. */
typedef struct share {
    tokenizer_scratch *scratch;
    tokenizer_ids ids;
    int64_t documents; /* number of documents with text */
    ott_status status;
    int64_t failed;   /* index of the document with an error */
    char reason[480]; /* text of the error */
} share;

typedef struct corpus_job {
    mem *account;
    const ott_tokenize_options *options;
    const cancellation *cancellation;
    const char *input;
    tokenizer *tokenizer;
    int32_t bos, eos; /* tokens added to each document; -1: none */
    bool rows;        /* true for JSONL or an array of rows */
    bool opened;      /* true after reading the first round */
    data_rows array;  /* position in the array; .array is false for JSONL */
    const char *separator;
    int64_t separator_bytes; /* length of `separator`; 0: the file is one document */
    pool *pool;
    share *shares; /* [threads] one share per thread */
    int threads;
    text_file *file;
    bool all; /* the end of the file is in `text` */
    token_writer *writer;
    char *text;             /* [capacity]: text that is read but not yet written as tokens */
    int64_t held, capacity; /* held: bytes used in `text` */
    int64_t read_bytes;     /* bytes of text read so far */
    document *documents;
    int64_t count, documents_capacity;
    int64_t before; /* number of lines or documents in earlier rounds */
    double started;
    ott_tokenize_result result;
} corpus_job;

/* ---- one document, on any thread ---- */

static ott_status append_mark(tokenizer_ids *ids, int32_t id) {
    return id < 0 ? OTT_OK : tokenizer_ids_append(ids, id);
}

static ott_status tokenize_document(const corpus_job *j, share *s, const char *text, int64_t bytes) {
    if (bytes == 0) return OTT_OK;
    TRY(append_mark(&s->ids, j->bos));
    TRY(tokenizer_encode(j->tokenizer, s->scratch, text, bytes, 0, &s->ids));
    s->documents++;
    return append_mark(&s->ids, j->eos);
}

static ott_status add_jsonl_row(const corpus_job *j, share *s, const char *line, int64_t bytes) {
    json_t *row;
    const json_t *text;
    if (json_text_is_blank(line, bytes)) return OTT_OK;
    TRY(data_row_object((text_view){line, bytes}, "row", &row));
    ott_status status = json_row_text(row, j->options->text_field, &text);
    if (status == OTT_OK)
        status = tokenize_document(j, s, json_string_value(text), (int64_t)json_string_length(text));
    json_decref(row);
    return status;
}

/* Returns the first document of a thread's share of the bytes. */
static int64_t first_of(const corpus_job *j, int thread) {
    if (thread == 0 || j->count == 0) return 0;
    const document *last = &j->documents[j->count - 1];
    int64_t mark = (last->begin + last->bytes) / j->threads * thread;
    return dataset_lower_bound(&j->documents->begin, sizeof *j->documents, j->count, mark);
}

static void tokenize_share(void *argument, int thread, int threads) {
    const corpus_job *j = argument;
    share *s = &j->shares[thread];
    int64_t end = thread + 1 < threads ? first_of(j, thread + 1) : j->count;
    s->ids.count = s->documents = 0;
    s->status = OTT_OK;
    for (int64_t i = first_of(j, thread); i < end && s->status == OTT_OK; i++) {
        const document *d = &j->documents[i];
        s->failed = i;
        s->status = j->rows ? add_jsonl_row(j, s, j->text + d->begin, d->bytes)
                            : tokenize_document(j, s, j->text + d->begin, d->bytes);
    }
    if (s->status != OTT_OK) snprintf(s->reason, sizeof s->reason, "%s", status_text());
}

/* ---- a round ---- */

static ott_status note_document(corpus_job *j, int64_t begin, int64_t end) {
    TRY(mem_reserve(j->account, MEM_DATA, j->count + 1, "documents", &j->documents_capacity, &j->documents));
    j->documents[j->count++] = (document){.begin = begin, .bytes = end - begin};
    return OTT_OK;
}

/* Lists the complete elements of the array. An incomplete element is read again with more text. */
static ott_status split_array(corpus_job *j, bool all, int64_t *used) {
    text_view row;
    j->count = 0;
    j->array.at = j->text;
    j->array.end = j->text + j->held;
    for (;;) {
        const data_rows before = j->array;
        ott_status status = data_rows_next(&j->array, &row);
        if (!all && (status != OTT_OK || !row.at)) {
            j->array = before;
            break;
        }
        if (status != OTT_OK) return status_context(status, "%s:%" PRId64, j->input, j->array.line);
        if (!row.at) break;
        TRY(note_document(j, row.at - j->text, row.at + row.bytes - j->text));
    }
    *used = all ? j->held : j->array.at - j->text;
    return OTT_OK;
}

/* Lists the complete documents in the text. all: the file ends here, so the last document is complete. *used:
   number of bytes in these documents. */
static ott_status split_documents(corpus_job *j, bool all, int64_t *used) {
    const char *text = j->text, *stop;
    int64_t at = 0;
    j->count = 0;
    while (j->separator_bytes > 0 &&
           (stop = memmem(text + at, (size_t)(j->held - at), j->separator, (size_t)j->separator_bytes))) {
        TRY(note_document(j, at, stop - text));
        at = stop - text + j->separator_bytes;
    }
    if (all && at < j->held) TRY(note_document(j, at, j->held));
    *used = all ? j->held : at;
    return OTT_OK;
}

/* Returns the first failure in file order. */
static ott_status check_shares(const corpus_job *j) {
    for (int t = 0; t < j->threads; t++) {
        const share *s = &j->shares[t];
        if (s->status == OTT_OK) continue;
        if (s->status == OTT_ERR_STOPPED) return s->status;
        if (j->rows)
            return status_fail(s->status, "%s:%s%" PRId64 ": %s", j->input, j->array.array ? " row " : "",
                               j->before + s->failed + 1, s->reason);
        if (j->separator_bytes == 0) return status_fail(s->status, "%s: %s", j->input, s->reason);
        return status_fail(s->status, "%s: document %" PRId64 ": %s", j->input, j->before + s->failed + 1,
                           s->reason);
    }
    return OTT_OK;
}

static ott_status run_round(corpus_job *j) {
    pool_run(j->pool, tokenize_share, j);
    TRY(check_shares(j));
    for (int t = 0; t < j->threads; t++) {
        TRY(token_writer_append(j->writer, j->shares[t].ids.ids, j->shares[t].ids.count));
        j->result.documents += j->shares[t].documents;
    }
    j->before += j->count;
    return OTT_OK;
}

static void log_counts(const corpus_job *j) {
    double seconds = clock_seconds() - j->started;
    ott_work work = {.done = text_file_used(j->file), .total = text_file_size(j->file), .seconds_left = NAN};
    if (work.done > 0) work.seconds_left = seconds * (double)(work.total - work.done) / (double)work.done;
    if (j->options->progress) j->options->progress(j->options->user, &work);
}

/* ---- the file ---- */

/* Allocates the buffer. Enlarges it if an incomplete document fills it, so that more text can be read. */
static ott_status grow_text(corpus_job *j) {
    const bool plain = text_file_is_plain(j->file);
    int64_t left =
        text_file_size(j->file) - text_file_used(j->file); /* bytes of text, if the file is plain */
    int64_t first = plain && j->separator_bytes == 0 ? TOKENIZE_DOCUMENT_LIMIT + 1 : ROUND * j->threads;
    int64_t capacity = j->capacity ? j->capacity : first;
    if (plain && capacity > j->held + left) capacity = j->held + left + 1;
    while (capacity <= j->held) capacity *= 2;
    if (j->held > TOKENIZE_DOCUMENT_LIMIT)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "%s: a document has more than 1 GiB: set the text between documents with "
                           "--separator (separator in "
                           "ott_tokenize_options)",
                           j->input);
    if (capacity <= j->capacity) return OTT_OK;
    TRY(mem_grow(j->account, MEM_DATA, capacity, "text", &j->text));
    j->capacity = capacity;
    return OTT_OK;
}

static ott_status read_more(corpus_job *j) {
    int64_t bytes;
    TRY(grow_text(j));
    TRY(text_file_read(j->file, j->text + j->held, j->capacity - j->held, &bytes));
    j->read_bytes += bytes;
    j->held += bytes;
    j->all = j->held < j->capacity;
    return OTT_OK;
}

static ott_status run_rounds(corpus_job *j) {
    while (!j->all || j->held > 0) {
        int64_t used = 0;
        TRY(cancellation_check(j->cancellation));
        TRY(read_more(j));
        if (!j->opened && j->rows) j->array = data_rows_begin(j->text, j->held);
        j->opened = true;
        TRY(j->array.array ? split_array(j, j->all, &used) : split_documents(j, j->all, &used));
        TRY(run_round(j));
        if (used > 0) memmove(j->text, j->text + used, (size_t)(j->held - used));
        j->held -= used;
        log_counts(j);
    }
    j->result.complete = 1;
    return OTT_OK;
}

static void close_job(corpus_job *j) {
    for (int t = 0; j->shares && t < j->threads; t++) {
        tokenizer_scratch_close(j->shares[t].scratch);
        tokenizer_ids_free(&j->shares[t].ids);
    }
    mem_free(j->account, j->shares);
    mem_free(j->account, j->documents);
    mem_free(j->account, j->text);
    if (j->pool) pool_close(j->pool);
    text_file_close(j->file);
    tokenizer_close(j->tokenizer);
}

/* Chooses the tokens to add to each document: BOS if transformers adds it, and EOS at the end. */
static void choose_marks(corpus_job *j) {
    const tokenizer *t = j->tokenizer;
    const logger *log = j->cancellation ? j->cancellation->log : NULL;
    j->bos = j->eos = -1;
    if (j->options->no_special) return;
    if (tokenizer_adds_bos(t)) j->bos = tokenizer_bos(t);
    j->eos = tokenizer_eos(t);
    ends_log(log, t, "document", j->bos, j->eos, "no_special leaves them out");
    if (j->bos >= 0) snprintf(j->result.begins, sizeof j->result.begins, "%s", tokenizer_token(t, j->bos));
    if (j->eos >= 0) snprintf(j->result.ends, sizeof j->result.ends, "%s", tokenizer_token(t, j->eos));
    if (j->bos < 0 && j->eos < 0)
        log_warning(log, "%s has no EOS: documents are not separated", tokenizer_path(t));
}

static ott_status open_job(corpus_job *j, const char *tokenizer_path, const char *output) {
    TRY(text_file_open(j->account, j->input, &j->file));
    if (text_file_size(j->file) == 0) return status_fail(OTT_ERR_FORMAT, "%s: is empty", j->input);
    TRY(file_check_output(output, j->input));
    TRY(file_refuse_gguf(j->input));
    TRY(tokenizer_open(j->account, tokenizer_path, &j->tokenizer));
    TRY(tokenizer_check_output(j->tokenizer, output));
    choose_marks(j);
    TRY(pool_open(j->account, j->options->threads, &j->pool));
    j->threads = pool_threads(j->pool);
    TRY(mem_alloc_array(j->account, MEM_OTHER, j->threads, sizeof *j->shares, "shares of the work",
                        &j->shares));
    for (int t = 0; t < j->threads; t++) {
        j->shares[t].ids.account = j->account;
        TRY(tokenizer_scratch_open(j->account, j->tokenizer, &j->shares[t].scratch));
        tokenizer_scratch_set_cancellation(j->shares[t].scratch, j->cancellation);
    }
    TRY(token_writer_open(j->account, output, &j->writer));
    j->started = clock_seconds();
    return OTT_OK;
}

/* Completes the output file, or removes it if canceled. */
static ott_status finish_corpus(corpus_job *j) {
    token_writer *w = j->writer;
    j->writer = NULL;
    j->result.tokens = token_writer_count(w);
    j->result.bytes = j->read_bytes;
    j->result.seconds = clock_seconds() - j->started;
    if (j->result.complete) return token_writer_commit(w);
    token_writer_abandon(w);
    return OTT_OK;
}

ott_status tokenize_file(mem *account, const cancellation *w, const char *tokenizer_path, const char *input,
                         const char *output, const ott_tokenize_options *o, ott_tokenize_result *result) {
    static const char *const rows[] = {".jsonl", ".json", ".ndjson", NULL};
    char name[PATH_MAX];
    corpus_job j = {.account = account,
                    .options = o,
                    .cancellation = w,
                    .input = input,
                    .rows = str_ends_with_any(text_file_plain_name(input, name), rows)};
    ott_status status;
    j.separator = j.rows ? "\n" : o->separator;
    j.separator_bytes = (int64_t)strlen(j.separator);
    TRY_OUT(open_job(&j, tokenizer_path, output));
    status = run_rounds(&j);
    if (status != OTT_ERR_STOPPED) TRY_OUT(status);
    if (j.result.complete && j.result.documents == 0)
        TRY_OUT(status_fail(OTT_ERR_FORMAT, "%s: has no document with text", j.input));
    TRY_OUT(finish_corpus(&j));
    *result = j.result;
out:
    token_writer_abandon(j.writer);
    close_job(&j);
    return status;
}
