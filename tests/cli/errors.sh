#!/bin/sh
# Every kind of bad input to `ottava train` gives one line with the name, its value and a fix, and exit code
# 2.
. "$(dirname "$0")/checks.sh"

yes 'In the beginning God created the heaven and the earth.' | head -c 20000 >text.txt
printf 'too short' >short.txt
: >empty.txt
printf 'abc\377\376' >latin.txt
: >empty.toml
printf '[train]\nseq_len = "\377\376"\n' >latin.toml
printf '[train]\nseq_len = = 3\n' >broken.toml
printf 'train:\n  seq_len: [1\nmodel: 3\n' >broken.yaml
printf '[train]\nseq_len = "many"\n' >type.toml
printf 'train:\n  seq_lne: 3\n' >key.yaml
echo x >file

# ---- configuration ----
fails "an unknown precision" 2 'FP8|"bf16", "fp16", "fp32", "fp8"|did you mean "fp8"?' \
    train --train.mixed_precision=FP8
fails "all errors are reported together" 2 \
    "2 errors keep this configuration from running:|--train.seq_len=many must be an integer" \
    train --train.seq_len=many --optimizer.lr=0
report "each error is on its own line" "$(grep -q '^  --optimizer.lr=0 is out of range' err || cat err)"
fails "an unknown key" 2 "train.seq_lenn|did you mean train.seq_len?" train --train.seq_lenn=3
fails "an unknown key in a file" 2 "key.yaml:2|seq_lne|train.seq_len" train key.yaml
fails "a wrong type" 2 "model.dim=wide|integer" train --model.dim=wide
fails "a wrong type in a file" 2 'type.toml:2|train.seq_len = "many"|integer' train type.toml
fails "a number out of range" 2 "train.max_steps=0" train --train.max_steps=0
fails "a missing configuration file" 2 "absent.toml|not found" train absent.toml
fails "an empty configuration file" 2 "empty.toml|empty" train empty.toml
fails "a configuration file that is not UTF-8" 2 "latin.toml:2|UTF-8" train latin.toml
fails "malformed TOML" 2 "broken.toml:2" train broken.toml
fails "malformed YAML" 2 "broken.yaml:3" train broken.yaml
fails "heads that do not divide the width" 2 "dim (32)|n_heads (3)" train $small --model.n_heads=3 --run.dir=r

# ---- required settings ----
printf '[train]\nmax_steps = 3\n' >unsaid.toml
printf '[model]\npreset = "debug"\n' >undated.toml
fails "no file" 2 "no model is given|configuration file|debug.toml" train
fails "options only" 2 "no model is given" train --train.max_steps=3
fails "no model and no data" 2 \
    "unsaid.toml: no model is described|model.preset|; no training data|data.format = \"synthetic\"" \
    train unsaid.toml
fails "no model" 2 "unsaid.toml: no model is described" train unsaid.toml --data.dataset_path=text.txt
fails "no data" 2 "undated.toml: no training data is named|data.dataset_path" train undated.toml
fails "data twice" 2 'data.format = "synthetic" reads no file|data.dataset_path' \
    train undated.toml --data.format=synthetic --data.dataset_path=text.txt
CONFIG_FILE=unsaid.toml fails "CONFIG_FILE names the file" 2 "unsaid.toml: no model" train
CONFIG_FILE=absent.toml fails "an argument overrides CONFIG_FILE" 2 "unsaid.toml: no model" train unsaid.toml
CONFIG_FILE=absent.toml fails "--job.config_file overrides CONFIG_FILE" 2 "unsaid.toml: no model" \
    train --job.config_file=unsaid.toml

# ---- several errors together ----
fails "too many ranks and no data" 2 \
    "2 errors keep this configuration from running:|(1): distributed.dp_shard|--distributed.fit=true|\
no training data is named" train --model.preset=42M --distributed.tp=2 --train.max_steps=3
offline="meta-llama/Llama-3.1-8B: must be downloaded, but HF_HUB_OFFLINE forbids it"
fails "generate with a hub name" 2 "$offline" generate meta-llama/Llama-3.1-8B --prompt=x
fails "plan with a hub name" 2 "$offline" plan --model.hf_path=meta-llama/Llama-3.1-8B
printf 'rng: {seed: 3}\nmodel: {pretrained_model_name_or_path: meta-llama/Llama-3.1-8B}\n' >hub.yaml
fails "train with a hub name" 2 "$offline" train hub.yaml --data.dataset_path=text.txt
fails "a hub tokenizer" 2 "org/model: must be downloaded" \
    train $small --data.tokenizer_path=org/model --run.dir=refused
fails "an option without dashes" 2 \
    "train.max_steps=3: an option begins with two dashes: --train.max_steps=3" train $small train.max_steps=3
works "distributed.fit reduces the parallel sizes" \
    "distributed.tp = 1 (was 4), on 1 rank|distributed.pp = 1 (was 2)|Training complete" \
    train $small --train.mixed_precision=fp8 --distributed.tp=4 --distributed.pp=2 --distributed.fit=true \
    --run.dir=fitted
