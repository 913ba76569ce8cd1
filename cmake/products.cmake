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

# libottava.a, for programs that link `pkg-config --static --libs ottava`. It has one object with all levels
# of the library. Only the names ott_* are global in it: no other name can collide with a program's own. The
# linker would keep only one of several equal groups of C++ templates, so an object with local names must have
# no groups.
set(library_levels ${OTTAVA_LEVELS})
list(REMOVE_ITEM library_levels bench plan hub)
set(archives ${library_levels})
list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:ottava_\\1>")
if(NOT OTTAVA_SANITIZE)
  add_custom_command(OUTPUT libottava.a
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -Wl,--force-group-allocation -o ottava.o
            -Wl,--whole-archive ${archives}
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=ott_* ottava.o
    COMMAND ${CMAKE_COMMAND} -E rm -f libottava.a
    COMMAND ${CMAKE_AR} rcs libottava.a ottava.o
    DEPENDS ${archives} VERBATIM)
  add_custom_target(ottava_static ALL DEPENDS libottava.a)
  install(FILES ${PROJECT_BINARY_DIR}/libottava.a TYPE LIB OPTIONAL)
endif()

# The libraries that the levels link, for ottava.pc.
set(private_libraries)
foreach(level IN LISTS library_levels)
  get_target_property(linked ottava_${level} LINK_LIBRARIES)
  foreach(library IN LISTS linked)
    if(library MATCHES "^PkgConfig::(.+)")
      list(APPEND private_libraries ${${CMAKE_MATCH_1}_STATIC_LDFLAGS})
    elseif(NOT library MATCHES "^(ottava_.+|Threads::Threads|m|linked-NOTFOUND)$")
      message(FATAL_ERROR "cmake/products.cmake cannot write ${library} of ottava_${level} into ottava.pc")
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES private_libraries)
list(FILTER private_libraries EXCLUDE REGEX "^-L/usr/lib") # the linker searches these folders
list(JOIN private_libraries " " private_libraries)
string(APPEND private_libraries " -lstdc++ -lm -pthread")

file(GLOB cli_sources CONFIGURE_DEPENDS cli/*.c)
add_executable(ottava_cli ${cli_sources})
set_target_properties(ottava_cli PROPERTIES OUTPUT_NAME ottava)
foreach(shell bash zsh fish)
  embed_text(cli/completion/ottava.${shell} completion_${shell} ottava_cli)
endforeach()
harden(ottava_cli)
target_include_directories(ottava_cli PRIVATE cli)
# The program contains these levels and all levels below them. It needs no shared library of this project.
target_link_libraries(ottava_cli PRIVATE ottava_bench ottava_plan ottava_hub m)

# The build and the installation have the same RUNPATH: the folders of libraries that the linker does not
# know. By default CMake pads the build's RUNPATH with an empty element, which the dynamic linker reads as the
# current folder.
set_target_properties(ottava ottava_cli PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)

# The manual pages are made of the program's help texts. The shells' completion scripts call the program.
set(man ${PROJECT_BINARY_DIR}/man)
add_custom_command(OUTPUT ${man}/ottava.1 COMMAND ${PROJECT_SOURCE_DIR}/tools/make_man.sh
    $<TARGET_FILE:ottava_cli> ${man} DEPENDS ottava_cli tools/make_man.sh VERBATIM)
if(NOT CMAKE_CROSSCOMPILING) # the program must run
  add_custom_target(ottava_man ALL DEPENDS ${man}/ottava.1)
  install(DIRECTORY ${man}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
endif()
set(share ${CMAKE_INSTALL_DATADIR})
install(FILES cli/completion/ottava.bash DESTINATION ${share}/bash-completion/completions RENAME ottava)
foreach(folder site-functions vendor-completions) # Debian's zsh reads the second in /usr
  install(FILES cli/completion/ottava.zsh DESTINATION ${share}/zsh/${folder} RENAME _ottava)
endforeach()
install(FILES cli/completion/ottava.fish DESTINATION ${share}/fish/vendor_completions.d)

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
  install(TARGETS ottava_mpi LIBRARY DESTINATION lib COMPONENT mpi)
else()
  message(WARNING "Open MPI (libopenmpi-dev) is missing: this build trains on one rank only")
endif()

include(CMakePackageConfigHelpers)
string(REGEX REPLACE "[^/]+" ".." libdir_to_prefix ${CMAKE_INSTALL_LIBDIR})
configure_file(cmake/ottava.pc.in ottava.pc @ONLY)
write_basic_package_version_file(ottava-config-version.cmake COMPATIBILITY SameMajorVersion)

install(TARGETS ottava EXPORT ottava)
install(TARGETS ottava_cli)
install(DIRECTORY include/ottava TYPE INCLUDE)
install(FILES LICENSE README.md CHANGELOG.md TYPE DOC)
install(DIRECTORY docs examples TYPE DOC)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/ottava)
install(CODE "set(configs \"${CMAKE_INSTALL_DATADIR}/ottava/configs\")")
install(SCRIPT cmake/install_configs.cmake)
install(FILES ${PROJECT_BINARY_DIR}/ottava.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/ottava-config-version.cmake DESTINATION
    ${CMAKE_INSTALL_LIBDIR}/cmake/ottava)
install(EXPORT ottava NAMESPACE ottava:: FILE ottava-config.cmake DESTINATION
    ${CMAKE_INSTALL_LIBDIR}/cmake/ottava)
