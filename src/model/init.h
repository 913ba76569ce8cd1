/* model/init: initial weights as the frameworks publish them: a pure function of seed, parameter name and
 * element. */
#ifndef MODEL_INIT_H
#define MODEL_INIT_H

#include "model/model.h"

/*
 * kempner: N(0, init_std); o and down times 1/sqrt(2 layers); norms 1.
 * hf:      N(0, init_std) everywhere; norms 1.
 * titan:   embedding N(0, 1); q, k, v, gate N(0, 0.02); o, up, down N(0, 0.02/sqrt(2 (layer + 1)))
 * (torchtitan's truncated normals cut at +-2 absolute, which never happens at these widths); head N(0,
 * dim^-1/2) cut at 3 deviations; norms 1.
 * On so many threads (0: all cores), the same bits on any number; OTT_ERR_STOPPED when m->watch ends it.
 */
ott_status model_initialize(model *m, uint64_t seed, int threads);
/* Of adapters alone: A as config_lora_init says, B zero, a magnitude the norms of the weight's rows. */
ott_status model_initialize_adapters(model *m, uint64_t seed, int threads);

#endif
