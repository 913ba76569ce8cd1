#!/bin/sh
# Converts text to ids and back, and corpora to token files. Also tests the tokenizers of real models, if
# their files are available (OTTAVA_SHARED).
here=$(cd "$(dirname "$0")" && pwd)
. "$here/checks.sh"
shared=${OTTAVA_SHARED:-$here/../../../shared}/data

# Makes a tokenizer of characters that puts <s> and </s> around a text.
mkdir t
cat >t/tokenizer.json <<'END'
{"added_tokens": [
  {"id": 0, "content": "<unk>", "special": true, "single_word": false, "lstrip": false, "rstrip": false,
      "normalized": false},
  {"id": 1, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false,
      "normalized": false},
  {"id": 2, "content": "</s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false,
      "normalized": false}],
 "normalizer": null,
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
 "post_processor": {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
  "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
 "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
 "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false, "byte_fallback": false,
  "continuing_subword_prefix": null, "end_of_word_suffix": null,
  "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4, "c": 5, "Ġ": 6, "ab": 7, "Ċ": 8},
      "merges": ["a b"]}}
END
printf '{"bos_token": "<s>", "eos_token": "</s>"}' >t/tokenizer_config.json

# pipe NAME WANTED INPUT ARGUMENT...: with INPUT on standard input, standard output must equal WANTED byte for
# byte. Both are formats of printf.
pipe() {
    name=$1
    printf "$2" >expected
    printf "$3" >given
    shift 3
    "$program" tokenize --tokenizer t "$@" <given >out 2>err
    code=$?
    trouble=
    cmp -s expected out || trouble="the output differs"
    [ $code -eq 0 ] || trouble="exit code $code"
    report "$name" "$trouble"
}

pipe "lines of text are lines of ids" '1 7 5\n1 3 6 4\n' 'abc\na b\n'
pipe "the last line may have no line end" '1 3' 'a'
pipe "an empty line gets the special tokens" '1\n1\n' '\n\n'
pipe "empty input gives empty output" '' ''
pipe "--no-special omits the special tokens" '7 5\n\n3\n' 'abc\n\na\n' --no-special
pipe "special tokens in a text are recognized" '1 3 2 4\n' 'a</s>b\n'
pipe "a JSON string may have lines" '1 3 8 4\n' '"a\\nb"\n' --jsonl
pipe "ids are decoded to text" 'abc\na b\n' '1 7 5\n1 3 6 4\n' --decode
pipe "decoding removes only the first BOS" '<s>a</s>b\n' '1 1 3 2 4\n' --decode
pipe "--no-special --decode shows every token" '<s>a\n' '1 3\n' --decode --no-special
pipe "ids are decoded to JSON strings" '"a\\nb"\n""\n' '1 3 8 4\n1\n' --decode --jsonl
pipe "any number of spaces may separate ids" 'ab' '  3   4' --decode

# refuses NAME PARTS INPUT ARGUMENT...: with INPUT on standard input, the program must end with code 2 and
# an error that has the parts.
refuses() {
    name=$1 parts=$2
    printf "$3" >given
    shift 3
    "$program" tokenize --tokenizer t "$@" <given >out 2>err
    code=$?
    trouble=$(missing err "$parts")
    [ $code -eq 2 ] || trouble="exit code $code"
    report "$name" "$trouble"
}
refuses "an id that is not a number" 'line 2|"x"' '3\n3 x\n' --decode
refuses "an id beyond the vocabulary" 'line 1|9 is not a token id|below 9' '3 9\n' --decode
refuses "an id that overflows" 'line 1|99999999999999999999' '99999999999999999999\n' --decode
refuses "an id with a sign" 'line 1|"+1"' '+1\n' --decode
refuses "text that is not UTF-8" 'line 2|UTF-8' 'a\n\377\n'
refuses "a line that is not JSON" 'line 2|not JSON' '"a"\nb\n' --jsonl
refuses "JSON that is not a string" 'line 1|not a JSON string' '{"a": 1}\n' --jsonl


