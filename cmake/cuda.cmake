# Finds CUDA: the headers (required), nvcc (without it only the CPU shim is built), cuBLASLt (required) and
# cuDNN (for tests: the plugin opens it at run time), in the toolkit or in a Python environment
# (site-packages/nvidia/*). Libraries of the Python environment come first, because the toolkit's cuDNN is
# often too old. Sets OTTAVA_NVCC, OTTAVA_cublasLt, OTTAVA_cudnn and OTTAVA_CUDA_FOLDERS.
set(OTTAVA_CUDA_HINTS "" CACHE STRING
    "Further folders with CUDA libraries and headers (their lib and include folders are tried)")

find_program(CMAKE_CUDA_COMPILER nvcc HINTS $ENV{CUDA_HOME}/bin PATHS /usr/local/cuda/bin)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90) # code for Hopper, and PTX, which a driver compiles for later GPUs
endif()

# Stops the configuration. The next configuration of this build folder is without CUDA.
function(cuda_missing what)
  unset(OTTAVA_CUDA CACHE)
  message(FATAL_ERROR "The CUDA backend needs ${what}. Install CUDA 13 and cuDNN 9 (python3 -m venv ~/nvidia "
    "&& . ~/nvidia/bin/activate && pip install nvidia-cudnn-cu13); CUDA_HOME=FOLDER is the toolkit's folder, "
    "-DOTTAVA_CUDA_HINTS=\"FOLDER;FOLDER\" adds folders of libraries and headers to those of the active "
    "Python environment. Without CUDA: make build")
endfunction()

include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 17)
  set(OTTAVA_NVCC ON)
  # Arithmetic follows IEEE, without contraction of multiply and add: a kernel's results must equal the CPU's
  # bit for bit.
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>)
  # Register spills slow a kernel down, so ptxas reports them.
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills>)
else()
  message(WARNING "no nvcc (is CUDA_HOME set?): only the CPU shim is built")
endif()
find_package(CUDAToolkit 12.9 QUIET)
if(NOT CUDAToolkit_FOUND)
  cuda_missing("the CUDA toolkit, of version 12.9 or later")
endif()
include_directories(SYSTEM ${CUDAToolkit_INCLUDE_DIRS})

file(GLOB packages $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/*)
set(OTTAVA_CUDA_FOLDERS ${OTTAVA_CUDA_HINTS} ${packages})
set(cublasLt_file libcublasLt.so.${CUDAToolkit_VERSION_MAJOR})
set(cudnn_file libcudnn.so.9)
foreach(library cublasLt cudnn)
  find_library(OTTAVA_${library} NAMES ${library} ${${library}_file} NAMES_PER_DIR
               HINTS ${OTTAVA_CUDA_FOLDERS} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
  message(STATUS "${library}: ${OTTAVA_${library}}")
endforeach()
if(NOT OTTAVA_cublasLt)
  cuda_missing(libcublasLt.so)
endif()
foreach(header cublasLt cudnn)
  find_path(OTTAVA_${header}_INCLUDE ${header}.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${OTTAVA_CUDA_FOLDERS}
            PATH_SUFFIXES include)
  if(NOT OTTAVA_${header}_INCLUDE)
    cuda_missing(${header}.h)
  endif()
  include_directories(SYSTEM ${OTTAVA_${header}_INCLUDE})
endforeach()
