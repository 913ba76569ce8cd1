/* Tests KempnerForge's configuration files, and its error messages. */
#include "config/case.h"

static const char fp8_7b[] =
    "# Llama-3 7B, FP8\n"
    "[model]\ndim = 4096\nn_layers = 32\nn_heads = 32\nn_kv_heads = 8\nvocab_size = 128256\n"
    "ffn_dim_multiplier = 1.3\nmax_seq_len = 4096\nrope_theta = 500000.0\n"
    "[train]\nbatch_size = 4\nseq_len = 4096\nmax_steps = 50\ngrad_accum_steps = 4\n"
    "grad_clip_norm = 1.0\nseed = 42\ncompile_model = true\nmixed_precision = \"fp8\"\n"
    "activation_checkpointing = \"full\"\n"
    "[optimizer]\nname = \"adamw\"\nlr = 3e-4\nweight_decay = 0.1\nbetas = [0.9, 0.95]\n"
    "eps = 1e-8\nfused = true\n"
    "[scheduler]\nname = \"cosine\"\nwarmup_steps = 10\nmin_lr_ratio = 0.1\n"
    "[data]\ndataset_path = \"corpus.txt\"\nnum_workers = 8\npin_memory = true\n"
    "[distributed]\ndp_shard = -1\nnccl_timeout_sec = 600\n"
    "[checkpoint]\ndir = \"checkpoints/7b\"\ninterval = 25\nkeep_last_n = 2\n"
    "[metrics]\nlog_interval = 1\nenable_wandb = false\nwandb_project = \"kempnerforge\"\n";

static void test_fp8_file(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", fp8_7b, NULL);
    assert_int_equal(cfg->model.n_kv_heads, 8);
    assert_int_equal(cfg->model.vocab_size, 128256);
    assert_true(cfg->model.ffn_dim_multiplier == 1.3 && cfg->model.rope_theta == 500000.0);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
    assert_int_equal(cfg->train.activation_checkpointing, CHECKPOINTING_FULL);
    assert_int_equal(cfg->train.grad_accum_steps, 4);
    assert_true(cfg->optimizer.lr == 3e-4 && cfg->optimizer.eps == 1e-8);
    assert_true(cfg->optimizer.betas[0] == 0.9 && cfg->optimizer.betas[1] == 0.95);
    assert_int_equal(cfg->scheduler.name, SCHEDULER_COSINE);
    assert_string_equal(cfg->checkpoint.dir, "checkpoints/7b");
    /* mixed_precision = "fp8" without [float8] means the recipe tensorwise with FP8 all-gather */
    assert_int_equal(cfg->float8.recipe_name, RECIPE_TENSORWISE);
    assert_true(cfg->float8.enable_fsdp_float8_all_gather);
    assert_true(config_was_set(cfg, "train.seq_len") && !config_was_set(cfg, "train.data_seed"));
    assert_non_null(strstr(
        c->log, "data.num_workers = 8: controls PyTorch only; Ottava reads data in the training process"));
    assert_int_equal(cfg->distributed.nccl_timeout_sec, 600);
    assert_null(strstr(c->log, "pin_memory"));
    config_close(cfg);
}

static void test_defaults(void **state) {
    config_case *c = *state;
    config *cfg;
    assert_int_equal(case_arguments(c, &cfg, (char *)NULL), OTT_OK);
    assert_int_equal(cfg->model.dim, 4096);
    assert_int_equal(cfg->train.batch_size, 8);
    assert_int_equal(cfg->train.max_steps, 100000);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_BF16);
    assert_int_equal(cfg->scheduler.warmup_steps, 2000);
    assert_int_equal(cfg->checkpoint.keep_last_n, 3);
    assert_string_equal(cfg->run.dir, "");
    assert_string_equal(cfg->path, "");
    config_close(cfg);
}

