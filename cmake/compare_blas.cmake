# bench/compare_blas: our matrix products beside OpenBLAS and oneDNN. Built where both are installed (Debian:
# libopenblas-dev libdnnl-dev); nothing else needs them.
pkg_check_modules(OPENBLAS QUIET IMPORTED_TARGET openblas)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(DNNL_LIBRARY dnnl)
if(OPENBLAS_FOUND AND DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
  add_executable(compare_blas bench/compare_blas.c)
  target_include_directories(compare_blas PRIVATE ${DNNL_INCLUDE_DIR})
  target_link_libraries(compare_blas PRIVATE ottava_bench PkgConfig::OPENBLAS ${DNNL_LIBRARY})
endif()
