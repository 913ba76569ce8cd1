/*
 * open: opens the device for tests of layers and higher levels. The environment variable OTTAVA_TEST_DEVICE
 * selects it:
 * - unset: the CPU
 * - "amx_emulated": the CPU, with an emulated tile unit
 * - "fenced": the CPU inside a fence (backend/fenced.h); "fenced_transposed" also requires transposed
 * columnwise data
 * - "cuda": an emulated GPU in programs that link the emulation, otherwise a real GPU through the CUDA plugin
 * (backend/loader.h)
 */
#ifndef TESTS_BACKEND_OPEN_H
#define TESTS_BACKEND_OPEN_H

#include "tensor/device.h"

#define TEST_DEVICE_VARIABLE "OTTAVA_TEST_DEVICE"
/* Environment variable; if it is set, an emulated GPU opens as with float8.emulate. */
#define TEST_EMULATES_VARIABLE "OTTAVA_TEST_EMULATES"

/* Opens the device that the environment selects. threads and isa: as for cpu_open. */
ott_status test_device_open(mem *account, int threads, const char *isa, device **out);
/* Like test_device_open, with a device name instead of the environment's. NULL or "": the CPU. */
ott_status test_device_open_named(const char *name, mem *account, int threads, const char *isa, device **out);
/* True for a GPU whose GEMMs and attention are computed by a library, which adds in an order of its own. */
bool test_device_has_own_sums(const device *d);
/* Opens GPU number `index`. For programs that link the CUDA backend. */
ott_status test_device_open_gpu(mem *account, int index, device **out);
/* Copies device data to the host. The caller frees the copy. Ends the program on failure. */
void *test_device_fetch(device *d, const void *data, int64_t bytes);

#endif
