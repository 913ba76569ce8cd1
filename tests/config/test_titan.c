/* Tests torchtitan's files and options, and its defaults for keys that a file lacks. */
#include "config/case.h"
#include <stdio.h>

/* The configuration of the Llama 3 8B run that torchtitan published in June 2025, key by key. */
static const char llama3_8b[] =
    "[job]\ndump_folder = \"./outputs\"\ndescription = \"Llama 3 8B training\"\n"
    "[profiling]\nenable_profiling = true\nsave_traces_folder = \"profile_trace\"\nprofile_freq = 100\n"
    "[metrics]\nlog_freq = 10\nenable_tensorboard = true\nsave_tb_folder = \"tb\"\n"
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\ntokenizer_path = \"./tokenizer.model\"\n"
    "[optimizer]\nname = \"AdamW\"\nlr = 3e-4\neps = 1e-8\n"
    "[lr_scheduler]\nwarmup_steps = 200\n"
    "[training]\nbatch_size = 1\nseq_len = 8192\nmax_norm = 1.0\nsteps = 1000\ncompile = false\ndataset = "
    "\"c4\"\n"
    "[parallelism]\ndata_parallel_replicate_degree = 1\ndata_parallel_shard_degree = "
    "-1\ntensor_parallel_degree = 1\n"
    "pipeline_parallel_degree = 1\ncontext_parallel_degree = 1\n"
    "[checkpoint]\nenable_checkpoint = false\nfolder = \"checkpoint\"\ninterval = 500\nmodel_weights_only = "
    "false\n"
    "export_dtype = \"float32\"\nasync_mode = \"disabled\"\n"
    "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = 'op'\n"
    "[float8]\nenable_fsdp_float8_all_gather = false\nprecompute_float8_dynamic_scale_for_fsdp = false\n"
    "filter_fqns = \"output\"\n";

static const char debug_model[] =
    "[job]\ndump_folder = \"./outputs\"\ndescription = \"Llama 3 debug training\"\nprint_args = false\n"
    "use_for_integration_test = true\n"
    "[profiling]\nenable_profiling = false\nsave_traces_folder = \"profile_trace\"\nprofile_freq = 10\n"
    "enable_memory_snapshot = false\nsave_memory_snapshot_folder = \"memory_snapshot\"\n"
    "[metrics]\nlog_freq = 1\ndisable_color_printing = false\nenable_tensorboard = false\nsave_tb_folder = "
    "\"tb\"\n"
    "enable_wandb = false\n"
    "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"
    "[optimizer]\nname = \"AdamW\"\nlr = 8e-4\neps = 1e-8\n"
    "[lr_scheduler]\nwarmup_steps = 2\ndecay_ratio = 0.8\ndecay_type = \"linear\"\nmin_lr_factor = 0.0\n"
    "[training]\nlocal_batch_size = 8\nseq_len = 2048\nmax_norm = 1.0\nsteps = 10\n"
    "[parallelism]\ndata_parallel_shard_degree = -1\nfsdp_reshard_after_forward = \"default\"\n"
    "enable_async_tensor_parallel = false\n"
    "[checkpoint]\nenable = false\nlast_save_model_only = false\nexport_dtype = \"float32\"\n"
    "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = '2'\n"
    "[compile]\nenable=false\ncomponents = [\"model\", \"loss\"]\n"
    "[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n"
    "[validation]\nenabled = false\ndataset = \"c4_validation\"\nfreq = 5\nsteps = 10\n";

static void test_llama3_8b_is_refused_once(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", llama3_8b, ":28: training.dataset = \"c4\"", "data.dataset_path", NULL);
}

