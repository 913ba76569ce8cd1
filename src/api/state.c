/*
 * api/state: saves and loads checkpoints of modules. A model uses the format of a run's checkpoint
 * (checkpoint/checkpoint.h). So ott_train can resume from a program's checkpoint, and a program from a run's.
 * Another module's checkpoint has the same format, without the files that only a model needs. All files are
 * checked before the module changes.
 */
#include "api/module/model.h"
#include "api/optimizer.h"
#include "base/file/file.h"
#include "checkpoint/float8.h"
#include "checkpoint/folder.h"
#include "checkpoint/snapshot.h"
#include <stdio.h>
#include <string.h>

/* ---- contents of the files ---- */

static ott_status describe_parameters(ott_module *m, tensor_set *set) {
    const module_parameter *made;
    TRY(tensor_set_open(set, m->handle.context->account, ott_module_parameter_count(m)));
    for (int i = 0; (made = module_parameter_at(m, i)); i++)
        TRY(tensor_set_add_parameter(set, module_relative_name(m, made->p->name), made->p));
    return OTT_OK;
}

static ott_status describe_optimizer(ott_module *m, const ott_optimizer *o, tensor_set *set) {
    TRY(tensor_set_open(set, m->handle.context->account, (int64_t)o->rule->slots * o->count));
    for (int i = 0; i < o->count; i++) {
        const char *name = module_relative_name(m, module_parameter_at(m, i)->p->name);
        TRY(tensor_set_add_slots(set, name, &o->parameters[i], o->rule));
    }
    return OTT_OK;
}

/* The linear layers of a module: the node of each layer, and its entry for checkpoint/float8. */
typedef struct layer_list {
    ott_module *root;
    ott_module **modules; /* [count] nodes of the layers */
    float8_layer *layers; /* [count] entries of the layers */
    int64_t count;
} layer_list;

static ott_status add_module_layer(void *user, ott_module *m) {
    layer_list *l = user;
    if (l->layers) {
        l->modules[l->count] = m;
        l->layers[l->count] =
            (float8_layer){module_relative_name(l->root, m->name), module_linear_body(m)->layer};
    }
    l->count++;
    return OTT_OK;
}

static void layers_close(layer_list *l) {
    mem *account = l->root->handle.context->account;
    mem_free(account, l->modules);
    mem_free(account, l->layers);
}

/* Close it with layers_close, also after a failure. */
static ott_status layers_open(layer_list *l, ott_module *root) {
    mem *account = root->handle.context->account;
    *l = (layer_list){.root = root};
    TRY(module_visit_linears(root, add_module_layer, l));
    TRY(mem_alloc_array(account, MEM_OTHER, l->count, sizeof *l->modules, "linear layers", &l->modules));
    TRY(mem_alloc_array(account, MEM_OTHER, l->count, sizeof *l->layers, "linear layers", &l->layers));
    l->count = 0;
    return module_visit_linears(root, add_module_layer, l);
}

static ott_status note_recipes(const layer_list *l, tensor_set *set) {
    for (int64_t i = 0; i < l->count; i++) {
        const char *key, *recipe_name = module_linear_body(l->modules[i])->fp8_recipe;
        if (!*recipe_name) continue;
        TRY(arena_printf(set->memory, &key, "%s.recipe", l->layers[i].name));
        TRY(tensor_set_note(set, key, recipe_name));
    }
    return OTT_OK;
}

/* Adds the state of delayed scaling to *set. If there is none, *set stays empty, and no file is written. */
static ott_status describe_float8(ott_module *m, tensor_set *set) {
    layer_list l;
    ott_status status = layers_open(&l, m);
    if (status == OTT_OK) status = float8_describe(m->handle.context->account, l.layers, l.count, false, set);
    if (status == OTT_OK && set->count == 0)
        tensor_set_close(set);
    else if (status == OTT_OK)
        status = note_recipes(&l, set);
    layers_close(&l);
    return status;
}

/* ---- models ---- */

