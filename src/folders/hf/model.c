/* folders/hf/model: loads the weights of a Hugging Face folder. */
#include "folders/hf/model.h"
#include "base/rng.h"
#include "folders/hf/frozen.h"
#include "folders/hf/places.h"
#include "formats/safetensors/shards.h"
#include "fp8/dtype.h"
#include "nn/draw.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct loading {
    model *m;
    hf_places places;
    shards *file;
    float *buffer;                 /* HF_BUFFER elements */
    float *matrix;                 /* the tensor matrix_of, transposed to [rows, columns] */
    const shard_tensor *matrix_of; /* the tensor in `matrix`; NULL if none was read yet */
    bool as_codes;                 /* read FP8 codes without decoding them */
    /* not NULL: values are quantized while they are loaded */
    const frozen_filling *filling;
    const uint64_t *dither_seed; /* seed of the dither; NULL: no dither */
    cancellation_progress progress;
    int64_t done; /* elements loaded so far */
} loading;

static bool is_fp8(const shard_tensor *t) {
    return t->entry->dtype != OTT_DTYPE_COUNT && dtype_is_fp8(t->entry->dtype);
}

/* *out = the folder's tensor with the weight rows places.items[i]. Fails if it is missing or misshaped. */
static ott_status find_tensor(const loading *l, int i, const shard_tensor **out) {
    const hf_place *at = &l->places.items[i];
    int64_t shape[PARAMETER_RANKS];
    int rank = hf_place_shape(at, shape);
    *out = shards_find(l->file, at->name);
    if (!*out || !is_fp8(*out)) return shards_expect(l->file, at->name, rank, shape, out);
    return safetensors_check_shape(shards_file(l->file, (*out)->file), (*out)->entry, rank, shape);
}

/* True for tensors that some folders have but no model needs: a tied head, rotary frequencies, masks, and
   the layers after the model's last one (DeepSeek-V3's multi-token prediction). */
static bool is_ignored(const model *m, const char *name) {
    static const char stem[] = "model.layers.";
    static const char *const of_rope[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                          "rope_factors_short.weight"};
    for (size_t i = 0; i < sizeof of_rope / sizeof *of_rope; i++) /* GGUF: part of the configuration */
        if (strcmp(name, of_rope[i]) == 0) return true;
    if (m->options.family->latent && str_starts_with(name, stem) &&
        strtoll(name + strlen(stem), NULL, 10) >= m->options.layers)
        return true;
    bool is_mask = str_ends_with(name, ".attn.bias") || str_ends_with(name, ".attn.masked_bias");
    return (m->options.tied && strcmp(name, "lm_head.weight") == 0) ||
           str_ends_with(name, ".rotary_emb.inv_freq") || (m->options.family->learned_positions && is_mask);
}

static bool is_place(const loading *l, const char *name) {
    for (int i = 0; i < l->places.count; i++)
        if (strcmp(l->places.items[i].name, name) == 0) return true;
    return false;
}

/* True if `name` is a scale of an FP8 weight or of its input. */
static bool is_scale(const loading *l, const char *name) {
    char weight[HF_NAME_MOST];
    if (!hf_dequantize_weight_of(name, weight) || !is_place(l, weight)) return false;
    const shard_tensor *t = shards_find(l->file, weight);
    return t && is_fp8(t);
}

/* *codes is true if the folder has FP8 codes of the parameter. Fails if only some of its tensors are FP8. */
static ott_status find_if_codes(const loading *l, int i, int count, bool *codes) {
    const shard_tensor *t;
    TRY(find_tensor(l, i, &t));
    *codes = is_fp8(t);
    for (int k = 1; k < count; k++) {
        TRY(find_tensor(l, i + k, &t));
        if (is_fp8(t) != *codes)
            return status_fail(
                OTT_ERR_UNSUPPORTED,
                "%s: %s combines the tensors %s and %s, and only one is FP8: remove train.frozen_dtype = fp8",
                shards_path(l->file), l->places.items[i].parameter->name, l->places.items[i].name,
                t->entry->name);
    }
    return OTT_OK;
}

