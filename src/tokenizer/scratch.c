/* tokenizer/scratch: the work memory of encoding, one per thread. */
#include "tokenizer/internal.h"

ott_status tokenizer_scratch_open(mem *account, const tokenizer *t, tokenizer_scratch **out) {
    tokenizer_scratch *s;
    *out = NULL;
    TRY(mem_alloc(account, MEM_SCRATCH, sizeof(tokenizer_scratch), "tokenizer scratch", &s));
    *s = (tokenizer_scratch){
        .account = account, .t = t, .normalized = {{.account = account}, {.account = account}}};
    ott_status status = regex_matcher_open(account, &s->matcher);
    if (status != OTT_OK) goto out;
    TRY_OUT(mem_alloc_array(account, MEM_SCRATCH, t->split_count, sizeof *s->split_text, "tokenizer scratch",
                            &s->split_text));
    for (int i = 0; i < t->split_count; i++) s->split_text[i].account = account;
    TRY_OUT(bpe_open(account, &s->work));
out:
    if (status != OTT_OK) return tokenizer_scratch_close(s), status;
    return *out = s, OTT_OK;
}

void tokenizer_scratch_set_cancellation(tokenizer_scratch *s, const cancellation *w) {
    s->cancellation = w;
}

void tokenizer_scratch_close(tokenizer_scratch *s) {
    if (!s) return;
    mem *account = s->account;
    for (int i = 0; s->split_text && i < s->t->split_count; i++) str_free(&s->split_text[i]);
    mem_free(account, s->split_text);
    for (int i = 0; i < 2; i++) str_free(&s->normalized[i]);
    mem_free(account, s->codepoints);
    mem_free(account, s->nodes);
    bpe_close(account, s->work);
    regex_matcher_close(&s->matcher);
    mem_free(account, s);
}
