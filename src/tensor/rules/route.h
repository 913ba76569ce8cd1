/*
 * tensor/rules/route: routing in a mixture of experts: the rule, and the arithmetic of one token for host and
 * device. Scores are the softmax or the sigmoid of the router's logits. Of E experts, the K with the highest
 * scores are chosen; equal scores are ordered by index. A bias affects only the choice, never a weight
 * (DeepSeek-V3, arXiv:2412.19437). With groups, only experts of the best groups can be chosen. A group's
 * score is the sum of its top two experts, or its best expert's score (DeepSeek-V2, arXiv:2405.04434).
 *
 * An assignment is a token's choice of an expert. The k-th choice of token t of T has number k T + t.
 */
#ifndef TENSOR_RULES_ROUTE_H
#define TENSOR_RULES_ROUTE_H

#include "base/fmath.h"
#include <stdbool.h>

typedef enum route_score { ROUTE_SOFTMAX, ROUTE_SIGMOID } route_score;

enum { ROUTE_GROUPS_MAX = 64 };

typedef struct route_rule {
    route_score score;
    /* groups: number of equal groups, 0 for none; chosen_groups: number of groups that are chosen */
    int groups, chosen_groups;
    /* a group's score is its highest score; false: the sum of its two highest scores */
    bool group_score_max;
    bool normalized; /* true: the weights of a token are divided by their sum */
    float scale;     /* factor of the weights, after `normalized` */
} route_rule;

/* Factors of the router losses in route_gradient, without the loss scale. The micro-batch has T tokens, E
   experts, and K choices per token. */
typedef struct route_losses {
    /* loss weight * E / (K L L S), for S sequences of L tokens; for `balance`, S = 1 and L = T */
    float balance, sequence_balance;
    float z; /* loss weight x 2 / T */
} route_losses;

#define ROUTE_EPSILON 1e-20f

/* Maps a number to an integer with the same order; NaN is the smallest, and both zeros are equal. */
ANYWHERE int32_t route_key(float x) {
    if (x != x) return INT32_MIN;
    uint32_t bits = fmath_bits(x + 0.0f);
    return bits >> 31 ? -(int32_t)(bits & 0x7fffffffu) : (int32_t)bits;
}

/* True if (key a, expert i) comes after (key b, expert j) in the order of choice. */
ANYWHERE bool route_is_after(int32_t a, int64_t i, int32_t b, int64_t j) {
    return a < b || (a == b && i > j);
}

/* Returns the key (route_key) of expert e's score plus bias. bias NULL: none. */
ANYWHERE int32_t route_choice(const float *score, const float *bias, int64_t e) {
    return route_key(bias ? score[e] + bias[e] : score[e]);
}

/* Returns the key (route_key) of the score of a group, experts [first, first + count): the sum of the two
   highest scores plus biases, or the highest score plus bias. */
ANYWHERE int32_t route_group(const route_rule *r, const float *score, const float *bias, int64_t first,
                             int64_t count) {
    int64_t best = first, second = -1;
    for (int64_t e = first + 1; e < first + count; e++)
        if (route_is_after(route_choice(score, bias, best), best, route_choice(score, bias, e), e)) best = e;
    for (int64_t e = first; e < first + count && !r->group_score_max; e++)
        if (e != best && (second < 0 || route_is_after(route_choice(score, bias, second), second,
                                                       route_choice(score, bias, e), e)))
            second = e;
    float sum = bias ? score[best] + bias[best] : score[best];
    if (second >= 0) sum = sum + (bias ? score[second] + bias[second] : score[second]);
    return route_key(sum);
}

/* Returns a bit for each group: 1 if its experts can be chosen. */
ANYWHERE uint64_t route_open_groups(const route_rule *r, const float *score, const float *bias,
                                    int64_t experts) {
    int64_t each = r->groups > 0 ? experts / r->groups : 0;
    uint64_t open = 0;
    for (int g = 0; g < r->groups; g++) {
        int32_t key = route_group(r, score, bias, g * each, each);
        int better = 0;
        for (int h = 0; h < r->groups; h++)
            better += h != g && route_is_after(key, g, route_group(r, score, bias, h * each, each), h);
        if (better < r->chosen_groups) open |= (uint64_t)1 << g;
    }
    return open;
}