static void test_llama3_8b(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", llama3_8b, "--training.dataset_path", "c4.txt",
                            "--profiling.no_enable_profiling", "--metrics.enable-tensorboard=false",
                            "--training.compile", "--model.converters=\"float8\"",
                            "--float8.recipe_name=\"rowwise\"", "--model.tokenizer_path=", NULL);
    assert_int_equal(cfg->model.preset, PRESET_8B);
    assert_int_equal(cfg->model.init_style, INIT_TITAN);
    assert_int_equal(cfg->train.batch_size, 1);
    assert_int_equal(cfg->train.seq_len, 8192);
    assert_int_equal(cfg->train.max_steps, 1000);
    assert_true(cfg->train.compile_model);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
    assert_int_equal(cfg->train.activation_checkpointing, CHECKPOINTING_OP);
    assert_int_equal(cfg->float8.recipe_name, RECIPE_ROWWISE);
    assert_int_equal(cfg->float8.filter_fqns.count, 1);
    assert_string_equal(cfg->float8.filter_fqns.items[0], "output");
    assert_int_equal(cfg->optimizer.name, OPTIMIZER_ADAMW);
    assert_string_equal(cfg->data.dataset_path, "c4.txt");
    assert_string_equal(cfg->run.dir, "./outputs");
    assert_int_equal(cfg->checkpoint.interval, 0);
    /* without decay_ratio, the schedule is linear decay over all steps after the warmup */
    assert_int_equal(cfg->scheduler.name, SCHEDULER_LINEAR);
    assert_int_equal(cfg->scheduler.warmup_steps, 200);
    assert_int_equal(cfg->scheduler.decay_steps, 800);
    assert_true(cfg->scheduler.min_lr_ratio == 0.0);
    assert_non_null(strstr(c->log, "is written for torchtitan"));
    config_close(cfg);
}

/* torchtitan profiles one of every profile_freq steps (default 10). */
static void test_profiling(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", llama3_8b, "--training.dataset_path=c4.txt", NULL);
    assert_true(cfg->profiling.enable);
    assert_int_equal(cfg->profiling.frequency, 100);
    assert_string_equal(cfg->profiling.trace_dir, "profile_trace");
    config_close(cfg);
    cfg = case_good(c, ".toml", "[training]\nsteps = 20\n", "--profiling.enable_profiling", NULL);
    assert_true(cfg->profiling.enable);
    assert_int_equal(cfg->profiling.frequency, 10);
    assert_string_equal(cfg->profiling.trace_dir, "profile_traces");
    config_close(cfg);
    cfg = case_good(c, ".toml", "[training]\nsteps = 20\n", "--profiling.enable", "--profiling.frequency=0",
                    NULL);
    assert_int_equal(cfg->profiling.frequency, 0);
    config_close(cfg);
    case_bad(c, ".toml", "[training]\nsteps = 20\n[profiling]\nenable_memory_snapshot = true\n",
             "enable_memory_snapshot = true", "PyTorch's allocator", NULL);
}

static void test_debug_model(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", debug_model, NULL);
    assert_int_equal(cfg->model.preset, PRESET_DEBUG);
    assert_int_equal(cfg->train.activation_checkpointing, CHECKPOINTING_EVERY_N);
    assert_int_equal(cfg->train.activation_checkpointing_every, 2);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_BF16);
    assert_false(cfg->train.compile_model);
    assert_string_equal(cfg->float8.filter_fqns.items[0], "output");
    assert_false(cfg->float8.enable_fsdp_float8_all_gather);
    /* 10 steps: 2 of warmup and 8 of decay, none with a constant rate */
    assert_int_equal(cfg->scheduler.name, SCHEDULER_LINEAR);
    assert_int_equal(cfg->scheduler.decay_steps, 8);
    config_close(cfg);
}