static void test_not_built(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", "[train]\nz_loss_weight = -0.5\n", ":2: train.z_loss_weight = -0.5", NULL);
    case_bad(c, ".toml", "[optimizer]\nname = \"sophia\"\n", "optimizer.name = \"sophia\"", "\"lion\"", NULL);
    case_bad(c, ".toml", "[checkpoint.dyn_ckpt_window]\nstart = 4\n", "dyn_ckpt_window.start = 4",
             "powers of two", NULL);
    case_bad(c, ".toml", "[train]\nseed = 1\n[vlm]\narch = \"cross_attention\"\n", "vlm.arch",
             "vision-language", NULL);
}

/* Tests optimizers other than AdamW, and keys that only AdamW has. */
static void test_optimizers(void **state) {
    config_case *c = *state;
    config *cfg =
        case_good(c, ".toml",
                  "[optimizer]\nname = \"muon\"\nlr = 3e-3\nmuon_momentum = 0.9\nmuon_ns_steps = 6\n"
                  "muon_adam_lr = 3e-4\n[scheduler]\nname = \"rex\"\nrex_alpha = 0.5\n"
                  "[train]\nz_loss_weight = 1e-4\n",
                  NULL);
    assert_int_equal(cfg->optimizer.name, OPTIMIZER_MUON);
    assert_int_equal(cfg->optimizer.muon_ns_steps, 6);
    assert_true(cfg->optimizer.muon_nesterov && cfg->optimizer.muon_adjust_lr == MUON_ADJUST_ORIGINAL);
    assert_int_equal(cfg->scheduler.name, SCHEDULER_REX);
    assert_true(cfg->train.z_loss_weight == 1e-4);
    config_close(cfg);
    config_close(case_good(c, ".toml",
                           "[optimizer]\nname = \"schedule_free_adamw\"\nschedule_free_warmup_steps = 20\n"
                           "[scheduler]\nname = \"none\"\n",
                           NULL));
    case_bad(c, ".toml", "[optimizer]\nname = \"schedule_free_adamw\"\n", "scheduler.name = \"none\"", NULL);
    case_bad(c, ".toml", "[optimizer]\nname = \"muon\"\n[distributed]\ntp = 2\n", "full matrices",
             "distributed.tp = 2", NULL);
    case_bad(c, ".toml", "[optimizer]\nname = \"muon\"\n[model]\nnum_experts = 4\n[distributed]\nep = 2\n",
             "distributed.ep = 2 shards them", NULL);
    case_bad(
        c, ".toml", "[optimizer]\nname = \"lion\"\nstate_dtype = \"fp8\"\n",
        "optimizer.state_dtype = \"fp8\" is supported only for optimizer.name = \"adamw\", not for \"lion\"",
        NULL);
    case_bad(c, ".toml", "[optimizer]\nname = \"muon\"\n[train]\noffload = \"moments\"\n",
             "train.offload = \"moments\" is not supported for optimizer.name = \"muon\"", NULL);
    case_bad(c, ".toml", "[optimizer]\nnesterov = true\n", "optimizer.nesterov = true", NULL);
    case_bad(c, ".toml", "[optimizer]\nname = \"muon\"\nmuon_nesterov = false\nnesterov = true\n",
             "optimizer.muon_nesterov", NULL);
    case_bad(c, ".toml", "[optimizer]\nweight_lr_power = -1\n", "optimizer.weight_lr_power = -1", NULL);
    case_bad(c, ".toml", "[optimizer]\nname = \"sgd\"\nnesterov = true\n", "optimizer.momentum is 0", NULL);
}

