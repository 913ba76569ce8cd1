#define _GNU_SOURCE /* declares nftw */
/* Tests files of other tools. All their keys are known, also keys of old versions. All errors of a file are
   reported together, by kind. A key is no error if its value disables it, or if another key replaces it. */
#include "config/case.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- refused keys and their messages ---- */

static void test_all_at_once(void **state) {
    config_case *c = *state;
    static const char text[] = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
                               "[training]\ndataset = \"c4\"\nseq_lenn = 7\nbatch_size = \"x\"\n"
                               "[parallelism]\nexpert_parallel_degree = 4\n"
                               "[encoder]\nt5_encoder = \"t5\"\nclip_encoder = \"clip\"\n";
    case_bad_lines(c, ".toml", text, 4, "4 errors keep ",
                   ":6: unknown key training.seq_lenn; did you mean training.seq_len?",
                   ":7: training.batch_size = \"x\" must be an integer",
                   ":11: encoder.t5_encoder = \"t5\" (also encoder.clip_encoder): diffusion models are not "
                   "supported yet",
                   ":5: training.dataset = \"c4\": named datasets", NULL);
}

static void test_by_what_is_asked(void **state) {
    config_case *c = *state;
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"peft:\n  _target_: a.PeftConfig\n  moe_rank_scaling: true\n", "mixtures of experts"},
        {"quantization:\n  load_in_4bit: true\n  load_in_8bit: false\n", "QLoRA"},
        {"qat:\n  enabled: true\n  qat_config:\n    groupsize: 32\n", "quantization-aware training"},
        {"skypilot:\n  cloud: kubernetes\n  hf_token: ${NO_SUCH_VARIABLE}\n", "job launcher"},
        {"recipe: TrainFinetuneRecipeForVLM\n", "vision-language models"},
        {"recipe: a.b.KnowledgeDistillationRecipeForNextTokenPrediction\n", "knowledge distillation"},
        {"recipe:\n  _target_: a.TrainBiEncoderRecipe\n", "retrieval"},
        {"model:\n  _target_: n.NeMoAutoModelForImageTextToText.from_pretrained\n", "vision-language models"},
        {"model:\n  pretrained_model_name_or_path: openai/gpt-oss-20b\n", "mixtures of experts"},
        {"model:\n  pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B\n", "mixtures of experts"},
        {"model:\n  pretrained_model_name_or_path: google/gemma-2b-it\n", "Gemma"},
        {"model:\n  num_nextn_predict_layers: 1\n", "multi-token prediction"},
        {"dataset:\n  _target_: a.llm.xlam.make_xlam_dataset\n", "tool calls"},
        {"optimizer:\n  _target_: dion.Dion2\n", "Dion"},
        {"loss_fn:\n  _target_: a.KDLoss\n", "knowledge distillation"},
        {"vlm:\n  arch: joint_decoder\n", "vision-language models"},
        {"training:\n  img_size: 256\n", "diffusion"},
        {"fp8:\n  enabled: true\n  recipe_name: nvfp4\n", "4-bit formats"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        case_bad(c, ".yaml", rows[i].text, rows[i].wanted, NULL);
}

/* An unknown key's error suggests a similar key. It suggests nothing for keys of other tools. */
static void test_guesses(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", "[training]\nwidth_of_it = 5\n",
             "unknown key training.width_of_it; the keys of [training] are dataset, dataset_path, ", NULL);
    case_bad(c, ".toml", "[training]\nglobal_batchsize = 5\n", "did you mean training.global_batch_size?",
             NULL);
    case_bad(c, ".toml", "[quartz]\nx = 5\n", "unknown section [quartz]; the sections are run, model", NULL);
    case_bad(c, ".toml", "[wandbb]\nx = 5\n", "unknown section [wandbb]; did you mean [wandb]?", NULL);
}

static void test_switched_off(void **state) {
    config_case *c = *state;
    static const char text[] =
        "qat:\n  enabled: false\n  fake_quant_after_n_steps: 7\n"
        "fault_tolerance:\n  enable: no\n  semi_sync_method: diloco\n"
        "validation:\n  enable: off\n  dataset: c4_validation\n  denoising_steps: 50\n"
        "checkpoint:\n  enabled: false\n  export_dtype: float16\n"
        "fp8:\n  enabled: false\n  recipe_name: some_day\n"
        "peft: null\nquantization:\nlongalign: False\nstep_scheduler:\n  max_steps: 3\n";
    config *cfg = case_good(c, ".yaml", text, NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_BF16);
    assert_int_equal(cfg->train.max_steps, 3);
    config_close(cfg);
    case_bad(c, ".yaml", "fp8:\n  enabled: true\n  recipe_name: some_day\n", "some_day is not one of", NULL);
    case_bad(c, ".yaml", "qat:\n  enabled: true\n", "quantization-aware", NULL);
}