works "plan with distributed.fit" "Mesh: tp 2" plan $small --distributed.tp=4 --ranks=2 --distributed.fit=true

# ---- values outside of any machine's or fp32's range ----
huge=36028797018963968 # 2^55
for key in model.dim model.n_layers model.n_heads model.n_kv_heads model.head_dim model.ffn_hidden_dim \
    model.max_seq_len \
    model.sliding_window train.batch_size train.seq_len train.grad_accum_steps train.ce_chunk_size; do
    fails "$key of 2^55" 2 "$key=$huge is out of range|2147483647" train $small --$key=$huge --run.dir=r
done
fails "a window of 2^63-1" 2 "model.sliding_window|out of range" \
    train $small --model.sliding_window=9223372036854775807
fails "more tokens than an index can number" 2 \
    "train.batch_size x train.seq_len = 2147483647 x 32|2147483647" \
    train $small --data.dataset_path=text.txt --train.batch_size=2147483647 --run.dir=refused
fails "a head too wide" 2 "model.n_heads * model.head_dim = 4294967292 is more than" \
    train $small --model.head_dim=2147483646 --run.dir=r
fails "a feed-forward width from 1e30" 2 "model.ffn_hidden_dim" \
    train --data.dataset_path=text.txt --model.dim=32 --model.n_heads=2 --model.ffn_dim_multiplier=1e30 \
    --run.dir=r
fails "more key heads than heads, reduced" 2 "n_heads (2)|n_kv_heads (4)" \
    train $small --model.n_kv_heads=4 --model.reduce=2 --run.dir=r
fails "micro-batches beyond memory" 1 "the run needs|GiB" \
    train $small --data.dataset_path=text.txt --train.grad_accum_steps=2147483647 --run.dir=refused
fails "an eps that is 0 in fp32" 2 "optimizer.eps=1e-320 becomes 0.0 in fp32" \
    train $small --optimizer.eps=1e-320
fails "a learning rate that is infinite in fp32" 2 "optimizer.lr=1e39 is infinite in fp32" \
    train $small --optimizer.lr=1e39
fails "a beta that is 1 in fp32" 2 "optimizer.betas|becomes 1.0 in fp32" \
    train $small --optimizer.betas=0.9,0.99999999
fails "a theta that is infinite in fp32" 2 "model.rope_theta=1e300 is infinite" \
    train $small --model.rope_theta=1e300
fails "a deviation that is 0 in fp32" 2 "model.init_std=1e-60 becomes 0.0 in fp32" \
    train $small --model.init_std=1e-60

# ---- one of several processes ----
WORLD_SIZE=2 fails "a rank of torchrun" 2 "WORLD_SIZE = 2|one of 2 processes|would train alone" \
    train $small --run.dir=r
ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" OMPI_COMM_WORLD_SIZE=4 fails "a rank of mpirun" \
    2 "OMPI_COMM_WORLD_SIZE = 4|env -u OMPI_COMM_WORLD_SIZE" train $small --run.dir=r
SLURM_NTASKS=2 fails "a task of Slurm" 2 "SLURM_NTASKS = 2|env -u SLURM_NTASKS" train $small --run.dir=r

# ---- data ----
fails "a text shorter than a sequence" 2 "train.seq_len = 32|short.txt" \
    train $small --data.dataset_path=short.txt --run.dir=r
fails "a missing text" 2 "absent.txt|No such file" train $small --data.dataset_path=absent.txt --run.dir=r
fails "an empty text" 2 "empty.txt|empty" train $small --data.dataset_path=empty.txt --run.dir=r
fails "a text that is not UTF-8" 2 "latin.txt|UTF-8|byte 3" \
    train $small --data.dataset_path=latin.txt --run.dir=r
fails "a folder without files of the pattern" 2 "none of its|*.xyz|file_pattern" \
    train $small --data.dataset_path=. --data.file_pattern='*.xyz' --run.dir=r
report "no refused run makes its run folder" "$([ -e r ] && echo 'r exists')"

# ---- FP8 that reaches no layer ----
fp8="$small --train.mixed_precision=fp8 --run.dir=f"
fails "all layers are filtered" 2 "convert none of the 8 linear layers|float8.filter_fqns keeps 8" \
    train $fp8 --float8.filter_fqns=layers,lm_head
fails "all layers are too small" 2 "auto_filter_small_kn finds too small 8" \
    train $fp8 --float8.filter_fqns=auto_filter_small_kn
fails "all layers are too small, in a later part of the schedule" 2 "auto_filter_small_kn finds too small 8" \
    train $fp8 --float8.filter_fqns=auto_filter_small_kn --float8.schedule=bf16:2,fp8
fails "a filter that matches no layer" 2 'float8.filter_fqns has "lm_haed"|nearest is lm_head' \
    train $fp8 --float8.filter_fqns=lm_haed
