/* tests/cuda/planted: the environment variable OTTAVA_FAULT has the number of the planted fault. */
#include "planted.h"
#include <stdlib.h>

int planted_fault;

__attribute__((constructor)) static void read_fault(void) {
    const char *number = getenv("OTTAVA_FAULT");
    planted_fault = number ? atoi(number) : 0;
}
