/* Tests AutoModel's FP8 fine-tuning file, with the keys that AutoModel had in 2025 and in 2026. */
#include "config/case.h"
#include <stdio.h>
#include <stdlib.h>

#define HEAD                                                                                                 \
    "step_scheduler:\n  global_batch_size: 32\n  local_batch_size: 1 # for the benchmark\n  "                \
    "ckpt_every_steps: 200\n"                                                                                \
    "  val_every_steps: 200\n  max_steps: 100\n"                                                             \
    "dist_env:\n  backend: nccl\n  timeout_minutes: 1\n"                                                     \
    "rng:\n  _target_: nemo_automodel.components.training.rng.StatefulRNG\n  seed: 1111\n  ranked: true\n"   \
    "model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"                          \
    "  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n  torch_dtype: bf16\n  trust_remote_code: "   \
    "true\n"                                                                                                 \
    "checkpoint:\n  enabled: true\n  checkpoint_dir: checkpoints_fp8/\n  model_save_format: torch_save\n"    \
    "  save_consolidated: false \n"
#define TAIL                                                                                                 \
    "compile:\n  enabled: true\n  mode: \"default\"\n  fullgraph: false\n  dynamic: false\n  backend: "      \
    "null\n"                                                                                                 \
    "fp8:\n  enabled: true\n  recipe_name: tensorwise\n  enable_fsdp_float8_all_gather: true\n"              \
    "  precompute_float8_dynamic_scale_for_fsdp: true\n  force_recompute_fp8_weight_in_bwd: true\n"          \
    "  filter_fqns: [\"lm_head\"]\n  emulate: false\n"                                                       \
    "loss_fn:\n  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy\n"                    \
    "dataset:\n  _target_: nemo_automodel.components.datasets.llm.hellaswag.HellaSwag\n"                     \
    "  path_or_dataset: rowan/hellaswag\n  split: train\n"                                                   \
    "dataloader:\n  _target_: torchdata.stateful_dataloader.StatefulDataLoader\n  collate_fn:\n"             \
    "    _target_: nemo_automodel.components.datasets.utils.default_collater\n    pad_seq_len_divisible: "   \
    "16\n"                                                                                                   \
    "validation_dataset:\n  _target_: nemo_automodel.components.datasets.llm.hellaswag.HellaSwag\n"          \
    "  path_or_dataset: rowan/hellaswag\n  split: validation\n  num_samples_limit: 64\n"                     \
    "optimizer:\n  _target_: torch.optim.Adam\n  betas: [0.9, 0.999]\n  eps: 1e-8\n  lr: 1.0e-5\n  "         \
    "weight_decay: 0\n"

static const char of_2025[] = HEAD
    "distributed:\n  _target_: nemo_automodel.components.distributed.fsdp2.FSDP2Manager\n  dp_size: none\n"
    "  dp_replicate_size: 1\n  tp_size: 1\n  cp_size: 1\n  sequence_parallel: false\n"
    "packed_sequence:\n  packed_sequence_size: 8192\n  split_across_pack: False\n" TAIL;
static const char of_2026[] = "recipe: TrainFinetuneRecipeForNextTokenPrediction\n" HEAD
                              "distributed:\n  strategy: fsdp2\n  dp_size: none\n  tp_size: 1\n  cp_size: "
                              "1\n  sequence_parallel: false\n"
                              "packed_sequence:\n  packed_sequence_size: 8192\n" TAIL;

