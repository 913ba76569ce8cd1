# libottava_cuda.so, the CUDA backend as a plugin (src/cuda): C and CUDA, the runtime linked in, cuBLASLt needed. Made where
# there is nvcc; the target `cuda` makes it, and the tests of the same sources on the CPU (tests/cuda/device.cmake).
add_custom_target(cuda)
if(OTTAVA_NVCC)
  file(GLOB cuda_sources CONFIGURE_DEPENDS src/cuda/*.c src/cuda/*.cu)
  add_library(ottava_plugin SHARED ${cuda_sources})
  set_target_properties(ottava_plugin PROPERTIES OUTPUT_NAME ottava_cuda CUDA_VISIBILITY_PRESET hidden)
  target_link_libraries(ottava_plugin PRIVATE ottava_fp8 ottava_tensor CUDA::cudart_static ${OTTAVA_cublasLt})
  target_include_directories(ottava_plugin PRIVATE src include)
  harden(ottava_plugin)
  # What ptxas says of each kernel stays beside its object, for cuda.machine (tests/cuda/machine.sh).
  target_compile_options(ottava_plugin PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>)
  set_target_properties(ottava_plugin PROPERTIES CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/tools/keep_ptxas.sh)
  # No C++ at run time. Of the static libraries nothing leaves; of what the plugin has itself (src/cuda/library.h) they must
  # not bring a second copy, which the linker would refuse.
  target_compile_options(ottava_plugin PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-threadsafe-statics,-fno-exceptions,-fno-rtti>)
  target_link_options(ottava_plugin PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)
  set_target_properties(ottava_plugin PROPERTIES LINKER_LANGUAGE C)
  add_dependencies(cuda ottava_plugin)
  # Where the program looks, whatever the system calls its folder of libraries; cuBLASLt is found where it was found here.
  set_target_properties(ottava_plugin PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ottava_plugin LIBRARY DESTINATION lib OPTIONAL)
endif()
