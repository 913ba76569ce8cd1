# libottava_cuda.so, the CUDA backend as a plugin (src/cuda), with the CUDA runtime linked in; it needs
# cuBLASLt. Built if nvcc was found. The target `cuda` builds it, and `cuda_tests` its tests on the CPU
# (tests/cuda/device.cmake).
add_custom_target(cuda)
add_custom_target(cuda_tests)
add_dependencies(cuda ottava_cli)
add_dependencies(cuda_tests cuda)
if(OTTAVA_NVCC)
  file(GLOB cuda_sources CONFIGURE_DEPENDS src/cuda/*.c src/cuda/*/*.c src/cuda/*/*.cu)
  add_library(ottava_plugin SHARED ${cuda_sources})
  set_target_properties(ottava_plugin PROPERTIES OUTPUT_NAME ottava_cuda CUDA_VISIBILITY_PRESET hidden)
  target_link_libraries(ottava_plugin PRIVATE ottava_fp8 ottava_tensor CUDA::cudart_static ${OTTAVA_cublasLt})
  target_include_directories(ottava_plugin PRIVATE src include)
  harden(ottava_plugin)
  # ptxas's report for each kernel is stored next to its object, for cuda.machine (tests/cuda/machine.sh).
  target_compile_options(ottava_plugin PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>)
  set_target_properties(ottava_plugin PROPERTIES CUDA_COMPILER_LAUNCHER
      ${PROJECT_SOURCE_DIR}/tools/keep_ptxas.sh)
  # The plugin needs no C++ library at run time, and exports no symbol of a static library. src/cuda/library.h
  # defines what the static libraries must not define a second time: the linker would refuse that.
  target_compile_options(ottava_plugin PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-threadsafe-statics,-fno-exceptions,-fno-rtti>)
  target_link_options(ottava_plugin PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)
  set_target_properties(ottava_plugin PROPERTIES LINKER_LANGUAGE C)
  add_dependencies(cuda ottava_plugin)
  # The plugin is installed to lib, where the program searches it, whatever GNUInstallDirs calls this folder.
  # RUNPATH has the folders of this machine's Python packages, and of its cuBLASLt.
  list(TRANSFORM OTTAVA_CUDA_FOLDERS APPEND /lib OUTPUT_VARIABLE folders)
  set_target_properties(ottava_plugin PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON
      INSTALL_RPATH "${folders}")
  install(TARGETS ottava_plugin LIBRARY DESTINATION lib COMPONENT cuda OPTIONAL)
endif()
