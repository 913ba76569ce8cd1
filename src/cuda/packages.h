/* cuda/packages: commands that install the libraries that the plugin opens at run time. They use a venv,
   because Debian 12 and Ubuntu 24.04 forbid pip outside of one (PEP 668). */
#ifndef CUDA_PACKAGES_H
#define CUDA_PACKAGES_H

#include <cuda_runtime_api.h>

/* NVIDIA's packages for CUDA 13 need driver 580 or later. The packages for CUDA 12 need driver 525. */
#if CUDART_VERSION >= 13000
#define CUDA_PACKAGE(name) name "-cu13"
#else
#define CUDA_PACKAGE(name) name "-cu12"
#endif

/* folder: the library's folder in site-packages/nvidia */
#define CUDA_INSTALL(name, folder)                                                                           \
    "python3 -m venv ~/nvidia && ~/nvidia/bin/pip install -U " CUDA_PACKAGE(                                 \
        name) " && export LD_LIBRARY_PATH=$(echo ~/nvidia/lib/python3*/site-packages/nvidia/" folder         \
              "/lib)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

#endif
