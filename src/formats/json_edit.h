/*
 * formats/json_edit: changes members of a JSON object as text, so that all the rest of a file stays as its author
 * wrote it: order, spacing, and how numbers are spelled.
 */
#ifndef FORMATS_JSON_EDIT_H
#define FORMATS_JSON_EDIT_H

#include "base/str.h"

/* `text` must be a valid JSON object; it is rewritten in place. Keys are the outermost object's, spelled
 * without escapes; `value` is JSON. A member that exists keeps its place, a new one comes last. */
ott_status json_edit_put(str *text, const char *key, const char *value);
ott_status json_edit_rename(str *text, const char *key, const char *new_key); /* nothing when absent */
ott_status json_edit_remove(str *text, const char *key);                      /* nothing when absent */

#endif
