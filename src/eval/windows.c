/* eval/windows: divides a file into windows of tokens. The last window may be shorter. */
#include "data/ends.h"
#include "eval/eval.h"
#include "base/file/file.h"
#include <inttypes.h>

static ott_status open_data(eval_windows *w, const ott_eval_options *o) {
    static const char *const rows[] = {".jsonl", ".json", ".ndjson", NULL};
    static const char *const tokens[] = {".bin", ".npy", NULL};
    const eval_model *e = w->model;
    const config *cfg = e->cfg;
    const tokenizer *t = e->tokenizer;
    const bool trained = config_was_set(cfg, "data.add_bos"); /* false: BOS is added as in transformers */
    const dataset_source s = {.paths = &o->data,
                              .count = 1,
                              .to_share = 1,
                              .tokenizer = e->tokenizer,
                              .add_bos = trained ? cfg->data.add_bos : t && tokenizer_adds_bos(t),
                              .add_eos = trained ? cfg->data.add_eos : t && tokenizer_adds_eos(t),
                              .separator = cfg->data.document_separator,
                              .text_field = o->text_field,
                              .prompt_field = "",
                              .completion_field = "",
                              .vocab = e->m->options.vocab};
    TRY(file_refuse_gguf(o->data));
    if (str_ends_with_any(o->data, tokens)) return dataset_open_tokens(w->account, &s, &w->data);
    TRY(eval_check_text(e));
    if (t)
        ends_log(e->log, t, "document", s.add_bos ? tokenizer_bos(t) : -1, s.add_eos ? tokenizer_eos(t) : -1,
                 trained ? "as the model was trained" : "as the tokenizer does in transformers");
    if (str_ends_with_any(o->data, rows)) return dataset_open_rows(w->account, &s, ROWS_OTHER, &w->data);
    return e->tokenizer ? dataset_open_text(w->account, &s, &w->data)
                        : dataset_open_bytes(w->account, &s, &w->data);
}

static ott_status check_window_data(const eval_windows *w) {
    int64_t vocab = w->model->m->options.vocab;
    if (dataset_tokens(w->data) < 2)
        return status_fail(OTT_ERR_FORMAT, "%s: has %" PRId64 " tokens; at least 2 are needed",
                           dataset_name(w->data), dataset_tokens(w->data));
    if (dataset_vocab(w->data) <= vocab) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT,
                       "%s: its token ids go up to %" PRId64 ", and %s has a vocabulary of %" PRId64,
                       dataset_name(w->data), dataset_vocab(w->data) - 1, w->model->path, vocab);
}

static ott_status set_row_length(eval_windows *w, int64_t length) {
    return dataset_make_rows(w->data, &(dataset_row_options){.length = length, .pack = w->pack});
}

ott_status eval_windows_open(mem *account, const eval_model *e, const ott_eval_options *o,
                             eval_windows *out) {
    *out = (eval_windows){.account = account, .model = e, .pack = e->cfg->data.pack_sequences};
    TRY(open_data(out, o));
    TRY(check_window_data(out));
    int64_t targets = dataset_tokens(out->data) - 1;
    out->length = e->window < targets ? e->window : targets;
    TRY(set_row_length(out, out->length));
    out->full = dataset_rows(out->data);
    out->count = out->full + (out->full * out->length < targets);
    int32_t *all;
    int64_t length = out->length;
    TRY(mem_alloc_array(out->account, MEM_DATA, 4 * length + 1, sizeof(int32_t), "window", &all));
    out->row = (dataset_row){
        .token = all, .target = all + length, .position = all + 2 * length, .start = all + 3 * length};
    return OTT_OK;
}

void eval_windows_close(eval_windows *w) {
    dataset_close(w->data);
    mem_free(w->account, w->row.token);
    w->data = NULL;
    w->row.token = NULL;
}

ott_status eval_windows_rewind(eval_windows *w) {
    return set_row_length(w, w->length);
}

ott_status eval_windows_note(eval_windows *w, eval_job *j, int64_t together) {
    ott_eval_result *r = j->result;
    int64_t limit = j->options->limit;
    const tokenizer *t = w->model->tokenizer;
    eval_batch first = {.account = w->account};
    r->total = limit > 0 && limit < w->count ? limit : w->count;
    r->window = w->length;
    r->batch = together;
    ott_status status = eval_windows_add(w, 0, &first);
    r->bos = status == OTT_OK && t && tokenizer_bos(t) >= 0 && first.token[0] == tokenizer_bos(t);
    eval_batch_free(&first);
    return status == OTT_OK ? eval_windows_rewind(w) : status;
}

/* Adds the tokens after the last full window. They are read as rows of one token each. */
static ott_status add_rest(eval_windows *w, eval_batch *b) {
    int64_t first = w->full * w->length, length = dataset_tokens(w->data) - 1 - first;
    dataset_row *row = &w->row;
    int32_t position[1], start[1];
    TRY(set_row_length(w, 1));
    row->documents = 0;
    for (int64_t i = 0, begin = 0; i < length; i++) {
        dataset_row one = {
            .token = row->token + i, .target = row->target + i, .position = position, .start = start};
        TRY(dataset_read_row(w->data, first + i, &one));
        if (begin == i) row->start[row->documents++] = (int32_t)i;
        row->position[i] = (int32_t)(i - begin);
        if (row->target[i] < 0) begin = i + 1; /* this token is the last of a document */
    }
    return eval_batch_add_row(b, row, length);
}

ott_status eval_windows_add(eval_windows *w, int64_t index, eval_batch *b) {
    if (index == w->full) return add_rest(w, b);
    TRY(dataset_read_row(w->data, index, &w->row));
    return eval_batch_add_row(b, &w->row, w->length);
}
