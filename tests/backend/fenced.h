/*
 * fenced: a backend for tests that keeps the host away from device memory, as a GPU would. Its addresses
 * belong to pages that nobody can read or write, so that what touches them ends at once. Ops and copies find
 * the memory behind an address, which belongs to another device, and let that one work on it: the bits are
 * the other's. They refuse, with the op's and the argument's name, an address that is not of this device, and
 * one with fewer bytes behind it than the op will use.
 */
#ifndef TESTS_BACKEND_FENCED_H
#define TESTS_BACKEND_FENCED_H

#include "tensor/device.h"

/* Takes `inner` over, and closes it when this fails. contiguous_contraction as in tensor/backend.h. The device
   is closed with device_close; its account is inner's. */
ott_status fenced_open(device *inner, bool contiguous_contraction, device **out);

/* How often the host has waited for such a device so far, were all it is given queued: copies out and from memory that is no
   staging, and waits for what is not done by then. */
int64_t fenced_waits(const device *d);

#endif