static void check_values(config_case *c, const char *text) {
    config *cfg =
        case_good(c, ".yaml", text, "--model.pretrained_model_name_or_path=none", "--model.preset=8B",
                  "--data.dataset_path=hellaswag.jsonl", "--eval.dataset_path=validation.jsonl", NULL);
    assert_true(cfg->data.pack_sequences);
    assert_int_equal(cfg->data.format, DATA_HELLASWAG);
    assert_int_equal(cfg->data.pad_seq_len_divisible, 16);
    assert_int_equal(cfg->eval.num_samples_limit, 64);
    assert_int_equal(cfg->train.grad_accum_steps, 32);
    assert_int_equal(cfg->train.batch_size, 1);
    assert_int_equal(cfg->train.seq_len, 8192);
    assert_int_equal(cfg->train.max_steps, 100);
    assert_int_equal(cfg->train.seed, 1111);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
    assert_int_equal(cfg->train.loss_fn, LOSS_CROSS_ENTROPY);
    assert_true(cfg->train.compile_model);
    assert_int_equal(cfg->float8.recipe_name, RECIPE_TENSORWISE);
    assert_true(cfg->float8.enable_fsdp_float8_all_gather);
    assert_true(cfg->float8.precompute_float8_dynamic_scale_for_fsdp);
    assert_true(cfg->float8.force_recompute_fp8_weight_in_bwd);
    assert_string_equal(cfg->float8.filter_fqns.items[0], "lm_head");
    /* the file asks for Adam, which is AdamW with weight decay 0 */
    assert_int_equal(cfg->optimizer.name, OPTIMIZER_ADAMW);
    assert_true(cfg->optimizer.betas[1] == 0.999 && cfg->optimizer.lr == 1e-5 &&
                cfg->optimizer.weight_decay == 0.0);
    assert_int_equal(cfg->scheduler.name, SCHEDULER_CONSTANT);
    assert_int_equal(cfg->scheduler.warmup_steps, 0);
    assert_true(cfg->train.grad_clip_norm == 1.0);
    assert_true(cfg->eval.enabled && cfg->eval.interval == 200);
    assert_int_equal(cfg->checkpoint.interval, 200);
    assert_string_equal(cfg->checkpoint.dir, "checkpoints_fp8/");
    assert_non_null(strstr(c->log, "checkpoint.model_save_format = torch_save: controls PyTorch only; Ottava "
                                   "always writes safetensors"));
    assert_non_null(strstr(c->log, "model.trust_remote_code = true"));
    assert_null(strstr(c->log, "compile.fullgraph"));
    config_close(cfg);
}

static void test_2025(void **state) {
    check_values(*state, of_2025);
}
static void test_2026(void **state) {
    check_values(*state, of_2026);
}

/* A data set's hub name is an error. The message names the key for a local file and how to make the file. */
static void test_hub_names(void **state) {
    config_case *c = *state;
    case_bad_lines(c, ".yaml", of_2026, 2, "\n  ", ": dataset.path_or_dataset = rowan/hellaswag",
                   "data.dataset_path", "ottava pull --dataset NAME --out FILE.jsonl",
                   "validation_dataset.path_or_dataset = rowan/hellaswag", "eval.dataset_path", NULL);
    case_bad(c, ".yaml",
             "validation_dataset:\n  _target_: a.HellaSwag\n  path_or_dataset: rowan/hellaswag\n"
             "data: {dataset_path: x.jsonl}\n",
             "validation_dataset.path_or_dataset = rowan/hellaswag", "eval.dataset_path", NULL);
}

/* Paths of existing local files are accepted, and so are patterns that match files. */
static void test_local_datasets(void **state) {
    config_case *c = *state;
    char text[300];
    snprintf(
        text, sizeof text,
        "dataset:\n  _target_: a.NanogptDataset\n  file_pattern: shards/web_*.bin\n  num_samples_limit: 7\n"
        "validation_dataset:\n  _target_: a.NanogptDataset\n  path_or_dataset: %s\n",
        TEST_SOURCE_DIR);
    config *cfg = case_good(c, ".yaml", text, NULL);
    assert_string_equal(cfg->data.dataset_path, "shards/web_*.bin");
    assert_string_equal(cfg->eval.dataset_path, TEST_SOURCE_DIR);
    assert_int_equal(cfg->data.format, DATA_TOKENS);
    assert_int_equal(cfg->data.num_samples_limit, 7);
    assert_true(cfg->eval.enabled);
    config_close(cfg);
    case_bad(c, ".yaml", "dataset:\n  _target_: a.SQuAD\n", "dataset._target_ = a.SQuAD", "data.dataset_path",
             NULL);
    snprintf(text, sizeof text,
             "dataset:\n  _target_: a.make_squad_dataset\n  dataset_name: %s\n  limit_dataset_samples: 9\n",
             TEST_SOURCE_DIR);
    cfg = case_good(c, ".yaml", text, NULL);
    assert_int_equal(cfg->data.format, DATA_SQUAD);
    assert_string_equal(config_dataset_class(cfg), "make_squad_dataset");
    assert_string_equal(cfg->data.dataset_path, TEST_SOURCE_DIR);
    assert_int_equal(cfg->data.num_samples_limit, 9);
    config_close(cfg);
    cfg = case_good(c, ".yaml", text, "--data.format=squad", NULL);
    assert_null(config_dataset_class(cfg)); /* no class: data.format has selected the data set */
    config_close(cfg);
    snprintf(text, sizeof text,
             "dataset:\n  _target_: a.ColumnMappedTextInstructionDataset\n  path_or_dataset_id: %s\n"
             "  column_mapping:\n    question: q\n    answer: a\n  answer_only_loss_mask: true\n",
             TEST_SOURCE_DIR);
    cfg = case_good(c, ".yaml", text, NULL);
    assert_int_equal(cfg->data.format, DATA_INSTRUCTION);
    assert_string_equal(cfg->data.prompt_field, "q");
    assert_string_equal(cfg->data.completion_field, "a");
    config_close(cfg);
    snprintf(text, sizeof text,
             "dataset:\n  _target_: a.chat_dataset.ChatDataset\n  path_or_dataset_id: %s\n", TEST_SOURCE_DIR);
    cfg = case_good(c, ".yaml", text, NULL);
    assert_int_equal(cfg->data.format, DATA_CHAT);
    config_close(cfg);
}

