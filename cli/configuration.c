/* cli/configuration: opens the configuration that the arguments of train and plan describe, and downloads the
   models that it names. */
#include "cli.h"
#include "hub/hub.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_extension(const char *text, const char *end) {
    size_t length = strlen(text), most = strlen(end);
    return length >= most && strcmp(text + length - most, end) == 0;
}

bool cli_is_config_file(const char *argument) {
    static const char *const options[] = {
        "-c", "--config", "--config-file", "--config_file", "--job.config_file", "--job.config-file"};
    size_t length = strcspn(argument, "=");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strlen(options[i]) == length && strncmp(argument, options[i], length) == 0) return true;
    return argument[0] != '-' && (has_extension(argument, ".toml") || has_extension(argument, ".yaml") ||
                                  has_extension(argument, ".yml"));
}

/* Returns the file that CONFIG_FILE names, as torchtitan's run_train.sh reads it. NULL if the variable is not
   set or if the arguments name a file. */
static const char *file_of_environment(int argc, char **argv) {
    const char *file = getenv("CONFIG_FILE");
    for (int i = 0; i < argc; i++)
        if (cli_is_config_file(argv[i])) return NULL;
    return file && *file ? file : NULL;
}

ott_status cli_open_config(ott_context *context, output *log, int argc, char **argv, ott_config **out) {
    const char *file = file_of_environment(argc, argv);
    const char **all = calloc((size_t)argc + 2, sizeof *all);
    int count = 0;
    if (!all) return OTT_ERR_MEMORY;
    if (file) {
        if (log)
            output_log(log, OTT_LOG_INFO,
                       "The configuration file comes from the environment variable CONFIG_FILE");
        all[count++] = "--config";
        all[count++] = file;
    }
    for (int i = 0; i < argc; i++) all[count++] = argv[i];
    ott_status status = ott_config_open(context, count, all, out);
    free(all);
    if (status != OTT_OK) cli_wait_for_rank_0();
    return status;
}

/* Copies a value without its quotes. */
static void take_text(void *user, const char *value) {
    size_t length = strlen(value), quoted = length > 1 && *value == '"';
    snprintf(user, PATH_MAX, "%.*s", (int)(length - 2 * quoted), value + quoted);
}

int cli_fetch_models(output *out, const ott_config *config, bool weights) {
    static const char *const keys[] = {"model.hf_path", "peft.path", "data.tokenizer_path"};
    char value[PATH_MAX], folder[PATH_MAX];
    int code = CLI_DONE;
    ott_config_get(config, "model.reduce", take_text, value);
    bool initial = strcmp(value, "0") != 0; /* the model starts from random weights */
    for (int i = 0; i < 3 && code == CLI_DONE; i++) {
        ott_config_get(config, keys[i], take_text, value);
        bool needed = weights && (i == 1 || (i == 0 && !initial)); /* keys[i] needs weights */
        if (hub_is_name(value)) code = cli_fetch(out, value, needed, folder);
    }
    return code;
}
