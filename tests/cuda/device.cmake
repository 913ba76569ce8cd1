# Builds the sources of the CUDA backend for the CPU, with stand-ins for CUDA (emulate.h, cudart.c,
# cublaslt.c, nccl.c), and the tests that run on this emulated GPU (OTTAVA_TEST_DEVICE=cuda). In this folder,
# .cu files are compiled as C++.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.c
    ${PROJECT_SOURCE_DIR}/src/cuda/*/*.c ${PROJECT_SOURCE_DIR}/src/cuda/*/*.cu)
set(cuda_boundary ${cuda_sources}) # only for a plugin: these tests link the library itself
list(FILTER cuda_boundary INCLUDE REGEX "/(plugin|status|mem|nccl/library)\\.c$")
list(REMOVE_ITEM cuda_sources ${cuda_boundary})
list(FILTER cuda_boundary EXCLUDE REGEX "/nccl/library\\.c$") # tests/cuda/nccl.c replaces it
# An interpreter of cuDNN's graphs replaces cuDNN.
list(FILTER cuda_sources EXCLUDE REGEX "/attention_cudnn\\.c$")
set(cuda_kernels ${cuda_sources})
list(FILTER cuda_kernels INCLUDE REGEX "\\.cu$")
set_source_files_properties(${cuda_kernels} PROPERTIES LANGUAGE CXX
                            COMPILE_OPTIONS "-xc++;-Wno-unused-function;-Wno-unknown-pragmas")
set_source_files_properties(cuda/cublaslt.c PROPERTIES COMPILE_OPTIONS -O3) # -O3 vectorizes
set(cuda_stand_ins cuda/cudart.c cuda/cublaslt.c cuda/nccl.c cuda/nccl_processes.c cuda/attention_shim.c
    cuda/attention_interpreter.c)
add_library(cuda_emulated OBJECT ${cuda_sources} ${cuda_stand_ins})
target_include_directories(cuda_emulated PUBLIC cuda)
set(squares_most SQUARES_MOST=70000) # a small limit of attention_order.c, so that tests split the heads
target_compile_definitions(cuda_emulated PRIVATE ${squares_most})
target_link_libraries(cuda_emulated PUBLIC tests_backend)
add_library(tests_cuda STATIC $<TARGET_OBJECTS:cuda_emulated>)
target_include_directories(tests_cuda PUBLIC cuda)
target_link_libraries(tests_cuda PUBLIC tests_backend)
# No code refers to cuda_open by name. This option makes the linker take it from the archive.
target_link_options(tests_cuda PUBLIC LINKER:--undefined=cuda_open)

