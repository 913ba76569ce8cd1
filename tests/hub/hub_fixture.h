/* hub_fixture: a server and an empty cache. The server has a model of six files, and a dataset of 250 rows.
   Ottava needs four of the files. */
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
#define HUB_TEST(name) cmocka_unit_test_setup_teardown(name, hub_fixture_setup, hub_fixture_teardown)

#endif
