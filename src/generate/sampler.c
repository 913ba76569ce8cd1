/* generate/sampler: greedy choice, top-k and nucleus sampling. */
#include "generate/sampler.h"
#include "base/rng.h"
#include <math.h>

ott_status sampler_open(mem *account, const ott_generate_options *o, int64_t vocab, int64_t choices,
                        sampler *out) {
    *out = (sampler){.account = account, .options = o, .choices = choices};
    TRY(mem_alloc_array(account, MEM_DATA, vocab, sizeof(float), "logits", &out->logits));
    TRY(mem_alloc_array(account, MEM_DATA, choices, sizeof(int32_t), "token order", &out->heap));
    return mem_alloc_array(account, MEM_DATA, vocab, sizeof(bool), "tokens seen", &out->seen);
}

void sampler_close(sampler *s) {
    mem_free(s->account, s->logits);
    mem_free(s->account, s->heap);
    mem_free(s->account, s->seen);
}

void sampler_note(sampler *s, const int32_t *tokens, int64_t count) {
    for (int64_t i = 0; i < count; i++) s->seen[tokens[i]] = true;
}

/* ---- from logits to probabilities ---- */

static int32_t most_likely(const sampler *s) {
    int32_t best = 0;
    for (int32_t i = 1; i < s->choices; i++)
        if (s->logits[i] > s->logits[best]) best = i;
    return best;
}

static void apply_softmax(sampler *s) {
    float largest = s->logits[most_likely(s)];
    double sum = 0;
    for (int64_t i = 0; i < s->choices; i++) {
        s->logits[i] = (float)exp(((double)s->logits[i] - (double)largest) / s->options->temperature);
        sum += (double)s->logits[i];
    }
    for (int64_t i = 0; i < s->choices; i++) s->logits[i] = (float)((double)s->logits[i] / sum);
}

/* ---- a heap of tokens, the most likely on top, to avoid sorting a large vocabulary ---- */

static bool is_likelier(const sampler *s, int32_t a, int32_t b) {
    return s->logits[a] > s->logits[b] || (s->logits[a] == s->logits[b] && a < b);
}

static void sink_token(const sampler *s, int64_t at, int64_t count) {
    int32_t *heap = s->heap, token = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_likelier(s, heap[child + 1], heap[child])) child++;
        if (!is_likelier(s, heap[child], token)) break;
        heap[at] = heap[child];
    }
    heap[at] = token;
}

static void build_heap(sampler *s) {
    for (int64_t i = 0; i < s->choices; i++) s->heap[i] = (int32_t)i;
    for (int64_t i = s->choices / 2 - 1; i >= 0; i--) sink_token(s, i, s->choices);
}

/* Moves the likeliest of the heap's first `count` tokens to heap[count - 1], and returns it. */
static int32_t pop_token(sampler *s, int64_t count) {
    int32_t top = s->heap[0];
    s->heap[0] = s->heap[count - 1];
    s->heap[count - 1] = top;
    sink_token(s, 0, count - 1);
    return top;
}

/* ---- the choice ---- */

/* Returns the sum of the probabilities of the `limit` most likely tokens. */
static double top_mass(sampler *s, int64_t limit) {
    double mass = 0;
    if (limit < s->choices) {
        build_heap(s);
        for (int64_t i = 0; i < limit; i++) mass += (double)s->logits[pop_token(s, s->choices - i)];
    } else
        for (int64_t i = 0; i < s->choices; i++) mass += (double)s->logits[i];
    return mass;
}

/* Nucleus sampling (Holtzman et al. 2020) among the top_k tokens: draws from the most likely tokens, as many
   as are needed to reach the fraction top_p of the top_k tokens' probability. pop_token finds them. */
static int32_t draw_token(sampler *s) {
    const ott_generate_options *o = s->options;
    int64_t n = s->choices, limit = o->top_k > 0 && o->top_k < n ? o->top_k : n, kept = 0;
    double wanted = o->top_p * top_mass(s, limit), mass = 0;
    build_heap(s);
    while (kept < limit && mass < wanted) mass += (double)s->logits[pop_token(s, n - kept++)];
    double point = (double)rng_uniform(o->seed, rng_stream("generate"), s->drawn) * mass;
    for (int64_t i = 1; i <= kept; i++) {
        point -= (double)s->logits[s->heap[n - i]];
        if (point < 0) return s->heap[n - i];
    }
    return s->heap[n - kept];
}

ott_status sampler_choose(sampler *s, int32_t *token) {
    for (int64_t i = 0; i < s->choices; i++)
        if (!(s->logits[i] < INFINITY))
            return status_fail(OTT_ERR_DIVERGED,
                               "the model's logit of token %lld is %s: its training diverged", (long long)i,
                               isnan(s->logits[i]) ? "NaN" : "infinite");
    /* the repetition penalty of Keskar et al. 2019 */
    float penalty = (float)s->options->repetition_penalty;
    for (int64_t i = 0; penalty != 1.0f && i < s->choices; i++)
        if (s->seen[i]) s->logits[i] = s->logits[i] < 0 ? s->logits[i] * penalty : s->logits[i] / penalty;
    if (s->options->temperature > 0) apply_softmax(s);
    *token = s->options->temperature > 0 ? draw_token(s) : most_likely(s);
    s->seen[*token] = true;
    s->drawn++;
    return OTT_OK;
}
