/*
 * for_tests: linked into test programs. If an environment variable names a device (backend/open.h), cpu_open
 * opens this device instead of the CPU.
 */
#include "backend/backend.h"
#include "backend/open.h"
#include <stdlib.h>

static ott_status open_for_tests(mem *account, int threads, device **out) {
    return test_device_open(account, threads, NULL, out);
}

backend_open_fn *backend_for_tests(void) {
    const char *name = getenv(TEST_DEVICE_VARIABLE);
    return name && *name ? open_for_tests : NULL;
}
