/* backend/backend: the backends of this build, and a device by its name. The one door between them and all
   that computes: nothing else includes a backend's header. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/log.h"
#include "tensor/device.h"

/* A device that is asked for. */
typedef struct backend_choice {
    const char *name;     /* "cpu"; "cuda", "cuda:1": a GPU; "auto" or NULL: the best there is */
    int threads;          /* of the host that it may use, 0: all cores */
    const recipe *recipe; /* that linear layers are to run under: auto takes no GPU that cannot; NULL: any */
    const recipe *second_recipe; /* and those of a second model */
    /* on a GPU, formats and scales that its tensor cores do not have are computed all the same, slowly */
    bool emulates;
    int local_rank,
        local_ranks; /* which of how many processes on this machine asks; "cuda" is the GPU of that number, or
                                    the only one that this process sees. 0 of 0: it is alone */
    const logger *log; /* NULL: silent */
} backend_choice;

/* Opens a device; `threads` of the host that it may use, 0: all cores. It is closed with device_close; account outlives it. */
typedef ott_status backend_open_fn(mem *account, int threads, device **out);

/* GPUs are opened by a plugin (backend/loader.h). Of auto the log says that it takes a GPU, or why one that is here is not
   taken; of a CPU that nothing stands beside, its debug lines. OTT_ERR_UNSUPPORTED, OTT_ERR_DEVICE: there is such a device, but
   not here; OTT_ERR_ARGUMENT: there is none. */
ott_status backend_open(const backend_choice *choice, mem *account, device **out);
/* OTT_ERR_ARGUMENT: no device has this name, here or elsewhere. */
ott_status backend_check_name(const char *name);
/* Is there a CUDA backend, whole, whatever GPUs there are? */
bool backend_has_cuda(void);
/* Would it be opened, and can it run linear layers under the recipe? r may be NULL. */
ott_status backend_check(const char *name, const recipe *r);

/* The unit that computes products of this format and that device_peak measures: "fp32 multiply-add". Formats with the same unit
   have the same text. Returns NULL for a GPU, which has its data sheet's peaks. */
const char *backend_peak_unit(const device *d, ott_dtype format);

/* Does the device compute products of ACCUMULATE_TILE32 with a tile unit? */
bool backend_has_tiles(const device *d);
/* Measures for some milliseconds how many times as fast an FP8 product is in the order ACCUMULATE_TILE32 as in one chain, on a
   device with a tile unit. *out is 0 on any other device. */
ott_status backend_tiles_speed(device *d, double *out);
/* Why a CPU device does not use the tile unit of its processor. Returns NULL if it does, or if there is none. */
const char *backend_tiles_refusal(const device *d);

/* Not defined here. A test program that defines it has its device opened where the CPU's would be; NULL: no. */
backend_open_fn *backend_for_tests(void) __attribute__((weak));

#endif
