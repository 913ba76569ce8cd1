/*
 * api/fp8/autocast: autocast regions, and when delayed scaling updates its scales. Internal to this folder.
 *
 * The rules are TransformerEngine's (DelayedScaling), with two changes. An evaluation records no amax. The
 * end of the outermost region updates scales if this region or any region inside it was enabled.
 */
#ifndef API_FP8_AUTOCAST_H
#define API_FP8_AUTOCAST_H

#include "api/module/module.h"

enum { AUTOCAST_DEPTH_MAX = 32 };

typedef struct autocast_region {
    bool enabled;
    recipe recipe;    /* a copy that ott_autocast_begin made */
    ott_group *group; /* ranks that share amaxes; NULL: this rank only */
} autocast_region;

/* State that all modules of a context share. */
typedef struct autocast {
    autocast_region regions[AUTOCAST_DEPTH_MAX];
    int depth;          /* number of open regions, which are in `regions` */
    bool was_enabled;   /* a region was enabled since the outermost ott_autocast_begin */
    bool first_pending; /* no module has run FP8 layers in training since the outermost ott_autocast_begin */
    /* linear layers that ran FP8 in a region, in the order of their first run; linked by next_registered */
    ott_module *registered, **registered_end;
} autocast;

/* Sets how a linear layer quantizes. If that differs from before, sets *changed; then call module_connect. */
ott_status autocast_set_spec(ott_module *m, const linear_spec *spec, const char *recipe_name, bool *changed);
/* Call before a forward: gives each linear layer the recipe of its conversion or of the innermost region. */
ott_status autocast_before_forward(ott_module *m);
/* Call after a forward in training: registers the layers that ran FP8 in an autocast region. */
ott_status autocast_after_forward(ott_module *m);
/* Call after a backward: updates grad_output scales if m was the first FP8 module in its region. */
ott_status autocast_after_backward(ott_module *m);
/* Call after an optimizer step: updates the scales of the module's converted layers. */
ott_status autocast_after_step(ott_module *m);
/* Call before a linear layer is closed: removes it from the list of registered layers. */
void autocast_unregister(ott_module *m);

#endif
