/* cli/completion: `ottava completion`: prints the script that lets a shell complete the arguments of ottava.
   The script calls `ottava completion words` for each word, so the candidates come from this program. */
#include "cli.h"
#include <string.h>

extern const char completion_bash[], completion_zsh[], completion_fish[]; /* cli/completion/ */

int verb_completion(int argc, char **argv) {
    const command c = {
        .name = "completion",
        .synopsis = "bash|zsh|fish",
        .about = "Prints a script that lets a shell complete verbs, options, configuration keys and their\n"
                 "values. An installation has the scripts where the shells search them. Else:\n"
                 "  bash, zsh:  source <(ottava completion bash), or zsh\n"
                 "  fish:       ottava completion fish | source\n"
                 "The scripts call `ottava completion words WORD...`, which prints what may complete the\n"
                 "last word: one candidate a line, and after a tab its meaning.",
        .operand = "shell",
        .operands_most = 1,
        .words = "bash|zsh|fish"};
    static const char *const shells[] = {"bash", "zsh", "fish"};
    const char *const scripts[] = {completion_bash, completion_zsh, completion_fish};
    if (argc > 1 && strcmp(argv[0], "words") == 0) return cli_complete(argc - 1, argv + 1);
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;
    for (int i = 0; i < 3; i++)
        if (strcmp(argv[0], shells[i]) == 0) {
            output out;
            output_open(&out);
            output_text(&out, scripts[i]);
            return output_close(&out, CLI_DONE);
        }
    return cli_error(CLI_BAD_INPUT, "completion: there is no script for \"%s\"; it takes bash, zsh or fish",
                     argv[0]);
}