static void test_schedule(void **state) {
    config_case *c = *state;
    static const char text[] = "[training]\nsteps = 100\n[lr_scheduler]\nwarmup_steps = 10\ndecay_ratio = "
                               "0.3\ndecay_type = \"sqrt\"\nlr_min = 0.2\n";
    config *cfg = case_good(c, ".toml", text, NULL);
    assert_int_equal(cfg->scheduler.name, SCHEDULER_WSD);
    assert_int_equal(cfg->scheduler.wsd_decay_type, WSD_DECAY_SQRT);
    assert_int_equal(cfg->scheduler.decay_steps, 30);
    assert_int_equal(cfg->scheduler.stable_steps, 60);
    assert_true(cfg->scheduler.min_lr_ratio == 0.2);
    /* the decay is computed again when the number of steps changes */
    assert_int_equal(config_set(cfg, "training.steps", "200"), OTT_OK);
    assert_int_equal(config_check(cfg), OTT_OK);
    assert_int_equal(cfg->scheduler.decay_steps, 60);
    config_close(cfg);
    cfg = case_good(c, ".toml",
                    "[training]\nsteps = 100\n[lr_scheduler]\nwarmup_steps = 10\ntotal_steps = 500\n",
                    NULL); /* the run ends before its schedule does */
    assert_int_equal(cfg->scheduler.name, SCHEDULER_LINEAR);
    assert_int_equal(cfg->scheduler.decay_steps, 490);
    config_close(cfg);
    cfg = case_good(c, ".toml", text, "--scheduler.name=cosine", NULL);
    assert_int_equal(cfg->scheduler.name, SCHEDULER_COSINE);
    assert_int_equal(cfg->scheduler.decay_steps, 0);
    config_close(cfg);
}

static void test_precision(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", "[training]\nmixed_precision_param = \"float32\"\n", NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP32);
    config_close(cfg);
    cfg = case_good(c, ".toml",
                    "[training]\nmixed_precision_param = \"bfloat16\"\n[model]\nconverters = "
                    "[\"quantize.linear.float8\"]\n",
                    NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
    config_close(cfg);
    cfg = case_good(c, ".toml", "[model]\nconverters = [\"float8\"]\n[training]\nsteps = 500\n",
                    "--model.converters=", NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_BF16);
    config_close(cfg);
    case_bad(c, ".toml",
             "[model]\nconverters = [\"float8\"]\n[training]\nmixed_precision_param = \"float32\"\n",
             "mixed_precision_param = \"float32\"", "FP8", NULL);
    case_bad(c, ".toml", "[model]\nconverters = [\"lora\"]\n", "\"lora\" is not one of \"float8\"", NULL);
}

/* FSDP's CPU offloading, in both spellings. Masters that GEMMs read cannot be offloaded: that is an error. */
static void test_offload(void **state) {
    config_case *c = *state;
    static const char text[] = "[training]\nsteps = 5\nenable_cpu_offload = true\n";
    config *cfg = case_good(c, ".toml", text, NULL);
    assert_int_equal(cfg->train.offload, OFFLOAD_STATE);
    config_close(cfg);
    cfg = case_good(c, ".toml", text, "--train.offload=moments", "--train.mixed_precision=fp32", NULL);
    assert_int_equal(cfg->train.offload, OFFLOAD_MOMENTS);
    config_close(cfg);
    cfg = case_good(
        c, ".yaml",
        "distributed:\n  offload_policy:\n    _target_: torch.distributed.fsdp.CPUOffloadPolicy\n", NULL);
    assert_int_equal(cfg->train.offload, OFFLOAD_STATE);
    config_close(cfg);
    case_bad_argument(c, "--train.offload=all", "is not one of \"none\", \"moments\", \"state\"", NULL);
    case_bad(c, ".toml", "[train]\noffload = \"state\"\nmaster_dtype = \"bf16\"\n",
             "with train.master_dtype = \"bf16\" matrix products read them; set train.offload = \"moments\"",
             NULL);
    case_bad(c, ".toml", "[train]\noffload = \"state\"\nmixed_precision = \"fp32\"\n",
             "with train.mixed_precision = \"fp32\" matrix products read them", NULL);
}

/* If parameters are bf16, gradients and moments are bf16 too. Ottava's own keys have priority. */
static void test_state_dtype(void **state) {
    config_case *c = *state;
    const char *text = "[training]\nsteps = 5\ndtype = \"bfloat16\"\n";
    config *cfg = case_good(c, ".toml", text, NULL);
    assert_int_equal(cfg->train.master_dtype, STATE_BF16);
    assert_int_equal(cfg->train.grad_dtype, STATE_BF16);
    assert_int_equal(cfg->optimizer.state_dtype, MOMENT_BF16);
    config_close(cfg);
    cfg = case_good(c, ".toml", text, "--optimizer.state_dtype=fp32", NULL);
    assert_int_equal(cfg->train.master_dtype, STATE_BF16);
    assert_int_equal(cfg->optimizer.state_dtype, MOMENT_FP32);
    config_close(cfg);
    case_bad(c, ".toml", "[training]\nsteps = 5\ndtype = \"float16\"\n",
             "is not one of \"float32\", \"bfloat16\"", NULL);
}

