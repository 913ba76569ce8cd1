/* base/anywhere: marks a function that the CPU and GPU kernels share, so that both give the same bits. Such a
   function is defined in a header. It calls only other ANYWHERE functions and C library functions whose
   results IEEE 754 defines exactly. */
#ifndef BASE_ANYWHERE_H
#define BASE_ANYWHERE_H

#ifdef __CUDACC__
#define ANYWHERE static inline __host__ __device__
#else
#define ANYWHERE static inline
#endif

#endif
