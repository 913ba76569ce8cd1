/* devices: opens CPU devices of every instruction set and with several numbers of threads. */
#include "devices.h"
#include <stdio.h>
#include <stdlib.h>

devices devices_open(void) {
#ifdef OTT_TEST_PART /* a slow build (sanitizer): one number of threads finds memory errors */
    static const int threads[] = {3};
#else
    static const int threads[] = {1, 2, 3, 5};
#endif
    const int thread_counts = (int)(sizeof threads / sizeof *threads);
    const char *isas[CPU_ISAS_MAX];
    int isa_count = cpu_isas(isas);
    devices d = {.count = 0};
    ott_status status = mem_open(&d.account);
    for (int i = 0; i < isa_count; i++)
        for (int t = 0; t < thread_counts && status == OTT_OK; t++)
            status = cpu_open(d.account, threads[t], isas[i], &d.list[d.count++]);
    if (status != OTT_OK) {
        fprintf(stderr, "devices_open: %s\n", status_text());
        abort();
    }
    return d;
}

void devices_add_tiles(devices *d) {
    static const int threads[] = {1, 3};
    for (int t = 0; t < 2; t++) {
        device **added = &d->list[d->count];
        ott_status status = cpu_open(d->account, threads[t], "amx_emulated", added);
        if (status == OTT_ERR_UNSUPPORTED) return;
        if (status != OTT_OK || !cpu_has_tiles(*added)) {
            fprintf(stderr, "devices_add_tiles: %s\n",
                    status == OTT_OK ? cpu_warning(*added) : status_text());
            abort();
        }
        d->count++;
    }
}

void devices_close(devices *d) {
    for (int i = 0; i < d->count; i++) device_close(d->list[i]);
    mem_close(d->account);
}
