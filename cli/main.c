/* cli/main: the table of verbs. */
#include "cli.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct verb {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} verb;

static const verb verbs[] = {
    {"train", verb_train, "train the model of a configuration file"},
    {"eval", verb_eval, "measure a trained model, or compare two"},
    {"generate", verb_generate, "continue a text with a trained model"},
    {"tokenize", verb_tokenize, "turn text into token ids and back, or a corpus into a token file"},
    {"export", verb_export, "write a model as a Hugging Face folder, for serving in FP8 too"},
    {"inspect", verb_inspect, "list the tensors of a model file or folder"},
    {"report", verb_report, "compare runs: a table, a plot, a page"},
    {"plan", verb_plan, "estimate the memory and speed of a configuration, here or on other devices"},
    {"pull", verb_pull, "download a model or a dataset of the Hugging Face hub"},
    {"bench", verb_bench, "measure the speed of this machine"},
    {"recipes", verb_recipes, "list the FP8 recipes"},
    {"completion", verb_completion, "print a script that lets a shell complete ottava's words"},
    {"doctor", verb_doctor, "check what this machine needs to train on a GPU"},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static int print_help(void) {
    output out;
    char line[160];
    output_open(&out);
    output_text(&out, "Usage: ottava VERB [arguments]\n\n"
                      "Trains language models in 8-bit floating point.\n\nVerbs:\n");
    for (int i = 0; i < VERBS; i++) {
        snprintf(line, sizeof line, "  %-11s %s", verbs[i].name, verbs[i].about);
        output_line(&out, line);
    }
    output_text(
        &out,
        "\nottava VERB --help (or ottava help VERB) explains a verb; ottava --version prints the version.\n"
        "Exit codes: 0 done, 1 the run failed, 2 bad input, 128 + N if signal N ended it early (130 Ctrl-C,\n"
        "143 SIGTERM).\n");
    return output_close(&out, CLI_DONE);
}

static int print_version(void) {
    output out;
    output_open(&out);
    output_text(&out, "ottava ");
    output_line(&out, ott_version());
    return output_close(&out, CLI_DONE);
}

static int fail_word(const char *word) {
    const char *names[VERBS + 2];
    for (int i = 0; i < VERBS; i++) names[i] = verbs[i].name;
    names[VERBS] = "--help";
    names[VERBS + 1] = "--version";
    const char *what = word[0] == '-' ? "option" : "verb", *near = options_nearest(word, names, VERBS + 2);
    if (near) return cli_error(CLI_BAD_INPUT, "there is no %s \"%s\"; did you mean %s?", what, word, near);
    return cli_error(CLI_BAD_INPUT, "there is no %s \"%s\"; ottava --help lists the verbs", what, word);
}

static int fail_empty(void) {
    char list[200] = "";
    for (int i = 0; i < VERBS; i++) {
        const char *before = i == 0 ? "" : i + 1 < VERBS ? ", " : " or ";
        size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, "%s%s", before, verbs[i].name);
    }
    return cli_error(CLI_BAD_INPUT, "the verb is missing: %s (ottava --help)", list);
}

/* Opens /dev/null for each of the descriptors 0 to 2 that is closed. Otherwise a file that is opened later
   would get this descriptor, and the program's output would go into the file. */
static void fill_standard_descriptors(void) {
    int descriptor;
    do descriptor = open("/dev/null", O_RDONLY);
    while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    if (descriptor >= 0) close(descriptor);
}

static const verb *find_verb(const char *word) {
    for (int i = 0; i < VERBS; i++)
        if (strcmp(word, verbs[i].name) == 0) return &verbs[i];
    return NULL;
}

/* Runs "help train float8" as "train --help float8". */
static int help_verb(int argc, char **argv) {
    const verb *v = argc > 0 ? find_verb(argv[0]) : NULL;
    if (argc == 0) return print_help();
    if (!v) return fail_word(argv[0]);
    argv[0] = "--help";
    return v->run(argc, argv);
}

int cli_complete(int count, char **words) {
    const verb *v = count > 1 ? find_verb(words[0]) : NULL;
    if (v) return v->run(OPTIONS_COMPLETE, &words[count - 2]);
    output out;
    char line[160];
    output_open(&out);
    bool expects_verb = count == 1 || strcmp(words[0], "help") == 0;
    for (int i = 0; expects_verb && i < VERBS; i++) {
        snprintf(line, sizeof line, "%s\t%s", verbs[i].name, verbs[i].about);
        output_line(&out, line);
    }
    if (count == 1) options_print_words(&out, "help|--help|--version");
    return output_close(&out, CLI_DONE);
}

int main(int argc, char **argv) {
    fill_standard_descriptors();
    signal(SIGPIPE, SIG_IGN); /* output.c handles writes to a closed pipe */
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of the file size fails, as on a full disk */
    if (argc < 2) return fail_empty();
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return print_help();
    if (strcmp(word, "help") == 0) return help_verb(argc - 2, argv + 2);
    if (strcmp(word, "--version") == 0) return print_version();
    const verb *v = find_verb(word);
    return v ? v->run(argc - 2, argv + 2) : fail_word(word);
}