/* Gives the model's parameters the state of optimizer o, to be saved or loaded. o NULL: removes the state. */
static void attach_slots(model *m, const ott_optimizer *o) {
    m->options.optimizer = o ? o->rule : NULL;
    for (int i = 0; i < m->parameter_count; i++)
        for (int j = 0; j < PARAMETER_SLOTS; j++)
            m->parameters[i].shard.slot[j] = o ? o->parameters[i].shard.slot[j] : (tensor){0};
}

/* Takes a snapshot of a model. o may count more updates than the model counts steps, if a checkpoint was
   loaded into the model alone. Then the number of updates is saved as the number of steps. */
static ott_status take_model(const model_body *b, const ott_optimizer *o, checkpoint_snapshot *s) {
    run_state run = b->run;
    if (o) run.updates = o->updates;
    if (run.updates > run.step) run.step = run.updates;
    attach_slots(b->m, o);
    ott_status status = checkpoint_snapshot_take(b->m, b->cfg, b->recipe_name, &run, NULL, s);
    attach_slots(b->m, NULL);
    return status;
}

static ott_status load_model(const char *folder, ott_module *m, ott_optimizer *o) {
    model_body *b = module_model_body(m);
    run_state run;
    bool fell_back;
    module_drop_forward(m, "a checkpoint was loaded after it");
    attach_slots(b->m, o);
    ott_status status = checkpoint_load(b->m, &m->handle.context->log, NULL, folder, &run, &fell_back);
    attach_slots(b->m, NULL);
    if (status != OTT_OK) return status;
    module_mark_weights_set(m);
    b->run = run;
    if (o) o->updates = run.updates;
    return fell_back ? module_model_apply_fallbacks(b) : OTT_OK;
}

/* ---- saving ---- */

/* A file with counters and checksums, which only module checkpoints of an older format have. */
#define OLD_STATE_NAME "module.json"

/* *ours is true if ott_checkpoint_save wrote the checkpoint. A checkpoint of a training run differs: it has
   config.toml, and the run's name is in its state. */
static ott_status is_module_checkpoint(mem *account, const char *folder, bool *ours) {
    bool has_state = file_is_in(folder, CHECKPOINT_STATE_NAME);
    bool has_config = file_is_in(folder, checkpoint_file_name(CHECKPOINT_CONFIG));
    char path[PATH_MAX];
    checkpoint_state s;
    *ours = file_is_in(folder, OLD_STATE_NAME) || (has_state && !has_config);
    if (!has_state || !has_config) return OTT_OK;
    TRY(file_join(folder, CHECKPOINT_STATE_NAME, path));
    *ours = checkpoint_state_read(account, path, &s) == OTT_OK && !s.is_bare_module && !s.lacks_owner &&
            !*s.mark.run;
    return OTT_OK;
}

/* Fails with OTT_ERR_IO if the folder exists and is not a checkpoint of a module. */
static ott_status check_place(mem *account, const char *folder) {
    bool ours = false;
    if (!file_exists(folder)) return OTT_OK;
    if (file_is_folder(folder)) TRY(is_module_checkpoint(account, folder, &ours));
    if (ours) return OTT_OK;
    return status_fail(
        OTT_ERR_IO, "%s: exists and is not a checkpoint of a module: move it or choose another name", folder);
}

static ott_status take_snapshot(ott_module *m, const ott_optimizer *o, checkpoint_snapshot *s) {
    ott_context *context = m->handle.context;
    *s = (checkpoint_snapshot){
        .account = context->account,
        .ranks.device = context->device,
        .config.account = context->account,
        .history.account = context->account,
        .state.is_bare_module = true,
        .state.run = {.step = context->step, .updates = o ? o->updates : 0, .loss_scale = 1.0f}};
    TRY(describe_parameters(m, &s->sets[CHECKPOINT_MODEL]));
    if (o) TRY(describe_optimizer(m, o, &s->sets[CHECKPOINT_OPTIMIZER]));
    return describe_float8(m, &s->sets[CHECKPOINT_FLOAT8]);
}