static void test_epochs(void **state) {
    config *cfg = case_good(*state, ".yaml", "step_scheduler:\n  num_epochs: 3\n", NULL);
    assert_int_equal(cfg->train.num_epochs, 3);
    config_close(cfg);
}

/* Some files of 2025 call local_batch_size micro_batch_size. */
static void test_micro_batch_size(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".yaml",
                            "step_scheduler:\n  global_batch_size: 32\n  micro_batch_size: 4\n"
                            "checkpoint:\n  is_async: true\n",
                            NULL);
    assert_int_equal(cfg->train.batch_size, 4);
    assert_int_equal(cfg->train.grad_accum_steps, 8);
    assert_int_equal(cfg->checkpoint.async_mode, ASYNC_ASYNC);
    config_close(cfg);
    case_bad(c, ".yaml", "step_scheduler:\n  global_batch_size: 30\n  micro_batch_size: 4\n",
             "global_batch_size (30) must be divisible by local_batch_size", NULL);
}

static void test_sharding(void **state) {
    static const char base[] = "fp8:\n  enabled: true\nrng:\n  seed: 3\ndistributed:\n";
    char text[256];
    config_case *c = *state;
    config *cfg = case_good(
        c, ".yml",
        strcat(strcpy(text, base), "  defer_fsdp_grad_sync: true\n  reshard_after_forward: true\n"), NULL);
    assert_true(cfg->distributed.defer_fsdp_grad_sync);
    assert_int_equal(cfg->distributed.reshard_after_forward, RESHARD_ALWAYS);
    config_close(cfg);
    cfg = case_good(c, ".yml", strcat(strcpy(text, base), "  reshard_after_forward: false\n"), NULL);
    assert_int_equal(cfg->distributed.reshard_after_forward, RESHARD_NEVER);
    config_close(cfg);
    cfg = case_good(c, ".yml", strcat(strcpy(text, base), "  reshard_after_forward: null\n"), NULL);
    assert_int_equal(cfg->distributed.reshard_after_forward, RESHARD_DEFAULT);
    config_close(cfg);
}

