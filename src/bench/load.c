/* bench/load: loads the weights of a Hugging Face folder into a model, as a training run does. For comparison
   it also reads the same files into a buffer. Loads and reads alternate. Before each load and read the
   operating system is asked to drop the files from its cache, so that they are read from disk. */
#include "backend/backend.h"
#include "base/clock.h"
#include "base/file/file.h"
#include "bench/harness.h"
#include "folders/hf/model.h"
#include "formats/safetensors/shards.h"
#include "monitor/progress.h"
#include "resolve/resolve.h"
#include <fcntl.h>
#include <unistd.h>

enum { READ_BYTES = 8 << 20 };

typedef struct load_bench {
    mem *account; /* counts only the model's memory, to report what loading needs */
    const bench_options *options;
    config *cfg;
    model_options shape;
    device *device;
    model *m;
    shards *files;
    void *buffer;              /* [READ_BYTES] for reading the files */
    double *loading, *reading; /* [repeats] seconds of each load and read */
    int64_t bytes, largest;    /* bytes of all files; of the largest file */
} load_bench;

static ott_status open_loaded_model(load_bench *l) {
    /* nothing is trained, so seq_len does not matter */
    const char *arguments[] = {"--model.hf_path", l->options->path, "--train.seq_len=1"};
    TRY(config_parse(l->account, NULL, 3, arguments, &l->cfg));
    TRY(hf_model_configure(l->account, l->cfg, NULL));
    TRY(model_options_resolve(l->cfg, &l->shape));
    TRY(backend_open(&(backend_choice){.name = l->options->device, .threads = l->options->threads},
                     l->account, &l->device));
    return model_open(l->device, &l->shape, MODEL_INFERENCE, 1, &l->m);
}

static ott_status open_all(load_bench *l) {
    int repeats = l->options->repeats;
    TRY(open_loaded_model(l));
    TRY(shards_open(l->account, l->options->path, &l->files));
    for (int64_t i = 0; i < shards_file_count(l->files); i++) {
        int64_t bytes;
        TRY(file_size(safetensors_path(shards_file(l->files, i)), &bytes));
        l->bytes += bytes;
        if (bytes > l->largest) l->largest = bytes;
    }
    TRY(mem_alloc(l->account, MEM_OTHER, READ_BYTES, "a piece of a file", &l->buffer));
    TRY(mem_alloc_array(l->account, MEM_OTHER, 2 * repeats, sizeof(double), "times", &l->loading));
    l->reading = l->loading + repeats;
    return OTT_OK;
}

static void close_load(load_bench *l) {
    mem_free(l->account, l->loading);
    mem_free(l->account, l->buffer);
    shards_close(l->files);
    model_close(l->m);
    device_close(l->device);
    config_close(l->cfg);
    mem_close(l->account);
}

/* Asks the system to drop the files from its cache. It keeps pages that are being written or in use. */
static void forget_files(const load_bench *l) {
    for (int64_t i = 0; i < shards_file_count(l->files); i++) {
        int descriptor = open(safetensors_path(shards_file(l->files, i)), O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) continue;
        (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
        close(descriptor);
    }
}

static ott_status read_weight_file(const load_bench *l, const char *path) {
    file_reader r;
    ott_status status = OTT_OK;
    TRY(file_reader_open(path, &r));
    for (int64_t at = 0, n; at < r.bytes && status == OTT_OK; at += n) {
        n = r.bytes - at < READ_BYTES ? r.bytes - at : READ_BYTES;
        status = file_reader_read(&r, at, l->buffer, n);
    }
    file_reader_close(&r);
    return status;
}

/* The first load is not timed, because it also makes the system map the model's memory. In a training run the
   memory is mapped before loading. */
static ott_status measure_loading(load_bench *l) {
    TRY(hf_model_load(l->m, l->options->path));
    for (int r = 0; r < l->options->repeats; r++) {
        forget_files(l);
        double began = clock_seconds();
        TRY(hf_model_load(l->m, l->options->path));
        l->loading[r] = clock_seconds() - began;
        forget_files(l);
        began = clock_seconds();
        for (int64_t i = 0; i < shards_file_count(l->files); i++)
            TRY(read_weight_file(l, safetensors_path(shards_file(l->files, i))));
        l->reading[r] = clock_seconds() - began;
    }
    return OTT_OK;
}

static void write_load_text(const load_bench *l, double loading, double reading, str *out) {
    const double mib = 1048576.0;
    char processor[96];
    mem_stats memory = mem_read(l->account);
    bench_processor(processor);
    str_printf(out, "%s; %s; medians of %d interleaved repeats\n", processor, l->device->name,
               l->options->repeats);
    str_printf(
        out,
        "%lld files, %.1f MiB, the largest %.1f MiB; dropped from the file cache before each reading\n\n",
        (long long)shards_file_count(l->files), (double)l->bytes / mib, (double)l->largest / mib);
    str_printf(out, "read alone   %8.3f GB/s\n", (double)l->bytes / reading / 1e9);
    str_printf(out, "loaded       %8.3f GB/s (%5.1f%%)\n", (double)l->bytes / loading / 1e9,
               100 * reading / loading);
    str_printf(out, "memory       %8.1f MiB at most (resident %.1f), parameters %.1f\n",
               (double)memory.peak / mib, (double)progress_peak_resident() / mib,
               (double)memory.now_of[MEM_PARAM] / mib);
}

static void write_load_json(const load_bench *l, double loading, double reading, str *out) {
    mem_stats memory = mem_read(l->account);
    str_printf(out, "{\"bench\":\"load\",\"repeats\":%d,\"files\":%lld,\"bytes\":%lld,\"largest_bytes\":%lld",
               l->options->repeats, (long long)shards_file_count(l->files), (long long)l->bytes,
               (long long)l->largest);
    str_printf(out, ",\"read_gbytes_per_second\":%.4f,\"load_gbytes_per_second\":%.4f,\"of_read\":%.4f",
               (double)l->bytes / reading / 1e9, (double)l->bytes / loading / 1e9, reading / loading);
    str_printf(out, ",\"peak_bytes\":%lld,\"resident_bytes\":%lld,\"parameter_bytes\":%lld}\n",
               (long long)memory.peak, (long long)progress_peak_resident(),
               (long long)memory.now_of[MEM_PARAM]);
}

static ott_status run_load(mem *account, const logger *log, const bench_options *o, str *out) {
    load_bench l = {.options = o};
    ott_status status;
    (void)account, (void)log;
    TRY(mem_open(&l.account));
    TRY_OUT(open_all(&l));
    TRY_OUT(measure_loading(&l));
    double loading = bench_median(l.loading, o->repeats), reading = bench_median(l.reading, o->repeats);
    if (o->json)
        write_load_json(&l, loading, reading, out);
    else
        write_load_text(&l, loading, reading, out);
out:
    close_load(&l);
    return status;
}

const bench_entry bench_load = {.name = "load", .accepts = BENCH_NEEDS_PATH, .run = run_load};
