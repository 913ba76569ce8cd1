/*
 * eval/hellaswag: finds which of four endings the model considers most likely.
 *
 * A row is encoded in two ways. In lm-eval's, context and " " + ending are encoded as one text. The ending
 * then begins after as many ids as the context alone has. In llm.c's, context and " " + ending are encoded
 * separately, without special tokens. One forward runs the four endings, as separate documents.
 */
#include "base/file/file.h"
#include "data/jsonl/row_text.h"
#include "eval/eval.h"
#include "eval/row.h"
#include <inttypes.h>

#define DATA_LIMIT (INT64_C(1) << 30) /* bytes of the largest file that is read */

/* A row as token ids, in one of two encodings. ids[e]: the context, then ending e. */
typedef struct encoding {
    tokenizer_ids ids[EVAL_ENDINGS];
    int64_t first[EVAL_ENDINGS]; /* index of the ending's first id */
} encoding;

typedef struct score {
    double loss;    /* sum of the losses of the ending's tokens */
    int64_t tokens; /* number of the ending's tokens */
} score;

enum { LM_EVAL, LLMC, KINDS }; /* the two encodings */

typedef struct hellaswag {
    eval_job *job;
    eval_batch batch;
    encoding encodings[KINDS];
    str text; /* the text to encode next */
    int64_t right, right_norm, right_llmc;
    double loss; /* sum of the losses of the right endings */
} hellaswag;

/* ---- ids ---- */

static ott_status encode_words(const hellaswag *h, unsigned flags, tokenizer_ids *ids) {
    TRY(str_finish(&h->text));
    return eval_encode(h->job->model, h->text.text ? h->text.text : "", h->text.length, flags, ids);
}

/* Encodes the context and ending i. In lm-eval's encoding, white space at the end of the context becomes part
   of the ending. */
static ott_status encode_ending(hellaswag *h, const eval_row *row, int kind, int i) {
    encoding *f = &h->encodings[kind];
    const bool apart = kind == LLMC;
    const unsigned flags = TOKENIZER_MATCH_SPECIAL | (apart ? 0 : TOKENIZER_ADD_SPECIAL);
    const text_view all = apart ? row->raw_context : row->context,
                    *ending = apart ? row->raw_ending : row->ending;
    const int64_t context = all.bytes - (apart ? 0 : text_spaces_at_end(all, true));
    f->ids[i].count = h->text.length = 0;
    str_append_bytes(&h->text, all.at, context);
    TRY(encode_words(h, flags, &f->ids[i]));
    f->first[i] = f->ids[i].count;
    if (apart)
        h->text.length = 0; /* the ending's ids are appended to the context's ids */
    else
        f->ids[i].count = 0; /* context and ending are encoded again, as one text */
    str_append_bytes(&h->text, all.at + context, all.bytes - context);
    str_append(&h->text, " ");
    str_append_bytes(&h->text, ending[i].at, ending[i].bytes);
    TRY(encode_words(h, flags, &f->ids[i]));
    if (f->first[i] < 1) return status_fail(OTT_ERR_FORMAT, "the context has no tokens");
    if (f->first[i] < f->ids[i].count) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "endings[%d] adds no token", i);
}

static bool same_encoding(const encoding *a, const encoding *b) {
    for (int i = 0; i < EVAL_ENDINGS; i++)
        if (a->first[i] != b->first[i] || a->ids[i].count != b->ids[i].count ||
            memcmp(a->ids[i].ids, b->ids[i].ids, (size_t)a->ids[i].count * sizeof(int32_t)) != 0)
            return false;
    return true;
}

/* ---- scores ---- */

/* Returns how many tokens an ending with its context is longer than the window; may be negative. */
static int64_t excess(const hellaswag *h, const encoding *f, int i) {
    return f->ids[i].count - 1 - h->job->model->window;
}

/* Adds a context and its ending to the batch. If they exceed the window, drops their first tokens. */
static ott_status add_ending(hellaswag *h, const encoding *f, int i) {
    int64_t window = h->job->model->window, count = f->ids[i].count, first = f->first[i],
            drop = excess(h, f, i);
    if (drop < 0) drop = 0;
    if (first - drop < 1)
        return status_fail(OTT_ERR_FORMAT,
                           "endings[%d] has %" PRId64 " tokens, more than the window of %" PRId64, i,
                           count - first, window);
    return eval_batch_add(&h->batch, f->ids[i].ids + drop, count - drop, first - drop);
}

static ott_status score_encoding(hellaswag *h, const encoding *f, score out[EVAL_ENDINGS]) {
    const eval_batch *b = &h->batch;
    eval_batch_clear(&h->batch);
    for (int i = 0; i < EVAL_ENDINGS; i++) TRY(add_ending(h, f, i));
    TRY(eval_forward(h->job->model, &h->batch, NULL));
    for (int i = 0; i < EVAL_ENDINGS; i++) {
        out[i] = (score){0};
        for (int64_t t = b->start[i]; t < b->start[i + 1]; t++)
            if (b->target[t] >= 0) out[i].loss += (double)b->loss[t], out[i].tokens++;
    }
    return OTT_OK;
}

