/* backend/backend: opens devices by name. No other file includes the header of a backend. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/library.h"
#include "base/log.h"
#include "tensor/device.h"

/* The device to open. */
typedef struct backend_choice {
    /* "cpu"; "cuda" or "cuda:1": a GPU; "auto" or NULL: a GPU if possible, else the CPU */
    const char *name;
    int threads;          /* host threads; 0: all cores */
    const recipe *recipe; /* linear layers' recipe: "auto" skips a GPU that cannot run it; NULL: skips none */
    const recipe *second_recipe; /* recipe of a second model's linear layers; NULL: no second model */
    /* on a GPU: also compute formats and scales that its tensor cores lack; this is slow */
    bool emulates;
    /* Local rank of this process, and number of processes on this machine; 0 and 0: a single process. The
       device "cuda" is the only visible GPU. If there are several, it is the one with index local_rank. */
    int local_rank, local_ranks;
    const logger *log; /* NULL: nothing is logged */
} backend_choice;

/* Something that a plugin needs, for which `ottava doctor` searches. */
typedef struct backend_part {
    const char *file;              /* a program or a library */
    const char *remedy;            /* what to do if it is missing */
    const char *variable, *folder; /* the variable with a program's folder, and the usual folder */
} backend_part;

typedef struct backend_row {
    const char *name;    /* name of the device: "cuda"; of a plugin also with an index, "cuda:1" */
    const char *title;   /* name in messages: "CUDA" */
    library_name plugin; /* the plugin (backend/plugin.h); file NULL: the backend is built in */
    /* Opens the device with this index; -1: the name has no index. */
    ott_status (*open)(const struct backend_row *row, const backend_choice *c, int index, mem *account,
                       device **out);
    const backend_capabilities *can; /* capabilities of every device; NULL: they differ */
    bool is_nvidia;                  /* its devices are NVIDIA's GPUs (tensor/gpus.h) */
    const char *vendor, *build;      /* maker of the devices' driver; command that builds the plugin */
    /* The compiler that builds the plugin, the driver of the devices, and a library that the plugin needs. */
    backend_part compiler, driver, linked;
    const struct plugin **loaded; /* *loaded: the plugin, NULL until it is loaded (backend/loader.h) */
} backend_row;

/* Returns the backends. The first one is the CPU. */
const backend_row *backend_table(int *count);
/* Returns the backend of a device's name; NULL if no backend has it. */
const backend_row *backend_of_name(const char *name);
/* True if the backend can be loaded and has all ops, even without a device. */
bool backend_is_built(const backend_row *row);

/* Opens a device with `threads` host threads; 0: all cores. Close the device before you close the account. */
typedef ott_status backend_open_fn(mem *account, int threads, device **out);

/* Opens a device. With "auto" the log names the device, and warns if there is a GPU that cannot be used.
   OTT_ERR_UNSUPPORTED or OTT_ERR_DEVICE: the device is not available on this machine. OTT_ERR_ARGUMENT: no
   device has this name. */
ott_status backend_open(const backend_choice *choice, mem *account, device **out);
/* Returns OTT_ERR_ARGUMENT if no machine can have a device with this name. */
ott_status backend_check_name(const char *name);
/* Fails if the device cannot be opened, or cannot run linear layers with the recipe (NULL: not checked). */
ott_status backend_check(const char *name, const recipe *r);

/* Returns the name of the instructions that multiply numbers of this format, for example "fp32 multiply-add".
   device_peak measures their peak. NULL for a GPU, whose data sheet has the peaks. */
const char *backend_peak_unit(const device *d, ott_dtype format);

/* True if the device is a CPU whose tile unit (AMX) computes ACCUMULATE_TILE32 products. */
bool backend_has_tiles(const device *d);
/* Measures for some milliseconds how much faster FP8 products are with the accumulation order
   ACCUMULATE_TILE32 than with one chain of fp32 additions. *out: the speedup; 0 without a tile unit (AMX). */
ott_status backend_tiles_speed(device *d, double *out);
/* Returns why a CPU device does not use its tile unit (AMX). NULL if the unit is used or does not exist. */
const char *backend_tiles_refusal(const device *d);

/* Returns the function that opens a test's device, which replaces the CPU; NULL: the CPU is opened. Only test
   programs define this function, the library does not. */
backend_open_fn *backend_for_tests(void) __attribute__((weak));

#endif