/* Tests the formats in which sharding gathers and stores parameters, with the keys of both versions of
   torchtitan. */
static void test_sharding(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml",
                            "[training]\nsteps = 5\nmixed_precision_reduce = \"bfloat16\"\n[parallelism]\n"
                            "fsdp_reshard_after_forward = \"never\"\n",
                            NULL);
    assert_int_equal(cfg->distributed.reduce_dtype, REDUCE_BFLOAT16);
    assert_int_equal(cfg->distributed.reshard_after_forward, RESHARD_NEVER);
    assert_false(cfg->distributed.defer_fsdp_grad_sync);
    config_close(cfg);
    cfg = case_good(c, ".toml", "[training]\nsteps = 5\nfsdp_reshard_after_forward = \"always\"\n", NULL);
    assert_int_equal(cfg->distributed.reduce_dtype, REDUCE_FLOAT32);
    assert_int_equal(cfg->distributed.reshard_after_forward, RESHARD_ALWAYS);
    config_close(cfg);
    case_bad(c, ".toml", "[training]\nsteps = 5\nmixed_precision_reduce = \"float16\"\n", "float16",
             "bfloat16", NULL);
}

/* torchtitan's MX converter has its own section of keys. They have an effect only if the converter is on. */
static void test_mx(void **state) {
    config_case *c = *state;
    static const char text[] = "[training]\nsteps = 500\n[mx]\nuse_fp8_dim1_cast_triton_kernel = true\n"
                               "filter_fqns = [\"output\"]\n[float8]\nemulate = true\n";
    config *cfg = case_good(c, ".toml", text, "--model.converters=mx", NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
    assert_int_equal(cfg->float8.recipe_name, RECIPE_MXFP8);
    assert_int_equal(cfg->float8.mx_scale, MX_SCALE_FLOOR); /* the default of torchao */
    assert_string_equal(cfg->float8.filter_fqns.items[0], "output");
    assert_false(cfg->float8.enable_fsdp_float8_all_gather);
    config_close(cfg);
    cfg = case_good(c, ".toml", text, "--model.converters=mx", "--mx.recipe_name=mxfp8_cublas_rceil",
                    "--float8.filter_fqns=lm_head", NULL);
    assert_int_equal(cfg->float8.mx_scale, MX_SCALE_ROUNDUP);
    assert_string_equal(cfg->float8.filter_fqns.items[0], "lm_head");
    config_close(cfg);
    cfg = case_good(c, ".toml", text, "--model.converters=float8", NULL);
    assert_int_equal(cfg->float8.recipe_name, RECIPE_TENSORWISE);
    assert_int_equal(cfg->float8.filter_fqns.count, 0);
    config_close(cfg);
    case_bad(c, ".toml", "[training]\nsteps = 5\n[quantize.linear.mx]\nrecipe_name = \"mxfp4\"\n",
             "quantize.linear.mx.recipe_name = \"mxfp4\" is not one of \"mxfp8\"", NULL);
}

/* The filter "auto_filter_small_kn" stays in filter_fqns, where the conversion of the model reads it. */
static void test_filter_small(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml",
                            "[training]\nsteps = 500\n[float8]\nfilter_fqns = "
                            "[\"auto_filter_small_kn\", \"output\"]\n[model]\nconverters = [\"float8\"]\n",
                            NULL);
    assert_int_equal(cfg->float8.filter_fqns.count, 2);
    assert_string_equal(cfg->float8.filter_fqns.items[0], "auto_filter_small_kn");
    config_close(cfg);
}

