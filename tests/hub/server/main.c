/* hub_server FOLDER ROWS [FAULT TIMES PART]: runs support/hub_server for tests/cli/pull.sh. Prints its
   address. When standard input is closed, it prints the number of requests on standard error, and ends. */
#include "support/hub_server.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    static const char *const names[] = {[HUB_NO_FAULT] = "none",
                                        [HUB_BREAK] = "break",
                                        [HUB_STALL] = "stall",
                                        [HUB_BUSY] = "busy",
                                        [HUB_GATED] = "gated"};
    if (argc != 3 && argc != 6) return 2;
    hub_server *s = hub_server_open(argv[1], argv[2]);
    if (argc == 6)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (names[i] && strcmp(names[i], argv[3]) == 0)
                hub_server_fail(s, (hub_fault)i, atoi(argv[4]), argv[5]);
    puts(hub_server_address(s));
    fflush(stdout);
    while (getchar() != EOF) continue;
    fprintf(stderr, "%d\n", hub_server_count(s, "", ""));
    hub_server_close(s);
    return 0;
}
