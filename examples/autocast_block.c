/*
 * autocast_block: autocast regions, as in TransformerEngine. Inside a region the linear layers of a
 * transformer layer run with delayed scaling. Their scales follow from the amaxes of earlier steps, taken
 * over all ranks of a group. The scales are updated when the region ends.
 *
 * cc autocast_block.c $(pkg-config --cflags --libs ottava) -o autocast_block && ./autocast_block
 */
#include <ottava/ottava.h>
#include <stdio.h>
#include <stdlib.h>

/* The library's functions return a status. ott_error_text() is one line that explains a failure. */
#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        ott_status status_ = (call);                                                                         \
        if (status_ != OTT_OK) {                                                                             \
            fprintf(stderr, "autocast_block: %s\n", ott_error_text());                                       \
            exit(ott_status_exit_code(status_));                                                             \
        }                                                                                                    \
    } while (0)

enum { SEQUENCES = 2, LENGTH = 32, TOKENS = SEQUENCES * LENGTH, DIM = 64, STEPS = 5 };

/*
 * A real program calls MPI_Allreduce or ncclAllReduce here. This example runs as one process, and simulates a
 * second rank whose amaxes are larger by a quarter.
 */
static ott_status all_reduce(void *user, float *values, int64_t count, ott_reduce kind) {
    int *calls = user;
    (*calls)++;
    for (int64_t i = 0; i < count && kind == OTT_REDUCE_MAX; i++) values[i] *= 1.25f;
    return OTT_OK;
}

static ott_recipe *delayed_scaling(ott_context *context) {
    ott_recipe *r;
    CHECK(ott_recipe_open(context, "delayed", &r));
    CHECK(ott_recipe_set(r, "fp8_format", "hybrid")); /* "hybrid": E4M3 forward, E5M2 backward */
    CHECK(ott_recipe_set(r, "amax_history_len", "16"));
    CHECK(ott_recipe_set(r, "amax_compute_algo", "max"));
    return r;
}

static ott_module *transformer_layer(ott_context *context) {
    const int64_t start[SEQUENCES] = {0, LENGTH};
    ott_transformer_layer_options o;
    ott_module *m;
    ott_transformer_layer_options_init(&o);
    o.dim = DIM;
    o.heads = 4;
    o.kv_heads = 2;
    o.hidden = 192;
    CHECK(ott_transformer_layer_open(context, &o, &m));
    CHECK(ott_module_set_sequences(m, start, SEQUENCES));
    return m;
}

static ott_group *two_ranks(ott_context *context, int *calls) {
    ott_group_options o;
    ott_group *g;
    ott_group_options_init(&o);
    o.size = 2;
    o.all_reduce = all_reduce;
    o.user = calls;
    CHECK(ott_group_open(context, &o, &g));
    return g;
}

static void print_scales(ott_module *layer, const char *when) {
    static const char *const names[] = {"self_attn.q_proj", "mlp.down_proj"};
    static const char *const tensors[] = {"input", "weight", "grad_output"};
    printf("%-16s", when);
    for (int n = 0; n < 2; n++)
        for (int t = 0; t < 3; t++) {
            float scale;
            CHECK(ott_module_scale(ott_module_child(layer, names[n]), tensors[t], &scale, NULL));
            printf("  %11.5g", (double)scale);
        }
    printf("\n");
}

int main(void) {
    ott_context *context;
    ott_autocast_options region;
    ott_tensor *x, *y, *dy;
    int calls = 0;

    CHECK(ott_context_open(NULL, &context));
    ott_module *layer = transformer_layer(context);
    ott_recipe *recipe = delayed_scaling(context);
    ott_group *group = two_ranks(context, &calls);
    CHECK(ott_tensor_open(context, OTT_BF16, TOKENS, DIM, &x));
    CHECK(ott_tensor_open(context, OTT_BF16, TOKENS, DIM, &y));
    CHECK(ott_tensor_open(context, OTT_BF16, TOKENS, DIM, &dy));

    ott_autocast_options_init(&region);
    region.recipe = recipe;
    region.amax_group = group;
    printf("%-16s  %35s  %35s\n", "", "q_proj input, weight, grad_output",
           "down_proj input, weight, grad_output");

    for (int step = 0; step < STEPS; step++) {
        char when[32];
        CHECK(ott_tensor_fill_normal(x, 1 + (uint64_t)step, 1.0));
        CHECK(ott_tensor_fill_normal(dy, 100 + (uint64_t)step, 1e-3 * (1 << step))); /* gradients that grow */

        CHECK(ott_autocast_begin(context, &region));
        CHECK(ott_module_forward(layer, x, y)); /* FP8, with scales from earlier steps */
        CHECK(ott_autocast_end(context));       /* new scales for input and weight, over the group */
        snprintf(when, sizeof when, "step %d, forward", step);
        print_scales(layer, when);

        CHECK(ott_module_backward(layer, dy, NULL)); /* new scales for grad_output */
        snprintf(when, sizeof when, "step %d, backward", step);
        print_scales(layer, when);
    }
    printf("reductions over the group: %d\n", calls);

    ott_tensor_close(x);
    ott_tensor_close(y);
    ott_tensor_close(dy);
    ott_group_close(group);
    ott_recipe_close(recipe);
    ott_module_close(layer);
    ott_context_close(context);
    return 0;
}