/* ---- errors that an option fixes ---- */

static void test_overridden(void **state) {
    config_case *c = *state;
    config *cfg =
        case_good(c, ".toml",
                  "[training]\nseq_len = \"many\"\nsteps = -5\n[model]\nname = \"deepseek_v3\"\nflavor = "
                  "\"671B\"\n[optimizer]\nname = \"Dion\"\n[fault_tolerance]\nenable = true\n",
                  "--train.seq_len=64", "--training.steps=7", "--model.name=llama3", "--model.preset=debug",
                  "--optimizer.name=adamw", "--fault_tolerance.enable=false", NULL);
    assert_int_equal(cfg->train.seq_len, 64);
    assert_int_equal(cfg->train.max_steps, 7);
    config_close(cfg);
    cfg = case_good(c, ".yaml", "peft:\n  dim: 8\nseed: 3\nrng:\n  seed: 5\n", "--peft=none", NULL);
    assert_int_equal(cfg->train.seed, 5); /* rng.seed, which is AutoModel's, has priority over seed */
    assert_false(cfg->peft.enabled);
    config_close(cfg);
}

static void test_local_files(void **state) {
    config_case *c = *state;
    static const char text[] =
        "[data]\nhf_dataset_name = \"wikitext\"\n[eval]\nenabled = true\nhf_dataset_name = "
        "\"wikitext\"\n";
    config *cfg = case_good(c, ".toml", text, "--data.dataset_path=a.txt", "--eval.dataset_path=b.txt", NULL);
    assert_string_equal(cfg->data.dataset_path, "a.txt");
    config_close(cfg);
    case_bad_lines(c, ".toml", text, 2,
                   "data.hf_dataset_name = \"wikitext\": datasets of the Hugging Face hub",
                   "eval.hf_dataset_name", NULL);
}

/* ---- models ---- */

static void test_flavors(void **state) {
    config_case *c = *state;
    config *cfg =
        case_good(c, ".toml", "[model]\nflavor = \"32B\"\nname = \"qwen3\"\n[training]\nsteps = 3\n", NULL);
    assert_int_equal(cfg->model.preset, PRESET_QWEN3_32B);
    config_close(cfg);
    cfg = case_good(c, ".toml", "[model]\nname = \"qwen3\"\nflavor = \"32B\"\n[training]\nsteps = 3\n",
                    "--model.flavor=debugmodel", NULL);
    assert_int_equal(cfg->model.preset, PRESET_QWEN3_DEBUG);
    config_close(cfg);
    cfg = case_good(c, ".toml", "[model]\nname = \"llama3\"\nflavor = \"8B_flex\"\n[training]\nsteps = 3\n",
                    NULL);
    assert_int_equal(cfg->model.preset, PRESET_8B);
    assert_true(cfg->data.pack_sequences); /* torchtitan's attention is within each document */
    config_close(cfg);
    case_bad(c, ".toml", "[model]\nname = \"llama3\"\nflavor = \"32B\"\n",
             "model.flavor = \"32B\" is not a known flavor of llama3; known: debug, demo, 10M", NULL);
    case_bad(c, ".toml", "[model]\nname = \"qwen3\"\nflavor = \"9B\"\n",
             "is not a known flavor of qwen3; known: debug, 0.6B, 1.7B, 4B, 8B, 14B, 32B", NULL);
    case_bad(c, ".toml", "[model]\nname = \"qwen3\"\nflavor = \"30B-A3B\"\n", "mixtures of experts", NULL);
    case_bad(c, ".toml", "[model]\nname = \"llama4\"\nflavor = \"17bx16e\"\n",
             "(also model.flavor): mixtures of experts are not supported yet", NULL);
    case_bad(c, ".toml", "[model]\nname = \"flux\"\nflavor = \"flux-dev\"\n",
             "model.name = \"flux\": diffusion", NULL);
    case_bad(c, ".toml", "[model]\nname = \"zebra\"\n", "is not supported; supported: llama3 and qwen3",
             NULL);
}