/* Returns the index of the smallest value; of equal values the first. */
static int smallest(const double x[EVAL_ENDINGS]) {
    int best = 0;
    for (int i = 1; i < EVAL_ENDINGS; i++)
        if (x[i] < x[best]) best = i;
    return best;
}

static void count_right(hellaswag *h, const eval_row *row, int kind, const score s[EVAL_ENDINGS]) {
    double sum[EVAL_ENDINGS], by_character[EVAL_ENDINGS], by_token[EVAL_ENDINGS];
    for (int i = 0; i < EVAL_ENDINGS; i++) {
        sum[i] = s[i].loss;
        by_character[i] = s[i].loss / (double)row->characters[i];
        by_token[i] = s[i].loss / (double)s[i].tokens;
    }
    h->right += kind == LM_EVAL && smallest(sum) == row->label;
    h->right_norm += kind == LM_EVAL && smallest(by_character) == row->label;
    h->right_llmc += kind == LLMC && smallest(by_token) == row->label;
}

/* Scores the row in the requested encodings. If both have the same ids, one forward is enough. */
static ott_status score_row(hellaswag *h, const eval_row *row) {
    score s[EVAL_ENDINGS];
    ott_eval_result *r = h->job->result;
    const int forms = h->job->options->hellaswag_forms;
    const bool wanted[KINDS] = {
        [LM_EVAL] = forms & OTT_HELLASWAG_LM_EVAL, [LLMC] = forms & OTT_HELLASWAG_LLMC};
    for (int i = 0; i < EVAL_ENDINGS; i++) {
        bool truncated = false;
        for (int kind = 0; kind < KINDS; kind++) {
            if (wanted[kind]) TRY(encode_ending(h, row, kind, i));
            truncated = truncated || (wanted[kind] && excess(h, &h->encodings[kind], i) > 0);
        }
        r->truncated += truncated;
    }
    for (int kind = 0; kind < KINDS; kind++) {
        bool second = kind == LLMC && wanted[LM_EVAL];
        if (!wanted[kind]) continue;
        if (!second || !same_encoding(&h->encodings[LM_EVAL], &h->encodings[LLMC]))
            TRY(score_encoding(h, &h->encodings[kind], s));
        count_right(h, row, kind, s);
        if (!second) h->loss += s[row->label].loss, r->tokens += s[row->label].tokens;
    }
    return OTT_OK;
}

/* ---- rows ---- */

static ott_status score_lines(hellaswag *h, const char *text, int64_t bytes) {
    ott_eval_result *r = h->job->result;
    const int64_t limit = h->job->options->limit;
    data_rows rows = data_rows_begin(text, bytes);
    text_view line;
    rows.array = false; /* a line that begins with "[" is an error, not an array of rows */
    for (data_rows ahead = rows; limit == 0 || r->total < limit; r->total++) {
        TRY(data_rows_next(&ahead, &line));
        if (!line.at) break;
    }
    if (r->total == 0) return status_fail(OTT_ERR_FORMAT, "%s: has no rows", h->job->options->data);
    for (bool on = true; on && r->items < r->total; on = eval_advance(h->job)) {
        eval_row row;
        TRY(data_rows_next(&rows, &line));
        ott_status status = eval_row_read(h->job->account, line.at, line.bytes, &row);
        if (status == OTT_OK) status = score_row(h, &row);
        eval_row_free(&row);
        TRY(status_context(status, "%s:%" PRId64, h->job->options->data, rows.line));
    }
    return OTT_OK;
}

/* ---- the result ---- */

/* Returns the fraction of right answers, and its standard error sqrt(p (1 - p) / (count - 1)). */
static double share_right(int64_t right, int64_t count, double *error) {
    double p = (double)right / (double)count;
    *error = count > 1 ? sqrt(p * (1 - p) / (double)(count - 1)) : NAN;
    return p;
}

static void finish_scores(const hellaswag *h) {
    ott_eval_result *r = h->job->result;
    int forms = h->job->options->hellaswag_forms;
    r->loss = h->loss / (double)r->tokens;
    r->perplexity = exp(r->loss);
    if (forms & OTT_HELLASWAG_LM_EVAL) {
        r->acc = share_right(h->right, r->items, &r->acc_stderr);
        r->acc_norm = share_right(h->right_norm, r->items, &r->acc_norm_stderr);
    }
    if (forms & OTT_HELLASWAG_LLMC) r->acc_llmc = share_right(h->right_llmc, r->items, &r->acc_llmc_stderr);
}

ott_status eval_hellaswag(eval_job *j) {
    mem *account = j->account;
    hellaswag h = {.job = j, .batch = {.account = account}, .text = {.account = account}};
    char *text;
    int64_t bytes;
    TRY(file_refuse_gguf(j->options->data));
    TRY(file_read(account, j->options->data, DATA_LIMIT, &text, &bytes));
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < EVAL_ENDINGS; i++) h.encodings[kind].ids[i].account = account;
    ott_status status = score_lines(&h, text, bytes);
    if (status == OTT_OK) finish_scores(&h);
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < EVAL_ENDINGS; i++) tokenizer_ids_free(&h.encodings[kind].ids[i]);
    str_free(&h.text);
    eval_batch_free(&h.batch);
    mem_free(account, text);
    return status;
}
