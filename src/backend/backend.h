/*
 * backend/backend: the backends of this build, and a device by its name. The one door between them and all that
 * computes: nothing else includes a backend's header.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/log.h"
#include "tensor/device.h"

/* A backend: what its devices can do, and how one is opened. */
typedef struct backend_driver {
    const char *name; /* "cpu" */
    const backend_capabilities *can;
    /* `threads` of the host that it may use, 0: all cores. The device is closed with device_close; account outlives
       it. */
    ott_status (*open)(mem *account, int threads, device **out);
} backend_driver;

/* The backend of a device. `name`: "cpu"; "auto" or NULL, the best there is. OTT_ERR_UNSUPPORTED: this build has no
   backend for it ("cuda", "cuda:0"); OTT_ERR_ARGUMENT: there is no such device. */
ott_status backend_find(const char *name, const backend_driver **out);
/* Finds it and opens a device of it; the log's debug lines say which one "auto" is. log may be NULL. */
ott_status backend_open(const char *name, int threads, mem *account, const logger *log, device **out);

/* Not defined here. A test program that defines it has its backend opened where the CPU's would be; NULL: no. */
const backend_driver *backend_for_tests(void) __attribute__((weak));

#endif
