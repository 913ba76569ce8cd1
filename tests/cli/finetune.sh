#!/bin/sh
# Runs the five fine-tuning configurations, each with a tiny model of its family. A folder with config.json
# and a byte tokenizer replaces the download.
. "$(dirname "$0")/checks.sh"

configs=$(dirname "$0")/../../configs

hellaswag rows.jsonl

folder llama llama LlamaForCausalLM '"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":'\
'1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64},'
folder mistral mistral MistralForCausalLM '"sliding_window":32,'
folder nemo mistral MistralForCausalLM '"head_dim":64,"sliding_window":null,'
folder qwen qwen2 Qwen2ForCausalLM '"use_sliding_window":false,"sliding_window":131072,'
folder phi phi3 Phi3ForCausalLM '"rope_scaling":null,"sliding_window":null,'

# tune CONFIGURATION FOLDER: fine-tunes the model in FOLDER with few steps.
tune() {
    works "$1" "Applied Float8 training: recipe=TENSORWISE|Not converted to Float8: lm_head|Training \
complete: 2 steps" \
        train "$configs/$1_hellaswag_fp8.yaml" --model.hf_path="$2" --model.reduce=2 \
        --data.dataset_path=rows.jsonl --eval.dataset_path=rows.jsonl \
        --packed_sequence.packed_sequence_size=128 --train.seq_len=128 --train.global_batch_size=2 \
        --train.max_steps=2 --train.threads=1 --run.dir="run-$1"
}
tune llama3_1_8b llama
tune mistral_7b mistral
tune mistral_nemo_2407 nemo
tune qwen2_5_7b qwen
tune phi_4 phi

# ---- GPT-2, with other tensor names and transposed matrices ----
folder gpt gpt2 GPT2LMHeadModel '"n_embd":128,"n_layer":4,"n_head":4,"n_positions":256,'
works "GPT-2" "Model: gpt2|Training complete: 2 steps" \
    train --model.hf_path=gpt --model.reduce=2 --data.dataset_path=rows.jsonl --data.format=hellaswag \
    --train.seq_len=64 --train.batch_size=2 --train.max_steps=2 --train.threads=1 \
    --train.mixed_precision=fp8 --run.dir=run-gpt
works "the GPT-2 run is exported" "gpt2" export run-gpt --out=gpt-out
works "generate with the exported GPT-2 folder" "" \
    generate gpt-out --prompt="A man" --temperature=0 --max-tokens=8
cp out expected
works "generate with the GPT-2 run" "" generate run-gpt --prompt="A man" --temperature=0 --max-tokens=8
holds "the run and its folder generate the same text" cmp out expected
fails "GPT-2 cannot be exported in FP8" 2 "a gpt2 folder stores transposed matrices|use --format=hf" \
    export run-gpt --format=hf-fp8 --out=gpt-fp8

# ---- the README's example, with few steps ----
STEPS=2 OTTAVA=$program sh "$configs/../tools/make_tiny_llama.sh" "$folder/tiny" >out 2>err
code=$?
trouble=$(missing out "Family: llama|tiny/model, and 1140 rows to train on, 379 to validate")
[ $code -eq 0 ] || trouble="exit code $code"
report "make_tiny_llama.sh makes a small folder" "$trouble"
works "the small folder is fine-tuned" \
    "Loaded the weights of tiny/model|Float8 conversion: 28 of 29|Training complete: 1 steps" \
    train "$configs/llama3_1_8b_hellaswag_fp8.yaml" --model.hf_path=tiny/model \
    --data.dataset_path=tiny/hellaswag_train.jsonl --eval.dataset_path=tiny/hellaswag_val.jsonl \
    --eval.num_samples_limit=2 --packed_sequence.packed_sequence_size=512 --train.global_batch_size=1 \
    --step_scheduler.max_steps=1 --run.dir=tuned
works "the fine-tuned run is evaluated" "rows             2|acc_norm" \
    eval tuned --task hellaswag --data tiny/hellaswag_val.jsonl --limit 2
works "the fine-tuned run is exported" "FP8: 28 matrices" export tuned --format hf-fp8 --out model-fp8

# ---- adapters, with a folder that names its base model ----
one_step="--data.dataset_path=tiny/hellaswag_train.jsonl --train.seq_len=512 --train.batch_size=1 \
--train.max_steps=1 --train.threads=1
    --scheduler.warmup_steps=0"
works "adapters are trained" "Training complete: 1 steps" \
    train --model.hf_path=tiny/model $one_step --peft.dim=2 --run.dir=lora
works "adapters are exported without the model" "Read by: PEFT" export lora --format=peft --out=adapter
works "training of exported adapters loads their base model" "Loaded the weights of tiny/model|Training \
complete: 1 steps" train --peft.path=adapter $one_step --run.dir=lora2
works "plan with exported adapters loads their base model" "parameters" plan --peft.path=adapter $one_step
printf '[peft]\ndim = 4\n' >rank.toml
fails "a file with another rank than the adapters' is refused" 2 \
    "rank.toml:2: peft.dim = 4, but 'r' of adapter/adapter_config.json makes peft.dim = 2: set \
--peft.dim=2, or remove peft.dim" \
    train rank.toml --peft.path=adapter $one_step --run.dir=lora3
