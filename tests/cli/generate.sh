#!/bin/sh
# Text from a trained run: sources of the prompt, end conditions, and errors for bad requests.
. "$(dirname "$0")/checks.sh"

yes 'In the beginning God created the heaven and the earth.' | head -c 20000 >text.txt
works "a run" "Training complete" train $small --data.dataset_path=text.txt --train.max_steps=150 --train.batch_size=8 \
    --optimizer.lr=1e-2 --checkpoint.interval=150 --run.dir=r
works "an FP8 run" "Training complete" train $small --data.dataset_path=text.txt --run.dir=f \
    --train.mixed_precision=fp8 --float8.recipe_name=tensorwise

# generated FILE ARGUMENT...: writes the text to FILE. The program must end with 0 and without messages.
generated() {
    file=$1
    shift
    "$program" generate "$@" >"$file" 2>err </dev/null && [ ! -s err ]
}

# ---- sources of the prompt ----
holds "from the command line" generated first r --prompt="In the" --max-tokens=20 --seed=1
printf 'In the\n' >prompt.txt
holds "from a file" generated second r --prompt-file prompt.txt --max-tokens=20 --seed=1
holds "which is the same" cmp first second
"$program" generate r --prompt-file - --max-tokens=20 --seed=1 <prompt.txt >third 2>err
holds "and so is standard input" cmp first third
printf 'In the\nbeginning' >prompt.txt
holds "lines stay lines" generated lines r --prompt-file=prompt.txt --max-tokens=0
printf '\n' >>prompt.txt
holds "as they are" cmp lines prompt.txt

# ---- a Hugging Face folder ----
holds "an export" sh -c "'$program' export r --out=hf --dtype=fp32 >out 2>err"
fails "a folder without a tokenizer" 2 "hf: text needs a tokenizer|no tokenizer.json|--tokenizer" generate hf --prompt="In the"
mkdir bytes && tokenizer bytes
holds "a folder, with one that is named" generated folder hf --prompt="In the" --max-tokens=20 --seed=1 --tokenizer=bytes
holds "says what its run says" cmp first folder
cp bytes/tokenizer.json hf
holds "and with its own" generated folder hf --prompt="In the" --max-tokens=20 --seed=1
holds "the same" cmp first folder
holds "an FP8 export" sh -c "'$program' export r --format=hf-fp8 --out=hf8 --from=hf >out 2>err"
holds "is read too" generated folder hf8 --prompt="In the" --temperature=0 --max-tokens=20
holds "and has learnt the same" grep -q "In the beginning God" folder

# ---- sampling options ----
greedy="--temperature=0 --max-tokens=40"
holds "greedy" generated greedy r --prompt="In the" $greedy
holds "is what one candidate leaves" generated one r --prompt="In the" --top-k=1 --seed=9 --max-tokens=40
holds "the same text" cmp greedy one
holds "which it has learnt" grep -q "In the beginning God created" greedy
holds "a penalty" generated other r --prompt="In the" $greedy --repetition-penalty=5
holds "changes it" sh -c '! cmp -s greedy other'
holds "a stop text" generated stopped r --prompt="In the" $greedy --stop=never --stop " created"
printf 'In the beginning God\n' >expected
holds "ends the text before it" cmp expected stopped
holds "bf16 for an FP8 run" generated bf16 f --prompt="In the" --precision bf16 --max-tokens=200
holds "on any number of threads" generated threads f --prompt="In the" --precision=bf16 --max-tokens=200 --threads=1
holds "the same text again" cmp bf16 threads
holds "fp32" generated fp32 f --prompt="In the" --precision fp32 --max-tokens=200
holds "which is another text" sh -c '! cmp -s bf16 fp32'
holds "a recipe by its name" generated named r --prompt="In the" --precision=block --max-tokens=200
holds "and by keys" generated keyed r --prompt="In the" --train.mixed_precision=fp8 --float8.recipe_name=block --max-tokens=200
holds "the same text" cmp named keyed
holds "a folder in fp32" generated folder32 hf --prompt="In the" --precision=fp32 --max-tokens=20
holds "a folder in FP8, with fp32 scales" generated folder8 hf --prompt="In the" --precision=rowwise \
    --float8.round_scales_to_power_of_2=false --max-tokens=20
holds "as trained" generated trained f --prompt="In the" --precision trained --max-tokens=200
holds "which is another text" sh -c '! cmp -s bf16 trained'

# ---- chat ----
printf '\nIn the begin\n\nhe heaven and the' | "$program" generate r --interactive --temperature=0 --max-tokens=5 >turns 2>err
printf 'ning \nGod c\n' >expected
head -2 turns >begin
holds "turns go on" cmp expected begin
holds "one for each line but the empty first" sh -c '[ "$(wc -l <turns)" -ge 3 ]'
holds "and say nothing else" sh -c '[ ! -s err ]'
"$program" generate r --interactive --prompt="In the begin" --temperature=0 --max-tokens=5 </dev/null >turns 2>err
printf 'In the beginning \n' >expected
holds "a prompt is the first turn" cmp expected turns

# ---- bad requests ----
fails "no prompt" 2 "--prompt is missing|--prompt-file=FILE" generate r
fails "two prompts" 2 "--prompt and --prompt-file are both given" generate r --prompt=x --prompt-file=prompt.txt
fails "a prompt file that is not there" 2 "cannot take the prompt from absent.txt|No such file" generate r --prompt-file=absent.txt
fails "a folder for a prompt" 2 "cannot take the prompt from .|directory" generate r --prompt-file=.
printf 'a\0b' >zero.txt
fails "a zero byte in a prompt" 2 "zero.txt|zero byte" generate r --prompt-file=zero.txt
: >empty.txt
fails "an empty prompt file" 2 "the prompt is empty" generate r --prompt-file=empty.txt
fails "standard input twice" 2 "--interactive reads standard input" generate r --prompt=- --interactive
fails "a negative top-k" 2 "top_k = -1" generate r --prompt=x --top-k=-1
fails "a penalty of 0" 2 "repetition_penalty = 0" generate r --prompt=x --repetition-penalty=0
fails "an empty stop text" 2 "stop[1] is empty" generate r --prompt=x --stop=a --stop=
fails "a precision that is none" 2 'precision "fp9"|did you mean "fp8"?' generate r --prompt=x --precision=fp9
fails "FP8 keys without FP8" 2 "has no effect|add --precision=fp8" generate r --prompt=x --float8.recipe_name=block
fails "a key of evaluation" 2 "generate takes only the keys float8.*" generate r --prompt=x --data.add_bos=true
many=$(seq -f ' --stop=%g' 33)
fails "more stop texts than there is room for" 2 "--stop is given more than 32 times" generate r --prompt=x $many
fails "a flag with a value" 2 "--interactive|no value" generate r --interactive=yes
works "help names them" "--prompt-file FILE|--top-k K|--repetition-penalty X|--stop TEXT|--precision P|--interactive" generate --help
finish
