/* eval/perplexity: computes a model's loss, perplexity and bits per byte on a text. */
#include "eval/logits.h"

/* Counts the bytes of the text of the predicted tokens. */
typedef struct byte_count {
    bool known;
    const tokenizer *tokenizer; /* NULL: a token is a byte */
    tokenizer_stream stream;
    str piece;
    int64_t bytes;
} byte_count;

static byte_count count_start(const eval_model *e) {
    byte_count c = {
        .known = !e->no_text || e->tokenizer, .tokenizer = e->tokenizer, .piece = {.account = e->account}};
    if (c.tokenizer) c.stream = tokenizer_stream_start(c.tokenizer, true);
    return c;
}

static ott_status count_token(byte_count *c, int32_t id) {
    if (!c->known || !c->tokenizer) {
        c->bytes++;
        return OTT_OK;
    }
    c->piece.length = 0;
    TRY(tokenizer_stream_push(&c->stream, id, &c->piece));
    c->bytes += c->piece.length;
    return OTT_OK;
}

/* Counts also the bytes of an incomplete character at the end, which the decoder has not returned. */
static double bits_per_byte(const byte_count *c, double nats) {
    int64_t bytes = c->bytes + (c->tokenizer ? c->stream.waiting : 0);
    return c->known && bytes > 0 ? nats / log(2.0) / (double)bytes : NAN;
}

static ott_status add_losses(const eval_batch *b, ott_eval_result *r, byte_count *count, double *sum) {
    for (int64_t t = 0; t < b->tokens; t++) {
        if (b->target[t] < 0) continue;
        *sum += (double)b->loss[t];
        r->tokens++;
        TRY(count_token(count, b->target[t]));
    }
    return OTT_OK;
}

/* A forward runs as many windows as the run's micro-batch has: they share scales in tensorwise. */
static ott_status measure_windows(eval_job *j, eval_windows *w, eval_batch *b, eval_logits *logits,
                                  byte_count *count, double *sum) {
    ott_eval_result *r = j->result;
    int64_t rows = r->batch;
    hook storage;
    bool on = true;
    TRY(eval_logits_open(j, w, logits));
    while (on && r->items < r->total) {
        int64_t end = r->items + rows < r->total ? r->items + rows : r->total;
        eval_batch_clear(b);
        for (int64_t i = r->items; i < end; i++) TRY(eval_windows_add(w, i, b));
        TRY(eval_forward(j->model, b, eval_logits_hook(logits, &storage)));
        TRY(add_losses(b, r, count, sum));
        while (r->items < end) on = eval_advance(j) && on;
    }
    if (r->tokens > 0) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT,
                       "%s: no token can be predicted, because no token has another token before it",
                       j->options->data);
}

ott_status eval_perplexity(eval_job *j) {
    eval_windows w;
    eval_batch b = {.account = j->account};
    eval_logits logits = {0};
    byte_count count = count_start(j->model);
    double sum = 0;
    ott_status status = eval_windows_open(j->account, j->model, j->options, &w);
    if (status == OTT_OK) status = eval_windows_note(&w, j, j->model->cfg->train.batch_size);
    if (status == OTT_OK) status = measure_windows(j, &w, &b, &logits, &count, &sum);
    status = eval_logits_close(&logits, status);
    if (status == OTT_OK) {
        j->result->loss = sum / (double)j->result->tokens;
        j->result->perplexity = exp(j->result->loss);
        j->result->bits_per_byte = bits_per_byte(&count, sum);
    }
    str_free(&count.piece);
    eval_batch_free(&b);
    eval_windows_close(&w);
    return status;
}
