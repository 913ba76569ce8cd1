/*
 * eval/compare: compares the predictions of two models: KL(against || model) of each token, the cosine of all
 * logits, and how often both have the same most likely token.
 *
 * A window first runs through the model, and its logits are kept in their format. Then the window runs
 * through `against`, and its logits are compared with these chunk by chunk, as the head computes them. One
 * thread computes a token's figures, and tokens are added in order. So the number of threads does not matter.
 */
#include "base/pool.h"
#include "eval/eval.h"

/* The figures that compare two rows of logits. */
typedef struct token_figures {
    double divergence;
    double dot, square, against_square;
    bool same;
} token_figures;

typedef struct comparison {
    eval_job *job;
    pool *pool;
    eval_batch batch;
    int64_t vocab;
    ott_dtype format, against_format;
    char *logits; /* [kept, vocab], in `format`: the model's logits for the batch */
    int64_t kept;
    char *chunk; /* [chunk_rows, vocab], in `against_format`: a chunk of the logits of `against` */
    int64_t chunk_rows, chunk_capacity;
    int64_t seen;           /* number of tokens of the batch that were copied or compared */
    token_figures *figures; /* [kept]: figures of each token */
    double sum, dot, square, against_square;
    int64_t same;
} comparison;

static float largest_logit(ott_dtype d, const void *x, int64_t count, int64_t *where) {
    float most = -INFINITY;
    *where = 0;
    for (int64_t i = 0; i < count; i++) {
        float value = cast_load(x, d, i);
        if (value > most) most = value, *where = i;
    }
    return most;
}

/*
 * a, b: logits of `against` and of the model; p, q: their softmax; ep = a - max a; eq = b - max b.
 * KL(p || q) = sum p (log p - log q)
 *            = sum exp(ep) (ep - eq) / sum exp(ep) - log sum exp(ep) + log sum exp(eq)
 */
static token_figures compare_token(const comparison *c, const void *own, const void *other) {
    token_figures f = {0};
    double own_sum = 0, other_sum = 0, weighted = 0;
    int64_t own_first, other_first;
    double own_most = (double)largest_logit(c->format, own, c->vocab, &own_first);
    double other_most = (double)largest_logit(c->against_format, other, c->vocab, &other_first);
    for (int64_t i = 0; i < c->vocab; i++) {
        double q = (double)cast_load(own, c->format, i), p = (double)cast_load(other, c->against_format, i);
        double weight = exp(p - other_most);
        other_sum += weight;
        own_sum += exp(q - own_most);
        if (weight > 0) weighted += weight * ((p - other_most) - (q - own_most));
        f.dot += p * q;
        f.square += q * q;
        f.against_square += p * p;
    }
    f.divergence = weighted / other_sum - log(other_sum) + log(own_sum);
    if (f.divergence < 0) f.divergence = 0; /* negative only by a rounding error */
    f.same = own_first == other_first;
    return f;
}

static void compare_rows(void *argument, int thread, int threads) {
    const comparison *c = argument;
    int64_t i, end;
    pool_share(c->chunk_rows, 1, thread, threads, &i, &end);
    for (; i < end; i++) {
        int64_t token = c->seen + i;
        c->figures[token] = compare_token(c, c->logits + token * c->vocab * dtype_bytes(c->format),
                                          c->chunk + i * c->vocab * dtype_bytes(c->against_format));
    }
}

static ott_status keep_logits(void *user, exec *cx, const char *module, const char *what, const tensor *t) {
    comparison *c = user;
    if (!eval_is_logits(c->job->model, module, what)) return OTT_OK;
    STATUS_REQUIRE(t->ld == c->vocab && t->dtype == c->format && c->seen + t->rows <= c->kept);
    char *to = c->logits + c->seen * c->vocab * dtype_bytes(c->format);
    c->seen += t->rows;
    return device_copy_out(cx->device, to, t->data, tensor_bytes(*t));
}

