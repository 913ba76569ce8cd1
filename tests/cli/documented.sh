#!/bin/sh
# Runs every command in README.md and in the pages of docs/ as written, in the order of the pages, in a
# folder with the files that the commands name. The wrapper bin/ottava, which this script writes, adds
# options that make the runs small. `left` lists commands that do not run.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/cli/checks.sh"
export program
unset CONFIG_FILE MODULE CONFIG NGPU LOG_RANK

# Prints parts of commands that are not run, and why. Each part must occur in a document, except for parts
# that begin with tools/.
left() {
    cat <<'LEFT'
make demo|trains for minutes; tests/cli/setup.sh tests its parts
make test|runs this script
make build|builds for minutes
make deb|builds for minutes; tools/check_package.sh tests the packages
make install|tests/cli/install.sh tests it
make cuda|builds for minutes, with the CUDA toolkit
python3 -m venv ~/nvidia|downloads NVIDIA's packages
tools/gpu_check.sh OUT|needs a GPU
tools/recipes.sh 500|trains for minutes
tools/state_losses.sh|trains for minutes
tools/recipe_losses.sh|evaluates a downloaded model for minutes
tools/first_steps.sh|trains for minutes
tools/make_wheel.sh|builds for minutes, and needs PyPI
tools/compare_pytorch.py|needs PyTorch; the end of this script runs its calls of ottava
llama-cli|a program of llama.cpp
cc -static my_training.c|tools/check_package.sh links an example so
cc my_training.c|examples/ are compiled and run as tests
ottava train llama4_17bx16e.toml|torchtitan's file, which is refused; tests/config tests it
ottava pull|downloads; tests/cli/pull.sh tests it
ottava train ... --device=cpu|three commands in one
--device=cuda|needs a GPU
(ulimit -v 300000;|a run that is refused; tests/train tests it
LEFT
}

# ---- the commands ----

# commands FILE: prints the commands of its indented blocks, one per line. It joins continued lines and
# removes "$ " and comments.
commands() {
    awk '
        /^    / {
            if (!inside && before != "") next
            inside = 1
            line = line substr($0, 5)
            if (!sub(/ *\\$/, " ", line)) { print line; line = "" }
            next
        }
        { inside = 0; before = $0 }' "$1" |
        sed 's/^ *\$ //; s/^ *//; s/  *# .*//; s/  */ /g' |
        grep -E '^([A-Z_]+=[^ ]* )*'\
'(ottava|mpirun|make|llama-cli|cc|yes|\(ulimit|tools/[a-z_.]+|\./[a-z_]+\.sh)( |$)'
}

# ---- files that the commands name ----

mkdir bin build runs
for name in configs tools run_train.sh; do ln -s "$root/$name" "$name"; done
echo "localhost slots=4" >hosts
cp "$root/tests/golden/sentencepiece/llama.model" tokenizer.model
cp small.txt book.txt
cp small.txt FILE
hellaswag train.jsonl
cp train.jsonl hellaswag_val.jsonl
folder FOLDER llama LlamaForCausalLM
printf '{%% for m in messages %%}[{{ m.role }}]{%% generation %%}{{ m.content }}{%% endgeneration %%}{%% '\
'endfor %%}' >FOLDER/chat_template.jinja
tiny="--train.threads=1 --train.max_steps=1 --train.batch_size=1 --train.seq_len=16 \
--scheduler.warmup_steps=0"
call train --model.hf_path=FOLDER --model.reduce=2 --data.format=synthetic $tiny --run.dir=made
call export made --out=MODEL
report "prepare a model for the commands" "$([ $code -eq 0 ] || echo "exit code $code")"
rm -r FOLDER made
ln -s MODEL FOLDER
ln -s MODEL OTHER
mkdir meta-llama Qwen
for name in meta-llama/Llama-3.1-8B Qwen/Qwen3-0.6B; do ln -s ../MODEL $name; done
call train --model.hf_path=FOLDER --data.format=synthetic $tiny --peft.dim=2 --run.dir=RUN
report "prepare a run for the commands" "$([ $code -eq 0 ] || echo "exit code $code")"
call train $small --model.max_seq_len=128 --run.dir=bytes
call export bytes --format=gguf --out=SmolLM2.gguf # with a tokenizer of bytes
report "prepare a GGUF file for the commands" "$([ $code -eq 0 ] || echo "exit code $code")"
printf '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n' >row
cat row row row row row row row row >chat.jsonl
cp chat.jsonl chat_val.jsonl
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<u2', 'fortran_order': False, 'shape': (2000,), }" \
    >tokens.npy
head -c 4000 /dev/zero >>tokens.npy
printf '[model]\nhf_path = "FOLDER"\n[data]\ndataset_path = "book.txt"\n[peft]\ndim = 2\n' >run.toml
printf '[model]\npreset = "debug"\n[data]\ndataset_path = "book.txt"\n' >cfg.toml
cp cfg.toml next.toml

# ---- small runs ----

# Writes wrappers of ottava, mpirun and srun. The wrappers of mpirun and srun start one rank.
cat >bin/ottava <<'OTTAVA'
#!/bin/sh
case $1 in
train) set -- "$@" $small_train ;;
plan) set -- "$@" $small_plan ;;
bench) set -- "$@" $small_bench ;;
generate) set -- "$@" --max-tokens=2 ;;
eval) set -- "$@" --limit=2 ;;
esac
exec "$program" "$@"
OTTAVA
cat >bin/mpirun <<'MPIRUN'
#!/bin/sh
while [ "${1##*/}" != ottava ]; do shift; done
small_train="$small_train --distributed.fit=true"
export small_train
exec "$@"
MPIRUN
cp bin/mpirun bin/srun
chmod +x bin/ottava bin/mpirun bin/srun
export PATH="$PWD/bin:$PATH" OTTAVA="$PWD/bin/ottava" STEPS=2 seed=1 small_train small_plan small_bench

