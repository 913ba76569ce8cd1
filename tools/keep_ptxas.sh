#!/bin/sh
# keep_ptxas.sh COMMAND...: compiles with nvcc and -Xptxas=-v, and writes ptxas's figures to OBJECT.ptxas, for
# tests/cuda/machine.sh. Prints all other output.
object=
for word; do
    [ "$before" = -o ] && object=$word
    before=$word
done
"$@" 2>"$object.ptxas"
status=$?
grep -v '^ptxas info\|bytes stack frame' "$object.ptxas" >&2
exit $status