/* Returns how many items of `places`, counted from item i, belong to the same parameter as item i. */
static int count_places(const loading *l, int i) {
    int count = 1;
    while (i + count < l->places.count &&
           l->places.items[i + count].parameter == l->places.items[i].parameter)
        count++;
    return count;
}

static ott_status check_tensors(const loading *l) {
    const shard_tensor *t;
    hf_dequantize scales;
    bool codes;
    for (int i = 0; i < l->places.count; i++) {
        TRY(find_tensor(l, i, &t));
        if (l->places.items[i].parameter->codes) TRY(find_if_codes(l, i, count_places(l, i), &codes));
        if (!is_fp8(t)) continue;
        if (l->places.items[i].transposed)
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "%s: the tensor %s is FP8: transposed matrices must be F32, BF16 or F16",
                               shards_path(l->file), t->entry->name);
        TRY(hf_dequantize_open(l->m->device->account, l->file, t, &scales));
        ott_status status =
            l->places.items[i].parameter->codes ? hf_frozen_check(&l->places.items[i], t, &scales) : OTT_OK;
        hf_dequantize_close(&scales);
        TRY(status);
    }
    for (int64_t i = 0; i < shards_count(l->file); i++) {
        const char *name = shards_at(l->file, i)->entry->name;
        if (!(is_place(l, name) || is_scale(l, name) || is_ignored(l->m, name)))
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "%s: the tensor %s does not belong to a %s model with this configuration",
                               shards_path(l->file), name, l->m->options.family->name);
    }
    return OTT_OK;
}

/* Reads elements of a GGUF tensor with interleaved halves of heads (gguf_head_rows), row by row. */
static ott_status read_interleaved(loading *l, const shard_tensor *t, const hf_place *place, int64_t first,
                                   int64_t count, float *out) {
    int64_t columns = place->columns, half = place->head_rows / 2;
    for (int64_t at = 0, n; at < count; at += n) {
        int64_t row = (first + at) / columns, column = (first + at) % columns, within = row % (2 * half);
        n = columns - column < count - at ? columns - column : count - at;
        row += 2 * (within % half) + within / half - within;
        TRY(shards_read_floats(l->file, t, row * columns + column, n, out + at));
    }
    return OTT_OK;
}

/* Reads elements of a GGUF tensor, and changes them back to the parameter's order and values. */
static ott_status read_gguf_floats(loading *l, const shard_tensor *t, const hf_place *place, int64_t first,
                                   int64_t count, float *out) {
    TRY(place->head_rows > 0 ? read_interleaved(l, t, place, first, count, out)
                             : shards_read_floats(l->file, t, first, count, out));
    if (place->has_one)
        for (int64_t i = 0; i < count; i++) out[i] -= 1;
    return OTT_OK;
}

/* Reads elements of tensor t, in the parameter's order. Transposes a tensor [columns, rows] at first use. */
static ott_status read_floats(loading *l, const shard_tensor *t, const hf_place *place, int64_t first,
                              int64_t count, float *out) {
    mem *account = l->m->device->account;
    int64_t rows = place->tensor_rows, columns = place->columns;
    if (l->places.arch) return read_gguf_floats(l, t, place, first, count, out);
    if (!place->transposed) return shards_read_floats(l->file, t, first, count, out);
    if (l->matrix_of != t) {
        mem_free(account, l->matrix);
        l->matrix = NULL;
        TRY(mem_alloc_array(account, MEM_OTHER, rows * (columns + 1), sizeof(float), "a transposed matrix",
                            &l->matrix));
        l->matrix_of = t;
        float *line = l->matrix + rows * columns;
        for (int64_t c = 0; c < columns; c++) {
            TRY(shards_read_floats(l->file, t, c * rows, rows, line));
            for (int64_t r = 0; r < rows; r++) l->matrix[r * columns + c] = line[r];
        }
    }
    memcpy(out, l->matrix + first, (size_t)count * sizeof *out);
    return OTT_OK;
}

