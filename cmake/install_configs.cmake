# Runs in `cmake --install`: replaces paths in the installed configurations. In the source tree these paths
# are relative to its root. `make demo` makes the demo's text; an installation has a sample text instead.
cmake_path(ABSOLUTE_PATH configs BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
file(GLOB files "$ENV{DESTDIR}${configs}/*.toml" "$ENV{DESTDIR}${configs}/*.yaml"
     "$ENV{DESTDIR}${configs}/titan/*.toml")
foreach(file IN LISTS files)
  file(READ "${file}" text)
  string(REPLACE "build/demo/bible.txt" "configs/text/genesis.txt" text "${text}")
  string(REPLACE "configs/" "${configs}/" text "${text}")
  file(WRITE "${file}" "${text}")
endforeach()
