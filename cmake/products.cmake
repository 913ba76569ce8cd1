# The library and the program, and files with which another project finds them (pkg-config: ottava; CMake:
# find_package(ottava), target ottava::ottava).

target_compile_definitions(ottava_api PRIVATE OTT_VERSION="${PROJECT_VERSION}")

# Exports only names that begin with ott_. OTT_API and C++ headers may make other names visible.
set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)

add_library(ottava SHARED $<TARGET_OBJECTS:ottava_api>)
target_link_libraries(ottava PRIVATE ottava_api)
target_link_options(ottava PRIVATE LINKER:--version-script=${exports})
target_include_directories(ottava PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(ottava PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS ${exports})

file(GLOB cli_sources CONFIGURE_DEPENDS cli/*.c)
add_executable(ottava_cli ${cli_sources})
set_target_properties(ottava_cli PROPERTIES OUTPUT_NAME ottava)
harden(ottava_cli)
target_include_directories(ottava_cli PRIVATE cli)
# The program contains these levels and all levels below them. It needs no shared library of this project.
target_link_libraries(ottava_cli PRIVATE ottava_bench ottava_plan ottava_hub m)

# The build and the installation have the same RUNPATH: the folders of libraries that the linker does not
# know. By default CMake pads the build's RUNPATH with an empty element, which the dynamic linker reads as the
# current folder.
set_target_properties(ottava ottava_cli PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)

# libottava_mpi.so, which lets ranks communicate by the MPI library of this machine. The program and the
# library open it if a launcher such as mpirun has started them.
if(MPI_FOUND)
  add_library(ottava_mpi SHARED src/mpi/plugin.c)
  target_link_libraries(ottava_mpi PRIVATE PkgConfig::MPI)
  target_include_directories(ottava_mpi PRIVATE src)
  harden(ottava_mpi)
  set_target_properties(ottava_mpi PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
  add_dependencies(ottava ottava_mpi)
  add_dependencies(ottava_cli ottava_mpi)
  install(TARGETS ottava_mpi LIBRARY DESTINATION lib)
else()
  message(WARNING "Open MPI (libopenmpi-dev) is missing: this build trains on one rank only")
endif()

include(CMakePackageConfigHelpers)
configure_file(cmake/ottava.pc.in ottava.pc @ONLY)
write_basic_package_version_file(ottava-config-version.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS ottava EXPORT ottava)
install(TARGETS ottava_cli)
install(DIRECTORY include/ottava TYPE INCLUDE)
install(FILES LICENSE TYPE DOC)
install(DIRECTORY examples TYPE DOC)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/ottava)
install(CODE "set(configs \"${CMAKE_INSTALL_DATADIR}/ottava/configs\")")
install(SCRIPT cmake/install_configs.cmake)
install(FILES ${PROJECT_BINARY_DIR}/ottava.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/ottava-config-version.cmake DESTINATION
    ${CMAKE_INSTALL_LIBDIR}/cmake/ottava)
install(EXPORT ottava NAMESPACE ottava:: FILE ottava-config.cmake DESTINATION
    ${CMAKE_INSTALL_LIBDIR}/cmake/ottava)
