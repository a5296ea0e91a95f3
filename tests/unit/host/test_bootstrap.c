#include "test.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/recipe/bootstrap_guest.h"
#include "lib/recipe/bootstrap.h"

static int check(const char *expect, const char *answer)
{
    _cleanup_json_ json_t *e = json_loads(expect, 0, NULL);
    _cleanup_json_ json_t *a = json_loads(answer, JSON_DECODE_ANY, NULL);

    T_OK(e && a);
    return bootstrap_check_answer(e, a, NULL);
}

TEST(bootstrap_health_wants_the_members_of_the_recipe)
{
    T_INT(check("{\"healthy\":true}", "{\"healthy\":true,\"version\":\"1\"}"), 0);
    T_INT(check("{\"healthy\":true}", "{\"healthy\":false}"), -ERR_UNAVAILABLE);
    T_INT(check("{\"healthy\":true}", "{\"healthy\":\"true\"}"), -ERR_UNAVAILABLE);
    T_INT(check("{\"healthy\":true}", "[true]"), -ERR_UNAVAILABLE);
    T_INT(check("{\"healthy\":true}", "\"<html>\""), -ERR_UNAVAILABLE);
    T_INT(check("{}", "{}"), 0);
}

TEST(bootstrap_log_tail_is_bounded_in_lines_and_columns)
{
    _cleanup_free_ char *tail = NULL;
    char text[40000] = "";
    size_t lines = 0;

    for (int i = 0; i < 100; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "line %d %0200d\n", i, 7);
    tail = guest_log_tail(text, strlen(text), NULL);
    for (char *p = tail, *nl; *p; p = nl + 1, lines++) {
        nl = strchr(p, '\n');
        T_OK(nl && nl - p <= BOOTSTRAP_LOG_LINE_CHARS);
    }
    T_INT(lines, BOOTSTRAP_LOG_LINES);
    T_OK(str_has_prefix(tail, "line 70 "));
    T_OK(strlen(tail) < BOOTSTRAP_LOG_BYTES);
}

TEST(bootstrap_log_tail_of_little_is_all_of_it)
{
    _cleanup_free_ char *tail = guest_log_tail("one\ntwo\033[1m\n\n", 13, NULL);
    _cleanup_free_ char *none = guest_log_tail("", 0, NULL);

    T_STR(tail, "one\ntwo [1m\n");
    T_STR(none, "");
}

TEST(bootstrap_log_tail_hides_the_password)
{
    _cleanup_free_ char *tail = guest_log_tail("pw=hunter2 hunter2", 18, "hunter2");

    T_STR(tail, "pw=******* *******\n");
}

TEST(bootstrap_password_is_made_once_and_for_the_owner_only)
{
    _cleanup_free_ char *one = NULL, *two = NULL, *none = NULL;
    struct stat st;

    T_INT(bootstrap_password(".", false, &none, NULL), 0);
    T_STR(none, "");
    T_INT(bootstrap_password(".", true, &one, NULL), 0);
    T_INT(bootstrap_password(".", true, &two, NULL), 0);
    T_STR(one, two);
    T_OK(strlen(one) >= 32);
    T_INT(stat("agent-password", &st), 0);
    T_INT(st.st_mode & 0777, 0600);
}

TEST(bootstrap_record_comes_back_as_it_was)
{
    _cleanup_json_ json_t *doc = json_loads(
        "{\"name\":\"mine\",\"description\":\"d\",\"version\":\"1.0\",\"start\":{\"argv\":[\"x\"],"
        "\"mode\":\"rpc\"},\"health\":{\"rpc\":{\"send\":{\"type\":\"s\"},\"expect\":{}}}}",
        0, NULL);
    struct bootstrap_record rec = {
        .agent = strdup("mine@2.0"), .session = strdup("s-1"), .port = 7};
    struct bootstrap_record back = {0};
    struct stat st;

    T_INT(bootstrap_record_load(".", &back, NULL), -ERR_NOT_FOUND);
    T_INT(recipe_from_json(doc, "/dir", "2.0", &rec.recipe, NULL), 0);
    T_INT(bootstrap_record_save(".", &rec, NULL), 0);
    T_INT(bootstrap_record_load(".", &back, NULL), 0);
    T_STR(back.agent, "mine@2.0");
    T_STR(back.session, "s-1");
    T_INT(back.port, 7);
    T_STR(back.recipe.version, "2.0");
    T_STR(back.recipe.dir, "/dir");
    T_INT(stat("agent.json", &st), 0);
    T_INT(st.st_mode & 0777, 0600);
    bootstrap_record_done(&rec);
    bootstrap_record_done(&back);
}