/* KempnerForge's tables of data phases become the same texts that --data.phases accepts. */
static void test_phases(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml",
                            "[[data.datasets]]\npath = \"tokens/web\"\nweight = 0.7\nname = \"web\"\n"
                            "[[data.datasets]]\npath = \"tokens/code\"\nweight = 0.3\n"
                            "[[data.phases]]\nstart_step = 10\ndataset_weights = { web = 0.3, code = 0.7 }\n"
                            "lr_scale = 0.5\n[[data.phases]]\nstart_step = 20\n",
                            NULL);
    assert_string_equal(cfg->data.datasets.items[0], "tokens/web=0.7 web");
    assert_string_equal(cfg->data.phases.items[0], "10 web=0.3 code=0.7 lr_scale=0.5");
    assert_string_equal(cfg->data.phases.items[1], "20");
    config_close(cfg);
    cfg = case_good(c, ".toml",
                    "[data]\ndatasets = [\"tokens/web\", \"tokens/code=2\"]\nanneal_start_step = 40\n"
                    "anneal_weights = { web = 0.1, code = 0 }\n",
                    NULL);
    assert_string_equal(cfg->data.anneal_weights.items[0], "web=0.1");
    assert_string_equal(cfg->data.anneal_weights.items[1], "code=0");
    config_close(cfg);
    cfg = case_good(
        c, ".toml",
        "[[train.freeze_schedule]]\nstart_step = 0\nspecs = [{ module = \"lm_head\", frozen = true }, "
        "{ module = \"norm\", frozen = false }]\n[[train.freeze_schedule]]\nstart_step = 9\nspecs = []\n",
        NULL);
    assert_string_equal(cfg->train.freeze_schedule.items[0], "0 lm_head");
    assert_string_equal(cfg->train.freeze_schedule.items[1], "9");
    config_close(cfg);
    case_bad(c, ".toml", "[[data.phases]]\nstart = 5\n", "unknown key start in a phase", "start_step", NULL);
}

/* The number of micro-batches per step depends on the number of data-parallel ranks. */
static void test_ranks(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", "[train]\nbatch_size = 2\nglobal_batch_size = 16\n", NULL);
    assert_int_equal(config_step_rows(cfg), 16);
    assert_int_equal(config_set_data_ranks(cfg, 4), OTT_OK);
    assert_int_equal(cfg->train.grad_accum_steps, 2);
    assert_int_equal(config_check(cfg), OTT_OK);
    assert_int_equal(cfg->train.grad_accum_steps, 2);
    assert_int_equal(config_step_rows(cfg), 16);
    assert_int_equal(config_set_data_ranks(cfg, 3), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "(16) must be divisible by local_batch_size * dp_size (2 * 3)"));
    config_close(cfg);
    cfg =
        case_good(c, ".toml", "[train]\nbatch_size = 2\nglobal_batch_size = 8\ngrad_accum_steps = 2\n", NULL);
    assert_int_equal(config_set_data_ranks(cfg, 2), OTT_OK);
    assert_int_equal(config_set_data_ranks(cfg, 1), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "give only one"));
    config_close(cfg);
    cfg = case_good(c, ".toml", "[distributed]\ndp_shard = 8\n[train]\ngrad_accum_steps = 3\n", NULL);
    assert_int_equal(config_set_data_ranks(cfg, 8), OTT_OK);
    assert_int_equal(config_step_rows(cfg), 8 * 8 * 3);
    config_close(cfg);
}

static void test_async_mode(void **state) {
    config_case *c = *state;
    config *cfg =
        case_good(c, ".toml", "[checkpoint]\ninterval = 25\nasync_mode = \"async_with_pinned_mem\"\n", NULL);
    assert_int_equal(cfg->checkpoint.async_mode, ASYNC_PINNED);
    config_close(cfg);
    case_bad(c, ".toml", "[checkpoint]\nasync_mode = \"pinned\"\n", "checkpoint.async_mode", "\"disabled\"",
             "\"async\"", "\"async_with_pinned_mem\"", NULL);
}

/* wandb is not supported, so the log names the file that has the metrics instead. */
static void test_wandb(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", "[metrics]\nenable_wandb = true\nwandb_project = \"x\"\n", NULL);
    assert_non_null(strstr(c->log, "metrics.enable_wandb = true"));
    assert_non_null(strstr(c->log, "always writes metrics.jsonl into the run folder"));
    config_close(cfg);
}

