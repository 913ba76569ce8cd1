/* cli/doctor: `ottava doctor`: checks for a GPU and the libraries that it needs. */
#include "plan/doctor.h"
#include "cli.h"

static int examine_machine(ott_context *context, output *out, void *unused) {
    int missing = 0;
    (void)unused;
    ott_status status = doctor_run(context, output_write, out, &missing);
    return status != OTT_OK ? cli_fail(status) : missing ? CLI_FAILED : CLI_DONE;
}

int verb_doctor(int argc, char **argv) {
    const command c = {
        .name = "doctor",
        .synopsis = "",
        .about =
            "Looks for the CUDA backend, driver, GPUs and libraries. Prints each part that was found, and\n"
            "how to install the missing ones. Exit code 1: a part is missing."};
    int operands, code = options_take(&c, argc, argv, &operands);
    return code == OPTIONS_CONTINUE ? cli_run(OTT_LOG_WARNING, examine_machine, NULL) : code;
}
