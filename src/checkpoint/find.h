/*
 * checkpoint/find: suggests another checkpoint if the requested one is damaged. Internal to src/checkpoint.
 */
#ifndef CHECKPOINT_FIND_H
#define CHECKPOINT_FIND_H

#include "base/mem.h"
#include "base/status.h"

/* Adds to the current error text which complete checkpoint next to `path` is the newest. Returns `code`. */
ott_status checkpoint_suggest_newest(mem *account, const char *path, ott_status code);

#endif
