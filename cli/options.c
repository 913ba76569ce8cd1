/* cli/options: reads the options of all verbs except train. The options of train are configuration keys. */
#include "cli.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nearest match ---- */

enum { LONGEST_WORD = 63 };

static int smaller_of(int a, int b) {
    return a < b ? a : b;
}

/* Levenshtein distance. `b` has at most LONGEST_WORD characters. */
static int distance(const char *a, const char *b) {
    int row[LONGEST_WORD + 1], columns = (int)strlen(b);
    for (int j = 0; j <= columns; j++) row[j] = j;
    for (int i = 0; a[i]; i++) {
        int diagonal = row[0];
        row[0] = i + 1;
        for (int j = 0; j < columns; j++) {
            int replaced = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = smaller_of(replaced, 1 + smaller_of(diagonal, row[j]));
        }
    }
    return row[columns];
}

const char *options_nearest(const char *word, const char *const *words, int count) {
    const char *nearest = NULL;
    size_t length = strlen(word);
    if (length > LONGEST_WORD) return NULL;
    int best = (length / 3 > 2 ? (int)length / 3 : 2) + 1;
    for (int i = 0; i < count; i++) {
        int d = distance(word, words[i]);
        if (d >= best) continue;
        best = d;
        nearest = words[i];
    }
    return nearest;
}

/* ---- help ---- */

static void print_option(output *out, const option *o) {
    char head[80], line[320];
    int width = snprintf(head, sizeof head, "%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    snprintf(line, sizeof line, "  %-24s%s%s", head, width > 23 ? "\n                           " : " ",
             o->help);
    output_line(out, line);
}

static int print_command_help(const command *c) {
    output out;
    char line[256];
    output_open(&out);
    snprintf(line, sizeof line, "Usage: ottava %s %s\n", c->name, c->synopsis);
    output_line(&out, line);
    output_line(&out, c->about);
    output_text(&out, "\nOptions:\n");
    for (int i = 0; i < c->option_count; i++) print_option(&out, &c->options[i]);
    if (c->settings)
        print_option(&out,
                     &(option){.name = "--section.key",
                               .value = "V",
                               .help = "a key of the configuration (ottava train --help float8): float8.*, "
                                       "train.mixed_precision, ..."});
    print_option(&out, &(option){.name = "--help", .help = "this text"});
    return output_close(&out, CLI_DONE);
}

/* ---- completion ---- */

void options_print_words(output *out, const char *words) {
    for (size_t length; *words; words += length + (words[length] == '|')) {
        length = strcspn(words, "|");
        if (*words >= 'A' && *words <= 'Z') continue;
        output_bytes(out, words, length);
        output_bytes(out, "\n", 1);
    }
}

static const option *find_option(const command *c, const char *text, size_t length) {
    for (int i = 0; i < c->option_count; i++)
        if (strlen(c->options[i].name) == length && strncmp(c->options[i].name, text, length) == 0)
            return &c->options[i];
    return NULL;
}

static void print_names(const command *c, output *out) {
    char line[256];
    for (int i = 0; i < c->option_count; i++) {
        const option *o = &c->options[i];
        snprintf(line, sizeof line, "%s%s\t%.*s", o->name, o->value ? "=" : "", (int)strcspn(o->help, "\n"),
                 o->help);
        output_line(out, line);
    }
    output_line(out, "--help");
}

typedef struct unfinished {
    const command *c;
    char option[256]; /* the option to complete, "--format=hf"; the value may come from the next word */
} unfinished;

static int print_candidates(ott_context *context, output *out, void *user) {
    unfinished *u = user;
    size_t length = strcspn(u->option, "=");
    const option *o = find_option(u->c, u->option, length);
    bool has_value = u->option[length];
    if (o && o->value && has_value) options_print_words(out, o->value);
    if (!has_value) print_names(u->c, out);
    if (!o && u->c->settings) return cli_code(ott_config_complete(context, u->option, output_write, out));
    return CLI_DONE;
}

