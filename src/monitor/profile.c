/* monitor/profile: selects the steps to profile and writes a trace slice for each operation. */
#include "monitor/profile.h"
#include "base/clock.h"
#include "base/file/file.h"
#include "base/text/text.h"
#include "formats/trace.h"
#include "monitor/profile_summary.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const part_names[] = {"", "forward", "backward", "reduction", "optimizer"};

enum { OPERATIONS_TRACK };

/* Collectives overlap with operations and with other kinds of collectives, so each kind has its own track. */
static int track_of(collective_kind kind) {
    return OPERATIONS_TRACK + 1 + (int)kind;
}

struct profile {
    trainer *t;
    const config *cfg;
    int rank;
    char *folder;        /* resolved path of profiling.trace_dir */
    char path[PATH_MAX]; /* path of the current trace */
    trace_writer *trace; /* NULL: no trace is open */
    exec_times times;
    profile_counts counts;
    unsigned named;    /* bit `kind`: the track of this collective kind was named */
    ott_status failed; /* first error of writing a slice; its text is `reason` */
    char reason[512];
    /* State of the current step. Times are values of clock_seconds(). */
    bool running;
    double step_began, part_began, last_end;
    exec_part part;
};

static void note_error(profile *p, ott_status status) {
    if (status == OTT_OK || p->failed != OTT_OK) return;
    p->failed = status;
    snprintf(p->reason, sizeof p->reason, "%s", status_text());
}

static void slice(profile *p, const char *name, const char *category, double began, double seconds,
                  const char *arguments) {
    if (p->failed == OTT_OK)
        note_error(p, trace_slice(p->trace, OPERATIONS_TRACK, name, category, began, seconds, arguments));
}

static void end_part(profile *p) {
    if (p->part != PART_NONE)
        slice(p, part_names[p->part], "user_annotation", p->part_began, p->last_end - p->part_began, "{}");
    p->part = PART_NONE;
}

/* ---- arguments ---- */

/* A JSON object in a fixed buffer; a member that does not fit is left out. */
typedef struct object {
    char text[TRACE_EVENT_MAX - 100];
    size_t length;
} object;

static void add_member(object *o, const char *name, const char *value) {
    size_t space = sizeof o->text - o->length - 2; /* space for "}" and the final 0 */
    int length =
        snprintf(o->text + o->length, space, "%s\"%s\":\"%s\"", o->length > 1 ? "," : "", name, value);
    if (length > 0 && (size_t)length < space) o->length += (size_t)length;
}

static void add_operand(object *o, const char *name, const operand *x) {
    char value[96];
    snprintf(value, sizeof value, "%s[%lld,%lld]%s%s%s", dtype_name(x->t.dtype), (long long)x->t.rows,
             (long long)x->t.columns, x->transposed ? " transposed" : "", x->scale_inv ? " scaled by " : "",
             x->scale_inv ? granularity_name(x->grain) : "");
    add_member(o, name, value);
}

static const char *use_text(const cast_spec *s, char out[40]) {
    bool fp8 = cast_spec_is_fp8(s);
    snprintf(out, 40, "%s%s%s", dtype_name(s->format), fp8 ? " by " : "",
             fp8 ? granularity_name(s->grain) : "");
    return out;
}

static void add_qtensor(object *o, const char *name, const qtensor *q) {
    char value[160], row[40], column[40];
    snprintf(value, sizeof value, "[%lld,%lld] rows %s, columns %s", (long long)q->rows,
             (long long)q->columns, use_text(&q->spec.rowwise, row), use_text(&q->spec.columnwise, column));
    add_member(o, name, value);
}

static void add_field(object *o, const op_field *f, const void *args) {
    if (f->kind == OP_SCALAR) return;
    const void *value = *(const void *const *)((const char *)args + f->offset);
    if (!value) return;
    if (f->kind == OP_OPERAND) {
        add_operand(o, f->name, value);
    } else if (f->kind == OP_QTENSOR) {
        add_qtensor(o, f->name, value);
    } else if (f->kind == OP_QOUT) {
        for (int i = 0; i < ((const qlist *)value)->count; i++) {
            char name[40];
            snprintf(name, sizeof name, "%s%d", f->name, i);
            add_qtensor(o, name, &((const qlist *)value)->item[i]);
        }
    } else {
        add_operand(o, f->name, &(operand){.t = *(const tensor *)value});
    }
}

