/* nn/attention/rope: builds the cosine and sine tables on the host, in double. */
#include "nn/attention/rope.h"
#include "base/text/size.h"

#define PI 3.14159265358979323846

/* Llama 3.1's scaling: divides low frequencies by `factor`, keeps high ones, and interpolates in between. */
static double scale_llama3(const rope_options *o, double frequency) {
    double wavelength = 2.0 * PI / frequency;
    double original = (double)o->original_max_position;
    if (wavelength < original / o->high_frequency_factor) return frequency;
    if (wavelength > original / o->low_frequency_factor) return frequency / o->factor;
    double share = (original / wavelength - o->low_frequency_factor) /
                   (o->high_frequency_factor - o->low_frequency_factor);
    return (1.0 - share) * frequency / o->factor + share * frequency;
}

int64_t rope_columns(const rope_options *o, int64_t head_dim) {
    return o->partial_rotary_factor > 0 ? (int64_t)((double)head_dim * o->partial_rotary_factor) : head_dim;
}

/* Real-valued index of the pair of columns that rotates `turns` times in original_max_position tokens. */
static double yarn_pair(const rope_options *o, int64_t columns, double turns) {
    return (double)columns * log((double)o->original_max_position / (turns * 2.0 * PI)) /
           (2.0 * log(o->theta));
}

/* YaRN: divides low frequencies by `factor`, keeps high ones, and interpolates linearly in between. */
static double scale_yarn(const rope_options *o, int64_t columns, int64_t j, double frequency) {
    double low = fmax(floor(yarn_pair(o, columns, o->beta_fast)), 0);
    double high = fmin(ceil(yarn_pair(o, columns, o->beta_slow)), (double)columns - 1);
    if (low == high) high += 0.001;
    double ramp = fmin(fmax(((double)j - low) / (high - low), 0), 1);
    return frequency / o->factor * ramp + frequency * (1.0 - ramp);
}

static double scale_longrope(const rope_options *o, int64_t positions, int64_t j, double frequency) {
    const float *factor = positions > o->original_max_position ? o->long_factor : o->short_factor;
    return frequency / (double)factor[j];
}

/* theta for tables of this number of positions, as in transformers. */
static double dynamic_base(const rope_options *o, int64_t columns, int64_t positions) {
    double original = (double)o->original_max_position;
    double length = fmax((double)positions, original), rotated = (double)columns;
    double stretch = o->factor * length / original - (o->factor - 1);
    return rotated > 2 ? o->theta * pow(stretch, rotated / (rotated - 2)) : o->theta;
}

double rope_frequency(const rope_options *o, int64_t columns, int64_t positions, int64_t j) {
    double frequency = pow(o->theta, -2.0 * (double)j / (double)columns);
    switch (o->kind) {
    case ROPE_PLAIN: break;
    case ROPE_LLAMA3: return scale_llama3(o, frequency);
    case ROPE_LINEAR: return frequency / o->factor;
    case ROPE_YARN: return scale_yarn(o, columns, j, frequency);
    case ROPE_LONGROPE: return scale_longrope(o, positions, j, frequency);
    case ROPE_DYNAMIC: return pow(dynamic_base(o, columns, positions), -2.0 * (double)j / (double)columns);
    }
    return frequency;
}

double rope_mscale(const rope_options *o, double mscale) {
    return o->factor <= 1 ? 1 : 0.1 * mscale * log(o->factor) + 1;
}

double rope_cos_sin_scale(const rope_options *o) {
    bool ratio = o->mscale > 0 && o->mscale_all_dim > 0;
    if (o->kind != ROPE_YARN && o->kind != ROPE_LONGROPE) return 1;
    if (o->attention_factor > 0) return o->attention_factor;
    if (o->factor <= 1) return 1;
    if (o->kind == ROPE_YARN)
        return ratio ? rope_mscale(o, o->mscale) / rope_mscale(o, o->mscale_all_dim) : rope_mscale(o, 1);
    return sqrt(1 + log(o->factor) / log((double)o->original_max_position));
}

/* Number of table rows that are computed and copied in one piece. */
enum { ROWS = 256 };

/* Computes rows [first, first + count) of the cosine and sine tables. */
static void fill_angles(float *cosine, float *sine, const double *frequency, double length, int64_t half,
                        int64_t first, int64_t count) {
    for (int64_t p = 0; p < count; p++)
        for (int64_t j = 0; j < half; j++) {
            double angle = (double)(first + p) * frequency[j];
            cosine[p * half + j] = (float)(length * cos(angle));
            sine[p * half + j] = (float)(length * sin(angle));
        }
}

static ott_status fill_rope_tables(const rope *r, device *d, const rope_options *o) {
    int64_t half = r->cosine.columns, positions = r->cosine.rows, count;
    double *frequency;
    ott_status status = OTT_OK;
    TRY(mem_alloc_array(d->account, MEM_OTHER, half, sizeof(double) + 2 * ROWS * sizeof(float),
                        "rotary tables", &frequency));
    float *cosine = (float *)(frequency + half), *sine = cosine + ROWS * half;
    for (int64_t j = 0; j < half; j++) frequency[j] = rope_frequency(o, 2 * half, positions, j);
    for (int64_t first = 0; first < positions && status == OTT_OK; first += count) {
        count = positions - first < ROWS ? positions - first : ROWS;
        fill_angles(cosine, sine, frequency, rope_cos_sin_scale(o), half, first, count);
        tensor to[] = {tensor_rows(r->cosine, first, count), tensor_rows(r->sine, first, count)};
        status = device_copy_in(d, to[0].data, cosine, tensor_bytes(to[0]));
        if (status == OTT_OK) status = device_copy_in(d, to[1].data, sine, tensor_bytes(to[1]));
    }
    mem_free(d->account, frequency);
    return status;
}

ott_status rope_build(rope *r, device *d, const rope_options *o, int64_t head_dim, int64_t positions) {
    int64_t half = rope_columns(o, head_dim) / 2, bytes;
    STATUS_REQUIRE(o->kind != ROPE_LONGROPE || o->factors == half);
    TRY(size_product("rotary tables: positions x rotated columns x 4 bytes",
                     (int64_t[]){positions, 2 * half, sizeof(float)}, 3, &bytes));
    TRY(device_allocate(d, MEM_OTHER, bytes, "rotary tables", &r->block));
    r->head_dim = head_dim;
    r->interleaved = o->interleaved;
    r->cosine = tensor_matrix(r->block, OTT_F32, positions, half);
    r->sine = tensor_matrix((float *)r->block + positions * half, OTT_F32, positions, half);
    return d->dry_run ? OTT_OK : fill_rope_tables(r, d, o);
}

void rope_release(rope *r, device *d) {
    device_release(d, r->block);
    r->block = NULL;
}

ott_status rope_apply(exec *cx, const rope *r, const tensor *x, const tensor *position, bool inverse) {
    return rope_apply_within(cx, r, x, r->head_dim, 0, position, inverse);
}

ott_status rope_apply_within(exec *cx, const rope *r, const tensor *x, int64_t head_dim, int64_t first,
                             const tensor *position, bool inverse) {
    return op_rope(cx, &(rope_args){.x = x,
                                    .position = position,
                                    .cosine = &r->cosine,
                                    .sine = &r->sine,
                                    .head_dim = head_dim,
                                    .first = first,
                                    .interleaved = r->interleaved,
                                    .inverse = inverse});
}
