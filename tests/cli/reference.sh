#!/bin/sh
# The reference pages that tools/make_reference.sh makes must be current, and the program in
# docs/reference/files.md must read a checkpoint.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/cli/checks.sh"

"$root/tools/make_reference.sh" "$program" "$folder" >out 2>&1
for page in keys.md commands.md messages.md; do
    holds "$page is current (tools/make_reference.sh $program)" diff "$root/docs/reference/$page" "$page"
done
holds "keys.md has a row for each key" test "$(grep -c '^| `[a-z0-9]*\.' keys.md)" -eq \
    "$("$program" train --help | grep -c '^  --')"

call train $small --train.mixed_precision=fp8 --float8.recipe_name=delayed --run.dir=run
if command -v python3 >/dev/null; then
    sed -n '/^```python/,/^```/p' "$root/docs/reference/files.md" | grep -v '^```' >reader.py
    python3 reader.py run/checkpoints/step-4 >out 2>err
    report "the reader in files.md reads a checkpoint" \
        "$(missing out "step 4 tokens 256|float8.safetensors lm_head.input.e4m3.amax_history F32 [1024]")"
else
    echo "SKIPPED the reader in files.md: python3 is missing"
fi
finish
