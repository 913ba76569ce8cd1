#!/bin/sh
# Tests the list of recipes, as text and as JSON.
. "$(dirname "$0")/checks.sh"

works "recipes lists every recipe" \
    "bf16|tensorwise|rowwise_with_gw_hp|delayed|current|block|mxfp8|grad_output|TransformerEngine \
DelayedScaling" recipes
holds "each recipe has a row in both tables" sh -c '[ "$(grep -c "^rowwise " out)" -eq 2 ]'
holds "operands are written in the syntax of configuration files" \
    grep -Eq '^block +e4m3 1x128 te pow2 +e4m3 128x128 te pow2 +e4m3 1x128 te pow2 ' out
holds "two uses that differ are both shown" grep -Eq '^rowwise_with_gw_hp +e4m3 row pow2 / high ' out
holds "the table has the formats that the backward pass keeps" grep -Eq \
    '^tensorwise +fp8 fast +fp8 +fp8 +1 +cpu; not built: ' out
holds "no line ends in a space" sh -c '! grep -q " $" out'

works "recipes as JSON" '"recipes": [|"name": "mxfp8"|"by_columns": "high"|"fast_accumulate": true|"gpus"' \
    recipes --json
if command -v python3 >/dev/null 2>&1; then
    holds "the output is valid JSON" python3 -c '
import json
rows = json.load(open("out"))["recipes"]
assert len(rows) >= 10 and rows[0]["name"] == "fp32"
assert all(r["products"]["output"]["fp8"] == (r["input"]["by_rows"] != "high") for r in rows)'
else
    echo "SKIPPED the output is valid JSON: python3 is missing"
fi

works "help of recipes" "Usage: ottava recipes|--json" recipes --help
fails "recipes takes no name" 2 'recipes: takes no argument, but "block" is given' recipes block
fails "an unknown option of recipes" 2 "recipes|no option --jsom|did you mean --json?" recipes --jsom
finish