static void test_guide_spelling(void **state) {
    config_case *c = *state;
    config *cfg =
        case_good(c, ".yml",
                  "fp8:\n  enabled: True\n  enable_fsdp_fp8_all_gather: True\n  "
                  "precompute_fp8_dynamic_scale_for_fsdp: True\n  recipe_name: null\nrng:\n  seed: 3\n",
                  NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
    assert_true(cfg->float8.enable_fsdp_float8_all_gather &&
                cfg->float8.precompute_float8_dynamic_scale_for_fsdp);
    assert_int_equal(cfg->float8.recipe_name, RECIPE_TENSORWISE);
    config_close(cfg);
}

static void test_switches(void **state) {
    config_case *c = *state;
    config *cfg =
        case_good(c, ".yaml", of_2026, "--model.hf_path=none", "--data.pack_sequences", "false",
                  "--fp8.enabled", "false", "--training.dataset_path=x.txt", "--eval.enabled=false", NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_BF16);
    config_close(cfg);
    cfg =
        case_good(c, ".yaml", "model:\n  torch_dtype: torch.float32\ncompile:\n  mode: max-autotune\n", NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP32);
    assert_int_equal(cfg->train.compile_mode, COMPILE_MAX_AUTOTUNE);
    config_close(cfg);
}

static void test_schedule(void **state) {
    config_case *c = *state;
    config *cfg =
        case_good(c, ".yaml",
                  "step_scheduler:\n  max_steps: 500\noptimizer:\n  _target_: torch.optim.AdamW\n  lr: "
                  "1e-4\nlr_scheduler:\n  lr_decay_style: cosine\n  min_lr: 1e-5\n  lr_decay_steps: 300\n",
                  NULL);
    assert_int_equal(cfg->scheduler.name, SCHEDULER_COSINE);
    assert_int_equal(cfg->scheduler.warmup_steps, 50);
    /* AutoModel's number of decay steps includes the warmup */
    assert_int_equal(cfg->scheduler.decay_steps, 250);
    assert_float_equal(cfg->scheduler.min_lr_ratio, 0.1, 1e-12);
    assert_true(cfg->optimizer.weight_decay == 0.01); /* the default of PyTorch's AdamW */
    config_close(cfg);
    case_bad(c, ".yaml", "optimizer:\n  lr: 1e-5\nlr_scheduler:\n  min_lr: 1e-4\n", "min_lr",
             "above optimizer.lr", NULL);
}

static void test_targets(void **state) {
    config_case *c = *state;
    config *te =
        case_good(c, ".yaml",
                  "optimizer:\n  _target_: transformer_engine.pytorch.optimizers.fused_adam.FusedAdam\n  "
                  "exp_avg_dtype: torch.bfloat16\n  exp_avg_sq_dtype: torch.bfloat16\n",
                  NULL);
    assert_int_equal(te->optimizer.state_dtype, MOMENT_BF16);
    config_close(te);
    te = case_good(c, ".yaml", "optimizer:\n  exp_avg_dtype: torch.uint8\n  exp_avg_sq_dtype: torch.uint8\n",
                   NULL);
    assert_int_equal(te->optimizer.state_dtype, MOMENT_FP8);
    config_close(te);
    case_bad(c, ".yaml", "optimizer:\n  exp_avg_dtype: torch.bfloat16\n  exp_avg_sq_dtype: torch.float32\n",
             "both moments must have one format: give optimizer.state_dtype", NULL);
    config *sgd = case_good(
        c, ".yaml", "optimizer:\n  _target_: torch.optim.SGD\n  momentum: 0.9\n  nesterov: true\n", NULL);
    assert_int_equal(sgd->optimizer.name, OPTIMIZER_SGD);
    assert_true(sgd->optimizer.momentum == 0.9 && sgd->optimizer.nesterov);
    config_close(sgd);
    config *muon = case_good(
        c, ".yaml", "optimizer:\n  _target_: dion.Muon\n  adjust_lr: rms_norm\n  nesterov: true\n", NULL);
    assert_int_equal(muon->optimizer.name, OPTIMIZER_MUON);
    assert_int_equal(muon->optimizer.muon_adjust_lr, MUON_ADJUST_MATCH_RMS_ADAMW);
    config_close(muon);
    case_bad(c, ".yaml", "optimizer:\n  _target_: torch.optim.RAdam\n",
             "optimizer._target_ = torch.optim.RAdam is not one of \"adamw\", \"adam\"", NULL);
    case_bad(c, ".yaml", "dataset:\n  _target_: os.system\n",
             "dataset._target_ = os.system: no dataset of that name", "\"HellaSwag\"", NULL);
    case_bad(c, ".yaml", "distributed:\n  strategy: zero3\n", "\"fsdp2\", \"ddp\"", NULL);
    config *adam =
        case_good(c, ".yaml", "optimizer:\n  _target_: torch.optim.Adam\n  weight_decay: 0.1\n", NULL);
    assert_int_equal(adam->optimizer.name, OPTIMIZER_ADAM);
    config_close(adam);
    case_bad(c, ".yaml", "peft:\n  _target_: nemo_automodel.components._peft.lora.PrefixConfig\n  dim: 8\n",
             "peft._target_ = nemo_automodel.components._peft.lora.PrefixConfig", NULL);
    config *cfg = case_good(c, ".yaml",
                            "rng:\n  seed: 5\nwandb:\n  project: x\npeft:\nvalidation_dataset: null\n", NULL);
    assert_int_equal(cfg->train.seed, 5);
    assert_non_null(strstr(c->log, "wandb.project = x"));
    config_close(cfg);
}

/* Qwen3-MoE's config.json has two keys for the layers without experts. Both are read. */
static void test_blocks_without_experts(void **state) {
    config_case *c = *state;
    config *cfg = case_good(
        c, ".yaml", "model:\n  config:\n    decoder_sparse_step: 2\n    mlp_only_layers: [1, 5]\n", NULL);
    assert_int_equal(cfg->model.moe_frequency, 2);
    assert_int_equal(cfg->model.moe_dense_layers.count, 2);
    assert_string_equal(cfg->model.moe_dense_layers.items[1], "5");
    config_close(cfg);
}

/* Reads AutoModel's LoRA examples, also with some keys left out. */
static void test_adapters(void **state) {
    config_case *c = *state;
    config *cfg = case_good(
        c, ".yaml",
        "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
        "peft:\n  _target_: nemo_automodel.components._peft.lora.PeftConfig\n  modules_to_save: [lm_head]\n"
        "  rank_pattern: {q_proj: 4, model.layers.1.mlp.up_proj: 32}\n"
        "  target_modules: '*_proj'\n  exclude_modules: [\"*.out_proj\"]\n  dim: 16\n"
        "  alpha: 64\n  dropout: 0.1\n  use_triton: True\n  lora_A_init: uniform\n"
        "  use_memory_efficient_lora: true\n  lora_dtype: torch.bfloat16\n",
        NULL);
    assert_true(cfg->peft.enabled && !cfg->peft.match_all_linear);
    assert_string_equal(cfg->peft.target_modules.items[0], "*_proj");
    assert_string_equal(cfg->peft.exclude_modules.items[0], "*.out_proj");
    assert_string_equal(cfg->peft.rank_pattern.items[0], "q_proj=4");
    assert_string_equal(cfg->peft.rank_pattern.items[1], "model.layers.1.mlp.up_proj=32");
    assert_string_equal(cfg->peft.modules_to_save.items[0], "lm_head");
    assert_int_equal(cfg->peft.dim, 16);
    assert_true(cfg->peft.alpha == 64 && cfg->peft.dropout == 0.1);
    assert_int_equal(cfg->peft.dropout_position, DROPOUT_POST);
    assert_int_equal(cfg->peft.lora_A_init, LORA_INIT_KAIMING);
    assert_int_equal(cfg->train.master_dtype, STATE_BF16);
    config_close(cfg);
    cfg = case_good(c, ".yaml",
                    "recipe: TrainFinetuneRecipeForNextTokenPrediction\npeft:\n"
                    "  _target_: a.PeftConfig\n  match_all_linear: True\n",
                    NULL);
    assert_true(cfg->peft.enabled && cfg->peft.dim == 8 && cfg->peft.alpha == 32);
    config_close(cfg);
    cfg = case_good(c, ".yaml", "train:\n  seq_len: 8\n", "--peft.dim=4", NULL);
    assert_true(cfg->peft.enabled);
    config_close(cfg);
    cfg = case_good(c, ".yaml", "train:\n  seq_len: 8\npeft:\n  enabled: false\n  dim: 4\n", NULL);
    assert_false(cfg->peft.enabled);
    config_close(cfg);
}

/* AutoModel's files have the keys of the FP8 all-gather with every recipe, but only tensorwise uses them.
   With other recipes the keys are no errors. */
static void test_rowwise(void **state) {
    static const char text[] = "rng:\n  seed: 3\nfp8:\n  enabled: true\n  recipe_name: rowwise\n"
                               "  enable_fsdp_float8_all_gather: true\n"
                               "  precompute_float8_dynamic_scale_for_fsdp: true\n";
    config_case *c = *state;
    config *cfg = case_good(c, ".yaml", text, NULL);
    assert_int_equal(cfg->float8.recipe_name, RECIPE_ROWWISE);
    assert_false(cfg->float8.enable_fsdp_float8_all_gather);
    assert_false(cfg->float8.precompute_float8_dynamic_scale_for_fsdp);
    const char *line = strstr(c->log, ":6: fp8.enable_fsdp_float8_all_gather = true, ");
    assert_non_null(line);
    line = strstr(line, ":7: fp8.precompute_float8_dynamic_scale_for_fsdp = true: ignored, as in AutoModel");
    assert_non_null(line);
    assert_null(strstr(strchr(line, '\n'), "as in AutoModel")); /* one log line names both keys */
    config_close(cfg);
    cfg = case_good(c, ".yaml", text, "--float8.recipe_name=tensorwise", NULL);
    assert_true(cfg->float8.enable_fsdp_float8_all_gather &&
                cfg->float8.precompute_float8_dynamic_scale_for_fsdp);
    config_close(cfg);
}

/* A section te_fp8 in AutoModel's file turns on FP8, by TransformerEngine's recipes. */
static void test_te_fp8(void **state) {
    static const struct {
        const char *section, *recipe;
        bool experts;
    } rows[] = {
        {"      recipe: current\n", "current", false},
        {"      _target_: nemo_automodel.components.models.common.utils.TEFp8Config\n      recipe: block\n",
         "block", true},
        {"      recipe: mxfp8\n      _target_: a.TEFp8Config\n", "mxfp8", true},
        {"      _target_: a.TEFp8Config\n", "current", false},
        {"      recipe:\n        _target_: transformer_engine.common.recipe.Float8BlockScaling\n", "block",
         true},
    };
    config_case *c = *state;
    char text[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text,
                 "rng: {seed: 3}\nmodel:\n  backend:\n    linear: te\n    experts: te\n    te_fp8:\n%s"
                 "  num_experts: 4\nfp8: {enabled: false}\n",
                 rows[i].section);
        config *cfg = case_good(c, ".yaml", text, NULL);
        assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
        assert_string_equal(config_word(cfg, "float8.recipe_name"), rows[i].recipe);
        assert_int_equal(cfg->float8.moe_experts, rows[i].experts);
        config_close(cfg);
        cfg = case_good(c, ".yaml", text, "--model.backend.te_fp8=none", NULL);
        assert_int_equal(cfg->train.mixed_precision, PRECISION_BF16);
        config_close(cfg);
        cfg = case_good(c, ".yaml", text, "--train.mixed_precision=bf16", NULL);
        assert_int_equal(cfg->train.mixed_precision, PRECISION_BF16);
        config_close(cfg);
    }
    config *cfg =
        case_good(c, ".yaml", "rng: {seed: 3}\nmodel: {backend: {te_fp8: null, experts: te}}\n", NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_BF16);
    config_close(cfg);
    case_bad(c, ".yaml", "rng: {seed: 3}\nmodel: {backend: {te_fp8: {recipe: tensorwise}}}\n",
             "model.backend.te_fp8.recipe = tensorwise is not one of \"current\", \"block\", \"mxfp8\"",
             NULL);
}

