/* train/inference: opening a trained model to run it forward. */
#include "train/inference.h"
#include "parallel/checkpoint.h"
#include "parallel/hf_model.h"
#include "train/run.h"

ott_status inference_read(mem *account, config *cfg, const char *checkpoint, inference_plan *out) {
    trainer_options options;
    run_state state = {0};
    out->cfg = cfg;
    out->checkpoint = checkpoint;
    TRY(model_options_resolve(cfg, &out->shape));
    TRY(precision_plan_read(cfg, &out->precision));
    if (checkpoint) TRY(checkpoint_peek(account, checkpoint, &state));
    TRY(run_trainer_options(cfg, &out->precision, state.step, &options));
    out->convert = options.convert;
    return OTT_OK;
}

static ott_status convert(const inference_plan *p, model *m) {
    return p->convert.recipe ? model_convert(m, &p->convert, NULL) : OTT_OK;
}

/* Layers that had fallen back to high precision when the checkpoint was saved are known only once it is read.
 */
static ott_status load(const inference_plan *p, model *m, const logger *log) {
    run_state state;
    bool fallen;
    if (!p->checkpoint) return hf_model_load(m, p->cfg->model.hf_path);
    TRY(checkpoint_load(m, log, p->checkpoint, &state, &fallen));
    return fallen ? convert(p, m) : OTT_OK;
}

ott_status inference_open(const inference_plan *p, device *d, int64_t positions, const logger *log,
                          model **out) {
    model *m;
    TRY(model_open(d, &p->shape, MODEL_INFERENCE, positions, &m));
    ott_status status = convert(p, m);
    if (status == OTT_OK) status = load(p, m, log);
    if (status == OTT_OK)
        *out = m;
    else
        model_close(m);
    return status;
}