static int complete(const command *c, const char *previous, const char *current) {
    unfinished u = {.c = c};
    const option *o = find_option(c, previous, strlen(previous));
    bool takes = o ? o->value != NULL : c->settings && strncmp(previous, "--", 2) == 0;
    if (takes && !strchr(previous, '='))
        snprintf(u.option, sizeof u.option, "%s=", previous);
    else if (current[0] == '-')
        snprintf(u.option, sizeof u.option, "%s", current);
    else {
        output out;
        output_open(&out);
        if (c->words) options_print_words(&out, c->words);
        return output_close(&out, CLI_DONE);
    }
    return cli_run(OTT_LOG_ERROR, print_candidates, &u);
}

/* ---- values ---- */

static int fail_value(const command *c, const option *o, const char *value, const char *wanted) {
    return cli_error(CLI_BAD_INPUT, "%s: %s is \"%s\"; it takes %s", c->name, o->name, value, wanted);
}

/* True for decimal digits, with or without a minus. strtoll would also accept spaces and an empty text. */
static bool is_integer(const char *text) {
    const char *digits = text + (*text == '-');
    return *digits && digits[strspn(digits, "0123456789")] == '\0';
}

static int take_signed(const command *c, const option *o, const char *value, int64_t low, int64_t high,
                       int64_t *out) {
    errno = 0;
    *out = is_integer(value) ? strtoll(value, NULL, 10) : 0;
    if (is_integer(value) && errno == 0 && *out >= low && *out <= high) return OPTIONS_CONTINUE;
    return fail_value(c, o, value, "a whole number");
}

static int take_unsigned(const command *c, const option *o, const char *value) {
    errno = 0;
    bool good = is_integer(value) && *value != '-';
    if (good) *(uint64_t *)o->to = strtoull(value, NULL, 10);
    return good && errno == 0 ? OPTIONS_CONTINUE : fail_value(c, o, value, "a whole number, 0 or more");
}

static int take_real_value(const command *c, const option *o, const char *value) {
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || x != x) return fail_value(c, o, value, "a number");
    *(double *)o->to = x;
    return OPTIONS_CONTINUE;
}

static int take_another(const command *c, const char *name, option_texts *texts, const char *value) {
    int most = (int)(sizeof texts->text / sizeof *texts->text);
    if (texts->count == most)
        return cli_error(CLI_BAD_INPUT, "%s: %s is given more than %d times", c->name, name, most);
    texts->text[texts->count++] = value;
    return OPTIONS_CONTINUE;
}

static int take_value(const command *c, const option *o, const char *value) {
    int64_t number;
    int code = OPTIONS_CONTINUE;
    switch (o->type) {
    case OPTION_FLAG: *(int *)o->to = 1; break;
    case OPTION_MODEL:
    case OPTION_TOKENIZER:
    case OPTION_TEXT: *(const char **)o->to = value; break;
    case OPTION_INT:
        code = take_signed(c, o, value, INT32_MIN, INT32_MAX, &number);
        if (code == OPTIONS_CONTINUE) *(int *)o->to = (int)number;
        break;
    case OPTION_INT64: code = take_signed(c, o, value, INT64_MIN, INT64_MAX, o->to); break;
    case OPTION_UINT64: code = take_unsigned(c, o, value); break;
    case OPTION_REAL: code = take_real_value(c, o, value); break;
    case OPTION_TEXTS: code = take_another(c, o->name, o->to, value); break;
    }
    return code;
}

/* ---- the command line ---- */

