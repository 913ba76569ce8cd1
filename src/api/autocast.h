/*
 * api/autocast: regions in which linear layers take on a recipe while they run, and when delayed scaling's
 * scales are updated. Internal to this floor.
 *
 * TransformerEngine's rules (DelayedScaling), with two changes: an evaluation records nothing, and the end of
 * the outermost region updates scales when any region in it was enabled, not only when it was itself.
 */
#ifndef API_AUTOCAST_H
#define API_AUTOCAST_H

#include "api/module.h"

enum { AUTOCAST_DEPTH_MAX = 32 };

typedef struct autocast_region {
    bool enabled;
    recipe recipe;    /* as it stood at the begin */
    ott_group *group; /* NULL: alone */
} autocast_region;

/* What the modules of a context share. */
typedef struct autocast {
    autocast_region stack[AUTOCAST_DEPTH_MAX];
    int depth;
    bool was_enabled;   /* some region since the outermost begin */
    bool first_pending; /* no module has run FP8 layers in training since the outermost begin */
    ott_module *registered, **registered_end; /* linears that have run in a region, in that order */
} autocast;

/* A linear takes this spec, if it has another; *changed is set when it had: module_connect must follow. */
ott_status autocast_set_spec(ott_module *m, const linear_spec *spec, const char *recipe_name, bool *changed);
/* Before a forward: every linear of the module takes the spec it is to run with. */
ott_status autocast_before_forward(ott_module *m);
/* After a forward in training: layers that ran FP8 in a region are registered. */
ott_status autocast_after_forward(ott_module *m);
/* After a backward: updates the scales of grad_output when it was the one to do so. */
ott_status autocast_after_backward(ott_module *m);
/* After an optimizer step: updates the scales of the converted layers of a module. */
ott_status autocast_after_step(ott_module *m);
/* A linear is about to be closed. */
void autocast_unregister(ott_module *m);

#endif
