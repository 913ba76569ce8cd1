# checks.sh: functions that the scripts of this folder share. Each script receives the path of the program,
# works in its own temporary folder and prints one line per check. `finish` ends the script, with exit code 1
# if a check failed.

case $1 in
/*) program=$1 ;;
*) program=$PWD/$1 ;;
esac
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
bad=0

# Keeps tests on the CPU if the CUDA backend is next to the program.
export OTTAVA_CUDA_PATH=/nowhere
# Names of models find neither a network nor this user's cache.
export HF_HUB_OFFLINE=1 HF_HOME="$folder/hub"

# Settings of a model and a run that take almost no time, and their text.
yes 'In the beginning God created the heaven and the earth.' | head -c 4000 >small.txt
small="--data.dataset_path=$folder/small.txt
       --model.dim=32 --model.n_layers=1 --model.n_heads=2 --model.vocab_size=256 --model.ffn_hidden_dim=64
       --model.max_seq_len=64 --train.seq_len=32 --train.batch_size=2 --train.max_steps=4 --train.threads=1
       --scheduler.warmup_steps=1 --checkpoint.interval=2"

# tokenizer FOLDER: writes a tokenizer with a token for every byte
tokenizer() {
    {
        printf \
            '{"version":"1.0","added_tokens":[{"id":256,"content":"<s>","single_word":false,"lstrip":false,'
        printf '"rstrip":false,"normalized":false,"special":true}],"normalizer":null,"pre_tokenizer":null,'
        printf '"post_processor":null,"decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},'\
'{"type":"Fuse"}]},'
        printf '"model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,'
        printf '"end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,'\
'"merges":[],"vocab":{'
        byte=0
        while [ $byte -lt 256 ]; do
            printf '"<0x%02X>":%d,' $byte $byte
            byte=$((byte + 1))
        done
        printf '"<s>":256,"<unk>":257}}}\n'
    } >"$1/tokenizer.json"
}

# folder NAME MODEL_TYPE ARCHITECTURE [KEYS]: writes config.json and tokenizer of a model with 4 layers of
# width 128. All sizes can be divided by 2
folder() {
    mkdir -p "$1"
    printf '{"architectures":["%s"],"model_type":"%s","hidden_size":128,"intermediate_size":256,' "$3" "$2" \
        >"$1/config.json"
    printf '"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":272,' \
        >>"$1/config.json"
    printf '"rms_norm_eps":1e-5,"rope_theta":10000.0,"max_position_embeddings":256,%s' "$4" >>"$1/config.json"
    printf '"torch_dtype":"bfloat16"}\n' >>"$1/config.json"
    tokenizer "$1"
}

# hellaswag FILE: writes 40 rows in HellaSwag's format.
hellaswag() {
    i=0
    while [ $i -lt 40 ]; do
        printf '{"ind":%d,"activity_label":"Cooking","ctx_a":"A man stands in a kitchen.","ctx_b":"he",' $i
        printf \
            '"ctx":"A man stands in a kitchen. he","endings":["cuts bread.","flies away.","sings to a goat.",'
        printf '"is a river."],"label":"%d","split":"train"}\n' $((i % 4))
        i=$((i + 1))
    done >"$1"
}

# report NAME [TROUBLE]: prints the result of a check: ok, or FAILED with the trouble.
report() {
    if [ -z "$2" ]; then
        echo "ok      $1"
    else
        echo "FAILED  $1: $2"
        sed 's/^/        | /' ${shown:-out err}
        bad=1
    fi
}

# call ARGUMENT...: runs the program. Writes its output to the files out and err, and sets $code to the exit
# code.
call() {
    timeout 120 "$program" "$@" >out 2>err </dev/null
    code=$?
}

# missing FILE PARTS: prints the first of the texts in PARTS, separated by |, that is not in the file.
missing() {
    old=$IFS
    IFS='|'
    for part in $2; do
        grep -qF -e "$part" "$1" || { echo "\"$part\" is not in $1"; break; }
    done
    IFS=$old
}

# fails NAME CODE PARTS ARGUMENT...: the program must end with that code and an error that contains the parts.
# The error must be one line, or one line with an indented list.
fails() {
    name=$1 expected=$2 parts=$3
    shift 3
    call "$@"
    trouble=$(missing err "$parts")
    [ "$(grep -vc '^  ' err)" -eq 1 ] || trouble="not one line on standard error"
    grep -q '^ottava: ' err || trouble="the line does not begin with ottava:"
    [ $code -eq "$expected" ] || trouble="exit code $code instead of $expected"
    report "$name" "$trouble"
}

# works NAME PARTS ARGUMENT...: the program must end with 0 and print the parts, with no output on standard
# error.
works() {
    name=$1 parts=$2
    shift 2
    call "$@"
    trouble=$(missing out "$parts")
    [ -s err ] && trouble="standard error is not empty"
    [ $code -eq 0 ] || trouble="exit code $code"
    report "$name" "$trouble"
}

# holds NAME COMMAND...: the command must succeed.
holds() {
    name=$1
    shift
    trouble=
    "$@" >printed 2>&1 || trouble="$*"
    shown=printed report "$name" "$trouble"
}

# ranks_can_run: sets variables with which mpirun runs several ranks as root, in a container, and on fewer
# processors than ranks. Ends the script if mpirun is missing.
ranks_can_run() {
    if ! command -v mpirun >/dev/null; then
        echo "SKIPPED: mpirun (openmpi-bin) is missing: several ranks are not tested"
        exit 0
    fi
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        OMPI_MCA_btl_vader_single_copy_mechanism=none
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # MPI leaks memory
}

# ranks N ARGUMENT...: trains on N ranks. Writes the ranks' output to the file out, and sets $code to the exit
# code.
ranks() {
    count=$1
    shift
    timeout 120 mpirun -np "$count" --bind-to none "$program" train $small "$@" >out 2>&1
    code=$?
}

# strike SIGNAL ARGUMENT...: trains on two ranks for a long time and sends the signal to rank 1, most likely
# during a collective.
strike() {
    signal=$1
    shift
    rm -rf long out
    timeout 120 mpirun -np 2 --bind-to none "$program" train $small --run.dir=long --train.max_steps=100000 \
        --distributed.nccl_timeout_sec=2 --checkpoint.keep_last_n=1 "$@" >out 2>&1 &
    job=$!
    for wait in $(seq 300); do
        grep -qs 'Saved' out && break
        sleep 0.1
    done
    for process in $(pgrep -P "$(pgrep -P $job -x mpirun)"); do
        tr '\0' '\n' <"/proc/$process/environ" | grep -q '^OMPI_COMM_WORLD_RANK=1$' && kill -"$signal" \
            "$process"
    done
    wait $job
    code=$?
}

# `prints NAME PARTS`: the file out must contain the parts.
prints() {
    shown=out report "$1" "$(missing out "$2")"
}

finish() {
    exit $bad
}