# If transformers puts no BOS before a text, neither does Ottava. Each document of a file ends with EOS.
mkdir n
sed '/"post_processor"/,/"special_tokens"/d' t/tokenizer.json >n/tokenizer.json
cp t/tokenizer_config.json n
printf 'abc\n' >given
holds "a line without BOS" \
    sh -c '[ "$("$0" tokenize --tokenizer n <given 2>err)" = "7 5" ] && ! [ -s err ]' "$program"
"$program" tokenize given --tokenizer n --out n.bin >out 2>err
holds "a file without BOS" sh -c '[ "$(od -An -v -tu4 -j1024 n.bin | tr -s " ")" = " 7 5 8 2" ]'
holds "the log names the added tokens" grep -q "each document ends with </s> (--no-special leaves them out)" \
    out
printf '{"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true}' >n/tokenizer_config.json
holds "add_bos_token adds BOS" sh -c '[ "$("$0" tokenize --tokenizer n <given 2>err)" = "1 7 5" ]' "$program"
holds "the log names BOS" grep -q "Each text begins with <s> (no_special leaves it out)" err

# Tests conversations: the text that the template makes, and which tokens are trained.
cat >t/chat_template.jinja <<'END'
{% for m in messages %}{{ m.role[0] if m.role != 'user' else
    'b' }}{{ m.content }}</s>{% endfor %}{{ strftime_now('') }}
END
printf '{"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]}\n' \
    >chat.jsonl
shown() {
    expected=$1
    shift
    [ "$("$program" tokenize --tokenizer t "$@" 2>err)" = "$expected" ]
}
holds "the text of a conversation" shown "bab</s>ac</s>" --chat chat.jsonl
holds "--mask marks the learned text" shown "bab</s>[[ac</s>]]" --chat --mask chat.jsonl
holds "a conversation as JSON" shown \
    '{"text": "bab</s>ac</s>", "ids": [4, 7, 2, 3, 5, 2], "learned": [0, 0, 0, 1, 1, 1]}' --chat --jsonl \
    chat.jsonl
refuses "a row that is not a conversation" 'line 2|has neither "messages"' \
    '{"instruction": "b", "output": "c"}\n{"text": "a"}\n' --chat
refuses "--mask without --chat" 'add --chat' 'a\n' --mask
refuses "a wrong date" '2026-02-30|data.chat_date' '{}\n' --chat --chat-date 2026-02-30

# Decoding prints text as ids arrive. It does not wait for the end of a line or of the input.
{
    printf '3 4 '
    tries=0
    until [ -s early ] || [ $tries -ge 200 ]; do sleep 0.05; tries=$((tries + 1)); done
    cp early seen
    printf '5\n'
} | "$program" tokenize --tokenizer t --decode >early 2>err
holds "text is printed as its ids arrive" sh -c '[ "$(cat seen)" = ab ] && [ "$(cat early)" = abc ]'
holds "tokenize ends if the reader of its output ends" \
    timeout 60 sh -c "yes a | '$program' tokenize --tokenizer t | head -c 5"

