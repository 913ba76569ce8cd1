#!/bin/sh
# Tests the unchanged files of AutoModel's FP8 recipes and torchtitan's Llama configurations. The program
# trains a model with smaller dimensions from each file, or refuses the file in one line that names the
# unsupported part. A tiny Hugging Face folder of the same family replaces the model that a recipe would
# download.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/checks.sh"

files=${OTTAVA_SHARED:-$here/../../../shared}/data/configs
if [ ! -d "$files" ]; then
    echo "SKIPPED: $files is missing: other tools' configurations are not run"
    exit 0
fi
hellaswag rows.jsonl
run="--train.max_steps=1 --train.threads=1 --train.seq_len=64 --train.batch_size=1"
rows="--data.dataset_path=rows.jsonl --eval.dataset_path=rows.jsonl \
--packed_sequence.packed_sequence_size=64 --train.global_batch_size=2"
gelu='"hidden_act":"gelu_pytorch_tanh",'
ran=0 refused=0

# family NAME: makes the folder `tiny` a Hugging Face model of this family.
family() {
    rm -rf tiny
    case $1 in
    *Llama-3*|*Falcon3*|*Seed-Coder*) folder tiny llama LlamaForCausalLM ;;
    *[Mm]istral*) folder tiny mistral MistralForCausalLM '"sliding_window":null,"head_dim":64,' ;;
    *phi-4*) folder tiny phi3 Phi3ForCausalLM '"sliding_window":null,' ;;
    *Qwen2.5*) folder tiny qwen2 Qwen2ForCausalLM ;;
    *starcoder2*) folder tiny starcoder2 Starcoder2ForCausalLM "$gelu" ;;
    *granite-3*) folder tiny granite GraniteForCausalLM \
        '"residual_multiplier":0.2,"attention_multiplier":0.05,' ;;
    *command-r7b*) folder tiny cohere2 Cohere2ForCausalLM '"sliding_window":32,' ;;
    *command-r*|*c4ai*) folder tiny cohere CohereForCausalLM ;;
    *gemma-2-*) folder tiny gemma2 Gemma2ForCausalLM \
        '"head_dim":32,"sliding_window":32,"query_pre_attn_scalar":32,' ;;
    *gemma-3-*) folder tiny gemma3_text Gemma3ForCausalLM \
        '"head_dim":32,"sliding_window":32,"query_pre_attn_scalar":32,' ;;
    *glm-4-9b-chat*) folder tiny glm GlmForCausalLM '"head_dim":32,' ;;
    *OLMo-2*) folder tiny olmo2 Olmo2ForCausalLM ;;
    *Baichuan2*) folder tiny baichuan BaichuanForCausalLM ;;
    *) return 1 ;;
    esac
}

# tried NAME PARTS ARGUMENT...: the program must train, or refuse in one line.
tried() {
    name=$1 parts=$2
    shift 2
    call train "$@"
    if [ $code -eq 0 ]; then
        ran=$((ran + 1))
        report "$name" "$(missing out "$parts")"
    else
        refused=$((refused + 1))
        trouble=
        [ $code -eq 2 ] || trouble="exit code $code"
        [ "$(grep -vc '^  ' err)" -eq 1 ] || trouble="not one line on standard error"
        grep -q 'not supported\|not part of this program' err || \
            trouble="the error does not name the unsupported part"
        report "$name: $(head -c 200 err | head -1)" "$trouble"
    fi
}

model_of() {
    sed -n 's/^ *pretrained_model_name_or_path: *//p' "$1" | head -1
}

for file in $(grep -rl '^fp8:' "$files" | sort); do
    name=${file#"$files"/}
    if family "$(model_of "$file")"; then
        tried "$name" "Applied Float8 training: recipe=TENSORWISE|Training complete: 1 steps" "$file" \
            --model.hf_path=tiny --data.tokenizer_path=tiny --model.reduce=2 $rows $run --run.dir="run-$ran"
    else
        tried "$name" "" "$file" $rows $run --run.dir="run-$ran"
    fi
done
# AutoModel has this recipe for several models. The files differ only in the model's name.
recipe=$(find "$files" -name llama3_1_8b_hellaswag_fp8.yaml | sort | tail -1)
for model in google/gemma-2-9b-it google/gemma-3-270m-it zai-org/glm-4-9b-chat-hf \
    ByteDance-Seed/Seed-Coder-8B-Instruct allenai/OLMo-2-0425-1B-Instruct CohereForAI/c4ai-command-r-v01; do
    family $model
    tried "the FP8 recipe with $model" \
        "Applied Float8 training: recipe=TENSORWISE|Training complete: 1 steps" "$recipe" \
        --model.hf_path=tiny --model.reduce=2 $rows $run --run.dir="run-$ran"
done
for file in $(find "$files" -path '*titan*' -name '*.toml' | grep 'llama3' | sort); do
    name=${file#"$files"/}
    tried "$name" "Training complete: 1 steps" "$file" --data.dataset_path=small.txt --data.format=bytes \
        --model.reduce=64 $run --parallelism.tensor_parallel_degree=1 \
        --parallelism.context_parallel_degree=1 --run.dir="run-$ran"
done
echo "$ran ran, $refused refused"
finish
