// gguf_check: runs a GGUF file in llama.cpp, for tools/check_gguf.sh. Prints, for the text on standard input:
//   gguf_check FILE tokens < TEXT        its token ids, with BOS and EOS as the file requires
//   gguf_check FILE text COUNT < TEXT    its greedy continuation, COUNT tokens at most
//   gguf_check FILE loss < TEXT          the mean loss of all tokens except the first
#include "llama.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <iostream>
#include <string>
#include <vector>

static void fail(const char *what) {
    fprintf(stderr, "gguf_check: %s\n", what);
    exit(1);
}

static void log_errors(enum ggml_log_level level, const char *text, void *) {
    if (level >= GGML_LOG_LEVEL_WARN) fputs(text, stderr);
}

static std::vector<llama_token> tokens_of(const llama_vocab *vocab, const std::string &text) {
    std::vector<llama_token> ids(text.size() + 16);
    int count = llama_tokenize(vocab, text.data(), (int)text.size(), ids.data(), (int)ids.size(), true, true);
    if (count < 0) fail("the text has no tokens");
    ids.resize(count);
    return ids;
}

static llama_token best(const float *logits, int count) {
    return (llama_token)(std::max_element(logits, logits + count) - logits);
}

static llama_context *open_context(llama_model *model, size_t positions) {
    llama_context_params p = llama_context_default_params();
    p.n_ctx = p.n_batch = p.n_ubatch = (uint32_t)positions;
    p.n_threads = p.n_threads_batch = 1;
    p.type_k = p.type_v = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *context = llama_init_from_model(model, p);
    if (!context) fail("no context");
    return context;
}

static double loss_of(llama_model *model, const std::vector<llama_token> &ids) {
    llama_context *context = open_context(model, ids.size());
    int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    double sum = 0;
    for (size_t i = 0; i + 1 < ids.size(); i++) {
        llama_token id = ids[i];
        if (llama_decode(context, llama_batch_get_one(&id, 1)) != 0) fail("cannot decode");
        const float *logits = llama_get_logits_ith(context, -1);
        double most = *std::max_element(logits, logits + vocab), total = 0;
        for (int k = 0; k < vocab; k++) total += exp(logits[k] - most);
        sum += most + log(total) - logits[ids[i + 1]];
    }
    llama_free(context);
    return sum / (double)(ids.size() - 1);
}

static std::vector<llama_token> follow(llama_model *model, std::vector<llama_token> ids, int count) {
    const llama_vocab *vocab = llama_model_get_vocab(model);
    llama_context *context = open_context(model, ids.size() + count);
    std::vector<llama_token> out;
    while ((int)out.size() < count) {
        if (llama_decode(context, llama_batch_get_one(ids.data(), (int)ids.size())) != 0)
            fail("cannot decode");
        llama_token next = best(llama_get_logits_ith(context, -1), llama_vocab_n_tokens(vocab));
        out.push_back(next);
        ids = {next};
    }
    llama_free(context);
    return out;
}

int main(int argc, char **argv) {
    if (argc < 3) fail("FILE tokens | text COUNT | loss");
    llama_log_set(log_errors, nullptr);
    llama_model_params p = llama_model_default_params();
    p.n_gpu_layers = 0;
    llama_model *model = llama_model_load_from_file(argv[1], p);
    if (!model) fail("the file does not load");
    const llama_vocab *vocab = llama_model_get_vocab(model);
    auto ids = tokens_of(vocab, std::string(std::istreambuf_iterator<char>(std::cin), {}));
    if (!strcmp(argv[2], "loss")) {
        printf("%.6f\n", loss_of(model, ids));
        llama_model_free(model);
        return 0;
    }
    if (!strcmp(argv[2], "text")) ids = follow(model, ids, argc > 3 ? atoi(argv[3]) : 1);
    for (llama_token id : ids) {
        char piece[256];
        if (strcmp(argv[2], "text"))
            printf("%d ", id);
        else
            fwrite(piece, 1, std::max(0, llama_token_to_piece(vocab, id, piece, sizeof piece, 0, true)),
                   stdout);
    }
    printf("\n");
    llama_model_free(model);
}
