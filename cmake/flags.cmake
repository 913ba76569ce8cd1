# Flags of all targets. No flag may change a floating-point result. Contraction is off, so that a fused
# multiply-add is used only where the source has fmaf.
add_compile_options(-Wall -Wextra -Wshadow -ffp-contract=off -fno-strict-aliasing)
add_compile_options($<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>)
# Declares memmem, realpath, renameat2 and other functions of glibc in every C file. C++ compilers define it.
add_compile_options($<$<COMPILE_LANGUAGE:C>:-D_GNU_SOURCE=>)

# Warnings are errors only with the compilers that we test: newer ones may have new warnings.
if("${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}" MATCHES "^(GNU 12|Clang 14)\\.")
  set(watched ON)
else()
  set(watched OFF)
endif()
option(OTTAVA_WERROR "Treat compiler warnings as errors" ${watched})
if(OTTAVA_WERROR)
  add_compile_options($<IF:$<COMPILE_LANGUAGE:CUDA>,-Werror=all-warnings,-Werror>)
endif()

if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(OTT_DEBUG=1)
endif()
# Release builds check the bounds of copies and stack frames, and resolve all symbols before main, into
# read-only tables (tools/check_binaries.sh). Debug builds are excluded: FORTIFY requires optimization.
# The CPU kernels (cmake/cpu_isas.cmake) are excluded, because they call nothing that FORTIFY checks.
set(OTTAVA_HARDENED OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT OTTAVA_SANITIZE)
  set(OTTAVA_HARDENED ON)
  add_link_options(LINKER:-z,relro LINKER:-z,now)
  include(CheckPIESupported)
  check_pie_supported() # links programs as position independent, whatever the compiler's default is
endif()
function(harden target)
  if(OTTAVA_HARDENED)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:C,CXX>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3;-fstack-protector-strong>")
  endif()
endfunction()
if(OTTAVA_SANITIZE)
  add_compile_definitions(OTT_SANITIZED=1)
  add_compile_options(-fsanitize=${OTTAVA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${OTTAVA_SANITIZE})
endif()
if(OTTAVA_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "OTTAVA_FUZZ needs clang: cmake --preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link) # tests/fuzz links libFuzzer itself
endif()
