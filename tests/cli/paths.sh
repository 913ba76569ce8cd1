#!/bin/sh
# Commands must not write through symbolic links, or to their own inputs. Also tests bad folder names, and
# files in unsupported formats.
. "$(dirname "$0")/checks.sh"

# same NAME FILE TEXT: the file must still contain the text.
same() {
    holds "$1" sh -c "[ \"\$(cat '$2')\" = '$3' ]"
}

# ---- run files that are symbolic links ----
for file in lock run.json config.toml metrics.jsonl summary.json; do
    rm -rf r
    mkdir r
    echo precious >victim
    ln -s ../victim "r/$file"
    fails "$file is a symbolic link" 2 "r/$file: is a symbolic link|remove the link" train $small --run.dir=r
    same "the target of $file is unchanged" victim precious
    rm victim
    fails "$file is a symbolic link without a target" 2 "r/$file: is a symbolic link" train $small --run.dir=r
    holds "the target of $file is not created" test ! -e victim
done
rm -rf r
mkdir r
mkfifo r/config.toml
fails "config.toml is a pipe" 2 "r/config.toml: is a device or a pipe, not a file" train $small --run.dir=r
rm -rf r
mkdir real
ln -s real r
mkdir data
cp small.txt data
call train $small --run.dir=r//sub/ --data.dataset_path=data/ --data.file_pattern='*.txt' \
    --checkpoint.dir=ck/ --profiling.enable=true --profiling.start_step=1 --profiling.end_step=2 \
    --profiling.trace_dir=traces/
holds "the run folder may be a symbolic link" test $code = 0 -a -s real/sub/summary.json
holds "no path has two slashes" \
    sh -c '! grep -n "[^:]//" out real/sub/*.toml real/sub/*.json real/sub/*.jsonl | grep -v "file://"'
echo precious >victim
ln -sf ../../victim real/sub/summary.json
fails "summary.json becomes a symbolic link after the start" 2 "r/sub/summary.json: is a symbolic link" \
    train $small --run.dir=r//sub/ --checkpoint.load_path=latest --train.max_steps=5
rm real/sub/summary.json
: >victim
mkdir -p late/profiler_traces/iteration_1
ln -s ../../../victim late/profiler_traces/iteration_1/rank0_trace.json
call train $small --run.dir=late --profiling.enable=true --profiling.start_step=1 --profiling.end_step=2
report "a trace file is a symbolic link" "$(missing err "rank0_trace.json: is a symbolic link")"
holds "the target of the trace file is unchanged" test ! -s victim

# ---- outputs that are inputs ----
mkdir t
tokenizer t
cp small.txt t.txt
sum=$(cksum <t.txt)
ln -s t.txt soft
ln t.txt hard
for out in t.txt soft hard ./t.txt; do
    fails "tokenize to its input, $out" 2 "$out: is an input too|name another output" \
        tokenize t.txt --tokenizer t --out $out
done
fails "the input is a symbolic link to the output" 2 "t.txt: is an input too, as soft" \
    tokenize soft --tokenizer t --out t.txt
holds "the text is unchanged" test "$(cksum <t.txt)" = "$sum"
ln -s t/tokenizer.json named
echo '{}' >t/tokenizer_config.json
ln t/tokenizer_config.json kept
for out in t/tokenizer.json named t/tokenizer_config.json kept; do
    fails "tokenize to its tokenizer, $out" 2 "$out: is an input too" tokenize t.txt --tokenizer t --out $out
done
works "tokenize to another file" "tokens.bin: 4000 tokens|4000 bytes" \
    tokenize t.txt --tokenizer t --out tokens.bin --no-special
ln -s tokens.bin link.bin
works "tokenize to a symbolic link" "link.bin: 4000 tokens" \
    tokenize t.txt --tokenizer t --out link.bin --no-special
holds "the symbolic link is kept" test -L link.bin

run=real/sub
(cd $run && find . -type f -exec cksum {} + | sort) >before
ln -s $run/metrics.jsonl page
ln $run/config.toml second.html
checkpoint=$(find $run -name model.safetensors | head -1)
for out in $run/metrics.jsonl $run/config.toml $run/run.json $run/lock page second.html "$checkpoint"; do
    fails "report to $out" 2 "$out: is " report $run --out "$out"
done
fails "report to a file of another run" 2 "late/config.toml: is not a report page" \
    report $run --out late/config.toml
(cd $run && find . -type f -exec cksum {} + | sort) >after
holds "the run's files are unchanged" cmp before after
works "report to a page" "Page: $run/report.html" report $run --out $run/report.html
works "report overwrites a page" "Page: $run/report.html" report $run --out $run/report.html
: >empty.html
works "report to an empty file" "Page: empty.html" report $run --out empty.html