static ott_status save_module(const char *folder, ott_module *m, const ott_optimizer *o) {
    checkpoint_snapshot s;
    TRY(check_place(m->handle.context->account, folder));
    TRY(module_make_weights(m));
    const model_body *b = module_model_body(m);
    ott_status status = b ? take_model(b, o, &s) : take_snapshot(m, o, &s);
    if (status == OTT_OK) status = checkpoint_snapshot_put(&s, folder);
    checkpoint_snapshot_close(&s);
    return status;
}

/* ---- loading ---- */

typedef struct state_loader {
    mem *account;
    ott_module *m;
    ott_optimizer *o; /* NULL: no optimizer state is loaded */
    const char *folder;
    checkpoint_state state;
    safetensors *files[CHECKPOINT_CONFIG]; /* NULL: the file is absent or not needed */
    tensor_set sets[CHECKPOINT_FLOAT8];    /* tensor sets of model.safetensors and optimizer.safetensors */
    layer_list layers;
} state_loader;

static ott_status open_set(state_loader *l, enum checkpoint_file_id id) {
    TRY(checkpoint_file_open(l->account, l->folder, id, &l->files[id]));
    TRY(id == CHECKPOINT_MODEL ? describe_parameters(l->m, &l->sets[id])
                               : describe_optimizer(l->m, l->o, &l->sets[id]));
    return tensor_set_check(&l->sets[id], l->files[id]);
}

static ott_status check_state_files(state_loader *l) {
    const checkpoint_file *files = l->state.files;
    if (!file_is_in(l->folder, CHECKPOINT_STATE_NAME) && file_is_in(l->folder, OLD_STATE_NAME))
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "%s: an earlier version of the library wrote this checkpoint (it has " OLD_STATE_NAME
            " and no " CHECKPOINT_STATE_NAME
            "): load it with that version, or copy the tensors of its safetensors files into the "
            "parameters",
            l->folder);
    TRY(checkpoint_verify(l->account, l->folder, true, NULL, &l->state));
    if (l->o && files[CHECKPOINT_OPTIMIZER].absent)
        return status_fail(OTT_ERR_FORMAT, "%s: was saved without an optimizer: load it with optimizer NULL",
                           l->folder);
    TRY(open_set(l, CHECKPOINT_MODEL));
    if (l->o) TRY(open_set(l, CHECKPOINT_OPTIMIZER));
    TRY(layers_open(&l->layers, l->m));
    if (files[CHECKPOINT_FLOAT8].absent) return OTT_OK;
    TRY(checkpoint_file_open(l->account, l->folder, CHECKPOINT_FLOAT8, &l->files[CHECKPOINT_FLOAT8]));
    return float8_check(l->account, l->files[CHECKPOINT_FLOAT8]);
}

/* ---- delayed scaling ---- */

static ott_status recorded_recipe(const state_loader *l, const char *layer, char out[32]) {
    str key = {.account = l->account};
    str_printf(&key, "%s.recipe", layer);
    ott_status status = str_finish(&key);
    const safetensors *f = l->files[CHECKPOINT_FLOAT8];
    const char *name = status == OTT_OK && f ? safetensors_metadata(f, key.text) : NULL;
    snprintf(out, 32, "%s", name ? name : "unknown");
    str_free(&key);
    return status;
}

/* Loads the state of delayed scaling into a layer that has not run with an FP8 recipe yet. The layer uses the
   state in its first autocast region, if format and margin are the same. */
static ott_status hold_float8_state(const state_loader *l, linear_body *b, const char *name) {
    const safetensors *f = l->files[CHECKPOINT_FLOAT8];
    cast_spec specs[TENSOR_COUNT];
    delayed_request wanted[TENSOR_COUNT];
    bool any = false;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        float8_found found;
        TRY(float8_find(l->account, f, name, t, &found));
        wanted[t] = (delayed_request){.state = &b->layer->delayed[t]};
        if (!found.history) continue;
        any = true;
        specs[t] = (cast_spec){.format = found.format,
                               .grain = GRANULARITY_TENSOR,
                               .scale.rule = SCALE_TE,
                               .scale.margin = found.margin,
                               .policy = AMAX_DELAYED,
                               .history = (int)found.history->shape[0]};
        wanted[t].spec = &specs[t];
    }
    if (!any) return OTT_OK;
    TRY(delayed_store_set(&b->store, l->m->handle.context->device, wanted, TENSOR_COUNT));
    return recorded_recipe(l, name, b->fp8_recipe);
}