# ---- files ----
# ids FILE: prints the ids of a token file on one line.
ids() { od -An -v -tu4 -j1024 "$1" | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'; }
is() { [ "$1" = "$2" ]; }

printf 'abc\n\nab\n\na b' >corpus.txt
works "a text file" "tokens.bin: 12 tokens, 3 documents, 12 bytes of text" \
    tokenize corpus.txt --tokenizer t --out tokens.bin --separator "

"
holds "the token file has llm.c's header" is "$(od -An -tu4 -N12 tokens.bin | tr -s ' ')" " 20240801 7 12"
holds "each document between BOS and EOS" is "$(ids tokens.bin)" "1 7 5 2 1 7 2 1 3 6 4 2"
works "the log names BOS and EOS" \
    "each document begins with <s> and ends with </s> (--no-special leaves them out)" \
    tokenize corpus.txt --tokenizer t --out u.bin
works "without a separator the file is one document" "one.bin: 12 tokens, 1 documents" \
    tokenize corpus.txt --tokenizer t --out one.bin
works "without special tokens" "plain.bin: 6 tokens" \
    tokenize corpus.txt --tokenizer t --no-special --out plain.bin --separator "

"
holds "the token file has no special tokens" is "$(ids plain.bin)" "7 5 7 3 6 4"
printf '{"text": "abc"}\n\n{"text": ""}\n{"n": 1, "text": "a</s>"}\n' >rows.jsonl
sed 's/</c/; s/>/c/; s,/,b,; s/s/a/' rows.jsonl >plain.jsonl
works "rows of JSON Lines" "rows.bin: 11 tokens, 2 documents" \
    tokenize plain.jsonl --tokenizer t --out rows.bin
holds "the token file has the ids of the rows" is "$(ids rows.bin)" "1 7 5 2 1 3 5 4 3 5 2"
printf '{"body": "a", "text": 1}\n' >body.jsonl
works "another field" "body.bin: 3 tokens" tokenize body.jsonl --tokenizer t --text-field body --out body.bin
holds "no temporary file is left" sh -c '! ls | grep -q part'

works "the help" "--decode|--separator|exact text" tokenize --help
fails "no tokenizer" 2 "--tokenizer is missing" tokenize
fails "no output" 2 "--out is missing" tokenize corpus.txt --tokenizer t
fails "no input" 2 "--out needs a file" tokenize --tokenizer t --out x.bin
fails "a file and --decode" 2 "standard input" tokenize corpus.txt --tokenizer t --out x.bin --decode
fails "a missing tokenizer" 2 "absent" tokenize corpus.txt --tokenizer absent --out x.bin
fails "a missing file" 2 "absent.txt" tokenize absent.txt --tokenizer t --out x.bin
fails "a missing field" 2 'plain.jsonl:1|no field "body"' \
    tokenize plain.jsonl --tokenizer t --out x.bin --text-field body
printf '{"text": "a"}\n{"text": 3}\n' >number.jsonl
fails "a field that is not a text" 2 "number.jsonl:2|text is a whole number, not a text" \
    tokenize number.jsonl --tokenizer t --out x.bin
printf '{"text": "a"}\n\n{"text": \n' >broken.jsonl
fails "a broken row" 2 "broken.jsonl:3|not JSON" tokenize broken.jsonl --tokenizer t --out x.bin
printf 'ab\n\na\377' >latin.txt
fails "a document that is not UTF-8" 2 "latin.txt: document 2|UTF-8" \
    tokenize latin.txt --tokenizer t --out x.bin --separator "

"
fails "an output in a missing folder" 2 "nowhere/x.bin" tokenize corpus.txt --tokenizer t --out nowhere/x.bin
fails "a folder as output" 2 "is a folder" tokenize corpus.txt --tokenizer t --out t
: >empty.txt
fails "an empty file" 2 "empty.txt|empty" tokenize empty.txt --tokenizer t --out x.bin
holds "no refused call writes its output" sh -c '! ls | grep -q "^x.bin"'

# ---- killed during tokenizing ----
yes 'abc abc' | head -c 100000000 >long.txt
"$program" tokenize long.txt --tokenizer t --out long.bin --threads 1 --separator "
" >out 2>err &
process=$!
tries=0
until ls long.bin.ottava-tmp-* >/dev/null 2>&1 || [ $tries -ge 200 ]; do sleep 0.02; tries=$((tries + 1)); \
    done
kill -s KILL $process
wait $process
holds "a killed process leaves a temporary file" sh -c 'ls long.bin.ottava-tmp-* && [ ! -e long.bin ]'
works "tokenize after a killed process" "long.bin: 12 tokens" tokenize corpus.txt --tokenizer t --out long.bin
holds "the temporary file is removed" sh -c '[ "$(ls | grep "^long.bin")" = long.bin ]'
rm long.txt

# ---- training on conversations ----
mkdir c
tokenizer c
cat >c/chat_template.jinja <<'END'
{% if strftime_now('%d') == '03' %}the third{% endif %}{% for m in messages %}<s>{{ m.content }}{% endfor %}
END
printf '{"messages": [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]}\n' \
    >chat.jsonl
chat="$small --data.dataset_path=chat.jsonl --data.tokenizer_path=c --model.vocab_size=258 \
--train.batch_size=1"
# tokens NAME COUNT ARGUMENT...: a run must log that the conversation has this number of tokens.
tokens() {
    name=$1 count=$2
    shift 2
    "$program" train $chat "$@" >out 2>err
    holds "$name" grep -q "Training data: chat.jsonl, $count tokens" out
}
tokens "data.chat_date sets the date of a run" 14 --run.dir=third --train.max_steps=2 \
    --data.chat_date=2026-11-03
tokens "a resumed run has the date of its start" 14 --run.dir=third --checkpoint.load_path=latest
holds "the date causes no warning about changed data" sh -c '! grep -q "Changed on resume: data" out'
fails "an undefined date is refused" 2 '"strftime_now" is not supported' \
    train $chat --run.dir=dateless --data.chat_date=undefined
"$program" train $chat --run.dir=today --train.max_steps=2 >out 2>err
holds "the default date is the day of the start" grep -q \
    "^chat_date = \"20[0-9][0-9]-[01][0-9]-[0-3][0-9]\"" today/config.toml
fails "a wrong date" 2 "2026-13-01|data.chat_date" train $chat --run.dir=wrong --data.chat_date=2026-13-01

# Rendering these rows would take 10 minutes. SIGTERM ends the run before step 1.
echo '{% for i in range(400) %}{% for k in range(400) %}{% endfor %}{% endfor %}{% for m in messages '\
'%}<s>{{ m.content }}{% endfor %}' >c/chat_template.jinja
yes "$(cat chat.jsonl)" | head -20000 >slow.jsonl
"$program" train $chat --data.dataset_path=slow.jsonl --run.dir=slow >out 2>err &
process=$!
(sleep 30; kill -s KILL $process) 2>/dev/null &
guard=$!
sleep 0.5
kill -s TERM $process
wait $process
holds "SIGTERM ends a run while its data is rendered" is $? 143
kill $guard

# ---- files of other formats ----
golden=$here/../golden/sentencepiece
mkdir sentence
cp "$golden/llama.model" sentence/tokenizer.model
printf 'In the beginning\n' >line
"$program" tokenize --tokenizer sentence --no-special <line >out 2>err
"$program" tokenize --tokenizer sentence --decode <out >back 2>err
holds "a SentencePiece model decodes its ids to the text" cmp back line
printf '{"text": "In the beginning"}\n{"text": "Let there be light"}\n' >rows.jsonl
"$program" tokenize rows.jsonl --tokenizer sentence --out plain.bin >out 2>err
gzip -k rows.jsonl
"$program" tokenize rows.jsonl.gz --tokenizer sentence --out packed.bin >out 2>err
holds "a gzip file gives the plain file's tokens" cmp plain.bin packed.bin
head -c 30 rows.jsonl.gz >part.jsonl.gz
fails "an incomplete gzip file" 2 "part.jsonl.gz: the gzip data is damaged at byte 30: the file is incom" \
    tokenize part.jsonl.gz --tokenizer sentence --out part.bin

# ---- the tokenizers of real models ----
for model in llama-3.1 mistral-7b-v0.1 mistral-nemo-2407 phi-4 qwen2.5; do
    if [ ! -e "$shared/tokenizers/$model/tokenizer.json" ]; then
        echo "SKIPPED the ids of $model: $shared/tokenizers does not have the tokenizer (set OTTAVA_SHARED)"
        continue
    fi
    "$program" tokenize --tokenizer "$shared/tokenizers/$model" --jsonl --no-special \
        <"$shared/vectors/strings.jsonl" >out 2>err
    holds "the ids of $model equal Hugging Face's" cmp out "$shared/vectors/ids_$model.txt"
    "$program" tokenize --tokenizer "$shared/tokenizers/$model" <"$shared/text/tinyshakespeare.txt" 2>err |
        "$program" tokenize --tokenizer "$shared/tokenizers/$model" --decode >back 2>err
    holds "$model decodes a text to itself" cmp back "$shared/text/tinyshakespeare.txt"
    for threads in 1 3; do
        "$program" tokenize "$shared/text/tinyshakespeare.txt" --tokenizer "$shared/tokenizers/$model" \
            --out "$threads.bin" --threads $threads --separator "

" >out 2>err
    done
    holds "the number of threads does not change the ids of $model" cmp 1.bin 3.bin
done
finish