# shrink COMMAND: sets options that make the command's run small. Large models get smaller dimensions. Some
# runs keep enough steps for the commands that follow.
shrink() {
    small_train="--train.threads=1 --train.batch_size=1 --train.global_batch_size=1 --train.seq_len=128 \
--eval.steps=1
        --scheduler.warmup_steps=0 --train.max_steps=1"
    small_plan= small_bench=--repeats=1
    case $1 in
    *hellaswag_fp8.yaml*packed*) small_train="$small_train --train.seq_len=512 --eval.num_samples_limit=2" ;;
    *hf_path=FOLDER* | *hf_path=MODEL* | *RUN* | *run.toml* | *lora*) ;;
    *runs/a*)
        small_train="$small_train --train.seq_len=16 --model.n_layers=1 --train.max_steps=21 \
--checkpoint.interval=20"
        ;;
    *llama3_1_8b.toml* | *titan_llama3_8b.toml* | *llama_7b* | *llama3_8b*) \
        small_train="$small_train --model.reduce=64 --model.vocab_size=256 --data.dataset_path=book.txt" ;;
    *demo.toml*) small_train="$small_train --train.seq_len=16 --data.dataset_path=book.txt" ;;
    *debug* | *cfg.toml* | *run_train.sh*) small_train="$small_train --train.seq_len=16 --model.n_layers=2" ;;
    *preset*42M*) small_plan=--model.reduce=8 ;;
    *gemm*) small_bench="--repeats=1 --shapes=tiny" ;;
    *step*) small_bench="--repeats=1 --preset=demo --batch=1 --seq-len=32 --threads=1" ;;
    *"bench generate"*) small_bench="--repeats=1 --preset=demo --threads=1" ;;
    esac
    case $1 in
    *llama_7b*) small_train="$small_train --train.grad_accum_steps=1 --train.seq_len=16" ;;
    *grad_accum_steps*) small_train="$small_train --train.global_batch_size=2" ;;
    *runs/lora*) small_train="$small_train --train.seq_len=256" ;;
    esac
    case $1 in
    *checkpoint.load_path=latest*) small_train="$small_train --train.max_steps=2" ;;
    *8b* | *8B*) small_plan=--model.n_layers=1 ;;
    esac
}

# troubleshooting.sh tests the page troubleshooting.md.
pages="$root/README.md $(find "$root/docs" -name '*.md' ! -name troubleshooting.md | LC_ALL=C sort)"
left >reasons
while IFS='|' read -r part reason; do
    case $part in tools/*) continue ;; esac # not every tool is in a document
    grep -hF -e "$part" $pages >found || report "$part, which is not run" \
        "no document has this command"
done <reasons

for file in $pages; do
    commands "$file" >all
    while read -r line <&3; do
        part=$(while IFS='|' read -r part reason; do case $line in *"$part"*) echo "$part" && break ;; esac; \
            done <reasons)
        [ -z "$part" ] || continue
        shrink "$line"
        line=$(printf '%s\n' "$line" |
            sed 's/--out=FOLDER/--out=merged/; / FOLDER /s/--format gguf.*/& --from=/')
        timeout 60 sh -c "$line" >out 2>err </dev/null
        code=$?
        case $line in "ottava doctor") code=0 ;; esac # the doctor ends with 1, because the GPU is missing
        report "$(basename "$file"): $line" "$([ $code -eq 0 ] || echo "exit code $code")"
    done 3<all
done

sed -n '/^```c$/,/^```$/p' "$root/docs/tutorials/c-program.md" | grep -v '^```' >program.c
holds "c-program.md: the program is examples/fp8_layer.c" diff program.c "$root/examples/fp8_layer.c"

# The Slurm job in cluster.md.
sed -n '/^```sh$/,/^```$/p' "$root/docs/howto/cluster.md" | grep -v '^```' >job
shrink configs/debug.toml
holds "cluster.md: the Slurm job" timeout 60 sh job

# Checks the calls of ottava in tools/compare_pytorch.py.
if command -v python3 >/dev/null; then
    python3 -c "
import argparse, importlib.util, sys
spec = importlib.util.spec_from_file_location('compare', sys.argv[1])
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)
compare.length_of = lambda preset: 16
arguments = argparse.Namespace(ottava=sys.argv[2], before=None, products='16', steps='demo',
                               generate='demo', threads=1,
                               repeats=1, pytorch='')
compare.print_table(compare.measure_all(arguments))" "$root/tools/compare_pytorch.py" "$program" >out 2>err
    report "compare_pytorch.py" "$(missing out \
        "products, 16 each way|demo, 4 x 16: tokens/s|generation, demo|Ottava fp32")"
else
    echo "SKIPPED compare_pytorch.py: python3 is missing"
fi
finish