/* AutoModel's from_config takes only config.json from the folder: the model starts with random weights. */
static void test_model_target(void **state) {
    config_case *c = *state;
    config *cfg = case_good(
        c, ".yaml",
        "model:\n  _target_: n.NeMoAutoModelForCausalLM.from_config\n  config:\n    _target_: "
        "transformers.AutoConfig.from_pretrained\n    pretrained_model_name_or_path: " TEST_SOURCE_DIR "\n",
        NULL);
    assert_string_equal(cfg->model.hf_path, TEST_SOURCE_DIR);
    assert_int_equal(cfg->model.reduce, 1);
    config_close(cfg);
    cfg = case_good(
        c, ".yaml",
        "model:\n  _target_: n.NeMoAutoModelForCausalLM.from_config\n  config:\n    _target_: "
        "transformers.LlamaConfig\n    hidden_size: 64\n    num_hidden_layers: 2\n    num_attention_heads: "
        "4\n    use_cache: false\n",
        NULL);
    assert_int_equal(cfg->model.dim, 64);
    assert_int_equal(cfg->model.n_layers, 2);
    config_close(cfg);
    cfg = case_good(c, ".yaml",
                    "model:\n  _target_: a.gpt2.build_gpt2_model\n  n_embd: 48\n  n_positions: 64\n", NULL);
    assert_int_equal(cfg->model.family, MODEL_FAMILY_GPT2);
    assert_int_equal(cfg->model.dim, 48);
    assert_int_equal(cfg->model.max_seq_len, 64);
    config_close(cfg);
}

/* ---- spellings of values ---- */

static void test_recipe_names(void **state) {
    config_case *c = *state;
    static const struct {
        const char *word;
        config_recipe recipe;
    } rows[] = {{"DelayedScaling", RECIPE_DELAYED},   {"Float8CurrentScaling", RECIPE_CURRENT},
                {"Float8BlockScaling", RECIPE_BLOCK}, {"MXFP8BlockScaling", RECIPE_MXFP8},
                {"blockwise", RECIPE_BLOCK},          {"TENSORWISE", RECIPE_TENSORWISE},
                {"mxfp8_cublas", RECIPE_MXFP8}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "[train]\nmixed_precision = \"float8\"\n[float8]\nrecipe_name = \"%s\"\n",
                 rows[i].word);
        config *cfg = case_good(c, ".toml", text, NULL);
        assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
        assert_int_equal(cfg->float8.recipe_name, rows[i].recipe);
        config_close(cfg);
    }
    case_bad(c, ".toml", "[float8]\nrecipe_name = \"HYBRID\"\n", "is not a recipe", "fp8_format = \"hybrid\"",
             NULL);
    case_bad(c, ".toml", "[float8]\nrecipe_name = \"float8\"\n", "is not a recipe", "\"tensorwise\"", NULL);
    config *cfg = case_good(
        c, ".toml",
        "[train]\nmixed_precision = \"fp8\"\n[float8]\nrecipe_name = \"DelayedScaling\"\nfp8_format "
        "= \"HYBRID\"\n",
        NULL);
    assert_int_equal(cfg->float8.fp8_format, FP8_FORMAT_HYBRID);
    config_close(cfg);
}

