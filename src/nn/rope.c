/* nn/rope: tables of the rotation, built once on the host in double. */
#include "nn/rope.h"

#define PI 3.14159265358979323846

/* Llama 3.1's rule: long wavelengths are stretched by `factor`, short ones kept, the band between blended. */
static double scale_llama3(const rope_options *o, double frequency) {
    double wavelength = 2.0 * PI / frequency;
    double original = (double)o->original_max_position;
    if (wavelength < original / o->high_frequency_factor) return frequency;
    if (wavelength > original / o->low_frequency_factor) return frequency / o->factor;
    double share = (original / wavelength - o->low_frequency_factor) /
                   (o->high_frequency_factor - o->low_frequency_factor);
    return (1.0 - share) * frequency / o->factor + share * frequency;
}

double rope_frequency(const rope_options *o, int64_t head_dim, int64_t j) {
    double frequency = pow(o->theta, -2.0 * (double)j / (double)head_dim);
    return o->kind == ROPE_LLAMA3 ? scale_llama3(o, frequency) : frequency;
}

static void fill(float *cosine, float *sine, const rope_options *o, int64_t head_dim, int64_t positions) {
    int64_t half = head_dim / 2;
    for (int64_t j = 0; j < half; j++) {
        double frequency = rope_frequency(o, head_dim, j);
        for (int64_t p = 0; p < positions; p++) {
            cosine[p * half + j] = (float)cos((double)p * frequency);
            sine[p * half + j] = (float)sin((double)p * frequency);
        }
    }
}

ott_status rope_build(rope *r, device *d, const rope_options *o, int64_t head_dim, int64_t positions) {
    int64_t half = head_dim / 2, bytes = positions * half * (int64_t)sizeof(float);
    void *host;
    TRY(mem_take(d->account, MEM_OTHER, 2 * bytes, "rotary tables", &host));
    fill(host, (float *)host + positions * half, o, head_dim, positions);
    ott_status status = device_allocate(d, MEM_OTHER, 2 * bytes, "rotary tables", &r->block);
    if (status == OTT_OK) status = device_copy_in(d, r->block, host, 2 * bytes);
    mem_give(d->account, host);
    if (status != OTT_OK) return status;
    r->head_dim = head_dim;
    r->cosine = tensor_matrix(r->block, OTT_F32, positions, half);
    r->sine = tensor_matrix((float *)r->block + positions * half, OTT_F32, positions, half);
    return OTT_OK;
}

void rope_release(rope *r, device *d) {
    device_release(d, r->block);
    r->block = NULL;
}

ott_status rope_apply(exec *cx, const rope *r, const tensor *x, const tensor *position, bool inverse) {
    return op_rope(cx, &(rope_args){.x = x,
                                    .position = position,
                                    .cosine = &r->cosine,
                                    .sine = &r->sine,
                                    .head_dim = r->head_dim,
                                    .inverse = inverse});
}