static void log_float8_event(void *user, const float8_layer *layer, int which, float8_event event) {
    const state_loader *l = user;
    const logger *log = &l->m->handle.context->log;
    const linear_body *b = module_linear_body(l->layers.modules[layer - l->layers.layers]);
    const char *shown = *layer->name ? layer->name : "the module itself",
               *tensor_name = float8_tensor_names[which];
    char recipe_name[32];
    if (event == FLOAT8_DROPPED && recorded_recipe(l, layer->name, recipe_name) == OTT_OK)
        log_info(log, "Float8 state of %s (%s, recipe %s) dropped: the module runs %s", shown, tensor_name,
                 str_show(recipe_name).text, *b->fp8_recipe ? b->fp8_recipe : "no FP8 recipe");
    if (event == FLOAT8_FRESH)
        log_info(log, "Float8 state of %s (%s) starts from scratch: the checkpoint has none for recipe %s",
                 shown, tensor_name, b->fp8_recipe);
}

static ott_status load_float8(state_loader *l) {
    const safetensors *f = l->files[CHECKPOINT_FLOAT8];
    for (int64_t i = 0; f && i < l->layers.count; i++) {
        linear_body *b = module_linear_body(l->layers.modules[i]);
        if (!b->converted && !b->was_fp8) TRY(hold_float8_state(l, b, l->layers.layers[i].name));
    }
    return float8_read(l->m->handle.context->device, f, l->layers.layers, l->layers.count, log_float8_event,
                       l);
}

/* ---- applying a checkpoint ---- */

static ott_status apply_state(state_loader *l) {
    ott_context *context = l->m->handle.context;
    cancellation_progress progress = {0};
    int64_t done = 0;
    module_drop_forward(l->m, "a checkpoint was loaded after it");
    module_weights_changed(l->m);
    for (int id = 0; id < CHECKPOINT_FLOAT8; id++)
        TRY(tensor_set_read(&l->sets[id], l->files[id], context->device, &progress, &done));
    module_mark_weights_set(l->m);
    ott_status status = load_float8(l);
    TRY(module_connect(l->m)); /* the memory of delayed scaling may have moved */
    if (l->o) l->o->updates = l->state.run.updates;
    context->step = l->state.run.step;
    return status;
}

static ott_status load_module(const char *folder, ott_module *m, ott_optimizer *o) {
    if (m->table->is_model) return load_model(folder, m, o);
    state_loader l = {
        .account = m->handle.context->account, .m = m, .o = o, .folder = folder, .layers.root = m};
    ott_status status = check_state_files(&l);
    if (status == OTT_OK) status = apply_state(&l);
    for (int id = 0; id < CHECKPOINT_CONFIG; id++) safetensors_close(l.files[id]);
    for (int id = 0; id < CHECKPOINT_FLOAT8; id++) tensor_set_close(&l.sets[id]);
    layers_close(&l.layers);
    return status;
}

/* ---- the public calls ---- */

static ott_status check_arguments(const char *folder, const ott_module *m, const ott_optimizer *o,
                                  const char *function) {
    TRY(api_require(folder, function, "folder"));
    if (!*folder) return status_fail(OTT_ERR_ARGUMENT, "%s: folder is empty", function);
    TRY(handle_check(m, HANDLE_MODULE, function, "module"));
    if (o) TRY(optimizer_check(o, function));
    if (!o || o->module == m) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: optimizer belongs to another module", function);
}

ott_status ott_checkpoint_save(const char *folder, ott_module *module, ott_optimizer *optimizer) {
    TRY(check_arguments(folder, module, optimizer, __func__));
    return MODULE_INSIDE(module->handle.context, save_module(folder, module, optimizer));
}

ott_status ott_checkpoint_load(const char *folder, ott_module *module, ott_optimizer *optimizer) {
    TRY(check_arguments(folder, module, optimizer, __func__));
    return MODULE_INSIDE(module->handle.context, load_module(folder, module, optimizer));
}
