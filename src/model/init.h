/*
 * model/init: initial weights, by the rules of other frameworks. A value depends only on the seed, the
 * parameter's name and the element's index.
 */
#ifndef MODEL_INIT_H
#define MODEL_INIT_H

#include "model/model.h"

/* Fills all parameters of this rank. Factors of norms start at 1, biases at 0. The initial values of matrices
 * depend on model_options.init_style. N(mean, standard deviation) is a normal distribution.
 *   kempner: N(0, init_std); o and down projections N(0, init_std/sqrt(2 layers)).
 *   hf:      N(0, init_std) for all matrices.
 *   titan:   embedding N(0, 1); q, k, v, gate N(0, 0.02); o, up, down N(0, 0.02/sqrt(2 (layer + 1)));
 *            head N(0, dim^-1/2) truncated at 3 deviations (torchtitan truncates the others at 100).
 * threads 0: all cores; values do not depend on `threads`. OTT_ERR_STOPPED if m->cancellation cancels.
 */
ott_status model_initialize(model *m, uint64_t seed, int threads);
/* Fills only adapters: A by the rule adapter.start, B with 0, DoRA's magnitude with the norms of W's rows. */
ott_status model_initialize_adapters(model *m, uint64_t seed, int threads);

#endif
