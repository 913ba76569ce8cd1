/* cli/generate: `ottava generate`: continues a text with a model, once or in several turns. */
#include "cli.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT_LIMIT = 1 << 20 };

typedef struct generate_request {
    const char *run, *prompt, *prompt_file;
    option_texts stop, settings;
    int interactive, chat;
    ott_generate_options options;
} generate_request;

/* ---- the prompt ---- */

/* Returns an errno's exit code: CLI_FAILED for a fault of the machine (EIO), otherwise CLI_BAD_INPUT. */
static int code_of(int reason) {
    return reason == EIO || reason == EMFILE || reason == ENFILE || reason == ENOMEM ? CLI_FAILED
                                                                                     : CLI_BAD_INPUT;
}

/* Reads a file without its last newline. name: the file's name in messages. The caller frees *out. Returns an
   exit code; after an error, which it printed, *out is unchanged. */
static int read_all(int file, const char *name, char **out) {
    char *text = malloc(PROMPT_LIMIT + 1);
    size_t length = 0;
    ssize_t got = text ? 1 : 0;
    while (text && got != 0 && length < PROMPT_LIMIT + 1) {
        got = read(file, text + length, PROMPT_LIMIT + 1 - length);
        if (got > 0) length += (size_t)got;
        if (got < 0 && errno != EINTR) break;
    }
    const char *trouble = !text                        ? "out of memory"
                          : got < 0                    ? strerror(errno)
                          : length > PROMPT_LIMIT      ? "it has more than 1 MiB"
                          : memchr(text, '\0', length) ? "it has a zero byte"
                                                       : NULL;
    if (trouble) {
        int code = !text || got < 0 ? code_of(errno) : CLI_BAD_INPUT;
        free(text);
        return cli_error(code, "generate: cannot read the prompt from %s: %s", name, trouble);
    }
    if (length > 0 && text[length - 1] == '\n') length--;
    text[length] = '\0';
    *out = text;
    return CLI_DONE;
}

static int read_file(const char *path, char **out) {
    if (strcmp(path, "-") == 0) return read_all(STDIN_FILENO, "standard input", out);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return cli_error(code_of(errno), "generate: cannot read the prompt from %s: %s", path,
                         strerror(errno));
    int code = read_all(file, path, out);
    close(file);
    return code;
}

/* ---- output ---- */

/* The output of the generated text. line_begins: the last piece of text ended with a newline. */
typedef struct stream {
    output *out;
    bool line_begins;
} stream;

static void write_generated(void *user, const char *text) {
    stream *s = user;
    if (!*text) return;
    output_text(s->out, text);
    s->line_begins = text[strlen(text) - 1] == '\n';
}

static void end_line(stream *s) {
    if (!s->line_begins) write_generated(s, "\n");
}

/* ---- several turns ---- */

/* Reads the next line of standard input into *line, without its newline. Returns false at the end. */
static bool read_line(char **line, size_t *capacity) {
    if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO)) fputs("> ", stderr);
    ssize_t length = getline(line, capacity, stdin);
    if (length > 0 && (*line)[length - 1] == '\n') (*line)[--length] = '\0';
    return length >= 0;
}

/* Appends `text`, and prints how the model continues it. *new_line: the printed text ends with a newline. */
static ott_status print_turn(ott_generator *generator, const char *text, stream *s, bool *new_line) {
    s->line_begins = false;
    ott_status status = ott_generator_continue(generator, text, write_generated, s);
    *new_line = s->line_begins;
    end_line(s);
    return status;
}

/* Lets the model continue the text after each line of standard input. The line becomes a new line of the
   text; an empty line adds nothing. In a chat, each line is a user's message, and empty lines are ignored. */
static int converse(ott_generator *generator, const char *prompt, bool chat, stream *s) {
    char *line = NULL, *text = NULL;
    size_t capacity = 0;
    bool new_line = true, begun = prompt != NULL;
    ott_status status = OTT_OK;
    if (prompt && !chat) write_generated(s, prompt);
    if (prompt) status = print_turn(generator, prompt, s, &new_line);
    while (status == OTT_OK && read_line(&line, &capacity)) {
        if ((!begun || chat) && !*line) continue;
        if (asprintf(&text, "%s%s", new_line || chat || !*line ? "" : "\n", line) < 0)
            return cli_error(CLI_FAILED, "generate: out of memory");
        status = print_turn(generator, text, s, &new_line);
        begun = true;
        free(text);
    }
    free(line);
    return cli_code(status);
}

/* ---- the verb ---- */

static int generate(ott_context *context, output *out, void *user) {
    const generate_request *r = user;
    stream s = {.out = out, .line_begins = true};
    out->ends_at_once = true;
    if (!r->interactive) {
        ott_status status = ott_generate(context, r->run, &r->options, write_generated, &s);
        end_line(&s);
        return cli_code(status);
    }
    ott_generator *generator;
    ott_status status = ott_generator_open(context, r->run, &r->options, &generator);
    if (status != OTT_OK) return cli_fail(status);
    int code = converse(generator, r->options.prompt, r->chat, &s);
    ott_generator_close(generator);
    return code;
}

