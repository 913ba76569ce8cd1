/*
 * eval/hellaswag: finds which of four endings the model considers most likely.
 *
 * A row is encoded in two ways. In lm-eval's, context and " " + ending are encoded as one text. The ending
 * then begins after as many ids as the context alone has. In llm.c's, context and " " + ending are encoded
 * separately, without special tokens. One forward runs the four endings, as separate documents.
 */
#include "base/file/file.h"
#include "base/json/json_text.h"
#include "eval/eval.h"
#include "eval/row.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

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

typedef struct hellaswag {
    eval_job *job;
    eval_batch batch;
    encoding lm_eval, llmc;
    str text; /* the text to encode next */
    int64_t right, right_norm, right_llmc;
    double loss; /* sum of the losses of the right endings */
} hellaswag;

/* ---- ids ---- */

static void append_ending(hellaswag *h, text_view ending) {
    str_append(&h->text, " ");
    str_append_bytes(&h->text, ending.at, ending.bytes);
}

static ott_status encode_text(const hellaswag *h, unsigned flags, tokenizer_ids *ids) {
    TRY(str_finish(&h->text));
    return eval_encode(h->job->model, h->text.text ? h->text.text : "", h->text.length, flags, ids);
}

static ott_status check_ending(const encoding *f, int i) {
    if (f->first[i] < 1) return status_fail(OTT_ERR_FORMAT, "the context has no tokens");
    if (f->first[i] < f->ids[i].count) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "endings[%d] adds no token", i);
}

/* Encodes a row as lm-eval does. White space at the end of the context becomes part of the ending. */
static ott_status encode_pair(hellaswag *h, const eval_row *row, int i) {
    encoding *f = &h->lm_eval;
    const unsigned flags = TOKENIZER_ADD_SPECIAL | TOKENIZER_MATCH_SPECIAL;
    const text_view all = row->context;
    int64_t context = all.bytes - text_spaces_at_end(all, true);
    f->ids[i].count = h->text.length = 0;
    str_append_bytes(&h->text, all.at, context);
    TRY(encode_text(h, flags, &f->ids[i]));
    f->first[i] = f->ids[i].count;
    f->ids[i].count = 0;
    str_append_bytes(&h->text, all.at + context, all.bytes - context);
    append_ending(h, row->ending[i]);
    TRY(encode_text(h, flags, &f->ids[i]));
    return check_ending(f, i);
}

