# The CUDA backend's own sources on the CPU (emulate.h, cudart.c, cublaslt.c), and the tests that run on it: OTTAVA_TEST_DEVICE
# says "cuda". In this folder a .cu file is C++.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.c ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
list(FILTER cuda_sources EXCLUDE REGEX "/(plugin|status|mem)\\.c$") # the library itself is linked here
set(cuda_kernels ${cuda_sources})
list(FILTER cuda_kernels INCLUDE REGEX "\\.cu$")
set_source_files_properties(${cuda_kernels} PROPERTIES LANGUAGE CXX
                            COMPILE_OPTIONS "-xc++;-Wno-unused-function;-Wno-unknown-pragmas")
set_source_files_properties(cuda/cublaslt.c PROPERTIES COMPILE_OPTIONS -O3) # vectors
add_library(tests_cuda STATIC ${cuda_sources} cuda/cudart.c cuda/cublaslt.c)
target_include_directories(tests_cuda PUBLIC cuda)
target_link_libraries(tests_cuda PUBLIC tests_backend)
# Nothing calls it by name: a test program takes it from the archive all the same.
target_link_options(tests_cuda PUBLIC LINKER:--undefined=cuda_open)

# cuda_test(NAME SOURCE): a test program on the emulated GPU.
function(cuda_test name source)
  add_executable(cuda_test_${name} ${source})
  target_link_libraries(cuda_test_${name} PRIVATE tests_cuda)
  add_test(NAME cuda.${name} COMMAND cuda_test_${name} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set_tests_properties(cuda.${name} PROPERTIES TIMEOUT ${test_timeout} ENVIRONMENT OTTAVA_TEST_DEVICE=cuda)
  add_dependencies(cuda cuda_test_${name})
endfunction()

cuda_test(ops backend/test_ops.c)
cuda_test(gemm cuda/test_gemm.c)
