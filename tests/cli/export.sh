#!/bin/sh
# Exports a run as a Hugging Face folder or a GGUF file, and starts a run from a folder.
. "$(dirname "$0")/checks.sh"

yes 'In the beginning God created the heaven and the earth.' | head -c 20000 >text.txt
run="$small --data.dataset_path=text.txt --model.vocab_size=258"
works "prepare a run to export" "Training complete" \
    train $run --run.dir=r --train.mixed_precision=fp8 --float8.recipe_name=tensorwise

works "export to bf16" "Exported r/checkpoints/step-4 to hf|Family: llama|Weights: bf16|no tokenizer" \
    export r --out hf
holds "the export writes a folder" ls hf/config.json hf/model.safetensors
works "export of one checkpoint in fp32" "Exported r/checkpoints/step-2 to hf32|Weights: fp32" \
    export r/checkpoints/step-2 --out=hf32 --dtype=fp32
holds "the dtype is in config.json" grep -q '"torch_dtype": "float32"' hf32/config.json

works "export to FP8" "7 matrices of the blocks in E4M3|one scale per output channel|everything else in \
bf16|Read by: vLLM, SGLang, and transformers" \
    export r --format hf-fp8 --out fp8
holds "FP8 is in config.json" grep -q '"quant_method": "compressed-tensors"' fp8/config.json
works "the tensors of the FP8 folder" "model.layers.0.mlp.up_proj.weight_scale |F8_E4M3" inspect fp8
holds "the FP8 folder has a scale per output channel" \
    sh -c "'$program' inspect fp8 | grep -Eq 'up_proj.weight_scale +F32 +\[64, 1\]'"
call export r --format=hf-fp8 --method=fp8 --granularity=tensor --out=tensors
trouble=$(missing err "warning: |transformers does not support the method fp8 with a scale per matrix")
trouble=$trouble$(missing out "one scale per matrix|Read by: vLLM and SGLang, not transformers")
[ $code -eq 0 ] || trouble="exit code $code"
report "the method fp8 with a scale per matrix warns about transformers" "$trouble"
holds "config.json names the method fp8" grep -q '"quant_method": "fp8"' tensors/config.json
call export r --format=hf-fp8 --method=fp8 --out=fp8blocks
holds "the method fp8 has block scales by default" grep -q '"weight_block_size"' fp8blocks/config.json
works "export with the scales of training" "the same as in training" \
    export r --format=hf-fp8 --granularity=as-trained --out=trained
call export r --format=hf-fp8 --granularity=block --out=blocks
trouble=$(missing err "warning: |q_proj.weight is [32, 32]|vLLM")$(missing out "Read by: Ottava only")
[ $code -eq 0 ] || trouble="exit code $code"
report "blocks that vLLM cannot fuse give a warning" "$trouble"

# ---- a folder without a run ----
works "a folder to FP8" "Exported hf32 to hf32_fp8|7 matrices of the blocks in E4M3|Copied: 0 files of hf32" \
    export hf32 --format=hf-fp8 --out=hf32_fp8
works "a folder to another precision" "Exported hf32 to hf32_bf16|Weights: bf16" export hf32 --out=hf32_bf16
works "the run in the other precision" "Exported r/checkpoints/step-2" \
    export r/checkpoints/step-2 --out=r2_bf16
holds "the run and the folder give the same weights" cmp r2_bf16/model.safetensors hf32_bf16/model.safetensors
works "a folder to GGUF" "Exported hf32 to hf32.gguf|Tokenizer: " export hf32 --format=gguf --out=hf32.gguf
fails "adapters of a folder without adapters" 2 "hf32: has no adapters" \
    export hf32 --format=peft --out=hf32_peft

# ---- GGUF files ----
works "a GGUF file" \
    "to r.gguf|Architecture: llama|12 tensors|Weights: bf16|every byte is a token|Read by: llama.cpp" \
    export r --format gguf --out r.gguf
holds "the GGUF file begins with GGUF" sh -c '[ "$(head -c 4 r.gguf)" = GGUF ]'
fails "the GGUF file exists" 2 "r.gguf exists" export r --format=gguf --out=r.gguf
works "a GGUF file in Q8_0" "Weights: Q8_0" export r --format=gguf-q8_0 --dtype=fp16 --out=q8.gguf
holds "the Q8_0 file is smaller" sh -c '[ "$(wc -c <q8.gguf)" -lt "$(wc -c <r.gguf)" ]'

