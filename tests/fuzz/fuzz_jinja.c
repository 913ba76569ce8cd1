/* Chat templates (tokenizer/jinja). Input: a template, which renders one conversation. */
#include "fuzz.h"
#include "tokenizer/jinja/jinja.h"

static const char conversation[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": "
                                   "\"user\", \"content\": \"\\u00fc x\"}, {\"role\": "
                                   "\"assistant\", \"content\": \"a <think>b</think>\", \"tool_calls\": "
                                   "[{\"function\": {\"name\": \"f\", \"arguments\": "
                                   "{\"k\": [1, 2.5, null]}}}]}], \"add_generation_prompt\": true, "
                                   "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"tools\": "
                                   "null}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    jinja *t;
    str out = {.account = account};
    jinja_spans spans = {.account = account};
    json_t *context = json_loads(conversation, 0, NULL);
    FUZZ_REQUIRE(context);
    if (jinja_open(account, (const char *)data, (int64_t)bytes, &t) == OTT_OK) {
        if (jinja_render(t, context, &(jinja_settings){0}, &out, &spans) == OTT_OK) {
            FUZZ_REQUIRE(str_utf8_error(out.text, out.length) < 0);
            for (int64_t i = 0; i < spans.count; i++)
                FUZZ_REQUIRE(spans.items[i].begin <= spans.items[i].end && spans.items[i].end <= out.length);
        }
        jinja_close(t);
    }
    json_decref(context);
    jinja_spans_free(&spans);
    str_free(&out);
    mem_close(account);
    return 0;
}
