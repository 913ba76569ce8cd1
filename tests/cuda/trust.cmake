# Builds of the CUDA backend with sanitizers, for mistakes that do not change results. `order`: thread
# sanitizer. Each thread of a block and each stream is a thread for the sanitizer. `memory`: address and
# undefined-behaviour sanitizers (cuda/sanitize.h). Both contain the faults of cuda/faults.def, which are off
# unless a run selects one.
set(planted ${CMAKE_CURRENT_BINARY_DIR}/planted)
set(here ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
file(GLOB planted_from CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.h
    ${PROJECT_SOURCE_DIR}/src/cuda/*/*.h)
# Sources outside of src/cuda that get planted faults too: a training step on the GPU depends on them.
set(planted_hosts nn/weight/base.c parallel/store_gather.c parallel/store_reduce.c train/replay.c)
list(TRANSFORM planted_hosts PREPEND ${PROJECT_SOURCE_DIR}/src/)
list(PREPEND planted_from ${cuda_sources} ${planted_hosts})
list(TRANSFORM planted_from REPLACE ".*/src/" "${planted}/" OUTPUT_VARIABLE planted_files)
foreach(file IN LISTS planted_files)
  get_filename_component(folder ${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
endforeach()
add_custom_command(OUTPUT ${planted_files} ${planted}/faults.txt VERBATIM
                   DEPENDS ${planted_from} ${here}/plant.awk ${here}/faults.def
                   COMMAND awk -f ${here}/plant.awk -v out=${planted} ${here}/faults.def ${planted_from})
list(TRANSFORM cuda_sources REPLACE ".*/src/" "${planted}/" OUTPUT_VARIABLE planted_sources)
list(TRANSFORM planted_hosts REPLACE ".*/src/" "${planted}/")
list(REMOVE_ITEM planted_files ${planted_hosts}) # these are not sources of the CUDA backend
set(planted_kernels ${planted_sources})
list(FILTER planted_kernels INCLUDE REGEX "\\.cu$")
set_source_files_properties(${planted_kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")

# trust_build(NAME DEFINITION FLAGS RUNTIME_FLAGS): builds the backend and the programs that test it. FLAGS:
# compiler flags of the backend and of the programs. RUNTIME_FLAGS: of the stand-ins.
function(trust_build name definition flags runtime_flags)
  add_library(cuda_${name} STATIC ${planted_sources} ${planted_files})
  target_compile_options(cuda_${name} PRIVATE -O1 -g1 -w ${flags} -include ${here}/planted.h)
  target_compile_definitions(cuda_${name} PRIVATE ${squares_most})
  add_library(cuda_${name}_runtime STATIC ${cuda_stand_ins} cuda/planted.c)
  target_compile_options(cuda_${name}_runtime PRIVATE -O2 ${runtime_flags})
  foreach(library cuda_${name} cuda_${name}_runtime)
    target_include_directories(${library} BEFORE PRIVATE ${planted})
    target_include_directories(${library} PUBLIC cuda)
    target_compile_definitions(${library} PUBLIC ${definition})
  endforeach()
  target_link_libraries(cuda_${name} PUBLIC cuda_${name}_runtime tests_backend)
  target_link_libraries(cuda_${name}_runtime PUBLIC tests_backend)
  target_link_options(cuda_${name} PUBLIC ${flags} LINKER:--undefined=cuda_open)
  foreach(program small=cuda/small.c copies=cuda/copies.c products=cuda/test_gemm.c
                  tiles=cuda/test_tensor_cores.c mistakes=cuda/mistakes.cpp
                  attention=cuda/test_attention.c steps=cuda/steps.c)
    string(REGEX MATCH "^[a-z]+" short ${program})
    string(REGEX REPLACE "^[a-z]+=" "" source ${program})
    add_executable(cuda_${name}_${short} ${source})
    target_compile_options(cuda_${name}_${short} PRIVATE ${flags})
    target_link_libraries(cuda_${name}_${short} PRIVATE cuda_${name})
    set_target_properties(cuda_${name}_${short} PROPERTIES OUTPUT_NAME ${short}
                          RUNTIME_OUTPUT_DIRECTORY ${planted}/${name})
    add_dependencies(cuda_tests cuda_${name}_${short})
  endforeach()
  # These objects replace the library's objects of the same sources.
  target_sources(cuda_${name}_steps PRIVATE ${planted_hosts})
  set_source_files_properties(${planted_hosts} PROPERTIES COMPILE_OPTIONS "-include;${here}/planted.h")
  target_link_libraries(cuda_${name}_steps PRIVATE tests_train)
endfunction()

# The sanitizer does not instrument entries and exits of functions. This saves time, and the reports have the
# same lines.
trust_build(order SANITIZE_ORDER "-fsanitize=thread;--param=tsan-instrument-func-entry-exit=0" "")
set(memory_flags -fsanitize=address,undefined -fno-sanitize-recover=all)
trust_build(memory SANITIZE_MEMORY "${memory_flags}" "${memory_flags}")

# trust_test(NAME COMMAND...): adds a test that runs the command.
function(trust_test name)
  add_test(NAME cuda.${name} COMMAND ${ARGN} WORKING_DIRECTORY ${planted})
  set_tests_properties(cuda.${name} PROPERTIES TIMEOUT ${test_timeout} SKIP_RETURN_CODE 77 ENVIRONMENT
      "OTTAVA_TEST_DEVICE=cuda;OTTAVA_CUDA_ATTENTION=own")
endfunction()

trust_test(races ${here}/trust.sh order)
trust_test(bounds ${here}/trust.sh memory)
trust_test(faults ${here}/trust.sh faults)

# Tests of the machine code that nvcc makes.
if(TARGET ottava_plugin)
  trust_test(machine ${here}/machine.sh ${PROJECT_BINARY_DIR}/CMakeFiles/ottava_plugin.dir)
  trust_test(vectors ${here}/vectors.sh ${PROJECT_BINARY_DIR}/CMakeFiles/ottava_plugin.dir/src/cuda)
  find_program(python_program python3)
  if(python_program)
    trust_test(counts ${python_program} ${PROJECT_SOURCE_DIR}/tools/count_sass.py
               ${PROJECT_BINARY_DIR}/CMakeFiles/ottava_plugin.dir)
  endif()
endif()
