#!/bin/sh
# The files that `make install` copies must work in the new folder. `make uninstall` must remove them.
. "$(dirname "$0")/checks.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(dirname "$program")
here=$PWD
if ! command -v cmake >/dev/null 2>&1 || [ ! -f "$build/cmake_install.cmake" ]; then
    echo "SKIPPED an installation: cmake is missing, or the program is not in a build folder"
    finish
    exit
fi
cp "$build/install_manifest.txt" manifest.kept 2>/dev/null
mkdir -p there/share && echo mine >there/share/mine
cmake --install "$build" --prefix "$here/there" >log 2>&1 || { cat log; report "cmake --install" \
    "exit code $?"; }
cp "$build/install_manifest.txt" list
[ -e manifest.kept ] && cp manifest.kept "$build/install_manifest.txt"

program=$here/there/bin/ottava
configs=$here/there/share/ottava/configs
for file in "$configs"/*.toml; do
    text=$(sed -n 's/^dataset_path = "\(.*\)".*/\1/p' "$file")
    [ -z "$text" ] || holds "$(basename "$file") names an existing data file" test -r "$text"
done
holds "no configuration names the source tree" \
    sh -c "! grep -E '(^|[^/])configs/|build/demo' '$configs'/*.toml '$configs'/*.yaml"
works "the installed program trains by an installed configuration" "Training complete" \
    train "$configs/debug.toml" \
    --model.n_layers=1 --model.dim=64 --model.ffn_hidden_dim=64 --model.n_heads=2 --model.n_kv_heads=2 \
    --model.head_dim=32 --train.max_steps=2 --train.batch_size=1 --train.seq_len=16 --eval.steps=1 --run.dir=r

if [ -e "$build/libottava_cuda.so" ]; then
    env OTTAVA_CUDA_PATH="$build" "$build/ottava" doctor | grep 'CUDA backend' >built
    env -u OTTAVA_CUDA_PATH -u LD_LIBRARY_PATH "$program" doctor | grep 'CUDA backend' >out
    holds "the installed program finds the CUDA backend" cmp built out
fi

holds "uninstalling succeeds" "$root/tools/uninstall.sh" list "$here/there"
holds "uninstalling removes all files of Ottava and no other file" \
    sh -c 'test -r there/share/mine && [ -z "$(find there -name "*ottava*")" ] &&
        [ "$(find there -type f | wc -l)" -eq 1 ]'
"$root/tools/uninstall.sh" list "$here/there" >out 2>err
code=$?
trouble=$(missing err "no list|make install PREFIX=")
[ $code -eq 1 ] || trouble="exit code $code"
report "a second uninstall reports the missing list" "$trouble"
finish
