/* report/drawn: reads report.html. */
#include "report/drawn.h"
#include "base/status.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

/* Finds the page's data. They end at the first "<". */
static char *data_of(const char *text) {
    const char *mark = "<script type=\"application/json\" id=\"data\">";
    const char *begin = strstr(text, mark);
    json_error_t error;
    assert_non_null(begin);
    begin += strlen(mark);
    size_t length = strcspn(begin, "<");
    assert_int_equal(strncmp(begin + length, "</script>\n<script>\n", 19), 0);
    json_t *root = json_loadb(begin, length, JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("the page's data is not JSON: line %d: %s", error.line, error.text);
    json_decref(root);
    return strndup(begin, length);
}

static char *read_all(FILE *file) {
    char *text = NULL;
    size_t length = 0, capacity = 0;
    for (size_t got = 1; got > 0; length += got) {
        if (capacity - length < 4096) text = realloc(text, capacity = 2 * capacity + 8192);
        assert_non_null(text);
        got = fread(text + length, 1, capacity - length - 1, file);
    }
    text[length] = '\0';
    return text;
}

static char *draw(folder *f, const str *text, const char *width) {
    char command[512];
    snprintf(command, sizeof command, "node %s/tests/report/draw.js %s %s 2>&1", TEST_SOURCE_DIR,
             folder_write(f, "page.html", text->text, text->length), width);
    FILE *node = popen(command, "r");
    assert_non_null(node);
    char *drawn = read_all(node);
    int status = pclose(node);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return drawn;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 127) fail_msg("%s: %s", command, drawn);
    print_message("SKIPPED: node is missing, so the drawings of the page are not tested\n");
    free(drawn);
    return NULL;
}

static drawn_page open_page(folder *f, const report *r, const char *title, const char *width) {
    drawn_page p = {.text = {.account = f->account}};
    if (report_html(r, title, &p.text) != OTT_OK) fail_msg("%s", status_text());
    p.data = data_of(p.text.text);
    p.drawn = draw(f, &p.text, width);
    return p;
}

drawn_page drawn_open(folder *f, const report *r, const char *title) {
    return open_page(f, r, title, "");
}

drawn_page drawn_open_narrow(folder *f, const report *r, const char *title) {
    return open_page(f, r, title, "narrow");
}

void drawn_close(drawn_page *p) {
    str_free(&p->text);
    free(p->data);
    free(p->drawn);
}

void assert_drawn(const drawn_page *p, const char *part) {
    if (p->drawn && !strstr(p->drawn, part)) fail_msg("\"%s\" is not in\n%s", part, p->drawn);
}

void assert_not_drawn(const drawn_page *p, const char *part) {
    if (p->drawn && strstr(p->drawn, part)) fail_msg("\"%s\" is in\n%s", part, p->drawn);
}

void assert_drawn_times(const drawn_page *p, const char *part, int times) {
    if (p->drawn) assert_int_equal(occurrences(p->drawn, part), times);
}

int occurrences(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text++) count++;
    return count;
}
