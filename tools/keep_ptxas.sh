#!/bin/sh
# keep_ptxas.sh COMMAND...: runs a compilation by nvcc with -Xptxas=-v and keeps what ptxas says in OBJECT.ptxas (tests/cuda/machine.sh
# reads it); what is no figure goes on to the terminal.
object=
for word; do
    [ "$before" = -o ] && object=$word
    before=$word
done
"$@" 2>"$object.ptxas"
status=$?
grep -v '^ptxas info\|bytes stack frame' "$object.ptxas" >&2
exit $status
