#!/bin/sh
# Tests what `ottava inspect` prints about model files, and its verdict on damaged files.
. "$(dirname "$0")/checks.sh"

yes 'In the beginning God created the heaven and the earth.' | head -c 20000 >text.txt
works "prepare a run" "Training complete" train $small --data.dataset_path=text.txt --run.dir=r
step=r/checkpoints/step-4

works "inspect a file" "model.norm.weight|format = pt|F32|total    12 tensors" inspect $step/model.safetensors
works "inspect a folder" "model.layers.0.self_attn.q_proj.weight" inspect $step
cp out folder
works "inspect a run" "model.norm.weight" inspect r
holds "a run's output equals its newest checkpoint's" cmp out folder
works "statistics" "min|std|zeros" inspect $step --stats
holds "the norms are listed with their statistics" grep -Eq '^model.norm.weight +F32 +\[32\]' out
works "JSON" '"tensors": [|"dtype": "F32"|"total":' inspect $step --json --stats
if command -v python3 >/dev/null 2>&1; then
    holds "the output is valid JSON" python3 -c '
import json
o = json.load(open("out"))
assert o["total"]["tensors"] == len(o["tensors"]) == 12
assert all(t["statistics"]["nan"] == 0 for t in o["tensors"])'
else
    echo "SKIPPED the output is valid JSON: python3 is missing"
fi

works "prepare a run with adapters" "Training complete" \
    train $small --data.dataset_path=text.txt --peft.dim=2 --peft.alpha=6 --run.dir=lora
call export lora --format=peft --out=adapter
works "a folder of adapters" "Adapters: LORA, rank 2, alpha 6|\
base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight|total    14 tensors" inspect adapter
works "a folder of adapters as JSON" '{|lora_B.weight|"total":' inspect adapter --json
printf '{"peft_type":"LOHA\\u001b","r":3}' >adapter/adapter_config.json
works "adapters of an unknown type" "Adapters: LOHA?, rank 3" inspect adapter
echo '[' >adapter/adapter_config.json
fails "adapters with a damaged adapter_config.json" 1 "adapter/adapter_config.json" inspect adapter

# ---- the verdict ----
head -c 20000 $step/model.safetensors >truncated.safetensors
fails "a truncated file" 1 "truncated.safetensors|truncated" inspect truncated.safetensors
printf 'not tensors' >text.safetensors
fails "a file of another kind" 1 "text.safetensors" inspect text.safetensors
: >empty.safetensors
fails "an empty file" 1 "empty.safetensors" inspect empty.safetensors
cp -R $step damaged
printf X | dd of=damaged/optimizer.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null
fails "a checkpoint with a changed byte" 1 "damaged/optimizer.safetensors: is damaged: its checksum is" \
    inspect damaged
cp -R $step noise
echo '{}' >noise/history.json
fails "a checkpoint with a damaged history" 1 "noise/history.json: 'crc32c' is missing" inspect noise
mkdir lost empty
printf '{"metadata": {}, "weight_map": {"a": "model-1.safetensors"}}' >lost/model.safetensors.index.json
fails "a missing shard" 1 "model-1.safetensors" inspect lost
fails "a folder without weights" 1 "empty: has no weights" inspect empty

# ---- wrong arguments ----
fails "no path" 2 "PATH is missing" inspect --json
fails "a missing path" 2 "absent" inspect absent
fails "two paths" 2 "takes 1 PATH" inspect r r
fails "an unknown option of inspect" 2 "no option --stat|did you mean --stats?" inspect r --stat
works "help of inspect" "Usage: ottava inspect PATH|--stats|--json" inspect --help
finish
