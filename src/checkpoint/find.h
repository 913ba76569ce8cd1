/*
 * checkpoint/find: suggests another checkpoint if the requested one is damaged. Internal to src/checkpoint.
 */
#ifndef CHECKPOINT_FIND_H
#define CHECKPOINT_FIND_H

#include "base/mem.h"
#include "base/status.h"

/* Adds the newest complete checkpoint next to `path` to the current error text. Returns `code`. */
ott_status checkpoint_suggest_newest(mem *account, const char *path, ott_status code);

#endif
