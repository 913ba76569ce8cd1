# Run by cmake --install: replaces paths in the installed configurations. In the source tree they are relative
# to its root. An installation has a sample instead of the demo's text, which a build makes.
cmake_path(ABSOLUTE_PATH configs BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
file(GLOB files "$ENV{DESTDIR}${configs}/*.toml" "$ENV{DESTDIR}${configs}/*.yaml"
     "$ENV{DESTDIR}${configs}/titan/*.toml")
foreach(file IN LISTS files)
  file(READ "${file}" text)
  string(REPLACE "build/demo/bible.txt" "configs/text/genesis.txt" text "${text}")
  string(REPLACE "configs/" "${configs}/" text "${text}")
  file(WRITE "${file}" "${text}")
endforeach()
