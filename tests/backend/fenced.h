/*
 * fenced: a test backend that keeps the host away from device memory, like a GPU. The fenced device's
 * addresses are in pages without access rights, so a direct access ends the program. Ops and copies map an
 * address to memory of another device, the inner device, and run there. So results are bit-identical to the
 * inner device's results. An op fails if an address is not from the fenced device or has fewer bytes than the
 * op uses. The error names the op and the argument.
 */
#ifndef TESTS_BACKEND_FENCED_H
#define TESTS_BACKEND_FENCED_H

#include "tensor/device.h"

/* Takes ownership of `inner`, and closes it on failure. contiguous_contraction: as in tensor/backend.h. Close
   the device with device_close. The fenced device allocates from the memory account of `inner`. */
ott_status fenced_open(device *inner, bool contiguous_contraction, device **out);

/* Number of times that the host would have waited for a GPU: in copies from or to host memory that is no
   staging memory, and in waits for an event, a stream or the device whose work is not finished yet. */
int64_t fenced_waits(const device *d);

#endif
