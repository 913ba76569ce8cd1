/* config/check: the checks of config_check. Internal to config. */
#ifndef CONFIG_CHECK_CHECK_H
#define CONFIG_CHECK_CHECK_H

#include "config/state.h"

#define FAIL(...) return status_fail(OTT_ERR_CONFIG, __VA_ARGS__)

/* Fails if options of [float8] need another recipe. Without FP8 it warns about options that are given. */
ott_status check_float8(config *cfg);

#endif