works "the option peft.dim overrides the file" "Training complete: 1 steps" \
    train rank.toml --peft.path=adapter --peft.dim=2 $one_step --run.dir=lora4
sed -i 's|"tiny/model"|"meta/llama"|' adapter/adapter_config.json
fails "the adapters' base model is not in the cache" 2 "adapter: |ottava pull meta/llama" \
    generate adapter --prompt=A
sed -i 's|"meta/llama"|"/meta/llama"|' adapter/adapter_config.json
fails "the adapters' base model is missing" 2 \
    "adapter: the base model /meta/llama is not a folder on this machine|--base" generate adapter --prompt=A
works "--base names the base model" "" generate adapter --base=tiny/model --prompt=A --max-tokens=2
sed -i 's|"/meta/llama"|null|' adapter/adapter_config.json
fails "the adapters name no base model" 2 "adapter: its adapter_config.json has no base model|--base" \
    generate adapter --prompt=A
fails "training of adapters without a base model" 2 "no model is given" \
    train --peft.path=adapter $one_step --run.dir=lora3

works "adapters of a model with experts" "Training complete" \
    train $small --model.num_experts=2 --model.moe_router=sigmoid_topk --peft.dim=2 --run.dir=biased
call export biased --format=peft --out=biased-adapter
report "the export warns about parameters that PEFT cannot store" "$(missing err \
    "cannot hold the routing biases")"

fails "the hub name of a dataset is refused" 2 "data.dataset_path|rowan/hellaswag" \
    train "$configs/qwen2_5_7b_hellaswag_fp8.yaml" --model.hf_path=qwen --model.reduce=2 \
    --dataset.path_or_dataset=rowan/hellaswag

# ---- rows of other shapes, for AutoModel's dataset classes ----
i=0
while [ $i -lt 20 ]; do
    printf '{"id":"%d","context":"A man stands.","question":"Where?","answers":{"text":["here"],'\
'"answer_start":[0]}}\n' $i
    i=$((i + 1))
done >squad.jsonl
cat >squad.yaml <<'END'
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: llama
step_scheduler:
  max_steps: 1
  global_batch_size: 2
dataset:
  _target_: nemo_automodel.components.datasets.llm.squad.make_squad_dataset
  dataset_name: rajpurkar/squad
  split: train
END
small_rows="--model.reduce=2 --train.threads=1 --train.seq_len=64"
works "SQuAD" "squad.jsonl|20 rows of 64 with 20 samples|Training complete" \
    train squad.yaml $small_rows --data.dataset_path=squad.jsonl --run.dir=squad
works "SQuAD is recognized by its first row" "20 rows of 64 with 20 samples" \
    train --model.hf_path=llama $small_rows --data.dataset_path=squad.jsonl --train.max_steps=1 \
    --train.batch_size=2 --run.dir=squad2
