# Run by cmake --install: an installed configuration names files that the installation has. In the source tree paths begin
# at its root; the demo's text is made there, and an installation has the sample that comes with it.
cmake_path(ABSOLUTE_PATH configs BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
file(GLOB files "$ENV{DESTDIR}${configs}/*.toml" "$ENV{DESTDIR}${configs}/*.yaml"
     "$ENV{DESTDIR}${configs}/titan/*.toml")
foreach(file IN LISTS files)
  file(READ "${file}" text)
  string(REPLACE "build/demo/bible.txt" "configs/text/genesis.txt" text "${text}")
  string(REPLACE "configs/" "${configs}/" text "${text}")
  file(WRITE "${file}" "${text}")
endforeach()