/* Takes the prompt from --prompt, a file or standard input. *text: the text if it was read from a file or
   standard input; the caller frees it. */
static int take_prompt(generate_request *r, char **text) {
    const char *file = r->prompt_file ? r->prompt_file : "-";
    if (r->prompt && r->prompt_file)
        return cli_error(CLI_BAD_INPUT, "generate: --prompt and --prompt-file are both given; give one");
    bool reads = r->prompt_file || (r->prompt && strcmp(r->prompt, "-") == 0);
    if (r->interactive && reads && strcmp(file, "-") == 0)
        return cli_error(CLI_BAD_INPUT, "generate: --interactive reads standard input: give the prompt as "
                                        "--prompt=TEXT or --prompt-file=FILE");
    if (!r->prompt && !reads && !r->interactive)
        return cli_error(CLI_BAD_INPUT,
                         "generate: --prompt is missing: --prompt=TEXT, --prompt-file=FILE, or "
                         "--prompt=- for standard input");
    int code = reads ? read_file(file, text) : CLI_DONE;
    if (code != CLI_DONE) return code;
    r->options.prompt = reads ? *text : r->prompt;
    return CLI_DONE;
}

static int run_generate_request(generate_request *r) {
    char *text = NULL;
    r->options.stop = r->stop.text;
    r->options.stop_count = r->stop.count;
    r->options.chat = r->chat;
    r->options.settings = r->settings.text;
    r->options.setting_count = r->settings.count;
    int code = take_prompt(r, &text);
    if (code == CLI_DONE) code = cli_run(OTT_LOG_WARNING, generate, r);
    free(text);
    return code;
}

int verb_generate(int argc, char **argv) {
    generate_request r = {0};
    ott_generate_options *o = &r.options;
    ott_generate_options_init(o);
    const option options[] = {
        {"--prompt", "TEXT", OPTION_TEXT, &r.prompt, "text to continue; -: standard input"},
        {"--prompt-file", "FILE", OPTION_TEXT, &r.prompt_file,
         "file with the text to continue, without its last newline; -: standard input"},
        {"--interactive", NULL, OPTION_FLAG, &r.interactive,
         "read lines until the input ends; append each to the text, and continue it (empty line: only "
         "continue)"},
        {"--chat", NULL, OPTION_FLAG, &r.chat,
         "the prompt, or each line, is a user message; uses the tokenizer's chat template"},
        {"--max-tokens", "N", OPTION_INT64, &o->max_tokens, "how many tokens to add (200)"},
        {"--temperature", "X", OPTION_REAL, &o->temperature,
         "0: always the most likely token; larger: more random (0.8)"},
        {"--top-k", "K", OPTION_INT64, &o->top_k, "choose among the K likeliest tokens; 0: all (0)"},
        {"--top-p", "X", OPTION_REAL, &o->top_p,
         "choose among the likeliest tokens with this total probability (0.95)"},
        {"--repetition-penalty", "X", OPTION_REAL, &o->repetition_penalty,
         "above 1: makes tokens that the text already has less likely (1)"},
        {"--stop", "TEXT", OPTION_TEXTS, &r.stop, "end before this text; may be given several times"},
        {"--seed", "N", OPTION_UINT64, &o->seed, "random seed: the same seed gives the same text (42)"},
        {"--precision", PRECISIONS, OPTION_TEXT, &o->precision_name, HELP_PRECISION},
        {"--tokenizer", "PATH", OPTION_TOKENIZER, &o->tokenizer, HELP_TOKENIZER},
        {"--base", "HF_DIR", OPTION_MODEL, &o->base, HELP_BASE},
        {"--device", DEVICES, OPTION_TEXT, &o->device, HELP_DEVICE},
        {"--threads", "N", OPTION_INT, &o->threads, HELP_THREADS},
    };
    const command c = {
        .name = "generate",
        .synopsis = "MODEL --prompt TEXT [options]",
        .about =
            "Continues a text with the newest model of a run folder or with one checkpoint\n"
            "(RUN_DIR/checkpoints/step-N), in its training precision, or with a Hugging Face folder\n"
            "or GGUF file, in bf16 unless --precision is given. The context is train.seq_len tokens (2048\n"
            "without a run); if the text becomes longer, only its newer half is read. Ids\n"
            "without a token in the tokenizer are never chosen.",
        COMMAND_OPTIONS(options),
        .operand = "MODEL",
        .operands_most = 1,
        .operand_is_model = true,
        .settings = &r.settings};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;
    r.run = argv[0];
    return run_generate_request(&r);
}