mkdir chats && cp llama/* chats && printf '{"chat_template":"{{ messages }}"}' >chats/tokenizer_config.json
fails "SQuAD with a chat template is refused" 2 \
    "make_squad_dataset puts its rows into the chat template of chats/tokenizer.json|--data.format=squad" \
    train squad.yaml $small_rows --model.hf_path=chats --data.dataset_path=squad.jsonl --run.dir=squad3
works "SQuAD with data.format trains without the chat template" "Training complete" \
    train squad.yaml $small_rows --model.hf_path=chats --data.format=squad --data.dataset_path=squad.jsonl \
    --run.dir=squad3
for i in 1 2 3 4; do printf \
'{"messages":[{"role":"user","content":"hi %s"},{"role":"assistant","content":"ho"}]}\n' $i; done >chat.jsonl
fails "conversations without a template" 2 "has no chat_template, and its folder has no chat_template.jinja" \
    train squad.yaml $small_rows --data.format=auto --data.dataset_path=chat.jsonl --run.dir=squad4
echo '{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}{{ "assistant:" if '\
'add_generation_prompt }}' \
    >chats/chat_template.jinja
works "conversations" "Training complete" \
    train squad.yaml $small_rows --model.hf_path=chats --data.format=chat \
    --data.dataset_path=chat.jsonl --run.dir=squad4
works "generate with --chat" "" generate squad4 --chat --prompt=hi --max-tokens=4

# ---- the files of the last save ----
save="--model.hf_path=llama $small_rows --data.dataset_path=squad.jsonl --data.format=squad \
--train.max_steps=2 --train.batch_size=2"
works "checkpoint.save_hf saves a Hugging Face folder" "Saved last/checkpoints/step-2/hf (llama, bf16)" \
    train $save --run.dir=last --checkpoint.interval=1 --checkpoint.save_hf=final \
    --checkpoint.export_dtype=bfloat16
holds "only the last checkpoint has the folder" \
    sh -c "[ ! -e last/checkpoints/step-1/hf ] && ls last/checkpoints/step-2/hf/tokenizer.json"
"$program" export last --out=exported >out 2>err
holds "the saved folder equals the exported folder" cmp exported/model.safetensors \
    last/checkpoints/step-2/hf/model.safetensors
works "each checkpoint has a folder, the last one only weights" \
    "Saved every/checkpoints/step-1/hf (llama, fp32)|Saved every/checkpoints/step-2/hf" \
    train $save --run.dir=every --checkpoint.interval=1 --checkpoint.save_consolidated=true \
    --checkpoint.last_save_model_only --checkpoint.async_mode=async
holds "the last checkpoint has no moments" sh -c \
    "[ \$(wc -c <every/checkpoints/step-2/optimizer.safetensors) -lt 200 ] && [ \$(wc -c \
<every/checkpoints/step-1/optimizer.safetensors) -gt 10000 ]"
fails "training cannot resume from weights only" 2 "step-2/optimizer.safetensors: is empty: the checkpoint \
holds weights only|--checkpoint.load_path=PATH/step-N" \
    train $save --run.dir=every --train.max_steps=3 --checkpoint.load_path=latest
works "a run with a tokenizer saves a Hugging Face folder" "Saved own/checkpoints/step-1/hf" \
    train --model.dim=32 --model.n_layers=1 --model.n_heads=2 --model.vocab_size=258 --model.max_seq_len=64 \
    --train.seq_len=64 --train.threads=1 --train.max_steps=1 --train.batch_size=1 --scheduler.warmup_steps=0 \
    --data.dataset_path=squad.jsonl --data.tokenizer_path=llama --run.dir=own --checkpoint.save_hf=final
holds "the saved folder has the tokenizer" cmp llama/tokenizer.json own/checkpoints/step-1/hf/tokenizer.json
works "training resumes from the checkpoint before the last" "Resumed from every/checkpoints/step-1" \
    train $save --run.dir=every --checkpoint.load_path=every/checkpoints/step-1
works "eval reads the saved folder" "perplexity" \
    eval last/checkpoints/step-2/hf --task=perplexity --data=rows.jsonl --text-field=ctx --limit=2 --threads=1
"$program" export every/checkpoints/step-2 --out=only >out 2>err
holds "export reads a checkpoint with only weights" cmp only/model.safetensors \
    last/checkpoints/step-2/hf/model.safetensors

# ---- missing and superfluous parts of a folder ----
yes 'In the beginning God created the heaven and the earth.' | head -c 4000 >text.txt
tune_text="--model.reduce=2 --train.seq_len=32 --train.batch_size=2 --train.max_steps=1 --train.threads=1 \
--data.dataset_path=text.txt"
folder bare llama LlamaForCausalLM ''
rm bare/tokenizer.json
fails "text without the folder's tokenizer" 2 "text.txt is text, which needs the tokenizer of \
model.hf_path|data.tokenizer_path|data.format = \"bytes\"|bare: has no tokenizer.json" \
    train --model.hf_path=bare $tune_text --run.dir=bare-text
fails "rows without the folder's tokenizer" 2 "rows.jsonl is text|has no tokenizer.json" \
    train --model.hf_path=bare $tune_text --data.dataset_path=rows.jsonl --run.dir=bare-rows
works "data.format=bytes needs no tokenizer" "Training complete" \
    train --model.hf_path=bare $tune_text --data.format=bytes --run.dir=bare-bytes
printf '\012\016\012\005<unk>\025\000\000' >bare/tokenizer.model
fails "a damaged SentencePiece model" 2 \
    "data.tokenizer_path: bare/tokenizer.model: SentencePiece model: byte 2: the message is incomplete" \
    train --model.hf_path=bare $tune_text --run.dir=bare-text
printf 'IQ== 0\nIg== 0\n' >bare/tokenizer.model
fails "a damaged tiktoken vocabulary" 2 "bare/tokenizer.model: line 2: the rank '0' is not an integer" \
    train --model.hf_path=bare $tune_text --data.tokenizer_path=bare/tokenizer.model --run.dir=bare-text
rm bare/tokenizer.model
tokenizer bare

folder drops phi3 Phi3ForCausalLM '"attention_dropout":0.1,"resid_pdrop":0.25,"embd_pdrop":0.0,'
works "a warning about ignored dropout" "WARNING - config.json of drops has attention_dropout = 0.1, \
resid_pdrop = 0.25, which is ignored: Ottava trains without dropout" \
    train --model.hf_path=drops $tune_text --run.dir=drops-run
folder pads llama LlamaForCausalLM '"pad_token_id":32,'
works "the padding row gets no gradient" "Row 32 of the embedding (model.pad_token_id) gets no gradient" \
    train --model.hf_path=pads $tune_text --run.dir=pads-run
holds "the run's config.toml has pad_token_id" grep -q '^pad_token_id = 32' pads-run/config.toml

finish
