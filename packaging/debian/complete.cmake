# CPack runs this script before it packs the files. The script adds files that Debian requires in a package,
# and removes or renames files that have another place in Debian.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(package ottava ottava-mpi)
  string(REPLACE "ottava-mpi" "mpi" component ${package})
  set(usr ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr)
  if(NOT EXISTS ${usr})
    continue() # built without Open MPI
  endif()
  set(doc ${usr}/share/doc/${package})
  file(MAKE_DIRECTORY ${doc})
  file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/copyright ${doc}/copyright)
  file(WRITE ${doc}/changelog.Debian "${package} (${CPACK_PACKAGE_VERSION}-1) unstable; urgency=medium

  * New release; /usr/share/doc/ottava/changelog.gz lists the changes.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  if(package STREQUAL "ottava")
    file(REMOVE ${doc}/LICENSE) # in the file copyright
    file(RENAME ${doc}/CHANGELOG.md ${doc}/changelog)
    file(REMOVE_RECURSE ${usr}/share/zsh/site-functions) # Debian's zsh reads vendor-completions
  else()
    file(RPATH_REMOVE FILE ${usr}/lib/libottava_mpi.so)
  endif()
  file(GLOB compressed ${usr}/share/man/man1/* ${doc}/changelog*)
  execute_process(COMMAND gzip -9nf ${compressed} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