# ---- GGUF files are read ----
call export r --format=gguf --dtype=fp32 --out=r32.gguf
call export r --dtype=fp32 --out=r32
works "a GGUF file back to a folder" \
    "Exported r32.gguf to back32|Weights: fp32|Copied: the tokenizer, 3 files of r32.gguf" \
    export r32.gguf --dtype=fp32 --out=back32
holds "a GGUF file has the run's weights" cmp r32/model.safetensors back32/model.safetensors
works "inspect a GGUF file" "general.architecture = llama|blk.0.attn_q.weight |Q8_0 " inspect q8.gguf
works "generate from a GGUF file" "" generate q8.gguf --prompt God --max-tokens 4
works "evaluate a GGUF file" "perplexity" eval q8.gguf --task perplexity --data text.txt --limit 1
lora="--model.hf_path=q8.gguf --data.dataset_path=text.txt --train.seq_len=32 --train.batch_size=2
    --train.threads=1 --scheduler.warmup_steps=1 --peft.dim=4 --train.frozen_dtype=fp8 --run.dir=q8lora"
works "adapters on a GGUF file" \
    "Loaded the weights of q8.gguf|Adapters: LoRA|Kept in FP8: 7|Training complete" \
    train $lora --train.max_steps=2
works "resume adapters on a GGUF file" "step=2, max_steps=4|Training complete" \
    train $lora --train.max_steps=4 --checkpoint.load_path=latest
works "export a model trained from a GGUF file" "Copied: the tokenizer, 3 files of q8.gguf" \
    export q8lora --out q8merged
holds "the exported folder has the tokenizer" ls q8merged/tokenizer.json q8merged/generation_config.json