/* True if the master gets dither: it is trained in fp32, but loaded from 16-bit values. Norms, biases and
   routers get none, because their layers use the master without rounding it to 16 bits. */
static bool needs_dither(const shard_tensor *t, const hf_place *at) {
    const parameter *p = at->parameter;
    ott_dtype loaded = t->entry->dtype;
    return !p->frozen && p->rank > 1 && at->module->role != ROLE_ROUTER && p->shard.value.dtype == OTT_F32 &&
           (loaded == OTT_BF16 || loaded == OTT_F16);
}

/* Reads consecutive elements of tensor t into the buffer at offset `at`, as fp32 or as FP8 codes. */
static ott_status read_consecutive(loading *l, const shard_tensor *t, const hf_dequantize *scales,
                                   const hf_place *place, parameter_run run, int64_t at) {
    uint8_t *codes = (uint8_t *)l->buffer + at;
    if (l->as_codes) return shards_read(l->file, t, run.first, run.count, codes);
    TRY(read_floats(l, t, place, run.first, run.count, l->buffer + at));
    if (scales) hf_dequantize_apply(scales, run.first, run.count, l->buffer + at);
    if (l->dither_seed && needs_dither(t, place)) {
        /* The numbers depend on the tensor's name in the file, not on whether the model fuses projections. */
        uint64_t stream = rng_stream(t->entry->name) ^ rng_stream("master_dither");
        draw_dither(l->buffer + at, run.count, t->entry->dtype, *l->dither_seed, stream, (uint64_t)run.first);
    }
    if (l->filling)
        frozen_fill_encode(l->filling, run.first + hf_place_shift(place), run.count, l->buffer + at, codes);
    return OTT_OK;
}

/* Loads this rank's slice of places.items[i], piece by piece. */
static ott_status load_rows(loading *l, const shard_tensor *t, const hf_dequantize *scales, int i) {
    const hf_place *place = &l->places.items[i];
    hf_slice own = hf_place_slice(place);
    int64_t total = own.part.rows * own.part.columns;
    parameter_run run;
    for (int64_t at = 0, count; at < total; at += count) {
        count = total - at < HF_BUFFER ? total - at : HF_BUFFER;
        for (int64_t done = 0; done < count; done += run.count) {
            run = parameter_run_at(&own.part, place->columns, at + done, count - done);
            TRY(read_consecutive(l, t, scales, place, run, done));
        }
        ott_dtype d = own.shard->dtype;
        if (d != OTT_E4M3) cast_in_place(l->buffer, OTT_F32, d, count);
        TRY(device_copy_in(l->m->device, hf_slice_at(&own, at), l->buffer, count * dtype_bytes(d)));
        TRY(cancellation_progress_update(&l->progress, l->done += count));
    }
    return OTT_OK;
}

static ott_status load_place(loading *l, int i) {
    const shard_tensor *t;
    hf_dequantize scales;
    TRY(find_tensor(l, i, &t));
    if (needs_dither(t, &l->places.items[i])) l->m->masters_from = t->entry->dtype;
    if (!is_fp8(t)) return load_rows(l, t, NULL, i);
    TRY(hf_dequantize_open(l->m->device->account, l->file, t, &scales));
    ott_status status = load_rows(l, t, &scales, i);
    hf_dequantize_close(&scales);
    return status;
}

/* ---- weights kept in FP8 ---- */

/* Loads codes and scales unchanged. */
static ott_status load_frozen_codes(loading *l, int i) {
    const shard_tensor *t;
    hf_dequantize scales;
    TRY(find_tensor(l, i, &t));
    TRY(hf_dequantize_open(l->m->device->account, l->file, t, &scales));
    ott_status status = hf_frozen_take_scales(&l->places.items[i], &scales);
    hf_dequantize_close(&scales);
    TRY(status);
    l->as_codes = true;
    status = load_rows(l, t, NULL, i);
    l->as_codes = false;
    return status;
}