/* Writes the chosen experts to expert[K], the best first. */
ANYWHERE void route_choose(const route_rule *r, const float *score, const float *bias, int64_t experts,
                           int64_t choices, int32_t *expert) {
    uint64_t open = route_open_groups(r, score, bias, experts);
    int64_t last = -1;
    int32_t last_key = INT32_MAX;
    for (int64_t k = 0; k < choices; k++) {
        int64_t best = -1;
        int32_t best_key = INT32_MIN;
        for (int64_t e = 0; e < experts; e++) {
            int32_t key = route_choice(score, bias, e);
            if (r->groups > 0 && !(open >> (e / (experts / r->groups)) & 1)) continue;
            if (last >= 0 && !route_is_after(key, e, last_key, last)) continue;
            if (best >= 0 && !route_is_after(best_key, best, key, e)) continue;
            best = e;
            best_key = key;
        }
        expert[k] = (int32_t)best;
        last = best;
        last_key = best_key;
    }
}

/* Writes a token's scores to score[E] and returns lse, the log of the sum of the logits' exponentials. */
ANYWHERE float route_scores(const route_rule *r, const float *logits, int64_t experts, float *score) {
    float most = -INFINITY, sum = 0;
    for (int64_t e = 0; e < experts; e++)
        if (logits[e] > most) most = logits[e];
    for (int64_t e = 0; e < experts; e++) sum = sum + fmath_exp(logits[e] - most);
    for (int64_t e = 0; e < experts; e++)
        score[e] = r->score == ROUTE_SOFTMAX ? fmath_exp(logits[e] - most) / sum
                                             : 1.0f / (1.0f + fmath_exp(-logits[e]));
    return most + fmath_log(sum);
}

/* Returns what a token's weights are divided by: the sum of its chosen scores if normalized, else 1. */
ANYWHERE float route_divisor(const route_rule *r, const float *score, const int32_t *expert,
                             int64_t choices) {
    float sum = 0;
    for (int64_t k = 0; k < choices; k++) sum = sum + score[expert[k]];
    return r->normalized ? sum + ROUTE_EPSILON : 1.0f;
}

ANYWHERE void route_weights(const route_rule *r, const float *score, const int32_t *expert, int64_t choices,
                            float *weight) {
    float divisor = route_divisor(r, score, expert, choices);
    for (int64_t k = 0; k < choices; k++) weight[k] = (score[expert[k]] / divisor) * r->scale;
}

/* Returns the sum of a token's scores; exactly 1 for ROUTE_SOFTMAX. */
ANYWHERE float route_total(const route_rule *r, const float *score, int64_t experts) {
    float sum = 0;
    for (int64_t e = 0; e < experts; e++) sum = sum + score[e];
    return r->score == ROUTE_SOFTMAX ? 1.0f : sum;
}

/* The inputs of route_gradient for one token. batch_count and sequence_count: how often each expert was
   chosen in the batch and in the token's sequence; NULL: the loss has weight 0. */
typedef struct route_token {
    const float *logits, *score, *dweight;     /* E logits, E scores, K gradients of weights */
    const float *batch_count, *sequence_count; /* E counts of choices */
    const int32_t *expert;                     /* the K chosen experts */
    int64_t experts, choices;
    float lse, total, grad_scale;
} route_token;

/* Returns the gradient of the balance losses with respect to the token's p[e] = score[e] / total. */
ANYWHERE float route_balance_slope(const route_token *t, const route_losses *l, int64_t e) {
    float slope = 0;
    if (t->batch_count) slope = slope + (l->balance * t->grad_scale) * t->batch_count[e];
    if (t->sequence_count) slope = slope + (l->sequence_balance * t->grad_scale) * t->sequence_count[e];
    return slope;
}

