# The Debian packages that `make deb` makes: ottava, with everything but the plugins, and ottava-mpi, with
# the plugin that needs Open MPI. dpkg-shlibdeps finds the packages of the linked libraries.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ottava)
set(CPACK_PACKAGE_VENDOR "The Ottava developers")
set(CPACK_PACKAGE_CONTACT "The Ottava developers <maintainers@ottava.invalid>")
set(CPACK_COMPONENTS_ALL ottava mpi)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_STRIP_FILES ON)
# The installed configurations contain the prefix, so files are installed to it, below DESTDIR.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
file(WRITE ${PROJECT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_OTTAVA_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/triggers)
set(CPACK_DEBIAN_MPI_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_OTTAVA_PACKAGE_NAME ottava)
set(CPACK_DEBIAN_OTTAVA_DESCRIPTION "training of language models in 8-bit floating point
Ottava trains, evaluates and exports language models in FP8, on CPUs and GPUs.
The package has the program, the C library with its headers, configurations,
examples and documentation.")
# The packages after ottava-mpi are for programs that link libottava.a.
string(CONCAT CPACK_DEBIAN_OTTAVA_PACKAGE_SUGGESTS "ottava-mpi (= ${PROJECT_VERSION}-1), libjansson-dev, "
       "libpcre2-dev, libutf8proc-dev, libyaml-dev, libzstd-dev, zlib1g-dev")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME ottava-mpi)
set(CPACK_DEBIAN_MPI_DESCRIPTION "training of language models on several ranks
This plugin lets the ranks of Ottava communicate by Open MPI.")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "ottava (= ${PROJECT_VERSION}-1)")
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)

set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian/complete.cmake)
include(CPack)
