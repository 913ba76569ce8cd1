/* cli/tokenize: `ottava tokenize`: converts text to token ids and back, or a corpus to a token file. */
#include "cli.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct tokenize_request {
    const char *tokenizer, *input, *result;
    int descriptor; /* file descriptor of the input */
    output *out;
    double shown_share; /* share of the work in the last progress line that was printed in a pipe */
    ott_tokenize_options options;
} tokenize_request;

/* An ott_read_fn. Ends the input if the output failed. */
static int64_t read_input(void *user, void *buffer, int64_t bytes) {
    const tokenize_request *r = user;
    ssize_t got;
    if (r->out->error) return 0;
    do got = read(r->descriptor, buffer, (size_t)bytes);
    while (got < 0 && errno == EINTR);
    return got;
}

/* An ott_bytes_fn. The data may have zero bytes. */
static void write_output(void *user, const void *data, int64_t bytes) {
    tokenize_request *r = user;
    output_bytes(r->out, data, (size_t)bytes);
}

static int tokenize_lines(tokenize_request *r, ott_context *context) {
    r->descriptor = r->input ? open(r->input, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (r->descriptor < 0)
        return cli_error(CLI_BAD_INPUT, "tokenize: %s: cannot be opened: %s", r->input, strerror(errno));
    ott_status status = ott_tokenize(context, r->tokenizer, &r->options, read_input, r, write_output, r);
    return cli_code(status);
}

/* Redraws the progress line on a terminal. In a pipe prints a line for every 10%. */
static void show_tokenize_progress(void *user, const ott_work *w) {
    tokenize_request *r = user;
    char line[128], left[32];
    double share = (double)w->done / (double)w->total;
    output_duration(w->seconds_left, left);
    snprintf(line, sizeof line, "%.1f of %.1f MB  %d%%  ETA %s", 1e-6 * (double)w->done,
             1e-6 * (double)w->total, (int)(100 * share), left);
    output_live(r->out, line);
    if (r->out->terminal || share < r->shown_share + 0.1 || share >= 1) return;
    r->shown_share = share;
    output_line(r->out, line);
}

static int print_result(tokenize_request *r, const ott_tokenize_result *t) {
    char line[512];
    if (!t->complete)
        return cli_error(CLI_SIGNAL + cli_stop_signal(), "tokenize: stopped; %s was not written", r->result);
    double speed = t->seconds > 0 ? 1e-6 * (double)t->bytes / t->seconds : 0;
    snprintf(line, sizeof line, "%.300s: %lld tokens, %lld documents, %lld bytes of text, %.1f MB/s",
             r->result, (long long)t->tokens, (long long)t->documents, (long long)t->bytes, speed);
    output_line(r->out, line);
    if (!*t->begins && !*t->ends) return CLI_DONE;
    snprintf(line, sizeof line, "each document %s%s%s%s%s (--no-special leaves them out)",
             *t->begins ? "begins with " : "", t->begins, *t->begins && *t->ends ? " and " : "",
             *t->ends ? "ends with " : "", t->ends);
    output_line(r->out, line);
    return CLI_DONE;
}

static int tokenize_corpus(tokenize_request *r, ott_context *context) {
    ott_tokenize_result result;
    ott_tokenize_result_init(&result);
    cli_stop_begin(context, CLI_STOP_PLAIN);
    ott_status status = ott_tokenize_file(context, r->tokenizer, r->input, r->result, &r->options, &result);
    cli_stop_end();
    output_live_end(r->out);
    return status == OTT_OK ? print_result(r, &result) : cli_fail(status);
}

static int run_tokenize(ott_context *context, output *out, void *user) {
    tokenize_request *r = user;
    r->out = out;
    return r->input && !r->options.chat ? tokenize_corpus(r, context) : tokenize_lines(r, context);
}

static int check_tokenize_request(const tokenize_request *r) {
    const ott_tokenize_options *o = &r->options;
    if (!r->tokenizer)
        return cli_error(CLI_BAD_INPUT,
                         "tokenize: --tokenizer is missing: name a model's folder, or its tokenizer file");
    if (o->mask && !o->chat)
        return cli_error(CLI_BAD_INPUT,
                         "tokenize: --mask shows the trained parts of a conversation: add --chat");
    if (o->mask && o->jsonl)
        return cli_error(CLI_BAD_INPUT,
                         "tokenize: --chat --jsonl prints the trained parts already: remove --mask");
    if (o->chat && (r->result || o->decode))
        return cli_error(CLI_BAD_INPUT, "tokenize: --chat prints texts: remove --%s",
                         r->result ? "out" : "decode");
    if (o->chat) return CLI_DONE;
    if (r->input && !r->result)
        return cli_error(CLI_BAD_INPUT, "tokenize: --out is missing: name the token file to write from %s",
                         r->input);
    if (!r->input && r->result)
        return cli_error(CLI_BAD_INPUT, "tokenize: --out needs a file to read: ottava tokenize FILE --out=%s",
                         r->result);
    if (r->input && (o->jsonl || o->decode))
        return cli_error(CLI_BAD_INPUT,
                         "tokenize: --jsonl and --decode are for standard input; the extension of %s "
                         "selects the format",
                         r->input);
    return CLI_DONE;
}

int verb_tokenize(int argc, char **argv) {
    tokenize_request r = {0};
    ott_tokenize_options *o = &r.options;
    ott_tokenize_options_init(o);
    const option options[] = {
        {"--tokenizer", "PATH", OPTION_TOKENIZER, &r.tokenizer,
         "a model's folder or name, tokenizer.json, tokenizer.model or a GGUF file"},
        {"--jsonl", NULL, OPTION_FLAG, &o->jsonl, "standard input: each line is a JSON string"},
        {"--decode", NULL, OPTION_FLAG, &o->decode, "standard input: token ids to text"},
        {"--chat", NULL, OPTION_FLAG, &o->chat,
         "each line of FILE or standard input is a conversation: print its text in the chat template"},
        {"--mask", NULL, OPTION_FLAG, &o->mask, "with --chat: [[ and ]] around the parts with loss"},
        {"--chat-date", "DAY", OPTION_TEXT, &o->chat_date,
         "with --chat: date of strftime_now, as 2026-11-24, or undefined (today)"},
        {"--no-special", NULL, OPTION_FLAG, &o->no_special, "no special tokens around a text (BOS, EOS)"},
        {"--out", "FILE", OPTION_TEXT, &r.result, "token file to write, in llm.c's format (uint32)"},
        {"--text-field", "NAME", OPTION_TEXT, &o->text_field, "JSONL field with the text (text)"},
        {"--separator", "TEXT", OPTION_TEXT, &o->separator,
         "separator between the documents of a text file; not given: the file is one document"},
        {"--threads", "N", OPTION_INT, &o->threads, "CPU threads for a file; 0: all cores (0)"},
    };
    const command c = {
        .name = "tokenize",
        .synopsis = "[FILE --out TOKENS] --tokenizer PATH [options]",
        .about = "Without FILE: converts each line of standard input to a line of token ids; --decode\n"
                 "restores the exact text. With FILE, text or JSONL (.jsonl, .json): writes a token file\n"
                 "of its documents, on all cores; special tokens in the text are plain characters. A text\n"
                 "begins with BOS, and a line ends with EOS, if the tokenizer does so in transformers;\n"
                 "each document of a file ends with EOS. --chat prints the text of conversations, --mask\n"
                 "marks the parts with loss.",
        COMMAND_OPTIONS(options),
        .operand = "FILE",
        .operands_most = 1,
        .operand_optional = true};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;
    r.input = operands > 0 ? argv[0] : NULL;
    o->progress = show_tokenize_progress;
    o->user = &r;
    code = check_tokenize_request(&r);
    return code == CLI_DONE ? cli_run(r.input ? OTT_LOG_WARNING : OTT_LOG_INFO, run_tokenize, &r) : code;
}