static int fail_unknown_option(const command *c, const char *text, size_t length) {
    enum { MOST = 24 };
    const char *names[MOST];
    char word[LONGEST_WORD + 1];
    int count = c->option_count < MOST ? c->option_count : MOST;
    for (int i = 0; i < count; i++) names[i] = c->options[i].name;
    snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), text);
    const char *near = options_nearest(word, names, count);
    if (near)
        return cli_error(CLI_BAD_INPUT, "%s: there is no option %s; did you mean %s?", c->name, word, near);
    return cli_error(CLI_BAD_INPUT, "%s: there is no option %s; ottava %s --help lists all options", c->name,
                     word, c->name);
}

/* Reads the option at argv[*at]. Sets *at to the index of its last argument. */
static int take_option(const command *c, int argc, char **argv, int *at) {
    const char *text = argv[*at], *equals = strchr(text, '='), *value = equals ? equals + 1 : NULL;
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    const option *o = find_option(c, text, length);
    if (!o && c->settings && strncmp(text, "--", 2) == 0 && memchr(text, '.', length))
        return take_another(c, "a configuration key", c->settings, text);
    if (!o) return fail_unknown_option(c, text, length);
    if (o->type == OPTION_FLAG && value) return fail_value(c, o, value, "no value");
    if (o->type != OPTION_FLAG && !value) {
        if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0)
            return cli_error(CLI_BAD_INPUT, "%s: %s needs a value: %s=%s", c->name, o->name, o->name,
                             o->value);
        value = argv[++*at];
    }
    return take_value(c, o, value);
}

static int check_operand_count(const command *c, int count, char **argv) {
    if (c->operands_most == 0 && count > 0)
        return cli_error(CLI_BAD_INPUT, "%s: takes no argument, but \"%s\" is given", c->name, argv[0]);
    if (c->operands_most == 0) return OPTIONS_CONTINUE;
    if (count == 0 && !c->operand_optional)
        return cli_error(CLI_BAD_INPUT, "%s: %s is missing: ottava %s %s", c->name, c->operand, c->name,
                         c->synopsis);
    for (int i = 0; count > c->operands_most && c->settings && i < c->settings->count; i++)
        if (!strchr(c->settings->text[i], '='))
            return cli_error(CLI_BAD_INPUT, "%s: write the value of %s as %s=VALUE", c->name,
                             c->settings->text[i], c->settings->text[i]);
    if (count > c->operands_most)
        return cli_error(CLI_BAD_INPUT, "%s: takes %d %s, %d are given", c->name, c->operands_most,
                         c->operand, count);
    return OPTIONS_CONTINUE;
}

/* Replaces hub names by folders. */
static int fetch_models(const command *c, int count, char **argv) {
    int code = CLI_DONE;
    for (int i = 0; c->operand_is_model && i < count && code == CLI_DONE; i++) {
        const char *path = argv[i];
        code = cli_fetch_argument(&path, true);
        argv[i] = (char *)path;
    }
    for (int i = 0; i < c->option_count && code == CLI_DONE; i++) {
        const option *o = &c->options[i];
        if (o->type == OPTION_MODEL || o->type == OPTION_TOKENIZER)
            code = cli_fetch_argument(o->to, o->type == OPTION_MODEL);
    }
    return code == CLI_DONE ? OPTIONS_CONTINUE : code;
}

int options_take(const command *c, int argc, char **argv, int *operands) {
    bool options_end = false;
    *operands = 0;
    if (argc == OPTIONS_COMPLETE) return complete(c, argv[0], argv[1]);
    for (int i = 0; i < argc; i++) {
        bool is_option = !options_end && argv[i][0] == '-' && argv[i][1];
        if (is_option && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0))
            return print_command_help(c);
        if (is_option && strcmp(argv[i], "--") == 0) {
            options_end = true;
            continue;
        }
        if (!is_option) {
            argv[(*operands)++] = argv[i];
            continue;
        }
        int code = take_option(c, argc, argv, &i);
        if (code != OPTIONS_CONTINUE) return code;
    }
    int code = check_operand_count(c, *operands, argv);
    return code == OPTIONS_CONTINUE ? fetch_models(c, *operands, argv) : code;
}
