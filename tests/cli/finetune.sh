#!/bin/sh
# The five fine-tuning configurations, each on a tiny model of its family: a folder with config.json and a
# tokenizer of bytes stands for the download.
. "$(dirname "$0")/checks.sh"

configs=$(dirname "$0")/../../configs

# tokenizer FOLDER: every byte is a token
tokenizer() {
    {
        printf '{"version":"1.0","added_tokens":[{"id":256,"content":"<s>","single_word":false,"lstrip":false,'
        printf '"rstrip":false,"normalized":false,"special":true}],"normalizer":null,"pre_tokenizer":null,'
        printf '"post_processor":null,"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]},'
        printf '"model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,'
        printf '"end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,"merges":[],"vocab":{'
        byte=0
        while [ $byte -lt 256 ]; do
            printf '"<0x%02X>":%d,' $byte $byte
            byte=$((byte + 1))
        done
        printf '"<s>":256,"<unk>":257}}}\n'
    } >"$1/tokenizer.json"
}

# folder NAME MODEL_TYPE ARCHITECTURE [KEYS]: 4 layers of width 128, to be divided by 2
folder() {
    mkdir -p "$1"
    printf '{"architectures":["%s"],"model_type":"%s","hidden_size":128,"intermediate_size":256,' "$3" "$2" >"$1/config.json"
    printf '"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":272,' >>"$1/config.json"
    printf '"rms_norm_eps":1e-5,"rope_theta":10000.0,"max_position_embeddings":256,"hidden_act":"silu",%s' "$4" >>"$1/config.json"
    printf '"tie_word_embeddings":false,"torch_dtype":"bfloat16"}\n' >>"$1/config.json"
    tokenizer "$1"
}

row() {
    printf '{"ind":%d,"activity_label":"Cooking","ctx_a":"A man stands in a kitchen.","ctx_b":"he","ctx":"A man stands in a kitchen. he",' "$1"
    printf '"endings":["cuts bread.","flies away.","sings to a goat.","is a river."],"label":"%d","split":"train"}\n' $(($1 % 4))
}
i=0
while [ $i -lt 40 ]; do
    row $i
    i=$((i + 1))
done >rows.jsonl

folder llama llama LlamaForCausalLM '"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64},'
folder mistral mistral MistralForCausalLM '"sliding_window":32,'
folder nemo mistral MistralForCausalLM '"head_dim":64,"sliding_window":null,'
folder qwen qwen2 Qwen2ForCausalLM '"use_sliding_window":false,"sliding_window":131072,'
folder phi phi3 Phi3ForCausalLM '"rope_scaling":null,"sliding_window":null,'

# tune CONFIGURATION FOLDER
tune() {
    works "$1" "Applied Float8 training: recipe=TENSORWISE|Not converted to Float8: lm_head|Training complete: 2 steps" \
        train "$configs/$1_hellaswag_fp8.yaml" --model.hf_path="$2" --model.reduce=2 --data.dataset_path=rows.jsonl \
        --eval.dataset_path=rows.jsonl --packed_sequence.packed_sequence_size=128 --train.seq_len=128 \
        --train.global_batch_size=2 --train.max_steps=2 --train.threads=1 --run.dir="run-$1"
}
tune llama3_1_8b llama
tune mistral_7b mistral
tune mistral_nemo_2407 nemo
tune qwen2_5_7b qwen
tune phi_4 phi

fails "a hub's name says what to do" 2 "data.dataset_path|rowan/hellaswag" \
    train "$configs/qwen2_5_7b_hellaswag_fp8.yaml" --model.hf_path=qwen --model.reduce=2 --dataset.path_or_dataset=rowan/hellaswag

finish