static void test_words(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", "[model]\nname = \"deepseek_v3\"\n",
             "model.name = \"deepseek_v3\": mixtures of experts are not supported yet", NULL);
    case_bad(c, ".toml", "[model]\nflavor = \"9B\"\n",
             "model.flavor = \"9B\" is not a known flavor of llama3", " 8B,", NULL);
    case_bad(c, ".toml", "[activation_checkpoint]\nmode = \"some\"\n", "\"selective\"", NULL);
    case_bad(c, ".toml", "[activation_checkpoint]\nselective_ac_option = \"ops\"\n",
             "must be \"op\" or a positive integer", NULL);
    case_bad(c, ".toml", "[experimental]\ncustom_import = \"my.module\"\n", "Python modules cannot be loaded",
             NULL);
    config *cfg = case_good(c, ".toml",
                            "[training]\nsteps = 500\ngc_freq = 7\nglobal_batch_size = -1\n[optimizer]\nname "
                            "= \"AdamW\"\nbeta1 = 0.8\n",
                            NULL);
    assert_true(cfg->optimizer.betas[0] == 0.8 && cfg->optimizer.betas[1] == 0.95);
    assert_int_equal(cfg->train.global_batch_size, 0);
    assert_non_null(
        strstr(c->log, "training.gc_freq = 7: controls PyTorch only; Ottava has no garbage collector"));
    config_close(cfg);
    cfg = case_good(c, ".toml",
                    "[activation_checkpoint]\nselective_ac_option = \"4\"\nmode = \"selective\"\n", NULL);
    assert_int_equal(cfg->train.activation_checkpointing_every, 4);
    config_close(cfg);
    cfg = case_good(c, ".toml", "[activation_checkpoint]\nmode = \"none\"\n", NULL);
    assert_int_equal(cfg->train.activation_checkpointing, CHECKPOINTING_NONE);
    config_close(cfg);
}

/* The converter of grouped GEMMs converts all experts to FP8, with its own recipe. */
static void test_grouped_products(void **state) {
    static const char base[] =
        "[training]\nsteps = 3\n[quantize.grouped_mm.float8]\nfqns = [\"experts\"]\n"
        "[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n[model]\nnum_experts = 4\n";
    config_case *c = *state;
    char text[400];
    snprintf(text, sizeof text,
             "%sconverters = [\"quantize.linear.float8\", \"quantize.grouped_mm.float8\"]\n", base);
    config *cfg = case_good(c, ".toml", text, NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
    assert_int_equal(cfg->float8.recipe_name, RECIPE_TENSORWISE);
    assert_true(cfg->float8.moe_experts);
    assert_int_equal(cfg->float8.module.count, 1);
    assert_string_equal(cfg->float8.module.items[0], "*.experts.*=rowwise");
    config_close(cfg);
    snprintf(text, sizeof text, "%sconverters = [\"quantize.grouped_mm.mx\"]\n", base);
    cfg = case_good(c, ".toml", text, NULL);
    assert_int_equal(cfg->float8.module.count, 2);
    assert_string_equal(cfg->float8.module.items[0], "*.experts.*=mxfp8");
    assert_string_equal(cfg->float8.module.items[1], "*=bf16");
    config_close(cfg);
    cfg = case_good(c, ".toml", text, "--float8.moe_experts=false", NULL);
    assert_int_equal(cfg->float8.module.count, 0);
    config_close(cfg);
    /* the converter's section has no effect unless the converter is on */
    cfg = case_good(c, ".toml", base, NULL);
    assert_int_equal(cfg->train.mixed_precision, PRECISION_BF16);
    assert_false(cfg->float8.moe_experts);
    config_close(cfg);
    case_bad(c, ".toml", "[training]\nsteps = 3\n[quantize.grouped_mm.float8]\nfqns = [\"layers.3\"]\n",
             "\"layers.3\" does not name all experts", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_llama3_8b_is_refused_once),
        CASE(test_llama3_8b),
        CASE(test_profiling),
        CASE(test_debug_model),
        CASE(test_schedule),
        CASE(test_precision),
        CASE(test_offload),
        CASE(test_state_dtype),
        CASE(test_sharding),
        CASE(test_mx),
        CASE(test_filter_small),
        CASE(test_words),
        CASE(test_grouped_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