/* KempnerForge profiles one range of steps. */
static void test_profiling(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", "[train]\nseed = 1\n[profiling]\nenable = true\n", NULL);
    assert_true(cfg->profiling.enable);
    assert_int_equal(cfg->profiling.start_step, 5);
    assert_int_equal(cfg->profiling.end_step, 8);
    assert_int_equal(cfg->profiling.frequency, 0);
    assert_string_equal(cfg->profiling.trace_dir, "profiler_traces");
    config_close(cfg);
    case_bad(c, ".toml", "[profiling]\nenable = true\nstart_step = 8\n", "end_step (8)",
             "must be greater than", "start_step (8)", NULL);
    case_bad(c, ".toml", "[profiling]\nmemory_snapshot = true\n", "memory_snapshot = true",
             "PyTorch's allocator", NULL);
}

/* Unsupported keys are no error if their values request nothing, or if an option resets them. */
static void test_neutral(void **state) {
    config_case *c = *state;
    static const char text[] =
        "[model]\nnum_experts = 0\nmoe_top_k = 4\n[distributed]\ndp_shard = 1\ntp = 1\npp = 1\n"
        "[metrics]\nenable_wandb = true\nwandb_project = \"x\"\n[data]\ndatasets = []\n";
    config *cfg = case_good(c, ".toml", text, "--metrics.enable_wandb=false", NULL);
    assert_false(cfg->metrics.enable_wandb);
    assert_int_equal(cfg->distributed.dp_shard, 1);
    config_close(cfg);
}

static void test_messages(void **state) {
    config_case *c = *state;
    case_bad(
        c, ".toml", "[train]\nmixed_precision = \"fp8\"\n[distributed]\ntp = 2\n",
        "FP8 + Tensor Parallelism is not yet supported (torchao Float8Linear does not compose with DTensor "
        "sharding). Use FP8 with FSDP only, or TP without FP8.",
        "float8.tensor_parallel = true", NULL);
    config *cfg = case_good(c, ".toml",
                            "[train]\nmixed_precision = \"fp8\"\n[distributed]\ntp = 2\n[float8]\n"
                            "tensor_parallel = true\n",
                            NULL);
    assert_int_equal(cfg->distributed.tp, 2);
    config_close(cfg);
    case_bad(c, ".toml", "[model]\ndim = 100\nn_heads = 3\n", "dim (100) must be divisible by n_heads (3)",
             NULL);
    case_bad(c, ".toml", "[model]\nn_heads = 6\nn_kv_heads = 4\n",
             "n_heads (6) must be divisible by n_kv_heads (4)", NULL);
    case_bad(c, ".toml", "[model]\nmax_seq_len = 512\n[train]\nseq_len = 1024\n",
             "train.seq_len (1024) exceeds model.max_seq_len (512)", NULL);
    case_bad(c, ".toml", "[eval]\nenabled = true\n",
             "eval.enabled is True but no eval data source is configured. Set eval.dataset_path", NULL);
    case_bad(c, ".toml",
             "[train]\nmax_steps = 10\n[scheduler]\nname = \"wsd\"\nwarmup_steps = 4\nstable_steps = "
             "4\ndecay_steps = 4\n",
             "warmup_steps (4), stable_steps (4) and decay_steps (4) exceed train.max_steps (10)", NULL);
    case_bad(c, ".toml", "[train]\nbatch_size = 3\nglobal_batch_size = 8\n",
             "global_batch_size (8) must be divisible by", "(3 * 1)", NULL);
    case_bad(c, ".toml", "[train]\nbatch_size = 2\nglobal_batch_size = 8\ngrad_accum_steps = 3\n",
             "give only one", NULL);
    case_bad(c, ".toml",
             "[train]\nmixed_precision = \"fp8\"\n[float8]\nrecipe_name = "
             "\"rowwise\"\nenable_fsdp_float8_all_gather = true\n",
             ":5: float8.enable_fsdp_float8_all_gather = true",
             "only supports tensorwise scaling granularity, got rowwise", NULL);
}

static void test_derived(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml",
                            "[train]\nbatch_size = 2\nglobal_batch_size = 8\nmixed_precision = "
                            "\"fp8\"\n[float8]\nrecipe_name = \"rowwise\"\n",
                            NULL);
    assert_int_equal(cfg->train.grad_accum_steps, 4);
    /* the default is false with this recipe: FP8 all-gather needs one scale per tensor */
    assert_false(cfg->float8.enable_fsdp_float8_all_gather);
    config_close(cfg);
    cfg = case_good(c, ".toml", "[eval]\nenabled = true\nholdout = 0.1\n[data]\ndataset_path = \"x.txt\"\n",
                    NULL);
    assert_true(cfg->eval.enabled && cfg->eval.holdout == 0.1);
    config_close(cfg);
}

