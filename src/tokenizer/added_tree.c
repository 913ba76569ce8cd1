/* tokenizer/added_tree: a tree of texts by their bytes, to find the texts that begin at a position. */
#include "tokenizer/internal.h"

int32_t added_tree_child(const added_tree *tree, int32_t node, unsigned char byte) {
    int32_t child = tree->nodes[node].child;
    while (child && tree->nodes[child].byte != byte) child = tree->nodes[child].sibling;
    return child;
}

ott_status added_tree_add(added_tree *tree, text_view text, int32_t token) {
    int32_t node = 0;
    STATUS_REQUIRE(tree->count + text.bytes <= tree->capacity);
    for (int64_t i = 0; i < text.bytes; i++) {
        unsigned char byte = (unsigned char)text.at[i];
        int32_t child = added_tree_child(tree, node, byte);
        if (!child) {
            child = (int32_t)tree->count++;
            tree->nodes[child] = (added_node){.sibling = tree->nodes[node].child, .token = -1, .byte = byte};
            tree->nodes[node].child = child;
        }
        node = child;
    }
    if (text.bytes == 0) return OTT_OK; /* an empty token would match everywhere */
    if (tree->nodes[node].token < 0) tree->nodes[node].token = token;
    unsigned char first = (unsigned char)text.at[0];
    tree->firsts += !tree->first[first];
    tree->first[first] = true;
    tree->any_first = first;
    return OTT_OK;
}

int32_t added_tree_longest(const added_tree *tree, text_view text, int64_t at, int64_t *end) {
    int32_t found = -1, node = 0;
    for (int64_t i = at; i < text.bytes; i++) {
        node = added_tree_child(tree, node, (unsigned char)text.at[i]);
        if (!node) break;
        if (tree->nodes[node].token < 0) continue;
        found = tree->nodes[node].token;
        *end = i + 1;
    }
    return found;
}