fails "a rule that matches no layer" 2 'float8.module has "*.up_prj"|nearest is model.layers.0.mlp.up_proj' \
    train $fp8 --float8.module=*.up_prj=bf16
fails "a frozen name that matches no parameter" 2 'train.freeze has "norms"|nearest is norm' \
    train $small --run.dir=f --train.freeze=norms

# ---- the run folder ----
fails "a file where the run folder should be" 2 "file|a file has its name" train $small --run.dir=file
fails "a file above the run folder" 2 "file|a file has its name" train $small --run.dir=file/run
fails "no permission to make the run folder" 2 "/proc/run" train $small --run.dir=/proc/run

# Simulates a full disk by a limit of the file size. The checkpoint is the first file that exceeds it.
small_files() {
    ulimit -f 60
    exec "$program" "$@"
}
(small_files train $small --run.dir=full) >out 2>err
code=$?
trouble=$(missing err "ottava: cannot save the checkpoint of step 2|full/checkpoints|checkpoint.dir")
[ "$(wc -l <err)" -eq 1 ] || trouble="not one line on standard error"
[ $code -eq 1 ] || trouble="exit code $code"
[ "$(ls full/checkpoints)" = run.json ] || trouble="left behind: $(ls full/checkpoints)"
report "a full disk" "$trouble"

# ---- checkpoints ----
works "prepare a run to resume" "Saved r/checkpoints/step-4" train $small --run.dir=r
on="$small --run.dir=r --train.max_steps=6"
fails "a run folder in use" 2 "r|--checkpoint.load_path=latest" train $small --run.dir=r
fails "nothing to resume" 2 "new/checkpoints|checkpoint.load_path" \
    train $small --run.dir=new --checkpoint.load_path=latest
fails "a missing checkpoint" 2 "step-3|--checkpoint.load_path=r/checkpoints/step-4" \
    train $on --checkpoint.load_path=r/checkpoints/step-3
fails "a checkpoint of another width" 2 "r/checkpoints/step-4|model.dim = 32|has 64|--model.dim=32" \
    train $on --model.dim=64 --checkpoint.load_path=latest
fails "a checkpoint of another vocabulary" 2 "model.vocab_size = 256|has 300" \
    train $on --model.vocab_size=300 --checkpoint.load_path=latest

resume="--checkpoint.load_path=r/checkpoints/step-2"
cp -r r/checkpoints/step-4 undamaged
damage() {
    rm -rf r/checkpoints/step-4
    cp -r undamaged r/checkpoints/step-4
}
damage && truncate -s 1000 r/checkpoints/step-4/model.safetensors
fails "a truncated checkpoint" 2 "step-4/model.safetensors|truncated|1000 bytes|$resume" \
    train $on --checkpoint.load_path=latest
damage && printf X | dd of=r/checkpoints/step-4/optimizer.safetensors bs=1 seek=20000 conv=notrunc 2>dd.log
fails "a flipped byte in a checkpoint" 2 "step-4/optimizer.safetensors|damaged|$resume" \
    train $on --checkpoint.load_path=latest
damage && rm r/checkpoints/step-4/state.json
fails "a checkpoint without its state" 2 "step-4|state.json|$resume" train $on --checkpoint.load_path=latest
damage && printf '{"version": 1' >r/checkpoints/step-4/state.json
fails "a checkpoint with a state.json that is not JSON" 2 "step-4/state.json|not JSON|$resume" \
    train $on --checkpoint.load_path=latest
fails "text from a damaged checkpoint" 2 "step-4/state.json|not JSON|step-2" generate r --prompt=In
works "the proposed checkpoint can be loaded" "Resumed from r/checkpoints/step-2|Saved r/checkpoints/step-4" \
    train $on $resume

# ---- names with terminal control characters ----
escape=$(printf '\033[2J')
second=$(printf '\302\233')
plain() { LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')\|$second" out err && return 1 || return 0; }
yes 'In the beginning God created the heaven and the earth.' | head -c 20000 >text.txt
fails "a run folder with a control character" 2 'run.dir = "a?[2Jb" has a control character' \
    train $small --data.dataset_path=text.txt --run.dir="a${escape}b"
holds "the terminal shows no control character of the run folder" plain
holds "a refused run folder is not created" sh -c '! ls -d a* 2>/dev/null'
fails "a control character from 0x80 to 0x9f" 2 'checkpoint.dir = "c??" has a control character' \
    train $small --data.dataset_path=text.txt --run.dir=r --checkpoint.dir="c$second"
holds "the terminal shows no control character of the checkpoint folder" plain
mkdir data && cp text.txt "data/a${escape}.txt"
fails "a data file with a control character" 2 'data/a?[2J.txt has a control character' \
    train $small --data.dataset_path=data --data.file_pattern='*.txt' --run.dir=r
holds "the terminal shows no control character of the data file" plain
call train $small --data.dataset_path=text.txt --run.dir=run
cp -R run "run${escape}${second}x"
works "a report of a folder with control characters" "run" report "run${escape}${second}x"
holds "the report shows no control character" plain

finish
