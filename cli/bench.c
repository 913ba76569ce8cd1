/* cli/bench: `ottava bench`: measures the speed of this machine. */
#include "bench/bench.h"
#include "cli.h"

static const char about[] =
    "gemm       matrix products of FP8, BF16 and FP32 operands\n"
    "gemv       products of a few rows with weights larger than every cache\n"
    "quantize   casts of fp32 and bf16 to FP8, with scales\n"
    "attention  forward and backward\n"
    "norm       RMSNorm and SwiGLU, forward and backward\n"
    "optimizer  AdamW and the gradient norm\n"
    "products FILE  every matrix product and attention call of a training step of FILE, by size\n"
    "step [FILE]    full training steps\n"
    "generate   generation, one sequence\n"
    "load PATH  loading a Hugging Face folder's weights into a model\n\n"
    "Speeds are compared with this machine's peaks, measured in the same run: fp32 multiply-adds,\n"
    "memcpy, reading files.";

static int run_benchmark(ott_context *context, output *out, void *options) {
    return cli_code(bench_run(context, options, output_write, out));
}

int verb_bench(int argc, char **argv) {
    bench_options o;
    bench_options_init(&o);
    const option options[] = {
        {"--device", DEVICES, OPTION_TEXT, &o.device, HELP_DEVICE},
        {"--threads", "N", OPTION_INT, &o.threads, HELP_THREADS},
        {"--repeats", "N", OPTION_INT, &o.repeats,
         "measurements per benchmark, interleaved; the median is reported (5)"},
        {"--shapes", "small|square|llama-1b|llama-8b|tiny|M,K,N", OPTION_TEXT, &o.shapes,
         "gemm, gemv, quantize, norm: sizes of the matrix products (small)"},
        {"--preset", "NAME", OPTION_TEXT, &o.preset, "step, generate: the model (step: 42M; generate: 124M)"},
        {"--precision", "A,B", OPTION_TEXT, &o.precision,
         "step, generate: precisions to compare: fp8, bf16, fp32 (fp8,bf16); products: one of them"},
        {"--recipe", "NAME", OPTION_TEXT, &o.recipe, "step, generate: FP8 recipe (tensorwise)"},
        {"--batch", "N", OPTION_INT64, &o.batch_size, "step: sequences per batch (4)"},
        {"--seq-len", "N", OPTION_INT64, &o.seq_len,
         "step: tokens per sequence (256; 512 for 124M and larger)"},
        {"--json", NULL, OPTION_FLAG, &o.json, "one JSON object instead of a table"},
    };
    const command c = {.name = "bench",
                       .synopsis = "BENCHMARK [PATH] [options]",
                       .about = about,
                       COMMAND_OPTIONS(options),
                       .operand = "BENCHMARK",
                       .operands_most = 2,
                       .words = "gemm|gemv|quantize|attention|norm|optimizer|products|step|generate|load"};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;
    o.what = argv[0];
    if (operands > 1) o.path = argv[1];
    return cli_run(OTT_LOG_WARNING, run_benchmark, &o);
}
