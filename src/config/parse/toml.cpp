/* config/parse/toml: converts toml++'s tables to our tree, and refuses zero bytes, dates and trees beyond our
   limits. */
#include "config/parse/toml.h"
#include "config/parse/number.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <tuple>
#include <vector>

/* toml++ has assertions that fail for some malformed files. Without them it reports an error. */
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>

namespace {

/* Maximum number of dots in a file. Each dot in a key nests a table, and toml++ frees nested tables by
   recursion, which could overflow. So dots are counted before parsing. */
constexpr int64_t dot_limit = 4000;

ott_status walk(tree_builder *b, node *parent, const char *name, const toml::node &source, int depth,
                node **out);

int line_of(const toml::node &n) {
    return static_cast<int>(n.source().begin.line);
}

using entry = std::tuple<toml::source_position, const toml::key *, const toml::node *>;

/* Returns a table's entries in the order of the file, not of toml++, which sorts them by name. */
std::vector<entry> in_order(const toml::table &source) {
    std::vector<entry> entries;
    for (auto &&[key, value] : source) entries.emplace_back(key.source().begin, &key, &value);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const entry &a, const entry &b) { return std::get<0>(a) < std::get<0>(b); });
    return entries;
}

ott_status walk_table(tree_builder *b, node *table, const toml::table &source, int depth) {
    for (auto &&[position, key, value] : in_order(source)) {
        std::string name(key->str());
        node *child;
        if (name.empty() || std::strlen(name.c_str()) != name.size() || tree_has_control(name.c_str()))
            return status_fail(OTT_ERR_CONFIG, "%s:%d: a key is empty or contains a control character",
                               b->place, line_of(*value));
        TRY(walk(b, table, name.c_str(), *value, depth + 1, &child));
        child->line = static_cast<int>(position.line);
    }
    return OTT_OK;
}

ott_status walk_array(tree_builder *b, node *list, const toml::array &source, int depth) {
    for (auto &&value : source) {
        node *child;
        TRY(walk(b, list, nullptr, value, depth + 1, &child));
    }
    return OTT_OK;
}

ott_status walk_scalar(tree_builder *b, node *parent, const char *name, const toml::node &source,
                       node **out) {
    int line = line_of(source);
    if (auto text = source.as_string()) {
        if (std::strlen(text->get().c_str()) != text->get().size())
            return status_fail(OTT_ERR_CONFIG, "%s:%d: %s contains a NUL character", b->place, line,
                               name ? name : "a text");
        return tree_add(b, parent, NODE_TEXT, line, name, text->get().c_str(), out);
    }
    if (auto integer = source.as_integer()) {
        TRY(tree_add(b, parent, NODE_INTEGER, line, name, std::to_string(integer->get()).c_str(), out));
        (*out)->integer = integer->get();
        return OTT_OK;
    }
    if (auto real = source.as_floating_point()) {
        char shown[40];
        TRY(tree_add(b, parent, NODE_REAL, line, name, number_print_real(real->get(), shown), out));
        (*out)->real = real->get();
        return OTT_OK;
    }
    if (auto truth = source.as_boolean()) {
        TRY(tree_add(b, parent, NODE_BOOL, line, name, truth->get() ? "true" : "false", out));
        (*out)->integer = truth->get();
        return OTT_OK;
    }
    return status_fail(OTT_ERR_CONFIG, "%s:%d: %s is a date or a time, which no key takes", b->place, line,
                       name ? name : "a list element");
}

ott_status walk(tree_builder *b, node *parent, const char *name, const toml::node &source, int depth,
                node **out) {
    if (depth > TREE_DEPTH_LIMIT)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: nested deeper than %d levels", b->place, line_of(source),
                           TREE_DEPTH_LIMIT);
    if (auto table = source.as_table()) {
        TRY(tree_add(b, parent, NODE_TABLE, line_of(source), name, nullptr, out));
        return walk_table(b, *out, *table, depth);
    }
    if (auto array = source.as_array()) {
        TRY(tree_add(b, parent, NODE_LIST, line_of(source), name, nullptr, out));
        return walk_array(b, *out, *array, depth);
    }
    return walk_scalar(b, parent, name, source, out);
}

ott_status check_dots(const tree_builder *b, const char *text, int64_t bytes) {
    int64_t dots = 0, line = 1;
    for (int64_t i = 0; i < bytes; i++) {
        line += text[i] == '\n';
        if (text[i] == '.' && ++dots > dot_limit)
            return status_fail(OTT_ERR_CONFIG, "%s:%lld: more than %lld dots; this is not a configuration",
                               b->place, static_cast<long long>(line), static_cast<long long>(dot_limit));
    }
    return OTT_OK;
}

ott_status fail_parse(const tree_builder *b, const toml::parse_error &error) {
    std::string what(error.description());
    for (char &c : what)
        if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    return status_fail(OTT_ERR_CONFIG, "%s:%u:%u: %s", b->place,
                       static_cast<unsigned>(error.source().begin.line),
                       static_cast<unsigned>(error.source().begin.column), what.c_str());
}

/* If an allocation fails in a noexcept function of toml++, the program ends. So this first tests whether the
   memory that parsing may need can be allocated. */
ott_status check_memory(const tree_builder *b, int64_t bytes) {
    void *volatile block = std::malloc(static_cast<size_t>(bytes) * 64 + (size_t(1) << 20));
    if (!block) return status_fail(OTT_ERR_MEMORY, "%s: out of memory while reading TOML", b->place);
    std::free(block);
    return OTT_OK;
}

ott_status read(tree_builder *b, const char *text, int64_t bytes, node **out) {
    try {
        toml::table table = toml::parse(std::string_view(text, static_cast<size_t>(bytes)));
        return walk(b, nullptr, nullptr, table, 0, out);
    } catch (const toml::parse_error &error) {
        return fail_parse(b, error);
    }
}

} // namespace

extern "C" ott_status toml_read(tree_builder *b, const char *text, int64_t bytes, node **out) {
    TRY(check_dots(b, text, bytes));
    TRY(check_memory(b, bytes));
    try {
        return read(b, text, bytes, out);
    } catch (const std::bad_alloc &) {
        return status_fail(OTT_ERR_MEMORY, "%s: out of memory while reading TOML", b->place);
    } catch (...) {
        return status_fail(OTT_ERR_INTERNAL, "%s: the TOML reader failed", b->place);
    }
}
