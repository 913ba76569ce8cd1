/* backend/backend: opens the backends' devices by name. No other file includes a backend's headers. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/log.h"
#include "tensor/device.h"

/* The device to open. */
typedef struct backend_choice {
    /* "cpu"; "cuda" or "cuda:1": a GPU; "auto" or NULL: a GPU if possible, else the CPU */
    const char *name;
    int threads;          /* host threads; 0: all cores */
    const recipe *recipe; /* recipe of the linear layers: "auto" takes no GPU that cannot run it. NULL: any */
    const recipe *second_recipe; /* recipe of a second model; NULL: none */
    /* on a GPU: compute formats and scales that its tensor cores lack, slowly */
    bool emulates;
    /* This process's local rank and the number of processes on this machine; 0 and 0: a single process.
       "cuda" is the GPU with the number local_rank, or the only visible one. */
    int local_rank, local_ranks;
    const logger *log; /* NULL: silent */
} backend_choice;

/* Opens a device with `threads` host threads (0: all cores). Close it with device_close, before the
   account. */
typedef ott_status backend_open_fn(mem *account, int threads, device **out);

/* Opens a device; a plugin opens GPUs (backend/loader.h). With "auto" the log gives the device, and warns if
   there is a GPU that cannot be used. OTT_ERR_UNSUPPORTED or OTT_ERR_DEVICE: the device is not available on
   this machine. OTT_ERR_ARGUMENT: there is no device with this name. */
ott_status backend_open(const backend_choice *choice, mem *account, device **out);
/* Returns OTT_ERR_ARGUMENT if the name is never a device's name, on any machine. */
ott_status backend_check_name(const char *name);
/* True if there is a complete CUDA plugin, with or without a GPU. */
bool backend_has_cuda(void);
/* Checks that the device can be opened and can run linear layers under the recipe (NULL: any). */
ott_status backend_check(const char *name, const recipe *r);

/* The unit that computes products of this format and that device_peak measures: "fp32 multiply-add". Formats
   with the same unit have the same text. NULL for a GPU, because its data sheet gives its peaks. */
const char *backend_peak_unit(const device *d, ott_dtype format);

/* True if the device is a CPU whose tile unit computes ACCUMULATE_TILE32 products. */
bool backend_has_tiles(const device *d);
/* Measures, for some milliseconds, how many times as fast an FP8 product is in the order ACCUMULATE_TILE32 as
   in one chain. *out = 0 on a device without a tile unit. */
ott_status backend_tiles_speed(device *d, double *out);
/* Returns the reason why a CPU device does not use its processor's tile unit; NULL if it does or there is
   none. */
const char *backend_tiles_refusal(const device *d);

/* Not defined in the library. A test program that defines it opens its own device instead of the CPU. NULL:
   the CPU. */
backend_open_fn *backend_for_tests(void) __attribute__((weak));

#endif
