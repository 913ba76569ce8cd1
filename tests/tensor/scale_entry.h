/*
 * scale_entry: reads and writes one scale_inv of a use of a quantized tensor, in fp32 or in E8M0 tiles.
 * `entry` is the index of the scale block in qdata.scale. The arrays are host memory.
 */
#ifndef TESTS_TENSOR_SCALE_ENTRY_H
#define TESTS_TENSOR_SCALE_ENTRY_H

#include "tensor/qtensor.h"

static inline float scale_entry_read(const qdata *d, int64_t entry) {
    if (!d->tiles.along_k) return ((const float *)d->scale_inv)[entry];
    return scale_inv_at(d->scale_inv, d->mn_step, d->k_step, d->tiles, entry % d->k_step, entry / d->k_step);
}

static inline void scale_entry_write(const qdata *d, int64_t entry, float value) {
    if (!d->tiles.along_k) {
        ((float *)d->scale_inv)[entry] = value;
        return;
    }
    cast_store(d->scale_inv, OTT_E8M0, scale_tiles_index(d->tiles, entry % d->k_step, entry / d->k_step),
               value);
}

#endif
