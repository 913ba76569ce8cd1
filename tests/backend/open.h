/*
 * open: the device that tests of layers and of all above them run on: the CPU, or, where the environment
 * variable OTTAVA_TEST_DEVICE says "fenced" or "fenced_transposed", the CPU behind a fence (backend/fenced.h),
 * which in the second case asks for columnwise data that lies transposed; or, where it says "cuda", an emulated GPU in a
 * program that links that backend, in others the GPU of the plugin that is found (backend/loader.h).
 */
#ifndef TESTS_BACKEND_OPEN_H
#define TESTS_BACKEND_OPEN_H

#include "tensor/device.h"

#define TEST_DEVICE_VARIABLE "OTTAVA_TEST_DEVICE"

/* threads and isa as cpu_open takes them. */
ott_status test_device_open(mem *account, int threads, const char *isa, device **out);
/* The same by its name instead of the environment's; NULL or "": the CPU. */
ott_status test_device_open_named(const char *name, mem *account, int threads, const char *isa, device **out);
/* Is it a plugin's, whose products and attention are a library's, with sums in an order of its own? */
bool test_device_has_own_sums(const device *d);
/* GPU number `index`, where the program links that backend. */
ott_status test_device_open_gpu(mem *account, int index, device **out);
/* A copy on the host of what lies on the device, to be freed; ends the program when it cannot. */
void *test_device_fetch(device *d, const void *data, int64_t bytes);

#endif
