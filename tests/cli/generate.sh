#!/bin/sh
# Generates text from a trained run. Tests the sources of the prompt, the conditions that end a text, and
# errors for bad requests.
. "$(dirname "$0")/checks.sh"

yes 'In the beginning God created the heaven and the earth.' | head -c 20000 >text.txt
works "prepare a run" "Training complete" \
    train $small --data.dataset_path=text.txt --train.max_steps=150 --train.batch_size=8 \
    --optimizer.lr=1e-2 --checkpoint.interval=150 --run.dir=r
works "prepare an FP8 run" "Training complete" train $small --data.dataset_path=text.txt --run.dir=f \
    --train.mixed_precision=fp8 --float8.recipe_name=tensorwise

# generated FILE ARGUMENT...: generates text and writes it to FILE. The program must end with 0 and print no
# messages.
generated() {
    file=$1
    shift
    "$program" generate "$@" >"$file" 2>err </dev/null && [ ! -s err ]
}

# ---- sources of the prompt ----
holds "a prompt from the command line" generated first r --prompt="In the" --max-tokens=20 --seed=1
printf 'In the\n' >prompt.txt
holds "a prompt from a file" generated second r --prompt-file prompt.txt --max-tokens=20 --seed=1
holds "the prompt from the file gives the same text" cmp first second
"$program" generate r --prompt-file - --max-tokens=20 --seed=1 <prompt.txt >third 2>err
holds "the prompt from standard input gives the same text" cmp first third
printf 'In the\nbeginning' >prompt.txt
holds "a prompt of two lines is printed" generated lines r --prompt-file=prompt.txt --max-tokens=0
printf '\n' >>prompt.txt
holds "the printed prompt equals the file" cmp lines prompt.txt

# ---- a Hugging Face folder ----
holds "prepare a folder" sh -c "'$program' export r --out=hf --dtype=fp32 >out 2>err"
fails "a folder without a tokenizer" 2 "hf: text needs a tokenizer|no tokenizer.json|--tokenizer" \
    generate hf --prompt="In the"
mkdir bytes && tokenizer bytes
holds "a folder with --tokenizer" \
    generated folder hf --prompt="In the" --max-tokens=20 --seed=1 --tokenizer=bytes
holds "the folder gives the run's text" cmp first folder
cp bytes/tokenizer.json hf
holds "a folder with its own tokenizer" generated folder hf --prompt="In the" --max-tokens=20 --seed=1
holds "the folder's own tokenizer gives the run's text" cmp first folder
holds "prepare an FP8 folder" sh -c "'$program' export r --format=hf-fp8 --out=hf8 --from=hf >out 2>err"
holds "an FP8 folder" generated folder hf8 --prompt="In the" --temperature=0 --max-tokens=20
holds "the FP8 folder continues the prompt as in training" grep -q "In the beginning God" folder

# ---- sampling options ----
greedy="--temperature=0 --max-tokens=40"
holds "greedy decoding" generated greedy r --prompt="In the" $greedy
holds "--top-k=1" generated one r --prompt="In the" --top-k=1 --seed=9 --max-tokens=40
holds "--top-k=1 equals greedy decoding" cmp greedy one
holds "greedy decoding continues the prompt as in training" grep -q "In the beginning God created" greedy
holds "a repetition penalty" generated other r --prompt="In the" $greedy --repetition-penalty=5
holds "a repetition penalty changes the text" sh -c '! cmp -s greedy other'
holds "a stop text" generated stopped r --prompt="In the" $greedy --stop=never --stop " created"
printf 'In the beginning God\n' >expected
holds "the text ends before the stop text" cmp expected stopped
holds "bf16 for an FP8 run" generated bf16 f --prompt="In the" --precision bf16 --max-tokens=200
holds "bf16 with one thread" \
    generated threads f --prompt="In the" --precision=bf16 --max-tokens=200 --threads=1
holds "the number of threads does not change the text" cmp bf16 threads
holds "fp32 for an FP8 run" generated fp32 f --prompt="In the" --precision fp32 --max-tokens=200
holds "fp32 and bf16 give different texts" sh -c '! cmp -s bf16 fp32'
holds "a recipe by its name" generated named r --prompt="In the" --precision=block --max-tokens=200
holds "a recipe by its keys" generated keyed r --prompt="In the" --train.mixed_precision=fp8 \
    --float8.recipe_name=block --max-tokens=200
holds "a recipe's name and its keys give the same text" cmp named keyed
holds "a folder in fp32" generated folder32 hf --prompt="In the" --precision=fp32 --max-tokens=20
holds "a folder in FP8, with fp32 scales" generated folder8 hf --prompt="In the" --precision=rowwise \
    --float8.round_scales_to_power_of_2=false --max-tokens=20
holds "the precision of training" generated trained f --prompt="In the" --precision trained --max-tokens=200
holds "FP8 and bf16 give different texts" sh -c '! cmp -s bf16 trained'

# ---- chat ----
printf '\nIn the begin\n\nhe heaven and the' | "$program" \
    generate r --interactive --temperature=0 --max-tokens=5 >turns 2>err
printf 'ning \nGod c\n' >expected
head -2 turns >begin
holds "each turn continues the conversation" cmp expected begin
holds "each line except the empty one gets an answer" sh -c '[ "$(wc -l <turns)" -ge 3 ]'
holds "an interactive conversation prints no messages" sh -c '[ ! -s err ]'
"$program" \
    generate r --interactive --prompt="In the begin" --temperature=0 --max-tokens=5 </dev/null >turns 2>err
printf 'In the beginning \n' >expected
holds "a prompt is the first turn" cmp expected turns

# ---- bad requests ----
fails "no prompt" 2 "--prompt is missing|--prompt-file=FILE" generate r
fails "two prompts" 2 "--prompt and --prompt-file are both given" \
    generate r --prompt=x --prompt-file=prompt.txt
fails "a missing prompt file" 2 "cannot read the prompt from absent.txt|No such file" \
    generate r --prompt-file=absent.txt
fails "a folder for a prompt" 2 "cannot read the prompt from .|directory" generate r --prompt-file=.
printf 'a\0b' >zero.txt
fails "a zero byte in a prompt" 2 "zero.txt|zero byte" generate r --prompt-file=zero.txt
: >empty.txt
fails "an empty prompt file" 2 "the prompt is empty" generate r --prompt-file=empty.txt
fails "standard input twice" 2 "--interactive reads standard input" generate r --prompt=- --interactive
fails "a negative top-k" 2 "top_k = -1" generate r --prompt=x --top-k=-1
fails "a penalty of 0" 2 "repetition_penalty = 0" generate r --prompt=x --repetition-penalty=0
fails "an empty stop text" 2 "stop[1] is empty" generate r --prompt=x --stop=a --stop=
fails "an unknown precision" 2 'precision "fp9"|did you mean "fp8"?' generate r --prompt=x --precision=fp9
fails "FP8 keys without FP8" 2 "has no effect|add --precision=fp8" \
    generate r --prompt=x --float8.recipe_name=block
fails "a key of evaluation" 2 "generate takes only the keys float8.*" \
    generate r --prompt=x --data.add_bos=true
many=$(seq -f ' --stop=%g' 33)
fails "too many stop texts" 2 "--stop is given more than 32 times" generate r --prompt=x $many
fails "a flag with a value" 2 "--interactive|no value" generate r --interactive=yes
works "help has the options" "--prompt-file FILE|--top-k K|--repetition-penalty X|--stop TEXT|\
--precision trained|--interactive" generate --help
finish
