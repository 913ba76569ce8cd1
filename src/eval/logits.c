/* eval/logits: writes a safetensors file of logits while windows are evaluated. */
#include "eval/logits.h"
#include "base/file/file.h"
#include <stdio.h>

/* The order in which tensors are declared; the writer sorts them. */
enum { LOGITS, INPUT_IDS, LABELS, POSITION_IDS, TENSORS };

static const void *logits_at(const eval_batch *b, int64_t at) {
    return at == INPUT_IDS ? b->token : at == LABELS ? b->target : b->position;
}

/* Writes the tensors of token ids that precede or follow the tensor of logits in the file. */
static ott_status write_ids(eval_logits *l) {
    int64_t at;
    while ((at = safetensors_writer_next(l->writer)) > LOGITS)
        TRY(safetensors_writer_append(l->writer, logits_at(&l->tokens, at),
                                      l->tokens.tokens * (int64_t)sizeof(int32_t)));
    return OTT_OK;
}

static ott_status open_logits_writer(eval_logits *l) {
    const eval_job *j = l->job;
    const model *m = j->model->m;
    int64_t tokens = l->tokens.tokens;
    char window[24];
    snprintf(window, sizeof window, "%lld", (long long)j->result->window);
    const safetensors_tensor tensors[TENSORS] = {
        [LOGITS] = {"logits", m->activation, 2, {tokens, m->options.vocab}},
        [INPUT_IDS] = {"input_ids", OTT_I32, 1, {tokens}},
        [LABELS] = {"labels", OTT_I32, 1, {tokens}},
        [POSITION_IDS] = {"position_ids", OTT_I32, 1, {tokens}}};
    const safetensors_pair pairs[] = {{"model", j->model->path},
                                      {"data", j->options->data},
                                      {"recipe", j->model->inference.convert.recipe->name},
                                      {"window", window}};
    return safetensors_writer_open(j->account, j->options->logits, tensors, TENSORS, pairs,
                                   sizeof pairs / sizeof *pairs, &l->writer);
}

ott_status eval_logits_open(eval_job *j, eval_windows *w, eval_logits *out) {
    *out = (eval_logits){.job = j, .tokens = {.account = j->account}};
    if (!j->options->logits) return OTT_OK;
    /* Fails if the output file is the evaluated text, or is in the model's folder. */
    char folder[PATH_MAX];
    const char *path = j->options->logits, *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    if (file_is_same(folder, j->model->path))
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: is in the model's folder: write the logits to another folder", path);
    TRY(file_check_output(path, j->options->data));
    for (int64_t i = 0; i < out->job->result->total; i++) TRY(eval_windows_add(w, i, &out->tokens));
    TRY(eval_windows_rewind(w));
    TRY(open_logits_writer(out));
    return write_ids(out);
}

static ott_status write_rows(void *user, exec *cx, const char *module, const char *what, const tensor *t) {
    eval_logits *l = user;
    int64_t bytes = tensor_bytes(*t);
    if (!eval_is_logits(l->job->model, module, what)) return OTT_OK;
    STATUS_REQUIRE(t->ld == t->columns && safetensors_writer_next(l->writer) == LOGITS);
    if (bytes > l->bytes) TRY(mem_grow(l->job->account, MEM_DATA, bytes, "logits", &l->rows));
    l->bytes = bytes > l->bytes ? bytes : l->bytes;
    TRY(device_copy_out(cx->device, l->rows, t->data, bytes));
    return safetensors_writer_append(l->writer, l->rows, bytes);
}

const hook *eval_logits_hook(eval_logits *l, hook *storage) {
    *storage = (hook){.observe = write_rows, .user = l};
    return l->writer ? storage : NULL;
}

ott_status eval_logits_close(eval_logits *l, ott_status status) {
    if (!l->job) return status;
    const ott_eval_result *r = l->job->result;
    bool complete = status == OTT_OK && r->items == r->total;
    if (l->writer && complete) {
        status = write_ids(l);
        if (status == OTT_OK) {
            status = safetensors_writer_commit(l->writer);
            l->writer = NULL;
        }
    } else if (l->writer && status == OTT_OK)
        log_warning(l->job->log, "%s is not written: the evaluation was stopped before its end",
                    l->job->options->logits);
    safetensors_writer_abandon(l->writer);
    eval_batch_free(&l->tokens);
    mem_free(l->job->account, l->rows);
    return status;
}
