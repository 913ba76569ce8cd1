/* cli/generate: `ottava generate`: the prompt, then what the model makes of it, as it comes. */
#define _GNU_SOURCE
#include "cli.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT_LIMIT = 1 << 20 };

/* All of standard input, without the newline a shell puts after it. NULL after an error, which it printed. */
static char *read_prompt(void) {
    char *text = malloc(PROMPT_LIMIT + 1);
    size_t length = 0;
    ssize_t got = text ? 1 : 0;
    while (text && got != 0 && length < PROMPT_LIMIT + 1) {
        got = read(STDIN_FILENO, text + length, PROMPT_LIMIT + 1 - length);
        if (got > 0) length += (size_t)got;
        if (got < 0 && errno != EINTR) break;
    }
    const char *trouble = !text                        ? "out of memory"
                          : got < 0                    ? strerror(errno)
                          : length > PROMPT_LIMIT      ? "it has more than 1 MiB"
                          : memchr(text, '\0', length) ? "it has a byte 0"
                                                       : NULL;
    if (trouble) {
        cli_error(0, "generate: cannot take the prompt from standard input: %s", trouble);
        free(text);
        return NULL;
    }
    if (length > 0 && text[length - 1] == '\n') length--;
    text[length] = '\0';
    return text;
}

/* The stream, and whether it stands at the beginning of a line. */
typedef struct stream {
    output out;
    bool line_begins;
} stream;

static void write_piece(void *user, const char *text) {
    stream *s = user;
    if (!*text) return;
    output_text(&s->out, text);
    s->line_begins = text[strlen(text) - 1] == '\n';
}

static int generate(const char *run, const ott_generate_options *options) {
    ott_context *context;
    stream s = {.line_begins = true};
    output_open(&s.out);
    s.out.ends_at_once = true;
    ott_status status = cli_open_context(&context);
    if (status != OTT_OK) return cli_fail(status);
    status = ott_generate(context, run, options, write_piece, &s);
    if (!s.line_begins) output_text(&s.out, "\n");
    int code = output_close(&s.out, status == OTT_OK ? CLI_DONE : cli_fail(status));
    ott_context_close(context);
    return code;
}

int verb_generate(int argc, char **argv) {
    ott_generate_options o;
    ott_generate_options_init(&o);
    const option options[] = {
        {"--prompt", "TEXT", OPTION_TEXT, &o.prompt, "text to continue; -: standard input"},
        {"--max-tokens", "N", OPTION_INT64, &o.max_tokens, "how many tokens to add (200)"},
        {"--temperature", "X", OPTION_REAL, &o.temperature,
         "0: always the most likely token; larger: bolder (0.8)"},
        {"--top-p", "X", OPTION_REAL, &o.top_p,
         "choose among the likeliest tokens that make this probability (0.95)"},
        {"--seed", "N", OPTION_UINT64, &o.seed, "of the choices: the same seed, the same text (42)"},
        {"--threads", "N", OPTION_INT, &o.threads, "CPU threads; 0: all cores (0)"},
    };
    const command c = {.name = "generate",
                       .synopsis = "RUN_DIR --prompt TEXT [options]",
                       .about =
                           "Continues a text with the newest model of a run folder, or with one checkpoint\n"
                           "(RUN_DIR/checkpoints/step-N), in the precision it was trained in.",
                       .options = options,
                       .option_count = sizeof options / sizeof *options,
                       .operand = "RUN_DIR",
                       .operands_most = 1};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_GO_ON) return code;
    if (!o.prompt)
        return cli_error(CLI_BAD_INPUT, "generate: --prompt is missing: --prompt=TEXT, or --prompt=-");
    char *given = strcmp(o.prompt, "-") == 0 ? read_prompt() : NULL;
    if (strcmp(o.prompt, "-") == 0 && !given) return CLI_BAD_INPUT;
    if (given) o.prompt = given;
    code = generate(argv[0], &o);
    free(given);
    return code;
}