/* By default, log lines look like the log of the tool that the configuration file was written for. */
static void test_log_style(void **state) {
    config_case *c = *state;
    static const struct {
        const char *extension, *text;
        config_log_style style;
    } rows[] = {
        {".toml", "[training]\nsteps = 3\n", LOG_STYLE_TITAN},
        {".yaml", "step_scheduler:\n  max_steps: 3\n", LOG_STYLE_AUTOMODEL},
        {".toml", "[train]\nmax_steps = 3\n[distributed]\ndp_shard = -1\n", LOG_STYLE_KEMPNER},
        {".toml", "[train]\nmax_steps = 3\n[model]\npreset = \"debug\"\n", LOG_STYLE_TITAN},
        {".toml", "[training]\nsteps = 3\n[metrics]\nlog_style = \"kempner\"\n", LOG_STYLE_KEMPNER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        config *cfg = case_good(c, rows[i].extension, rows[i].text, NULL);
        assert_int_equal(cfg->metrics.log_style, rows[i].style);
        config_close(cfg);
    }
}

/* Reads integers and booleans as PyYAML does, and converts texts as AutoModel does. */
static void test_yaml_numbers(void **state) {
    config_case *c = *state;
    static const struct {
        const char *text;
        int64_t value;
    } rows[] = {{"010", 8},   {"0o10", 8},     {"0x1f", 31}, {"0b101", 5},  {"1_000", 1000},
                {"1:30", 90}, {"1e5", 100000}, {"+12", 12},  {"0x_1F", 31}, {"\"7\"", -1}};
    char text[128];
    for (size_t i = 0; rows[i].value > 0; i++) {
        snprintf(text, sizeof text, "train:\n  seq_len: %s\n", rows[i].text);
        config *cfg = case_good(c, ".yaml", text, NULL);
        assert_int_equal(cfg->train.seq_len, rows[i].value);
        config_close(cfg);
    }
    case_bad(c, ".yaml", "train:\n  seq_len: 08\n", "must be an integer (in YAML a leading 0 means octal)",
             NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: 0x1g\n", "must be an integer", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: 1.5e1x\n", "must be an integer", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: 0777777777777777777777777\n", "must be an integer", NULL);
    config *cfg =
        case_good(c, ".yaml", "optimizer:\n  eps: 1e-5\n  lr: 010\ntrain:\n  compile_model: Off\n", NULL);
    assert_true(cfg->optimizer.eps == 1e-5 && cfg->optimizer.lr == 8.0 && !cfg->train.compile_model);
    config_close(cfg);
    cfg =
        case_good(c, ".yaml",
                  "distributed:\n  activation_checkpointing: yes\nfloat8:\n  fast_accum_output: on\n", NULL);
    assert_int_equal(cfg->train.activation_checkpointing, CHECKPOINTING_FULL);
    assert_int_equal(cfg->float8.fast_accum_output, FAST_ACCUM_TRUE);
    config_close(cfg);
    /* PyYAML would take the last of two equal keys; here they must have the same value */
    cfg = case_good(c, ".yaml", "train:\n  seq_len: 8\nrng: {seed: 1}\nrng: {seed: 1}\n", NULL);
    config_close(cfg);
    case_bad(c, ".yaml", "rng: {seed: 1}\nrng: {seed: 2}\n", ":2: rng is given twice, first in line 1", NULL);
    case_bad(c, ".yaml", "rng:\n  seed: ${NO_SUCH_VARIABLE}\n", "NO_SUCH_VARIABLE is not set", NULL);
}

/* A pipeline schedule that is not supported is an error only if the run has pipeline stages. */
static void test_pipeline_schedules(void **state) {
    config_case *c = *state;
    static const char zero_bubble[] = "[parallelism]\npipeline_parallel_schedule = \"ZBVZeroBubble\"\n";
    char with[160];
    config *cfg = case_good(c, ".toml", zero_bubble, NULL);
    config_close(cfg);
    snprintf(with, sizeof with, "%spipeline_parallel_degree = 2\n", zero_bubble);
    case_bad(c, ".toml", with, "schedules that split backward", NULL);
}

/* One log line lists all keys that have no effect. */
static void test_inert(void **state) {
    config_case *c = *state;
    config *cfg = case_good(
        c, ".yaml",
        "step_scheduler:\n  max_steps: 3\nci:\n  time: a\n  nodes: 2\ndistributed:\n  pipeline:\n    "
        "pp_microbatch_size: 1\nautopipeline:\n  a: 1\n  pp_schedule: gpipe\n_note: x\n",
        NULL);
    assert_non_null(strstr(c->log,
                           "these keys have no effect: ci.* (AutoModel's own tests); distributed.pipeline.*, "
                           "autopipeline.* (layers are divided evenly among the stages, and "
                           "train.grad_accum_steps sets the micro-batches); _* (names"));
    assert_int_equal(cfg->distributed.pp_schedule, PP_GPIPE);
    config_close(cfg);
}

/* ---- the three projects' own files and keys, if available ---- */

static const char *shared_path(char out[1024], const char *name) {
    const char *shared = getenv("OTTAVA_SHARED");
    snprintf(out, 1024, "%s/data/%s", shared ? shared : TEST_SOURCE_DIR "/../shared", name);
    return out;
}

static bool is_answered_badly(const char *message) {
    static const char *const bad[] = {"unknown ", "did you mean", " sets the same key as ", "is not one of",
                                      "given twice"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (strstr(message, bad[i])) return true;
    return false;
}

/* Writes key "a.b.c" as nested YAML tables: "a:\n  b:\n    c: VALUE". */
static void write_nested(char *out, size_t size, const char *path, const char *value) {
    size_t length = 0;
    int depth = 0;
    for (const char *at = path; *at; depth++) {
        size_t span = strcspn(at, ".");
        length += (size_t)snprintf(out + length, size - length, "%*s%.*s:%s", 2 * depth, "", (int)span, at,
                                   at[span] ? "\n" : " ");
        at += span + (at[span] == '.');
    }
    snprintf(out + length, size - length, "%s\n", value);
}

static void check_key(config_case *c, const char *path, bool is_section) {
    char text[512];
    config *cfg = NULL;
    write_nested(text, sizeof text, path, is_section ? "null" : "qqqqqqqqqqqq");
    ott_status status = case_parse(c, ".yaml", text, &cfg);
    config_close(cfg);
    const char *message = status == OTT_OK ? "" : status_text();
    bool bad = strstr(message, "unknown ") || strstr(message, "did you mean");
    if (bad) fail_msg("%s: %s", path, message);
    c->log[0] = '\0';
}

static void test_every_key(void **state) {
    char line[512], path[256], next[256] = "";
    char name[1024];
    FILE *f = fopen(shared_path(name, "config-keys.txt"), "r");
    int keys = 0;
    if (!f) {
        print_message("SKIPPED: no %s\n", name);
        skip();
    }
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#' || sscanf(line, "%255[^\t]", next) != 1) continue;
        bool is_section = keys && strncmp(next, path, strlen(path)) == 0 && next[strlen(path)] == '.';
        if (keys && !strchr(path, '[')) check_key(*state, path, is_section);
        strcpy(path, next);
        keys++;
    }
    fclose(f);
    check_key(*state, path, false);
    assert_true(keys > 700);
}

static config_case *walking;
static int walked;

static int check_file(const char *path, const struct stat *info, int type, struct FTW *where) {
    config *cfg = NULL;
    const char *dot = strrchr(path, '.');
    (void)info, (void)where;
    bool is_config = type == FTW_F && dot && (strcmp(dot, ".toml") == 0 || strcmp(dot, ".yaml") == 0);
    if (!is_config) return 0;
    const char *arguments[] = {path, "--data.dataset_path=x.txt", "--eval.enabled=false",
                               "--model.hf_path=none"};
    /* parse the file without options, then with options for what only a user can know */
    for (int count = 1; count <= 4; count += 3) {
        ott_status status = config_parse(walking->account, &walking->lg, count, arguments, &cfg);
        config_close(cfg);
        walking->log[0] = '\0';
        if (status == OTT_OK) continue;
        assert_int_equal(status, OTT_ERR_CONFIG);
        if (is_answered_badly(status_text())) fail_msg("%s", status_text());
    }
    walked++;
    return 0;
}

static void test_every_file(void **state) {
    walking = *state;
    walked = 0;
    char name[1024];
    nftw(shared_path(name, "configs"), check_file, 8, FTW_PHYS);
    if (walked == 0) {
        print_message("SKIPPED: no files in %s\n", name);
        skip();
    }
    assert_true(walked > 100);
}

static int trained, seeing; /* numbers of KempnerForge's files that run, and that have vision models */

static int train_file(const char *path, const struct stat *info, int type, struct FTW *where) {
    config *cfg = NULL;
    const char *dot = strrchr(path, '.');
    (void)info, (void)where;
    if (type != FTW_F || !dot || strcmp(dot, ".toml") != 0) return 0;
    const char *arguments[] = {path, "--data.dataset_path=x.txt", "--data.hf_dataset_name=none"};
    ott_status status = config_parse(walking->account, &walking->lg, 3, arguments, &cfg);
    config_close(cfg);
    walking->log[0] = '\0';
    if (status != OTT_OK && !strstr(status_text(), "vision-language models are not supported yet"))
        fail_msg("%s", status_text());
    *(status == OTT_OK ? &trained : &seeing) += 1;
    return 0;
}

/* Every KempnerForge file that trains a language model runs with local data. */
static void test_kempner_files(void **state) {
    char name[1024];
    walking = *state;
    (void)nftw(shared_path(name, "configs/kempner/configs/train"), train_file, 8, FTW_PHYS);
    if (trained + seeing == 0) {
        print_message("SKIPPED: no files in %s\n", name);
        skip();
    }
    print_message("KempnerForge: %d files train, %d need a vision-language model\n", trained, seeing);
    assert_true(trained >= 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_all_at_once),
        CASE(test_by_what_is_asked),
        CASE(test_guesses),
        CASE(test_switched_off),
        CASE(test_overridden),
        CASE(test_local_files),
        CASE(test_flavors),
        CASE(test_model_target),
        CASE(test_recipe_names),
        CASE(test_log_style),
        CASE(test_yaml_numbers),
        CASE(test_inert),
        CASE(test_pipeline_schedules),
        CASE(test_every_key),
        CASE(test_every_file),
        CASE(test_kempner_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