/* Computes amaxes of the full tensor, not of this rank's shard, so that all ranks get the same scales. */
static ott_status measure_place(loading *l, const frozen_filling *f, int i) {
    const hf_place *at = &l->places.items[i];
    const shard_tensor *t;
    int64_t begin = at->tensor_row * at->columns, end = begin + at->count * at->columns;
    TRY(find_tensor(l, i, &t));
    for (int64_t from = begin, count; from < end; from += count) {
        count = end - from < HF_BUFFER ? end - from : HF_BUFFER;
        TRY(read_floats(l, t, at, from, count, l->buffer));
        frozen_fill_measure(f, from + hf_place_shift(at), count, l->buffer);
    }
    return OTT_OK;
}

/* Quantizes the weights. Reads them twice: once for the scales, once for the codes. */
static ott_status encode_parameter(loading *l, int i, int count) {
    frozen_filling filling;
    ott_status status = OTT_OK;
    TRY(frozen_fill_open(l->m->device->account, l->places.items[i].parameter, &filling));
    l->filling = &filling;
    for (int k = 0; k < count && status == OTT_OK; k++) status = measure_place(l, &filling, i + k);
    if (status == OTT_OK) status = frozen_fill_scales(&filling, l->m->device);
    for (int k = 0; k < count && status == OTT_OK; k++) status = load_place(l, i + k);
    l->filling = NULL;
    frozen_fill_close(&filling);
    return status;
}

static ott_status load_kept_in_fp8(loading *l, int i, int count) {
    const parameter *p = l->places.items[i].parameter;
    bool codes;
    if (!p->codes->scale_inv) return OTT_OK; /* the parameter is on another pipeline stage */
    TRY(find_if_codes(l, i, count, &codes));
    if (!codes) return encode_parameter(l, i, count);
    for (int k = 0; k < count; k++) TRY(load_frozen_codes(l, i + k));
    return frozen_place_scales(p, l->m->device);
}

/* Appends a matrix's name. All experts have one name: "experts.up_proj" for "experts.0.up_proj". */
static void list_matrix(const char *name, str *names) {
    const char *experts = strstr(name, ".experts."), *number = experts ? experts + strlen(".experts.") : name;
    size_t digits = experts ? strspn(number, "0123456789") : 0;
    if (digits > 0 && strncmp(number, "0.", 2) != 0) return;
    str_printf(names, "%s%.*s%s", names->length ? "," : "", (int)(number - name), name,
               digits > 0 ? number + digits + 1 : number);
}

ott_status hf_model_list_codes(mem *account, const char *folder, str *names, bool *others_are_bf16) {
    char weight[HF_NAME_MOST];
    shards *s;
    TRY(shards_open(account, folder, &s));
    *others_are_bf16 = true;
    for (int64_t i = 0; i < shards_count(s); i++) {
        const safetensors_entry *e = shards_at(s, i)->entry;
        bool in_block = strstr(e->name, ".layers.") && str_ends_with(e->name, ".weight");
        bool routes = str_ends_with(e->name, ".gate.weight"); /* routers run in fp32 */
        if (e->dtype == OTT_E4M3 && e->rank == 2 && in_block && !routes)
            list_matrix(e->name, names);
        else if (e->rank > 1 && !hf_dequantize_weight_of(e->name, weight))
            *others_are_bf16 &= e->dtype == OTT_BF16;
    }
    shards_close(s);
    return str_finish(names);
}

/* Returns the head of Baichuan 2, recognized by the vocabulary size; NULL for other models. */
static parameter *head_to_normalize(const model *m) {
    enum { VOCABULARY = 125696 };
    const model_options *o = &m->options;
    return family_is(o->family, FAMILY_BAICHUAN) && o->vocab == VOCABULARY ? m->loss.head.weight : NULL;
}

static void normalize_row(float *row, int64_t count) {
    double squares = 0;
    for (int64_t i = 0; i < count; i++) squares += (double)row[i] * (double)row[i];
    float length = (float)fmax(sqrt(squares), 1e-12);
    for (int64_t i = 0; i < count; i++) row[i] /= length;
}

