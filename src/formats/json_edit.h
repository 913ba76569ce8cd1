/* formats/json_edit: edits members of a JSON object as text. Other bytes of the file do not change. */
#ifndef FORMATS_JSON_EDIT_H
#define FORMATS_JSON_EDIT_H

#include "base/text/str.h"

/* Sets a member of the outermost object. `text` must be a valid JSON object; the call changes it. `key` must
   not need escapes. `value` is JSON text. An existing member keeps its position; a new one is appended. */
ott_status json_edit_put(str *text, const char *key, const char *value);
/* Renames a member in its position. Does nothing if there is no such member. */
ott_status json_edit_rename(str *text, const char *key, const char *new_key);
/* Removes a member. Does nothing if there is no such member. */
ott_status json_edit_remove(str *text, const char *key);
/* Sorts the members by their keys. Each gets its own line, indented by two spaces. */
ott_status json_edit_sort(str *text);

#endif
