/* cli/doctor: `ottava doctor`: checks for a GPU and the libraries that it needs. */
#include "plan/doctor.h"
#include "cli.h"

static int run_doctor(ott_context *context) {
    output out;
    int missing = 0;
    output_open(&out);
    ott_status status = doctor_run(context, output_write, &out, &missing);
    return output_close(&out, status != OTT_OK ? cli_fail(status) : missing ? CLI_FAILED : CLI_DONE);
}

int verb_doctor(int argc, char **argv) {
    const command c = {
        .name = "doctor",
        .synopsis = "",
        .about =
            "Looks for the CUDA backend, driver, GPUs and libraries. Prints each part that was found, and\n"
            "how to install the missing ones. Exit code 1: a part is missing."};
    int operands, code = options_take(&c, argc, argv, &operands);
    if (code != OPTIONS_CONTINUE) return code;
    ott_context *context;
    ott_status status = cli_open_context(&context);
    if (status != OTT_OK) return cli_fail(status);
    code = run_doctor(context);
    ott_context_close(context);
    return code;
}