static void test_recompute_number(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", "[train]\nactivation_checkpointing = 3\n", NULL);
    assert_int_equal(cfg->train.activation_checkpointing, CHECKPOINTING_EVERY_N);
    assert_int_equal(cfg->train.activation_checkpointing_every, 3);
    config_close(cfg);
    cfg = case_good(c, ".toml", "[train]\nseed = 1\n", "--train.activation_checkpointing=none", NULL);
    assert_int_equal(cfg->train.activation_checkpointing, CHECKPOINTING_NONE);
    config_close(cfg);
    case_bad(c, ".toml", "[train]\nactivation_checkpointing = 0\n", "must be in [1, 2147483647]", NULL);
}

static void test_fp8_settings_without_fp8(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", "[train]\nseed = 1\n[float8]\nrecipe_name = \"rowwise\"\n", NULL);
    assert_non_null(strstr(c->log, "has no effect: train.mixed_precision is bf16, not fp8"));
    config_close(cfg);
}

/* Tests mixtures of data sets: KempnerForge's tables, Ottava's list of texts, and combinations that are
   refused. */
static void test_mixture(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml",
                            "[data]\nmix_temperature = 2.0\nfile_pattern = \"tokenized_*.bin\"\n"
                            "[[data.datasets]]\npath = \"web\"\nweight = 0.7\nname = \"w\"\n"
                            "[[data.datasets]]\npath = \"code\"\n",
                            NULL);
    assert_int_equal(cfg->data.datasets.count, 2);
    assert_string_equal(cfg->data.datasets.items[0], "web=0.7 w");
    assert_string_equal(cfg->data.datasets.items[1], "code=1");
    assert_true(cfg->data.mix_temperature == 2.0);
    assert_string_equal(cfg->data.file_pattern, "tokenized_*.bin");
    config_close(cfg);
    cfg = case_good(c, ".toml", "[data]\ndatasets = [\"a=1\", \"b=2\"]\n", NULL);
    assert_string_equal(cfg->data.datasets.items[1], "b=2");
    config_close(cfg);
    cfg = case_good(c, ".toml", "[data]\npacked_sequence_size = 640\n", NULL);
    assert_true(cfg->data.pack_sequences && cfg->train.seq_len == 640);
    config_close(cfg);
    case_bad(c, ".toml", "[[data.datasets]]\npath = \"a\"\nwieght = 0.5\n", "unknown key wieght in a dataset",
             "did you mean weight?", NULL);
    case_bad(c, ".toml", "[[data.datasets]]\nhf_name = \"c4\"\n", "hf_name = c4", "not downloaded", NULL);
    case_bad(c, ".toml", "[[data.datasets]]\nweight = 0.5\n", "a dataset needs a path (a text)", NULL);
    case_bad(c, ".toml", "[data]\ndatasets = [\"a=1\"]\ndataset_path = \"b\"\n",
             "data.datasets and data.dataset_path", NULL);
    case_bad(c, ".toml", "[data]\ndatasets = [\"a=1\"]\n[eval]\nenabled = true\nholdout = 0.1\n",
             "eval.holdout", "eval.dataset_path", NULL);
    case_bad(c, ".toml", "[data]\nprompt_field = \"q\"\n", "data.completion_field = \"\": give both", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_mixture),    CASE(test_fp8_file),         CASE(test_defaults),
        CASE(test_not_built),  CASE(test_optimizers),       CASE(test_phases),
        CASE(test_ranks),      CASE(test_neutral),          CASE(test_wandb),
        CASE(test_async_mode), CASE(test_profiling),        CASE(test_messages),
        CASE(test_derived),    CASE(test_recompute_number), CASE(test_fp8_settings_without_fp8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