static ott_status encode_apart(hellaswag *h, const eval_row *row, int i) {
    encoding *f = &h->llmc;
    f->ids[i].count = h->text.length = 0;
    str_append_bytes(&h->text, row->raw_context.at, row->raw_context.bytes);
    TRY(encode_text(h, TOKENIZER_MATCH_SPECIAL, &f->ids[i]));
    f->first[i] = f->ids[i].count;
    h->text.length = 0;
    append_ending(h, row->raw_ending[i]);
    TRY(encode_text(h, TOKENIZER_MATCH_SPECIAL, &f->ids[i]));
    return check_ending(f, i);
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

static score sum_document(const eval_batch *b, int i) {
    score s = {0};
    for (int64_t t = b->start[i]; t < b->start[i + 1]; t++)
        if (b->target[t] >= 0) s.loss += (double)b->loss[t], s.tokens++;
    return s;
}

static ott_status score_encoding(hellaswag *h, const encoding *f, score out[EVAL_ENDINGS]) {
    eval_batch_clear(&h->batch);
    for (int i = 0; i < EVAL_ENDINGS; i++) TRY(add_ending(h, f, i));
    TRY(eval_forward(h->job->model, &h->batch, NULL));
    for (int i = 0; i < EVAL_ENDINGS; i++) out[i] = sum_document(&h->batch, i);
    return OTT_OK;
}

/* Returns the index of the smallest value; of equal values the first. */
static int smallest(const double x[EVAL_ENDINGS]) {
    int best = 0;
    for (int i = 1; i < EVAL_ENDINGS; i++)
        if (x[i] < x[best]) best = i;
    return best;
}

static void count_lm_eval(hellaswag *h, const eval_row *row, const score s[EVAL_ENDINGS]) {
    double sum[EVAL_ENDINGS], by_character[EVAL_ENDINGS];
    for (int i = 0; i < EVAL_ENDINGS; i++) {
        sum[i] = s[i].loss;
        by_character[i] = s[i].loss / (double)row->characters[i];
    }
    h->right += smallest(sum) == row->label;
    h->right_norm += smallest(by_character) == row->label;
}

static void count_llmc(hellaswag *h, const eval_row *row, const score s[EVAL_ENDINGS]) {
    double mean[EVAL_ENDINGS];
    for (int i = 0; i < EVAL_ENDINGS; i++) mean[i] = s[i].loss / (double)s[i].tokens;
    h->right_llmc += smallest(mean) == row->label;
}

/* Scores the row in the requested encodings. If both encodings have the same ids, one forward is enough. */
static ott_status score_row(hellaswag *h, const eval_row *row) {
    score s[EVAL_ENDINGS];
    int forms = h->job->options->hellaswag_forms;
    bool lm_eval = forms & OTT_HELLASWAG_LM_EVAL, llmc = forms & OTT_HELLASWAG_LLMC;
    for (int i = 0; i < EVAL_ENDINGS; i++) {
        if (lm_eval) TRY(encode_pair(h, row, i));
        if (llmc) TRY(encode_apart(h, row, i));
    }
    if (lm_eval) {
        TRY(score_encoding(h, &h->lm_eval, s));
        count_lm_eval(h, row, s);
    }
    for (int i = 0; i < EVAL_ENDINGS; i++)
        h->job->result->truncated +=
            (lm_eval && excess(h, &h->lm_eval, i) > 0) || (llmc && excess(h, &h->llmc, i) > 0);
    bool same = lm_eval && llmc && same_encoding(&h->lm_eval, &h->llmc);
    const score *right = &s[row->label];
    if (lm_eval) h->loss += right->loss, h->job->result->tokens += right->tokens;
    if (!llmc) return OTT_OK;
    if (!same) TRY(score_encoding(h, &h->llmc, s));
    count_llmc(h, row, s);
    if (!lm_eval) h->loss += right->loss, h->job->result->tokens += right->tokens;
    return OTT_OK;
}

/* ---- lines ---- */

typedef struct line {
    const char *text;
    int64_t bytes, number;
} line;

/* Finds the next line that is not blank. Returns false if there is none. */
static bool next_row_line(const char **at, const char *end, line *l) {
    while (*at < end) {
        const char *stop = memchr(*at, '\n', (size_t)(end - *at));
        if (!stop) stop = end;
        *l = (line){.text = *at, .bytes = stop - *at, .number = l->number + 1};
        *at = stop < end ? stop + 1 : end;
        if (!json_text_is_blank(l->text, l->bytes)) return true;
    }
    return false;
}

static int64_t count_lines(const char *text, const char *end, int64_t limit) {
    line l = {0};
    int64_t count = 0;
    while ((limit == 0 || count < limit) && next_row_line(&text, end, &l)) count++;
    return count;
}

static ott_status run_lines(hellaswag *h, const char *text, int64_t bytes) {
    const char *end = text + bytes;
    ott_eval_result *r = h->job->result;
    line l = {0};
    r->total = count_lines(text, end, h->job->options->limit);
    if (r->total == 0) return status_fail(OTT_ERR_FORMAT, "%s: has no rows", h->job->options->data);
    bool on = true;
    while (on && r->items < r->total && next_row_line(&text, end, &l)) {
        eval_row row;
        ott_status status = eval_row_read(h->job->account, l.text, l.bytes, &row);
        if (status == OTT_OK) status = score_row(h, &row);
        eval_row_free(&row);
        if (status != OTT_OK) TRY(status_context(status, "%s:%" PRId64, h->job->options->data, l.number));
        on = eval_advance(h->job);
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

static void free_encodings(hellaswag *h) {
    for (int i = 0; i < EVAL_ENDINGS; i++) {
        tokenizer_ids_free(&h->lm_eval.ids[i]);
        tokenizer_ids_free(&h->llmc.ids[i]);
    }
    str_free(&h->text);
    eval_batch_free(&h->batch);
}

ott_status eval_hellaswag(eval_job *j) {
    mem *account = j->account;
    hellaswag h = {.job = j, .batch = {.account = account}, .text = {.account = account}};
    char *text;
    int64_t bytes;
    for (int i = 0; i < EVAL_ENDINGS; i++) h.lm_eval.ids[i].account = h.llmc.ids[i].account = account;
    TRY(file_refuse_gguf(j->options->data));
    TRY(file_read(account, j->options->data, DATA_LIMIT, &text, &bytes));
    ott_status status = run_lines(&h, text, bytes);
    if (status == OTT_OK) finish_scores(&h);
    free_encodings(&h);
    mem_free(account, text);
    return status;
}