static ott_status normalize_head(const loading *l) {
    const parameter *p = head_to_normalize(l->m);
    device *d = l->m->device;
    void *memory;
    if (!p) return OTT_OK;
    const tensor *w = &p->shard.value;
    TRY(mem_alloc_array(d->account, MEM_OTHER, w->columns, sizeof(float), "a row of the head", &memory));
    ott_status status = OTT_OK;
    for (int64_t r = 0; r < w->rows && status == OTT_OK; r++) {
        const tensor row = tensor_rows(*w, r, 1);
        status = device_copy_out(d, memory, row.data, tensor_bytes(row));
        cast_in_place(memory, w->dtype, OTT_F32, w->columns);
        normalize_row(memory, w->columns);
        cast_in_place(memory, OTT_F32, w->dtype, w->columns);
        if (status == OTT_OK) status = device_copy_in(d, row.data, memory, tensor_bytes(row));
    }
    mem_free(d->account, memory);
    return status;
}

/* ---- loading a folder ---- */

static ott_status open_gguf_places(loading *l) {
    const char *name = safetensors_metadata(shards_file(l->file, 0), "general.architecture");
    const gguf_arch *arch = name ? gguf_arch_find(name, l->m->options.family) : NULL;
    if (!arch)
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: has the architecture %s, not one for a %s model",
                           shards_path(l->file), name ? str_show(name).text : "(missing)",
                           l->m->options.family->name);
    return hf_places_open_gguf(l->m, arch, &l->places);
}

/* A layer's experts are one tensor (transformers 5) or one tensor each (earlier versions). */
static ott_status open_places(loading *l) {
    const family *f = l->m->options.family;
    if (shards_are_gguf(l->file)) return open_gguf_places(l);
    TRY(hf_places_open(l->m, f, true, &l->places));
    for (int i = 0; i < l->places.count; i++) {
        const hf_place *at = &l->places.items[i];
        if (!at->experts || shards_find(l->file, at->name)) continue;
        hf_places_close(&l->places);
        TRY(hf_places_open(l->m, f, false, &l->places));
        break;
    }
    const char *name = l->places.items[0].name;
    if (!shards_find(l->file, name) && shards_find(l->file, strchr(name, '.') + 1))
        hf_places_drop_root(&l->places);
    return OTT_OK;
}

static ott_status load_folder_weights(loading *l, const char *folder) {
    mem *account = l->m->device->account;
    /* Training would need the gradient of normalize_head, which normalizes the head's rows after loading. */
    const parameter *p = head_to_normalize(l->m);
    if (p && p->shard.grad.data)
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "Baichuan 2 normalizes the rows of its head, which cannot be trained here: freeze it "
            "(train.freeze = [\"lm_head.*\"]), or train adapters (peft.dim)");
    TRY(shards_open(account, folder, &l->file));
    TRY(open_places(l));
    TRY(check_tensors(l));
    TRY(mem_alloc_array(account, MEM_OTHER, HF_BUFFER, sizeof(float), "weight buffer", &l->buffer));
    l->progress = cancellation_progress_begin(l->m->cancellation, "Loading weights", model_shard_count(l->m));
    for (int i = 0, count; i < l->places.count; i += count) {
        count = count_places(l, i);
        if (l->places.items[i].parameter->codes)
            TRY(load_kept_in_fp8(l, i, count));
        else
            for (int k = 0; k < count; k++) TRY(load_place(l, i + k));
    }
    TRY(normalize_head(l));
    model_weights_changed(l->m);
    return OTT_OK;
}

static ott_status load_folder(model *m, const char *folder, const uint64_t *dither_seed) {
    loading l = {.m = m, .dither_seed = dither_seed};
    ott_status status = load_folder_weights(&l, folder);
    mem_free(m->device->account, l.buffer);
    mem_free(m->device->account, l.matrix);
    shards_close(l.file);
    hf_places_close(&l.places);
    return status;
}

ott_status hf_model_load(model *m, const char *folder) {
    return load_folder(m, folder, NULL);
}

ott_status hf_model_load_dithered(model *m, const char *folder, uint64_t seed) {
    return load_folder(m, folder, &seed);
}
