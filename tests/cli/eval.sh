#!/bin/sh
# Evaluates through the program. Tests tables, JSON, the verdict and errors.
. "$(dirname "$0")/checks.sh"

yes 'In the beginning God created the heaven and the earth.' | head -c 20000 >text.txt
head -c 500 text.txt >part.txt
run="$small --data.dataset_path=text.txt --train.max_steps=20"
works "prepare a run" "Training complete" train $run --run.dir=r
works "prepare an FP8 run" "Training complete" \
    train $run --run.dir=f --train.mixed_precision=fp8 --float8.recipe_name=rowwise
works "prepare another run" "Training complete" train $run --run.dir=o --train.seed=5 --optimizer.lr=1e-2
cat >rows.jsonl <<'END'
{"activity_label":"A","ctx_a":"In the","ctx_b":"beginning","endings":["God", "x", "the", "q"],"label":0}
{"activity_label": "A", "ctx_a": "God", "ctx_b": "created", "endings": ["a", "the", "zz", "b"], "label": "1"}
{"ctx": "the heaven", "endings": ["and", "or", "but", "an"], "label": 3}
END

works "perplexity" "windows          16|tokens           499|loss|perplexity|bits per byte|in FP8: 0" \
    eval r --task perplexity --data part.txt
works "perplexity of an FP8 run" "GEMMs            64, in FP8: 64" eval f --task=perplexity --data=part.txt
works "perplexity of an FP8 run in bf16" "in FP8: 0" eval f --task perplexity --data part.txt --precision bf16
works "windows are described" "each window      32 tokens, 2 in a forward pass, no BOS in front" \
    eval r --task perplexity --data part.txt
works "train.batch_size sets the windows in a forward pass" "32 tokens, 5 in a forward pass" \
    eval r --task perplexity --data part.txt --train.batch_size=5
works "perplexity of an FP8 run in fp32" "in FP8: 0" eval f --task perplexity --data part.txt --precision fp32
works "float8 keys change the recipe" "in FP8: 56" eval f --task perplexity --data part.txt \
    --float8.round_scales_to_power_of_2=false --float8.filter_fqns=lm_head
works "perplexity with --logits" "perplexity" \
    eval r --task perplexity --data part.txt --limit 2 --logits l.safetensors
works "the logits file has its tensors" \
    "logits        BF16     [64, 256]|labels        I32      [64]|input_ids" inspect l.safetensors
works "perplexity of one checkpoint" "windows          2" \
    eval r/checkpoints/step-20 --task perplexity --data part.txt --limit 2
works "HellaSwag" "rows             3|acc  |acc_norm|acc_llmc|+-|loss" \
    eval r --task hellaswag --data rows.jsonl
works "HellaSwag in lm-eval's form" "acc_norm" eval r --task hellaswag --data rows.jsonl --form lm-eval
holds "lm-eval's form has no acc_llmc" sh -c '! grep -q acc_llmc out'
works "the first rows of HellaSwag" "rows             2" eval r --task hellaswag --data rows.jsonl --limit 2
works "a run against itself" "KL max           0|cosine           1.0000|top-1 agreement  1.0000|passed" \
    eval f --against f --data part.txt
works "FP8 against its own weights in bf16" "passed" \
    eval f --against f --against-precision bf16 --data part.txt
works "the output to a pipe" "passed" eval f --against f --data part.txt --json
holds "the output to a pipe is one line of JSON" \
    sh -c '[ "$(wc -l <out)" -eq 1 ] && ! grep -q "$(printf "[\r\033]")" out'
if command -v python3 >/dev/null 2>&1; then
    holds "the output is valid JSON" python3 -c '
import json
e = json.load(open("out"))
assert e["task"] == "compare" and e["kl_max"] == 0 and e["cosine"] == 1 and e["passed"] is True
assert e["loss"] is None and e["tokens"] == 499 and e["gemms"] == e["fp8_gemms"] > 0'
else
    echo "SKIPPED the output is valid JSON: python3 is missing"
