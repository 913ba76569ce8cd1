# Cross-compiles for aarch64 Linux, and runs the tests with qemu-user. tools/arm64_libraries.sh puts the
# libraries into the folder OTTAVA_ARM64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(OTTAVA_ARM64 ${CMAKE_CURRENT_LIST_DIR}/../build/arm64 CACHE PATH "Libraries for aarch64")
get_filename_component(OTTAVA_ARM64 ${OTTAVA_ARM64} ABSOLUTE)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES OTTAVA_ARM64)
set(libraries ${OTTAVA_ARM64}/usr/lib/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${OTTAVA_ARM64})
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig)
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_CFLAGS} 1) # OTTAVA_ARM64 has its own /usr/include and /usr/lib
set(ENV{PKG_CONFIG_ALLOW_SYSTEM_LIBS} 1)
set(CMAKE_C_FLAGS_INIT "-isystem ${OTTAVA_ARM64}/usr/include/aarch64-linux-gnu") # OpenSSL's opensslconf.h
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}:${OTTAVA_ARM64}/lib/aarch64-linux-gnu")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,-rpath-link,${libraries}:${OTTAVA_ARM64}/lib/aarch64-linux-gnu")

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;${OTTAVA_ARM64})
