#!/bin/sh
# Checks that the library exports only names that begin with ott_.
#
#   tools/check_exports.sh build/release/libottava.so
set -eu
library=${1:?usage: tools/check_exports.sh LIBRARY}

names=$(nm -D --defined-only "$library" | awk '{ print $NF }')
foreign=$(echo "$names" | grep -v '^ott_' || true)
if [ -z "$names" ] || [ -n "$foreign" ]; then
    echo "$library exports ${foreign:-nothing}" >&2
    exit 1
fi
echo "$library: $(echo "$names" | wc -l) names, all ott_"
