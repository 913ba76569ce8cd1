#!/bin/sh
# module.sh SOURCE BUILD: tests the Python module of the source tree with the library of a build folder.
# Skips without python3 and NumPy. Uses torch if it is installed.
set -eu
python=''
for name in /usr/bin/python3 python3; do # the last one with NumPy is used
    ! $name -c 'import numpy' 2>/dev/null || python=$name
done
if [ -z "$python" ]; then
    echo "SKIPPED: python3 with NumPy is missing. THE PYTHON MODULE IS NOT TESTED."
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -r "$1/configs" "$folder"
cd "$folder"
OTTAVA_CUDA_PATH=/nowhere OTTAVA_LIBRARY=$2 PYTHONPATH=$1/python PYTHONDONTWRITEBYTECODE=1 \
    $python "$1/tests/python/test_module.py"