static ott_status compare_logits(void *user, exec *cx, const char *module, const char *what,
                                 const tensor *t) {
    comparison *c = user;
    if (!eval_is_logits(c->job->against, module, what)) return OTT_OK;
    STATUS_REQUIRE(t->ld == c->vocab && t->dtype == c->against_format && c->seen + t->rows <= c->kept);
    c->chunk_rows = t->rows;
    if (t->rows > c->chunk_capacity) {
        TRY(mem_grow(c->job->account, MEM_DATA, t->rows * c->vocab * dtype_bytes(c->against_format), "logits",
                     &c->chunk));
        c->chunk_capacity = t->rows;
    }
    TRY(device_copy_out(cx->device, c->chunk, t->data, tensor_bytes(*t)));
    pool_run(c->pool, compare_rows, c);
    c->seen += t->rows;
    return OTT_OK;
}

static void add_figures(comparison *c) {
    ott_eval_result *r = c->job->result;
    for (int64_t i = 0; i < c->batch.tokens; i++) {
        const token_figures *f = &c->figures[i];
        c->sum += f->divergence;
        c->dot += f->dot;
        c->square += f->square;
        c->against_square += f->against_square;
        c->same += f->same;
        if (!(f->divergence <= r->kl_max)) r->kl_max = f->divergence;
    }
    r->tokens += c->batch.tokens;
}

static ott_status run_window(comparison *c, eval_windows *w) {
    const hook keep = {.observe = keep_logits, .user = c}, compare = {.observe = compare_logits, .user = c};
    eval_batch_clear(&c->batch);
    TRY(eval_windows_add(w, c->job->result->items, &c->batch));
    if (c->batch.tokens > c->kept) {
        TRY(mem_grow(c->job->account, MEM_DATA, c->batch.tokens * c->vocab * dtype_bytes(c->format),
                     "logits of a window", &c->logits));
        TRY(mem_grow(c->job->account, MEM_DATA, c->batch.tokens * (int64_t)sizeof *c->figures,
                     "figures of a window", &c->figures));
        c->kept = c->batch.tokens;
    }
    c->seen = 0;
    TRY(eval_forward(c->job->model, &c->batch, &keep));
    STATUS_REQUIRE(c->seen == c->batch.tokens);
    c->seen = 0;
    TRY(eval_forward(c->job->against, &c->batch, &compare));
    STATUS_REQUIRE(c->seen == c->batch.tokens);
    add_figures(c);
    return OTT_OK;
}

static ott_status compare_windows(comparison *c, eval_windows *w) {
    ott_eval_result *r = c->job->result;
    const ott_eval_options *o = c->job->options;
    bool on = true;
    TRY(eval_windows_note(w, c->job, 1));
    r->kl_max = 0;
    while (on && r->items < r->total) {
        TRY(run_window(c, w));
        on = eval_advance(c->job);
    }
    r->kl_mean = c->sum / (double)r->tokens;
    r->cosine = c->dot / sqrt(c->square * c->against_square);
    r->agreement = (double)c->same / (double)r->tokens;
    r->passed = r->kl_max <= o->kl_max && r->kl_mean <= o->kl_mean && r->cosine >= o->cosine;
    return OTT_OK;
}

ott_status eval_compare(eval_job *j) {
    eval_windows w = {.account = j->account};
    comparison c = {.job = j,
                    .batch = {.account = j->account},
                    .vocab = j->model->m->options.vocab,
                    .format = j->model->m->activation,
                    .against_format = j->against->m->activation};
    ott_status status;
    int64_t own = j->model->m->options.vocab, other = j->against->m->options.vocab;
    if (own != other)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s has a vocabulary of %lld, and %s one of %lld: they cannot be compared",
                           j->model->path, (long long)own, j->against->path, (long long)other);
    TRY_OUT(pool_open(j->account, j->options->threads, &c.pool));
    TRY_OUT(eval_windows_open(j->account, j->model, j->options, &w));
    TRY_OUT(compare_windows(&c, &w));
out:
    eval_windows_close(&w);
    eval_batch_free(&c.batch);
    mem_free(j->account, c.logits);
    mem_free(j->account, c.chunk);
    mem_free(j->account, c.figures);
    pool_close(c.pool);
    return status;
}
