/*
 * Copies, staging memory, events, graphs and mapped host memory of the CUDA device, for the thread sanitizer.
 * Each test waits before it uses a buffer that the stream may still use, so the sanitizer must report no
 * race. Exits with 1 if bytes are wrong.
 */
#include "backend/open.h"
#include "tensor/exec.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 4096 };

static device *gpu;
static void *there, *other;           /* buffers in device memory */
static unsigned char *staging, *back; /* buffers in staging memory */

static ott_status expect_bytes(const unsigned char *got, int value, const char *what) {
    for (int i = 0; i < BYTES; i++)
        if (got[i] != value)
            return status_fail(OTT_ERR_INTERNAL, "%s: byte %d is %d, expected %d", what, i, got[i], value);
    return OTT_OK;
}

static ott_status memory_comes_cleared(void) {
    TRY(device_copy_out(gpu, back, there, BYTES));
    return expect_bytes(back, 0, "new memory");
}

/* When a copy to the GPU returns, the caller may overwrite the source. */
static ott_status copy_in_is_over_when_it_returns(void) {
    memset(staging, 1, BYTES);
    TRY(device_copy_in(gpu, there, staging, BYTES));
    memset(staging, 2, BYTES);
    TRY(device_copy_out(gpu, back, there, BYTES));
    return expect_bytes(back, 1, "a copy to the GPU");
}

static ott_status copy_out_is_over_when_it_returns(void) {
    TRY(device_zero(gpu, there, BYTES));
    TRY(device_copy_out(gpu, back, there, BYTES));
    return expect_bytes(back, 0, "a copy from the GPU");
}

/* A copy's staging memory may be refilled after an event that was recorded after the copy. */
static ott_status staging_is_free_after_its_event(void) {
    device_event *taken;
    TRY(device_event_open(gpu, &taken));
    memset(staging, 3, BYTES);
    TRY(device_copy_in_async(gpu, there, staging, BYTES));
    TRY(device_event_record(gpu, taken));
    TRY(device_copy(gpu, other, there, BYTES));
    TRY(device_event_wait(gpu, taken));
    memset(staging, 4, BYTES);
    TRY(device_copy_in_async(gpu, there, staging, BYTES));
    TRY(device_copy_out(gpu, back, other, BYTES));
    TRY(expect_bytes(back, 3, "staging memory of a copy"));
    TRY(device_copy_out(gpu, back, there, BYTES));
    device_event_close(gpu, taken);
    return expect_bytes(back, 4, "staging memory refilled after an event");
}

static ott_status expect(bool good, const char *what) {
    return good ? OTT_OK : status_fail(OTT_ERR_INTERNAL, "%s", what);
}

/* Runs a kernel that accesses mapped host memory: adds a vector in device memory to the vector `mapped`. */
static ott_status add_there(void *mapped) {
    exec cx = {.device = gpu};
    const tensor sum = tensor_vector(mapped, OTT_F32, BYTES / 4),
                 more = tensor_vector(there, OTT_F32, BYTES / 4);
    return op_add(&cx, &(add_args){.x = &sum, .delta = &more, .y = &sum});
}

/* Mapped memory takes no GPU memory. Copies and kernels can access it; copies within the GPU cannot. */
static ott_status mapped_memory_is_worked_in(void) {
    void *mapped;
    int64_t taken = device_taken(gpu).now;
    const float one = 1;
    float sum[BYTES / 4];
    TRY(device_allocate_mapped(gpu, MEM_PARAM, BYTES, "mapped", &mapped));
    TRY(expect(device_taken(gpu).now == taken, "mapped memory is counted as GPU memory"));
    TRY(expect(device_holds(gpu, mapped, BYTES) && !device_holds(gpu, mapped, BYTES + 1),
               "device_holds of mapped memory"));
    TRY(expect(!device_holds(gpu, staging, BYTES), "device_holds of staging memory"));
    TRY(device_copy_out(gpu, back, mapped, BYTES));
    TRY(expect_bytes(back, 0, "new mapped memory"));
    for (int i = 0; i < BYTES / 4; i++) memcpy(staging + 4 * i, &one, 4);
    TRY(device_copy_in(gpu, mapped, staging, BYTES));
    TRY(device_copy(gpu, there, mapped, BYTES));
    TRY(add_there(mapped));
    TRY(device_copy(gpu, other, mapped, BYTES));
    TRY(device_zero(gpu, mapped, BYTES / 2));
    TRY(device_copy_out(gpu, sum, other, BYTES));
    TRY(expect(sum[0] == 2 && sum[BYTES / 4 - 1] == 2, "a sum in mapped memory"));
    TRY(device_copy_out(gpu, sum, mapped, BYTES));
    TRY(expect(sum[0] == 0 && sum[BYTES / 4 - 1] == 2, "half of mapped memory cleared"));
    TRY(expect(cudaMemcpyAsync(there, mapped, 4, cudaMemcpyDeviceToDevice, NULL) == cudaErrorInvalidValue,
               "a copy within the GPU accepts mapped memory"));
    device_release(gpu, mapped);
    return OTT_OK;
}

/* A graph reads staging memory at each launch, not at the recording. A launch repeats all recorded work. */
static ott_status a_graph_does_it_again(void) {
    device_graph *g;
    TRY(device_capture_begin(gpu));
    TRY(device_copy_in_async(gpu, there, staging, BYTES));
    TRY(device_copy(gpu, other, there, BYTES));
    TRY(device_zero(gpu, there, BYTES));
    TRY(device_capture_end(gpu, &g));
    for (int value = 5; value < 7; value++) {
        memset(staging, value, BYTES);
        TRY(device_graph_run(gpu, g));
        TRY(device_copy_out(gpu, back, other, BYTES));
        TRY(expect_bytes(back, value, "bytes copied by a graph"));
        TRY(device_copy_out(gpu, back, there, BYTES));
        TRY(expect_bytes(back, 0, "bytes cleared by a graph"));
        TRY(device_copy_in(gpu, there, staging, BYTES));
    }
    device_graph_close(gpu, g);
    return OTT_OK;
}

static ott_status run(mem *account) {
    void *pinned[2];
    TRY(test_device_open_named("cuda", account, 0, NULL, &gpu));
    TRY(device_allocate(gpu, MEM_OTHER, BYTES, "a test's array", &there));
    TRY(device_allocate(gpu, MEM_OTHER, BYTES, "a test's array", &other));
    for (int i = 0; i < 2; i++) TRY(device_allocate_host(gpu, MEM_OTHER, BYTES, "staging", &pinned[i]));
    staging = pinned[0];
    back = pinned[1];
    TRY(memory_comes_cleared());
    TRY(copy_in_is_over_when_it_returns());
    TRY(copy_out_is_over_when_it_returns());
    TRY(staging_is_free_after_its_event());
    TRY(mapped_memory_is_worked_in());
    TRY(a_graph_does_it_again());
    for (int i = 0; i < 2; i++) device_release_host(gpu, pinned[i]);
    device_release(gpu, other);
    device_release(gpu, there);
    device_close(gpu);
    return OTT_OK;
}

int main(void) {
    mem *account;
    ott_status status = mem_open(&account);
    if (status == OTT_OK) status = run(account);
    if (status != OTT_OK) fprintf(stderr, "copies: %s\n", status_text());
    return status == OTT_OK ? 0 : 1;
}