/* AutoModel's mock data set has random tokens and a row length. A local file replaces it. */
static void test_mock_data(void **state) {
    static const char text[] =
        "rng: {seed: 3}\ndataset:\n  _target_: a.llm.mock_iterable_dataset.MockIterableDataset\n  "
        "vocab_size: 100\n"
        "  seq_len: 96\n  num_samples: 1000\n"
        "validation_dataset:\n  _target_: a.mock.build_unpacked_dataset\n  max_sentence_len: 64\n";
    config_case *c = *state;
    config *cfg = case_good(c, ".yaml", text, NULL);
    assert_int_equal(cfg->data.format, DATA_SYNTHETIC);
    assert_int_equal(cfg->train.seq_len, 96);
    assert_true(cfg->eval.enabled);
    config_close(cfg);
    cfg = case_good(c, ".yaml", text, "--data.dataset_path=x.jsonl", "--eval.dataset_path=y.jsonl", NULL);
    assert_int_equal(cfg->data.format, DATA_AUTO);
    assert_int_equal(cfg->train.seq_len, 2048);
    config_close(cfg);
    cfg = case_good(c, ".yaml", text, "--train.seq_len=32", "--validation_dataset=none",
                    "--eval.enabled=false", NULL);
    assert_int_equal(cfg->train.seq_len, 32);
    config_close(cfg);
    cfg = case_good(
        c, ".yaml",
        "rng: {seed: 3}\ndataset: {_target_: a.mock.build_unpacked_dataset, max_sentence_len: 48}\n", NULL);
    assert_int_equal(cfg->train.seq_len, 48);
    config_close(cfg);
    case_bad(c, ".yaml", "rng: {seed: 3}\ndataset: {_target_: a.llm.mock_seq_cls.MockDataset}\n",
             "classification", NULL);
    case_bad(c, ".yaml",
             "rng: {seed: 3}\ndataset: {_target_: a.mock.build_unpacked_dataset, max_sentence_len: long}\n",
             "dataset.max_sentence_len = long must be an integer", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_2025),
        CASE(test_2026),
        CASE(test_hub_names),
        CASE(test_local_datasets),
        CASE(test_epochs),
        CASE(test_sharding),
        CASE(test_guide_spelling),
        CASE(test_switches),
        CASE(test_schedule),
        CASE(test_targets),
        CASE(test_adapters),
        CASE(test_micro_batch_size),
        CASE(test_blocks_without_experts),
        CASE(test_rowwise),
        CASE(test_te_fp8),
        CASE(test_mock_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
