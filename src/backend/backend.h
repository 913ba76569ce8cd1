/* backend/backend: opens devices by name. No other file includes the header of a backend. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/log.h"
#include "tensor/device.h"

/* The device to open. */
typedef struct backend_choice {
    /* "cpu"; "cuda" or "cuda:1": a GPU; "auto" or NULL: a GPU if possible, else the CPU */
    const char *name;
    int threads;          /* host threads; 0: all cores */
    const recipe *recipe; /* recipe of the linear layers: "auto" uses only a GPU that can run it. NULL: any */
    const recipe *second_recipe; /* recipe of a second model's linear layers; NULL: no second model */
    /* on a GPU: also compute formats and scales that the GPU's tensor cores lack, slowly */
    bool emulates;
    /* Local rank of this process, and number of processes on this machine; 0 and 0: a single process. "cuda"
       is the only visible GPU, else the GPU with the index local_rank. */
    int local_rank, local_ranks;
    const logger *log; /* NULL: nothing is logged */
} backend_choice;

/* Opens a device with `threads` host threads; 0: all cores. Close it with device_close, before the
   account. */
typedef ott_status backend_open_fn(mem *account, int threads, device **out);

/* Opens a device. A plugin opens GPUs (backend/loader.h). With "auto" the log names the device, and warns if
   there is a GPU that cannot be used. OTT_ERR_UNSUPPORTED or OTT_ERR_DEVICE: the device is not available on
   this machine. OTT_ERR_ARGUMENT: no device has this name. */
ott_status backend_open(const backend_choice *choice, mem *account, device **out);
/* Returns OTT_ERR_ARGUMENT if no machine can have a device with this name. */
ott_status backend_check_name(const char *name);
/* True if there is a CUDA plugin with all ops, even without a GPU. */
bool backend_has_cuda(void);
/* Fails if the device cannot be opened, or cannot run linear layers with the recipe (NULL: any). */
ott_status backend_check(const char *name, const recipe *r);

/* Names the compute unit for products of this format, "fp32 multiply-add". device_peak measures the unit's
   peak. Formats with the same unit have the same text. NULL for a GPU (see its data sheet). */
const char *backend_peak_unit(const device *d, ott_dtype format);

/* True if the device is a CPU whose tile unit (AMX) computes ACCUMULATE_TILE32 products. */
bool backend_has_tiles(const device *d);
/* Measures for some milliseconds how much faster an FP8 product is in the order ACCUMULATE_TILE32 than as one
   chain of fp32 additions. *out: speedup; 0 on a device without a tile unit (AMX). */
ott_status backend_tiles_speed(device *d, double *out);
/* Returns why a CPU device does not use its tile unit (AMX). NULL if the unit is used or does not exist. */
const char *backend_tiles_refusal(const device *d);

/* The library does not define this function. A test program that defines it opens its own device instead of
   the CPU. If the function returns NULL, the CPU is opened. */
backend_open_fn *backend_for_tests(void) __attribute__((weak));

#endif