# ---- FP8 folders are read ---- A model with FP8 weights has nearly the run's loss on the text. E4M3 has a
# precision of one and a half digits.
loss() { sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$1"; }
mkdir bytes && tokenizer bytes
task="--task=perplexity --data=text.txt --tokenizer=bytes --limit=4 --threads=1 --json"
"$program" eval r $task --precision=bf16 >run.json 2>err
for at in fp8 tensors fp8blocks trained; do
    "$program" eval $at $task >$at.json 2>err
    holds "eval of $at" sh -c "awk -v a='$(loss run.json)' -v b='$(loss \
        $at.json)' 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 0.02 && d > -0.02) }'"
done
works "a run from an FP8 folder" \
    "Loaded the weights of fp8, dequantized from FP8 (compressed-tensors)|Training complete" \
    train --model.hf_path=fp8 --data.dataset_path=text.txt --data.format=bytes --train.seq_len=32 \
    --train.batch_size=2 --train.max_steps=1 --train.threads=1 --scheduler.warmup_steps=0 --run.dir=from_fp8
sed 's/compressed-tensors/gptq/' fp8/config.json >config && mkdir gptq && mv config gptq/config.json
fails "an unsupported quantization" 2 "gptq|the weights are quantized|use the unquantized folder" \
    eval gptq --task=perplexity --data=text.txt

# ---- KempnerForge's other blocks ----
works "a run with LayerNorm and an MLP of two matrices" "Training complete" \
    train $run --model.norm_type=layernorm --model.activation=gelu --train.mixed_precision=fp32 \
    --run.dir=plain
works "the LayerNorm run is exported as starcoder2" "Family: starcoder2" \
    export plain --out=plain_hf --dtype=fp32
holds "the starcoder2 folder has no biases" grep -q '"use_bias": false' plain_hf/config.json
holds "the starcoder2 folder has exact GELU" grep -q '"hidden_act": "gelu"' plain_hf/config.json
"$program" eval plain $task --precision=fp32 --seq-len=32 >plain.json 2>err
"$program" eval plain_hf $task --precision=fp32 --seq-len=32 >plain_hf.json 2>err
holds "the starcoder2 folder has the run's loss" test "$(loss plain.json)" = "$(loss plain_hf.json)"
holds "the run has a loss" test -n "$(loss plain.json)"
fails "exact GELU cannot be exported as GGUF" 2 "only GELU with tanh|use --format hf" \
    export plain --format=gguf --out=plain.gguf
works "a run with ReLU and RMSNorm" "Training complete" train $run --model.activation=relu --run.dir=relu
fails "RMSNorm with ReLU matches no family" 2 \
    "model.norm_type = rmsnorm with model.activation = relu|no Hugging Face family" export relu --out=relu_hf

# ---- from a folder to a run and back ----
printf '{"x": 1}' >hf/tokenizer_config.json
sed 's/^{/{\n  "my_key": [1,  2],/' hf/config.json >keyed && mv keyed hf/config.json
works "a run that starts from a folder" "Loaded the weights of hf|Training complete" \
    train --model.hf_path=hf \
    --data.dataset_path=text.txt --data.format=bytes --train.seq_len=32 --train.batch_size=2 \
    --train.max_steps=1 --train.threads=1 --scheduler.warmup_steps=0 --run.dir=tuned
works "the run is exported again" "Copied: 1 files of hf" export tuned --out=back
holds "the export has the files of the original" cmp hf/tokenizer_config.json back/tokenizer_config.json
holds "the export has the config.json keys of the original" cmp hf/config.json back/config.json
mv hf moved
fails "the original is missing" 2 "hf|--from" export tuned --out=again
works "--from names the original's new path" "Copied: 1 files of moved" export tuned --out=again --from=moved

# ---- the tokenizer of the run ----
mkdir own && tokenizer own
printf '{"y": 2}' >own/tokenizer_config.json
printf 'not of it' >own/notes.txt
works "prepare a run with a tokenizer" "Training complete" train $run --run.dir=kept --data.tokenizer_path=own
works "the export includes the run's tokenizer" "the run's tokenizer, 2 files of own" export kept --out=with
holds "tokenizer.json is equal" cmp own/tokenizer.json with/tokenizer.json
holds "tokenizer_config.json is equal" cmp own/tokenizer_config.json with/tokenizer_config.json
holds "no other file is copied" sh -c '! ls with/notes.txt 2>/dev/null'
works "--from= copies no tokenizer" "Copied: nothing" export kept --out=none --from=
mkdir named && cp own/tokenizer.json named/mine.json && printf '{}' >named/tokenizer.json
works "prepare a run with a tokenizer file of another name" "Training complete" train $run --run.dir=mine \
    --data.tokenizer_path=named/mine.json
works "export it" "the run's tokenizer" export mine --out=with-mine
holds "the named file is the tokenizer.json" cmp named/mine.json with-mine/tokenizer.json
mv own away
fails "the tokenizer's folder is missing" 2 "data.tokenizer_path of the run|--from|own: cannot open" \
    export kept --out=gone

# ---- refused exports ----
fails "the output folder is not empty" 2 "fp8 is not empty" export r --out=fp8
fails "--out is missing" 2 "--out=DIR" export r
fails "the run is not named" 2 "RUN_DIR is missing" export --out=x
fails "a missing run" 2 "absent" export absent --out=x
fails "an unknown format" 2 '--format is "hf-fp16"|did you mean hf-fp8?' export r --out=x --format=hf-fp16
fails "an unknown method" 2 "fp8, compressed-tensors" export r --out=x --format=hf-fp8 --method=awq
fails "an unknown granularity" 2 "did you mean channel?" export r --out=x --format=hf-fp8 --granularity=chanel
fails "an unknown dtype" 2 "fp32, bf16, fp16" export r --out=x --dtype=int4
fails "channels in the method fp8" 2 "compressed-tensors" \
    export r --out=x --format=hf-fp8 --method=fp8 --granularity=channel
fails "a method without FP8" 2 "--method works only with --format=hf-fp8" export r --out=x --method=fp8
fails "fp32 with FP8" 2 "dtype = fp32|bf16" export r --out=x --format=hf-fp8 --dtype=fp32
works "help of export" "Usage: ottava export RUN_DIR|--granularity channel|compressed-tensors" export --help

# Simulates a full disk by a limit of the file size.
small_files() {
    ulimit -f 20
    exec "$program" "$@"
}
(small_files export r --out=full) >out 2>err
code=$?
trouble=$(missing err "ottava: cannot export to full")
[ "$(wc -l <err)" -eq 1 ] || trouble="not one line on standard error"
[ $code -eq 1 ] || trouble="exit code $code"
ls -d full* x* 2>/dev/null && trouble="a partial output is left"
(small_files export r --format=gguf --dtype=fp32 --out=full.gguf) >out 2>err
code=$?
trouble=$trouble$(missing err "ottava: cannot export to full.gguf")
[ $code -eq 1 ] || trouble="exit code $code"
ls -d full* x* 2>/dev/null && trouble="a partial output is left"
report "a full disk fails and leaves no partial output" "$trouble"

# ---- killed during an export ----
dead=$(sh -c 'echo $$')
mkdir fresh.ottava-tmp-$dead fresh.ottava-tmp-1 fresh.tmp-$dead
echo half >fresh.ottava-tmp-$dead/model.safetensors
works "an export after a killed export" "Exported" export r --out=fresh
holds "only the killed export's partial output is removed" sh -c \
    "[ ! -e fresh.ottava-tmp-$dead ] && [ -d fresh.ottava-tmp-1 ] && [ -d fresh.tmp-$dead ] && [ -d fresh ]"
finish
