/* nn/rope: tables of the rotation, built once on the host in double. */
#include "nn/rope.h"
#include "base/size.h"

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

/* Inverse frequency of pair j of head_dim/2, scaled as the options say. */
static double frequency_of(const rope_options *o, int64_t head_dim, int64_t j) {
    double frequency = pow(o->theta, -2.0 * (double)j / (double)head_dim);
    return o->kind == ROPE_LLAMA3 ? scale_llama3(o, frequency) : frequency;
}

/* Rows of both tables that are made at once. */
enum { ROWS = 256 };

/* Rows [first, first + count), row by row, of both tables. */
static void fill(float *cosine, float *sine, const double *frequency, int64_t half, int64_t first,
                 int64_t count) {
    for (int64_t p = 0; p < count; p++)
        for (int64_t j = 0; j < half; j++) {
            double angle = (double)(first + p) * frequency[j];
            cosine[p * half + j] = (float)cos(angle);
            sine[p * half + j] = (float)sin(angle);
        }
}

/* Some rows after the other, through memory of the host for ROWS of them. */
static ott_status fill_tables(const rope *r, device *d, const rope_options *o) {
    int64_t half = r->cosine.columns, positions = r->cosine.rows, count;
    void *memory;
    ott_status status = OTT_OK;
    TRY(mem_alloc_array(d->account, MEM_OTHER, half, sizeof(double) + 2 * ROWS * sizeof(float),
                        "rotary tables", &memory));
    double *frequency = memory;
    float *cosine = (float *)(frequency + half), *sine = cosine + ROWS * half;
    for (int64_t j = 0; j < half; j++) frequency[j] = frequency_of(o, r->head_dim, j);
    for (int64_t first = 0; first < positions && status == OTT_OK; first += count) {
        count = positions - first < ROWS ? positions - first : ROWS;
        fill(cosine, sine, frequency, half, first, count);
        tensor to[] = {tensor_rows(r->cosine, first, count), tensor_rows(r->sine, first, count)};
        status = device_copy_in(d, to[0].data, cosine, tensor_bytes(to[0]));
        if (status == OTT_OK) status = device_copy_in(d, to[1].data, sine, tensor_bytes(to[1]));
    }
    mem_free(d->account, memory);
    return status;
}

ott_status rope_build(rope *r, device *d, const rope_options *o, int64_t head_dim, int64_t positions) {
    int64_t half = head_dim / 2, bytes;
    TRY(size_product("rotary tables: positions x head_dim x 4 bytes",
                     (int64_t[]){positions, 2 * half, sizeof(float)}, 3, &bytes));
    TRY(device_allocate(d, MEM_OTHER, bytes, "rotary tables", &r->block));
    r->head_dim = head_dim;
    r->cosine = tensor_matrix(r->block, OTT_F32, positions, half);
    r->sine = tensor_matrix((float *)r->block + positions * half, OTT_F32, positions, half);
    return d->dry_run ? OTT_OK : fill_tables(r, d, o);
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
