/* api/report: compares runs. */
#include "report/report.h"
#include "api/handle.h"
#include "base/file/file.h"

void(ott_report_options_init)(ott_report_options *options, size_t size) {
    API_INIT(options, size, .plot_width = 80, .plot_height = 20);
}

static ott_status write_report_text(const report *r, const ott_report_options *o, str *text,
                                    ott_text_fn write, void *user) {
    if (o->json) {
        TRY(report_json(r, text));
        return api_write(text, write, user);
    }
    TRY(report_table(r, text));
    if (o->plot_width > 0 && o->plot_height > 0) {
        str_append(text, "\n");
        TRY(report_plot(r, o->plot_width, o->plot_height, text));
    }
    return api_write(text, write, user);
}

static ott_status write_page(const report *r, const ott_report_options *o, str *page) {
    TRY(report_html(r, o->title, page));
    TRY(str_finish(page));
    return file_write_output(o->html, page->text, page->length);
}

static ott_status write_report(ott_context *context, const char *const *runs, int count,
                               const ott_report_options *o, ott_text_fn write, void *user) {
    report *r = NULL;
    ott_status status;
    str text = {.account = context->account}, page = {.account = context->account};
    TRY_OUT(report_open(context->account, runs, count, &r));
    if (o->html) TRY_OUT(report_check_page(r, o->html));
    TRY_OUT(write_report_text(r, o, &text, write, user));
    if (o->html) TRY_OUT(write_page(r, o, &page));
out:
    str_free(&page);
    str_free(&text);
    report_close(r);
    return status;
}

ott_status ott_report(ott_context *context, const char *const *runs, int count,
                      const ott_report_options *options, ott_text_fn write, void *user) {
    ott_report_options o;
    API_REQUIRE_BOTH(context, runs);
    API_REQUIRE_CALL(write);
    ott_report_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_report_options"));
    if (count < 1)
        return status_fail(OTT_ERR_ARGUMENT, "ott_report: %d run folders are given: give at least one",
                           count);
    for (int i = 0; i < count; i++)
        if (!runs[i]) return status_fail(OTT_ERR_ARGUMENT, "ott_report: run folder %d is NULL", i);
    if (o.plot_width < 0 || o.plot_height < 0)
        return status_fail(OTT_ERR_ARGUMENT, "ott_report: a plot of %d x %d characters cannot be drawn",
                           o.plot_width, o.plot_height);
    return API_INSIDE(context, write_report(context, runs, count, &o, write, user));
}
