/*
 * backend/backend: the backends of this build, and a device by its name. The one door between them and all that
 * computes: nothing else includes a backend's header.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/log.h"
#include "tensor/device.h"

/* Opens a device; `threads` of the host that it may use, 0: all cores. It is closed with device_close; account outlives it. */
typedef ott_status backend_open_fn(mem *account, int threads, device **out);

/* Opens the device of a name: "cpu"; "cuda" and "cuda:1", a GPU, by a plugin (backend/loader.h); "auto" or NULL, the best there
   is, which the log's debug lines name. log may be NULL. OTT_ERR_UNSUPPORTED, OTT_ERR_DEVICE: there is such a device, but not
   here; OTT_ERR_ARGUMENT: there is none. */
ott_status backend_open(const char *name, int threads, mem *account, const logger *log, device **out);
/* Would it be opened, and can it run linear layers under the recipe? r may be NULL. */
ott_status backend_check(const char *name, const recipe *r);

/* Not defined here. A test program that defines it has its device opened where the CPU's would be; NULL: no. */
backend_open_fn *backend_for_tests(void) __attribute__((weak));

#endif
