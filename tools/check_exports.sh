#!/bin/sh
# Checks that the library exports only names that begin with ott_, all with the version OTTAVA_0, and that the
# archive next to it defines the same names and no other global name.
#
#   tools/check_exports.sh build/release/libottava.so
set -eu
library=${1:?usage: tools/check_exports.sh LIBRARY}

names=$(nm -D --defined-only "$library" | awk '$2 != "A" { print $NF }') # A: the version node
foreign=$(echo "$names" | grep -v '^ott_[a-z0-9_]*@@OTTAVA_0$' || true)
if [ -z "$names" ] || [ -n "$foreign" ]; then
    echo "$library exports ${foreign:-nothing}" >&2
    exit 1
fi
archive=${library%.so*}.a
global=$(nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 "@@OTTAVA_0" }')
if [ "$(echo "$global" | sort)" != "$(echo "$names" | sort)" ]; then
    echo "$archive does not define the names that $library exports, or defines further names" >&2
    exit 1
fi
echo "$library: $(echo "$names" | wc -l) names, all ott_...@@OTTAVA_0"
