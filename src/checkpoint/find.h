/*
 * checkpoint/find: what to load instead of a checkpoint that is not whole. Internal to this floor.
 */
#ifndef CHECKPOINT_FIND_H
#define CHECKPOINT_FIND_H

#include "base/mem.h"
#include "base/status.h"

/* Adds the newest complete checkpoint beside `path` to the error text; returns `code`. */
ott_status checkpoint_suggest_newest(mem *account, const char *path, ott_status code);

#endif
