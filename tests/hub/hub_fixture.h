/* hub_fixture: a server with a model of five files and a dataset of 250 rows, and an empty cache. */
#ifndef TESTS_HUB_FIXTURE_H
#define TESTS_HUB_FIXTURE_H

#include "hub/hub.h"
#include "support/folder.h"
#include "support/hub_server.h"

typedef struct hub_fixture {
    folder *f; /* FOLDER/repo: the model's files; FOLDER/rows.jsonl; FOLDER: HF_HOME */
    hub_server *server;
    hub_caller caller;
    const char *stop_at; /* stops the download after a request with this text; NULL: never */
} hub_fixture;

/* cmocka setup and teardown. They set and unset the environment variables of the hub. */
int hub_fixture_setup(void **state);
int hub_fixture_teardown(void **state);

#endif
