/* cli/export: `ottava export`: writes a model for transformers, for serving programs and for llama.cpp. */
#include "cli.h"
#include <string.h>

/* An option that takes one of a few words. */
typedef struct choice {
    const char *name;
    const char *words[6]; /* the words that the option accepts; ends with NULL */
} choice;

static const choice formats = {"--format", {"hf", "hf-fp8", "peft", "gguf", "gguf-q8_0", NULL}};
static const choice methods = {"--method", {"fp8", "compressed-tensors", NULL}};
static const choice granularities = {"--granularity", {"tensor", "channel", "block", "as-trained", NULL}};
static const choice dtypes = {"--dtype", {"fp32", "bf16", "fp16", NULL}};
static const ott_dtype dtype_of[] = {OTT_F32, OTT_BF16, OTT_F16};

static int choose_word(const choice *c, const char *word, int *out) {
    int count = 0;
    char list[96] = "";
    for (; c->words[count]; count++) {
        if (strcmp(c->words[count], word) == 0) {
            *out = count;
            return OPTIONS_CONTINUE;
        }
        if (count > 0) strcat(list, ", ");
        strcat(list, c->words[count]);
    }
    const char *near = options_nearest(word, c->words, count);
    return cli_error(CLI_BAD_INPUT, "export: %s is \"%s\"; it takes %s%s%s%s", c->name, word, list,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

typedef struct export_arguments {
    const char *run, *format, *method, *granularity, *dtype, *out;
    ott_export_options options;
} export_arguments;

static int take_choices(export_arguments *w) {
    int format, method = OTT_EXPORT_COMPRESSED_TENSORS, granularity, dtype = 1, code;
    if ((code = choose_word(&formats, w->format, &format)) != OPTIONS_CONTINUE) return code;
    if (w->method && (code = choose_word(&methods, w->method, &method)) != OPTIONS_CONTINUE) return code;
    granularity = method == OTT_EXPORT_FP8 ? OTT_EXPORT_BLOCK : OTT_EXPORT_CHANNEL;
    if (w->granularity &&
        (code = choose_word(&granularities, w->granularity, &granularity)) != OPTIONS_CONTINUE)
        return code;
    if (w->dtype && (code = choose_word(&dtypes, w->dtype, &dtype)) != OPTIONS_CONTINUE) return code;
    if (format != OTT_EXPORT_HF_FP8 && (w->method || w->granularity))
        return cli_error(CLI_BAD_INPUT, "export: %s works only with --format=hf-fp8",
                         w->method ? "--method" : "--granularity");
    if (!w->out) return cli_error(CLI_BAD_INPUT, "export: --out is missing: --out=DIR");
    w->options.format = (ott_export_format)format;
    w->options.method = (ott_export_method)method;
    w->options.granularity = (ott_export_granularity)granularity;
    w->options.dtype = dtype_of[dtype];
    return OPTIONS_CONTINUE;
}

static int write_export(ott_context *context, output *out, void *user) {
    const export_arguments *w = user;
    return cli_code(ott_export(context, w->run, w->out, &w->options, output_write, out));
}

int verb_export(int argc, char **argv) {
    export_arguments w = {.format = "hf"};
    ott_export_options_init(&w.options);
    const option options[] = {
        {"--out", "DIR", OPTION_TEXT, &w.out, "folder to write, new or empty; for gguf a new file"},
        {"--format", "hf|hf-fp8|peft|gguf|gguf-q8_0", OPTION_TEXT, &w.format,
         "hf (default), hf-fp8: matrices of the blocks in E4M3, peft: the adapters alone, gguf: one file for "
         "llama.cpp, or gguf-q8_0: its matrices in Q8_0"},
        {"--dtype", "bf16|fp32|fp16", OPTION_TEXT, &w.dtype,
         "weights of hf and gguf: bf16 (default), fp32 or fp16"},
        {"--method", "compressed-tensors|fp8", OPTION_TEXT, &w.method,
         "quantization method of the FP8 files: compressed-tensors (default) or fp8"},
        {"--granularity", "channel|tensor|block|as-trained", OPTION_TEXT, &w.granularity,
         "which elements share a scale: channel (default), tensor, block (default of fp8) or as-trained"},
        {"--from", "HF_DIR", OPTION_MODEL, &w.options.from,
         "folder with tokenizer files and further keys of config.json (for gguf: the tokenizer), and with\n"
         "                           the frozen weights of a run with adapters; default: the run's "
         "model.hf_path"},
        {"--device", DEVICES, OPTION_TEXT, &w.options.device, HELP_DEVICE},
    };
    const command c = {
        .name = "export",
        .synopsis = "RUN_DIR --out DIR [options]",
        .about =
            "Writes a run's model (its newest checkpoint, or the checkpoint folder given) as a Hugging Face\n"
            "folder: for transformers, and with --format=hf-fp8 for vLLM and SGLang; or as a GGUF file for\n"
            "llama.cpp (docs/howto/export.md).\n\n"
            "  compressed-tensors  a scale for each channel, tensor or block; read by vLLM, SGLang, and "
            "transformers\n"
            "                      with the Python package compressed-tensors\n"
            "  fp8                 a scale for each block (of sizes divisible by 128), read by all three, or "
            "for\n"
            "                      each tensor, not read by transformers\n"
            "  as-trained          the run's own FP8 codes, with the scales of its recipe (tensorwise, "
            "rowwise,\n"
            "                      current, block); all other methods requantize with amax / 448",
        COMMAND_OPTIONS(options),
        .operand = "RUN_DIR",
        .operands_most = 1,
        .operand_is_model = true};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code == OPTIONS_CONTINUE) code = take_choices(&w);
    w.run = argv[0];
    return code == OPTIONS_CONTINUE ? cli_run(OTT_LOG_WARNING, write_export, &w) : code;
}
