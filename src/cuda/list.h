/* cuda/list: one launch for a list of jobs. Each job has its own blocks, as if it were launched separately.
   Jobs are kernel parameters, at most 32,764 bytes in CUDA 13, so nothing is copied to the device first. */
#ifndef CUDA_LIST_H
#define CUDA_LIST_H

#include "cuda/view.h"

enum { LIST_JOBS = 64, LIST_PARAMETER_BYTES = 32764 };

/* Jobs per launch: as many as fit, at most LIST_JOBS. */
template <class Job> constexpr int list_jobs() {
    constexpr int fit = (LIST_PARAMETER_BYTES - 8) / (int)(sizeof(int64_t) + sizeof(Job));
    return fit < LIST_JOBS ? fit : LIST_JOBS;
}

template <class Job> struct job_list {
    int count;
    int64_t end[list_jobs<Job>()]; /* number of thread blocks of this job and of all jobs before it */
    Job job[list_jobs<Job>()];
};

struct list_place {
    int job;
    int64_t block; /* block index within the job */
};
/* Finds the job that thread block `block` computes, and the block's index in this job. */
template <class Job>
__device__ __forceinline__ list_place list_place_of(const job_list<Job> &l, unsigned block) {
    int first = 0, last = l.count - 1;
    while (first < last) {
        int middle = (first + last) / 2;
        if ((int64_t)block < l.end[middle])
            last = middle;
        else
            first = middle + 1;
    }
    return {first, (int64_t)block - (first > 0 ? l.end[first - 1] : 0)};
}
template <class Job> __device__ __forceinline__ list_place list_place_of(const job_list<Job> &l) {
    return list_place_of(l, blockIdx.x);
}

/* Rereads the block index, so that values derived from it earlier need not stay in registers. */
__device__ __forceinline__ unsigned block_again() {
#ifdef __CUDACC__
    unsigned block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
#else
    return blockIdx.x;
#endif
}

/* Launches the kernel for all items, in lists of at most list_jobs<Job>() jobs. `fill` makes an item's job
   and returns its number of blocks; 0: the item is left out. */
template <auto Kernel, class Job, class Item>
static cudaError_t list_launch(int threads, int64_t (*fill)(const Item &item, Job &job), const Item *items,
                               int64_t count, cudaStream_t stream) {
    static_assert(sizeof(job_list<Job>) <= LIST_PARAMETER_BYTES,
                  "a list must fit into the parameters of one kernel launch");
    job_list<Job> list = {};
    int64_t blocks = 0;
    for (int64_t i = 0; i < count; i++) {
        Job job;
        int64_t own = fill(items[i], job);
        if (list.count == list_jobs<Job>() || blocks + own > INT32_MAX) {
            LAUNCH_BLOCKS(Kernel, blocks, threads, stream, list);
            list.count = 0;
            blocks = 0;
        }
        if (own == 0) continue;
        blocks += own;
        list.job[list.count] = job;
        list.end[list.count++] = blocks;
    }
    LAUNCH_BLOCKS(Kernel, blocks, threads, stream, list);
    return cudaGetLastError();
}

#endif