fi

call eval r --against o --data part.txt
trouble=$(missing out "MISSED: KL max |(at most 0.01), KL mean |(at most 0.003)")
[ -s err ] && trouble="standard error is not empty"
[ $code -eq 1 ] || trouble="exit code $code"
report "a missed limit gives exit code 1" "$trouble"
call eval r --against o --data part.txt --kl-max 1000 --cosine -1
trouble=$(missing out "MISSED: KL mean |(at most 0.003)
|held: KL max |(at most 1000), cosine |(at least -1)")
[ $code -eq 1 ] || trouble="exit code $code"
report "only the missed limit is reported as missed" "$trouble"
call eval r --against o --data part.txt --kl-max 1000 --cosine -1 --json
report "JSON has the missed limit" "$(missing out '"passed": false, "missed": ["kl_mean"]}')"
works "wider limits are met" "passed: KL max |(at most 1000)|cosine" \
    eval r --against o --data part.txt --kl-max 1000 --kl-mean 1000 --cosine -1

# ---- on a terminal, if the machine can make a pseudo-terminal ----
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    TERM=xterm script -qec "'$program' eval r --task perplexity --data part.txt" /dev/null >out 2>err \
        </dev/null
    code=$?
    trouble=$(missing out "window |ETA 0:00:00|perplexity")
    [ $code -eq 0 ] || trouble="exit code $code"
    report "a progress line on a terminal" "$trouble"
else
    echo "SKIPPED a progress line on a terminal: this machine cannot make a pseudo-terminal"
fi

works "the help" "--against MODEL|--task TASK|llm.c" eval --help
fails "no model" 2 "MODEL is missing" eval --task perplexity --data part.txt
fails "no task" 2 "--task is missing" eval r --data part.txt
fails "no data" 2 "--data is missing" eval r --task perplexity
fails "an unknown task" 2 '--task is "hellaswga"|did you mean hellaswag?' \
    eval r --task hellaswga --data rows.jsonl
fails "two tasks" 2 "remove --task" eval r --task perplexity --against o --data part.txt
fails "an unknown form" 2 '--form is "x"' eval r --task hellaswag --data rows.jsonl --form x
fails "an unknown precision" 2 'precision "tensorwize"|did you mean "tensorwise"?' \
    eval r --task perplexity --data part.txt --precision tensorwize
fails "an unknown float8 key" 2 "did you mean float8.recipe_name?" \
    eval r --task perplexity --data part.txt --float8.recipe_nam=x
fails "a key of training" 2 "--optimizer.lr=1: eval takes only the keys float8.*" \
    eval r --task perplexity --data part.txt --optimizer.lr=1
fails "a key without a value" 2 "--float8.recipe_name=VALUE" \
    eval r --task perplexity --data part.txt --float8.recipe_name block
fails "FP8 keys without FP8" 2 "has no effect|add --precision=fp8" \
    eval r --task perplexity --data part.txt --float8.recipe_name=block
fails "logits of HellaSwag" 2 "only the task perplexity writes logits" \
    eval r --task hellaswag --data rows.jsonl --logits x
fails "logits over the text" 2 "part.txt: is an input too" \
    eval r --task perplexity --data part.txt --logits part.txt
fails "logits in the model's folder" 2 "is in the model's folder" \
    eval r --task perplexity --data part.txt --logits r/l.safetensors
fails "a precision without a second model" 2 "against" \
    eval r --task perplexity --data part.txt --against-precision bf16
fails "a negative limit" 2 "limit = -1" eval r --task perplexity --data part.txt --limit=-1
fails "a missing model" 2 "absent" eval absent --task perplexity --data part.txt
fails "a missing text" 2 "absent.txt" eval r --task perplexity --data absent.txt
fails "a text instead of rows" 2 "part.txt:1|not JSON" eval r --task hellaswag --data part.txt
fails "a window longer than the model's" 2 "max_seq_len = 64" \
    eval r --task perplexity --data part.txt --seq-len 65
finish
