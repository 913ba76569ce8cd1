/*
 * reference_parts: functions that the files of the reference share: reading and writing an element, the
 * 16-lane sum, quantized copies of an output, and the name of every op's function.
 */
#ifndef REFERENCE_PARTS_H
#define REFERENCE_PARTS_H

#include "base/fmath.h"
#include "fp8/cast.h"
#include "reference/reference_ops.h"

static inline float at(const tensor *t, int64_t i, int64_t j) {
    return cast_load(t->data, t->dtype, i * t->ld + j);
}
static inline void put(const tensor *t, int64_t i, int64_t j, float x) {
    cast_store(t->data, t->dtype, i * t->ld + j, x);
}
static inline int32_t integer_at(const tensor *t, int64_t i) {
    return ((const int32_t *)t->data)[i];
}

/* The end of SUM16: adds the sums of the 16 lanes. Lane l has the sum of a row's elements l, l + 16, ... */
static inline float fold16(float lane[16]) {
    for (int half = 8; half >= 1; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* Makes the quantized copies in the list from x as it is stored, so after rounding. list: may be NULL. */
void reference_quantize_list(const tensor *x, const qlist *list);

#define OP(name, fields) ott_status reference_op_##name(exec *cx, const name##_args *a);
#include "tensor/ops.def"
#undef OP

#endif