# cuda_test(NAME SOURCE LIBRARY...): builds a test program and runs it on the emulated GPU.
function(cuda_test name source)
  add_executable(cuda_test_${name} ${source})
  target_link_libraries(cuda_test_${name} PRIVATE tests_cuda ${ARGN})
  add_test(NAME cuda.${name} COMMAND cuda_test_${name} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  # The exact kernels of attention have the bits of the reference.
  set_tests_properties(cuda.${name} PROPERTIES TIMEOUT ${test_timeout} ENVIRONMENT
      "OTTAVA_TEST_DEVICE=cuda;OTTAVA_CUDA_ATTENTION=own")
  add_dependencies(cuda_tests cuda_test_${name})
endfunction()

cuda_test(ops backend/test_ops.c)
cuda_test(gemm cuda/test_gemm.c)
cuda_test(tensor_cores cuda/test_tensor_cores.c)
cuda_test(groups cuda/test_groups.c tests_comm)
cuda_test(ranks cuda/test_ranks.c tests_train)
cuda_test(graphs cuda/test_graphs.c tests_train)
cuda_test(train cuda/test_train.c tests_train)
cuda_test(use cuda/test_use.c tests_train ottava_eval)
cuda_test(attention cuda/test_attention.c)
cuda_test(caller_loss api/test_caller_loss.c tests_api)
cuda_test(live api/test_live.c tests_api)

# Builds the emulated backend as a plugin too, for the program and for tests that do not link it.
# OTTAVA_CUDA_PATH must be this folder.
add_library(emulated_plugin SHARED $<TARGET_OBJECTS:cuda_emulated> ${cuda_boundary})
set_target_properties(emulated_plugin PROPERTIES OUTPUT_NAME ottava_cuda
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/emulated)
target_link_libraries(emulated_plugin PRIVATE ottava_fp8 ottava_tensor)
target_link_options(emulated_plugin PRIVATE LINKER:--exclude-libs,ALL)
add_dependencies(cuda_tests emulated_plugin ottava_cli backend_test_ops)

# Tests the script that checks a GPU machine.
add_test(NAME cuda.gpu_check COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/cuda/gpu_check.sh
                                     ${PROJECT_SOURCE_DIR}/tools/gpu_check.sh ${PROJECT_BINARY_DIR})
# The exact kernels of attention are the fastest on the emulated GPU.
set_tests_properties(cuda.gpu_check PROPERTIES TIMEOUT ${test_timeout} ENVIRONMENT
    OTTAVA_CUDA_ATTENTION=own)

# Tests runs with one process per GPU.
add_test(NAME cuda.processes COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/cuda/processes.sh
    $<TARGET_FILE:ottava_cli>
                                     $<TARGET_FILE_DIR:emulated_plugin>)
set_tests_properties(cuda.processes PROPERTIES TIMEOUT ${test_timeout} ENVIRONMENT
    OTTAVA_CUDA_ATTENTION=own)

# Tests that a program without CUDA code, such as a user's, can open a GPU.
add_executable(cuda_test_open cuda/test_open.c)
target_include_directories(cuda_test_open PRIVATE cuda)
target_link_libraries(cuda_test_open PRIVATE ottava_backend PkgConfig::CMOCKA)
add_test(NAME cuda.open COMMAND cuda_test_open WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
set_tests_properties(cuda.open PROPERTIES TIMEOUT ${test_timeout}
                     ENVIRONMENT OTTAVA_CUDA_PATH=$<TARGET_FILE_DIR:emulated_plugin>)
add_dependencies(cuda_test_open emulated_plugin)
add_dependencies(cuda_tests cuda_test_open)
# Builds cuDNN's attention plans with a stand-in for the driver: libcuda.c, and weak functions for the other
# names of the driver's stub library.
find_library(OTTAVA_LIBCUDA_STUB cuda PATHS ${CUDAToolkit_LIBRARY_DIR}/stubs NO_DEFAULT_PATH)
if(OTTAVA_LIBCUDA_STUB AND OTTAVA_cudnn)
  set(calls ${CMAKE_CURRENT_BINARY_DIR}/libcuda_calls.c)
  add_custom_command(OUTPUT ${calls} DEPENDS cuda/libcuda.awk VERBATIM
                     COMMAND sh -c
                     "'${CMAKE_NM}' -D --defined-only '${OTTAVA_LIBCUDA_STUB}' | \
awk -f cuda/libcuda.awk > '${calls}'"
                     WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  add_library(stand_in_cuda SHARED cuda/libcuda.c ${calls})
  set_target_properties(stand_in_cuda PROPERTIES OUTPUT_NAME cuda SOVERSION 1 VERSION 1 C_VISIBILITY_PRESET
      default
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/stand_in)
  add_executable(cuda_test_attention_plans cuda/test_attention_plans.c
      ${PROJECT_SOURCE_DIR}/src/cuda/attention/attention_cudnn.c
      ${PROJECT_SOURCE_DIR}/src/cuda/attention/attention_order.c
                 ${PROJECT_SOURCE_DIR}/src/cuda/attention/attention_graph.c)
  target_link_libraries(cuda_test_attention_plans PRIVATE ottava_base PkgConfig::CMOCKA ${CMAKE_DL_LIBS})
  add_dependencies(cuda_test_attention_plans stand_in_cuda)
  add_dependencies(cuda_tests cuda_test_attention_plans)
  get_filename_component(cudnn_folder ${OTTAVA_cudnn} DIRECTORY)
  add_test(NAME cuda.attention_plans
           COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=$<TARGET_FILE_DIR:stand_in_cuda>:${cudnn_folder}
                   $<TARGET_FILE:cuda_test_attention_plans>)
  set_tests_properties(cuda.attention_plans PROPERTIES TIMEOUT ${test_timeout})
endif()

include(cuda/trust.cmake)