# ---- renamed checkpoint folders ----
call train $small --run.dir=swapped
mv swapped/checkpoints/step-2 swapped/checkpoints/aside
mv swapped/checkpoints/step-4 swapped/checkpoints/step-2
mv swapped/checkpoints/aside swapped/checkpoints/step-4
fails "swapped checkpoints" 2 \
    "swapped/checkpoints/step-4: holds the checkpoint of step 2, not of step 4|rename it to step-2" \
    train $small --run.dir=swapped --checkpoint.load_path=latest --train.max_steps=6
fails "generate with a renamed checkpoint" 2 "step-2: holds the checkpoint of step 4" \
    generate swapped/checkpoints/step-2 --prompt a --max-tokens 1
fails "inspect a renamed checkpoint" 1 "step-2: holds the checkpoint of step 4" \
    inspect swapped/checkpoints/step-2

# ---- GGUF ----
printf 'GGUF\003\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000' >m.gguf
cp m.gguf plain
cp m.gguf m.txt
gguf="is a GGUF file, which can only be a model or its tokenizer: --model.hf_path=FILE"
no_model="general.architecture = (missing) is not supported: llama, qwen2,"
fails "GGUF as a configuration" 2 "m.gguf: $gguf" train m.gguf
fails "GGUF as a configuration by its option" 2 "m.gguf: $gguf" train --config m.gguf
for file in m.gguf plain; do
    fails "$file as a model" 2 "$file: $no_model" train $small --model.hf_path=$file --run.dir=g
    fails "$file as adapters" 2 "$file: $gguf" train $small --peft.path=$file --run.dir=g
    fails "$file as data" 2 "$file: $gguf" train $small --data.dataset_path=$file --run.dir=g
    fails "$file as a tokenizer" 2 "$file: has no tokenizer" \
        train $small --data.tokenizer_path=$file --run.dir=g
    fails "$file as a tokenizer of a text" 2 "$file: has no tokenizer" \
        tokenize t.txt --tokenizer $file --out x.bin
    fails "$file as a text" 2 "$file: $gguf" tokenize $file --tokenizer t --out x.bin
    fails "$file as a checkpoint" 2 "$file: $gguf" train $small --checkpoint.load_path=$file --run.dir=g
    works "$file to inspect" "total" inspect $file
    fails "$file to generate" 2 "$file: $no_model" generate $file --prompt a
    fails "$file to evaluate" 2 "$file: $no_model" eval $file --task perplexity --data t.txt
    fails "$file to evaluate on" 2 "$file: $gguf" eval $run --task perplexity --data $file
    fails "$file to export" 2 "$file: $no_model" export $file --out x
done
mkdir only
cp m.gguf only
fails "a GGUF file among the data files" 2 "m.gguf: $gguf" \
    train $small --data.dataset_path=only --data.file_pattern='*' --run.dir=g
printf 'GGUF\003\000\000\000\377' >short.gguf
fails "a truncated GGUF file" 2 "short.gguf: ends at byte 9, in the middle of its header: truncated?" \
    train $small --model.hf_path=short.gguf --run.dir=g
echo 'GGUF is a format.' >words.txt
works "a text that begins with GGUF" "words.bin: " \
    tokenize words.txt --tokenizer t --out words.bin --no-special

# ---- nothing is saved ----
call train $small --run.dir=unsaved --checkpoint.interval=0
warnings=$(missing out \
    "interval = 0: unless it is stopped, this run saves no checkpoint|=N to save|No checkpoint was saved")
report "a run without checkpoints warns" "$warnings"
call train $small --run.dir=saved
holds "a run with checkpoints does not warn" sh -c '! grep -q "o checkpoint" out'

# ---- names that cannot be read back ----
folder base llama LlamaForCausalLM
mkdir adapters
printf '{"peft_type":"LORA","task_type":"CAUSAL_LM","r":2,"base_model_name_or_path":"m\\tx"}' \
    >adapters/adapter_config.json
fails "a base model's name with a tab" 2 'adapter_config.json|model.hf_path = "m?x" has a control character' \
    train $small --peft.path=adapters --run.dir=tab
holds "the refused run makes no folder" test ! -e tab

# ---- file descriptors ----
for most in 5 6 7 8 9 10 11 12; do # limits of open files; the shell needs some itself
    rm -rf few
    timeout 60 sh -c "ulimit -n $most"' && exec "$0" "$@"' "$program" \
        train $small --run.dir=few >out 2>err </dev/null
    grep -q 'cannot save' err && break
done
report "the limit of open files is reported" "$(missing err \
    "cannot save the checkpoint of step 2|Too many open files; raise the limit: ulimit -n")"
holds "the error does not suggest a full disk" sh -c '! grep -q "free disk space" err'
finish