/* Sets ds[E] to the gradient of the balance losses with respect to the scores. */
ANYWHERE void route_balance_gradient(const route_rule *r, const route_token *t, const route_losses *l,
                                     float *ds) {
    float mean = 0;
    for (int64_t e = 0; e < t->experts; e++) ds[e] = route_balance_slope(t, l, e);
    if (r->score == ROUTE_SOFTMAX || !(t->batch_count || t->sequence_count)) return;
    for (int64_t e = 0; e < t->experts; e++) mean = fmaf(ds[e], t->score[e] / t->total, mean);
    for (int64_t e = 0; e < t->experts; e++) ds[e] = (ds[e] - mean) / t->total;
}

/* Adds to ds[E] the gradient of the scores that comes from dweight, the gradient of the token's weights. */
ANYWHERE void route_weight_gradient(const route_rule *r, const route_token *t, float *ds) {
    float divisor = route_divisor(r, t->score, t->expert, t->choices), mean = 0;
    for (int64_t k = 0; r->normalized && k < t->choices; k++)
        mean = fmaf(t->dweight[k], t->score[t->expert[k]] / divisor, mean);
    for (int64_t k = 0; k < t->choices; k++) {
        int64_t e = t->expert[k];
        ds[e] = ds[e] + ((t->dweight[k] - mean) / divisor) * r->scale;
    }
}

/* Writes a token's gradient with respect to the logits to dlogits[E]. */
ANYWHERE void route_gradient(const route_rule *r, const route_token *t, const route_losses *l,
                             float *dlogits) {
    float inner = 0, z = (l->z * t->grad_scale) * t->lse;
    route_balance_gradient(r, t, l, dlogits);
    route_weight_gradient(r, t, dlogits);
    for (int64_t e = 0; e < t->experts; e++) inner = fmaf(dlogits[e], t->score[e], inner);
    for (int64_t e = 0; e < t->experts; e++) {
        float s = t->score[e];
        dlogits[e] = r->score == ROUTE_SOFTMAX ? s * (dlogits[e] - inner) : dlogits[e] * (s * (1.0f - s));
        if (l->z != 0.0f) dlogits[e] = fmaf(z, fmath_exp(t->logits[e] - t->lse), dlogits[e]);
    }
}

/* ---- balanced gradients ---- */

/* Returns the mean number of rows per expert, divided by expert e's number of rows. Rows are counted over
   `parts` tensors. In tensor p, expert e's rows end before row end[p * step + e]. */
ANYWHERE float route_balance_factor(const int32_t *end, int64_t step, int64_t parts, int64_t experts,
                                    int64_t e) {
    int64_t all = 0, own = 0;
    for (int64_t p = 0; p < parts; p++, end += step) {
        all += end[experts - 1];
        own += end[e] - (e > 0 ? end[e - 1] : 0);
    }
    return ((float)all / (float)experts) / (float)own;
}

/* ---- balancing biases ---- */

/* Returns the new moving average, over about a hundred steps, of an expert's share of all choices. */
ANYWHERE float route_load(float load, float count, float total) {
    return fmaf(load, 0.99f, 0.01f * (count / total));
}

/* DeepSeek-V3's rule: raises the bias if the expert has fewer choices than the mean, lowers it if more. */
ANYWHERE float route_bias_by_sign(float bias, float count, float total, int64_t experts, float rate) {
    float mean = total / (float)experts;
    return fmaf(rate, (count < mean ? 1.0f : 0.0f) - (count > mean ? 1.0f : 0.0f), bias);
}

/* KempnerForge's rule: moves the bias in proportion to an equal share minus the averaged load. */
ANYWHERE float route_bias_by_load(float bias, float load, int64_t experts, float rate) {
    return fmaf(rate, 1.0f / (float)experts - load, bias);
}

#endif
