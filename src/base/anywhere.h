/* base/anywhere: a function that the host and a GPU's kernels share: one source, so equal bits. It stands in a header and
   calls nothing but its like and the C library's mathematics that IEEE 754 defines to the last bit. */
#ifndef BASE_ANYWHERE_H
#define BASE_ANYWHERE_H

#ifdef __CUDACC__
#define ANYWHERE static inline __host__ __device__
#else
#define ANYWHERE static inline
#endif

#endif