static const char *write_arguments(object *o, const op_info *info, const void *args) {
    o->text[0] = '{';
    o->length = 1;
    for (int i = 0; i < info->field_count; i++) add_field(o, &info->fields[i], args);
    strcpy(o->text + o->length, "}");
    return o->text;
}

/* ---- operations and collectives ---- */

static void profile_op(void *user, enum op_index op, const void *args, double began, double seconds) {
    profile *p = user;
    object arguments;
    op_kind kind = op_kind_of_call(op, args);
    bool scaled = kind == OP_KIND_GEMM_FP8;
    profile_count *count = scaled ? &p->counts.scaled_gemm : &p->counts.ops[op];
    const op_info *info = op_at(op);
    began += p->step_began;
    exec_part now = p->t->cx.part;
    if (now != p->part) {
        end_part(p);
        p->part = now;
        p->part_began = began;
    }
    slice(p, scaled ? "scaled_mm" : info->name, op_kind_name(kind), began, seconds,
          write_arguments(&arguments, info, args));
    count->seconds += seconds;
    count->calls++;
    if (began + seconds > p->last_end) p->last_end = began + seconds;
}

static tensor larger_side(const collective *call) {
    return tensor_count(call->input) > tensor_count(call->output) ? call->input : call->output;
}

static ott_status write_collective(profile *p, const collective *call, double began, double seconds,
                                   double waited) {
    char arguments[160];
    const char *name = group_collective_name(call->kind);
    text_format(arguments, sizeof arguments, "{\"bytes\":%lld,\"waited_ms\":%.3f}",
                (long long)tensor_bytes(larger_side(call)), waited * 1e3);
    if (!(p->named >> call->kind & 1)) TRY(trace_name_track(p->trace, track_of(call->kind), name));
    p->named |= 1U << call->kind;
    return trace_slice(p->trace, track_of(call->kind), name, "collective", began, seconds, arguments);
}

static void profile_collective(void *user, const collective *call, double began, double seconds,
                               double waited) {
    profile *p = user;
    p->counts.collectives.calls++;
    p->counts.collectives.seconds += seconds;
    p->counts.collective_bytes += (double)tensor_bytes(larger_side(call));
    p->counts.waited += waited;
    if (p->failed == OTT_OK) note_error(p, write_collective(p, call, began, seconds, waited));
}

/* Returns the last step of the profile that includes `step` (counted from 1); 0 if no profile does. */
static int64_t last_of_range(const config *cfg, int64_t step) {
    int64_t end = cfg->profiling.end_step - 1;
    if (cfg->profiling.frequency > 0) return step % cfg->profiling.frequency == 0 ? step : 0;
    if (step < cfg->profiling.start_step || step > end) return 0;
    return end < cfg->train.max_steps ? end : cfg->train.max_steps;
}

static void log_plan(const profile *p) {
    const config *cfg = p->cfg;
    int64_t every = cfg->profiling.frequency, first = p->t->run.step + 1, last = cfg->train.max_steps;
    if (every > 0)
        log_info(p->t->log, "Profiling one step of every %lld; traces go to %s", (long long)every, p->folder);
    else
        log_info(p->t->log, "Profiling steps %lld to %lld; traces go to %s",
                 (long long)cfg->profiling.start_step, (long long)cfg->profiling.end_step - 1, p->folder);
    bool none = every > 0 ? last / every * every < first
                          : last < cfg->profiling.start_step || first >= cfg->profiling.end_step;
    if (none)
        log_warning(p->t->log, "No step will be profiled: this run has steps %lld to %lld", (long long)first,
                    (long long)last);
}

/* ---- a profile's files ---- */

