#!/bin/sh
# Compiles each public header separately as C11 and as C++17, without warnings. CC and CXX choose the
# compilers.
set -eu
cd "$(dirname "$0")/.."

for header in include/ottava/*.h; do
    line="#include \"${header#include/}\""
    echo "$line" | ${CC:-cc} -std=c11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c -
    echo "$line" | ${CXX:-c++} -std=c++17 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ -
    echo "$header: C11, C++17"
done