static ott_status open_trace(profile *p, int64_t last) {
    char process[160];
    const trainer *t = p->t;
    int length = snprintf(p->path, sizeof p->path, "%s/iteration_%lld", p->folder, (long long)last);
    if (length < 0 || (size_t)length + sizeof "/rank0123456789_trace.json" > sizeof p->path)
        return status_fail(OTT_ERR_CONFIG, "profiling.trace_dir: the path of a trace is too long");
    TRY(file_make_folder(p->path));
    sprintf(p->path + length, "/rank%d_trace.json", p->rank);
    p->counts = (profile_counts){.first = t->run.step + 1};
    snprintf(process, sizeof process, "rank %d: %s, %s", p->rank, t->recipe->name, t->device->name);
    p->named = 0;
    TRY(trace_open(t->account, p->path, process, &p->trace));
    return trace_name_track(p->trace, OPERATIONS_TRACK, "operations");
}

static void summary_path(const profile *p, char out[PATH_MAX + 16]) {
    snprintf(out, PATH_MAX + 16, "%.*s/summary.md", (int)(strrchr(p->path, '/') - p->path), p->path);
}

static ott_status write_profile_summary(const profile *p) {
    char title[200], path[PATH_MAX + 16];
    str text = {.account = p->t->account};
    snprintf(title, sizeof title, "%s, %s.", p->t->recipe->name, p->t->device->name);
    summary_path(p, path);
    profile_summary_write(&p->counts, title, &text);
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = file_write_atomic(path, text.text, text.length);
    str_free(&text);
    return status;
}

ott_status profile_finish(profile *p) {
    if (!p || !p->trace) return OTT_OK;
    trace_writer *trace = p->trace;
    p->trace = NULL;
    TRY(trace_commit(trace));
    if (p->rank == 0) TRY(write_profile_summary(p));
    const profile_counts *c = &p->counts;
    char summary[PATH_MAX + 16] = "";
    int64_t other = profile_kind_count(c, OP_KIND_GEMM).calls;
    if (p->rank == 0) summary_path(p, summary);
    log_info(p->t->log, "Wrote the profile of %lld step%s to %s%s%s; matrix products in FP8: %lld of %lld",
             (long long)c->steps, c->steps > 1 ? "s" : "", p->path, *summary ? " and its tables to " : "",
             summary, (long long)c->scaled_gemm.calls, (long long)(c->scaled_gemm.calls + other));
    return OTT_OK;
}

ott_status profile_begin_step(profile *p) {
    int64_t last = p ? last_of_range(p->cfg, p->t->run.step + 1) : 0;
    if (last == 0) return OTT_OK;
    if (!p->trace) TRY(open_trace(p, last));
    p->running = true;
    p->t->cx.times = &p->times;
    p->step_began = p->last_end = clock_seconds();
    return exec_times_start(&p->times, p->t->device);
}

ott_status profile_end_step(profile *p) {
    char name[48];
    if (!p || !p->running) return OTT_OK;
    double seconds = clock_seconds() - p->step_began;
    int64_t step = p->t->run.step;
    p->running = false;
    p->t->cx.times = NULL;
    end_part(p);
    snprintf(name, sizeof name, "ProfilerStep#%lld", (long long)step);
    slice(p, name, "user_annotation", p->step_began, seconds, "{}");
    p->counts.last = step;
    p->counts.steps++;
    p->counts.seconds += seconds;
    if (p->failed != OTT_OK) return status_fail(p->failed, "%s", p->reason);
    return step == last_of_range(p->cfg, step) ? profile_finish(p) : OTT_OK;
}

ott_status profile_open(trainer *t, const config *cfg, const char *run_folder, int rank, profile **out) {
    profile *p;
    *out = NULL;
    if (!cfg->profiling.enable) return OTT_OK;
    TRY(mem_alloc(t->account, MEM_OTHER, sizeof(profile), "a profile", &p));
    *p = (profile){.t = t,
                   .cfg = cfg,
                   .rank = rank,
                   .times = {.on_op = profile_op, .on_collective = profile_collective, .user = p}};
    ott_status status = exec_times_open(&p->times, t->device);
    if (status == OTT_OK) status = file_resolve(t->account, run_folder, cfg->profiling.trace_dir, &p->folder);
    if (status != OTT_OK) return profile_close(p), status;
    log_plan(p);
    return *out = p, OTT_OK;
}

void profile_close(profile *p) {
    if (!p) return;
    p->t->cx.times = NULL;
    exec_times_close(&p->times, p->t->device);
    trace_abandon(p->trace);
    mem_free(p->t->account, p->folder);
    mem_free(p->t->account, p);
}
