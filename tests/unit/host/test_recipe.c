#include "test.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/recipe/recipe.h"

static const char *const good =
    "{\"name\":\"mine\",\"description\":\"d\",\"version\":\"1.0\",\"port\":8000,"
    "\"start\":{\"argv\":[\"serve\",\"${port}\"],\"mode\":\"server\"},"
    "\"health\":{\"http\":{\"path\":\"/h\"}}}";

static const struct recipe_vars vars = {.port = "7777",
                                        .password = "p'w \"$(x)",
                                        .workdir = "/workspace",
                                        .version = "1.2.3",
                                        .home = "/home/user",
                                        .install = "/opt/x"};

static void write_text(const char *path, const char *text)
{
    T_INT(io_write_file(AT_FDCWD, path, text, strlen(text), 0600, false, NULL), 0);
}

/* Changes one member of the good recipe and loads it. */
static int load_with(const char *path, json_t *value, struct err *e)
{
    _cleanup_json_ json_t *doc = json_loads(good, 0, NULL);
    struct recipe rec = {0};
    char key[32];
    json_t *at = doc;
    int r;

    while (strchr(path, '.')) {
        (void)snprintf(key, sizeof(key), "%.*s", (int)strcspn(path, "."), path);
        at = json_object_get(at, key);
        T_OK(at);
        path = strchr(path, '.') + 1;
    }
    if (value)
        T_INT(json_object_set_new(at, path, value), 0);
    else
        T_INT(json_object_del(at, path), 0);
    r = recipe_from_json(doc, ".", NULL, &rec, e);
    recipe_done(&rec);
    return r;
}

TEST(recipe_expands_known_variables_and_nothing_else)
{
    _cleanup_free_ char *text = NULL;
    struct err e = {0};

    T_INT(recipe_expand("${home}/a ${port} $HOME $(id) $${port} $", &vars, &text, &e), 0);
    T_STR(text, "/home/user/a 7777 $HOME $(id) ${port} $");
}

TEST(recipe_leaves_odd_values_as_they_are)
{
    _cleanup_json_ json_t *env = json_pack("{s:s}", "PW", "${password}");
    _cleanup_json_ json_t *out = json_object();

    T_INT(recipe_expand_env(env, &vars, out, NULL), 0);
    T_STR(json_string_value(json_object_get(out, "PW")), "p'w \"$(x)");
}

TEST(recipe_variable_without_a_value_is_an_error)
{
    _cleanup_free_ char *text = NULL;
    struct err e = {0};

    T_INT(recipe_expand("--session=${session}", &vars, &text, &e), -ERR_INVALID);
    T_OK(strstr(e.message, "${session}"));
    T_OK(!text);
}

TEST(recipe_errors_name_the_path_of_the_field)
{
    static const struct {
        const char *path;
        const char *json; /* the value to put there; NULL: it is taken away */
        const char *field;
    } rows[] = {
        {"name", "\"No Spaces\"", "name"},
        {"name", NULL, "name"},
        {"version", "\"latest\"", "version"},
        {"port", "70000", "port"},
        {"port", NULL, "port"},
        {"start.argv", "[]", "start.argv"},
        {"start.argv", "[\"a\",7]", "start.argv[1]"},
        {"start.argv", "[\"${nope}\"]", "start.argv[0]"},
        {"start.argv", "[\"${port\"]", "start.argv[0]"},
        {"start.mode", "\"pty\"", "start.mode"},
        {"start.env", "{\"A B\":\"x\"}", "start.env.A B"},
        {"start.extra", "1", "start.extra"},
        {"health.http.path", "\"health\"", "health.http.path"},
        {"health.http.expect", "[]", "health.http.expect"},
        {"health.attempt_ms", "0", "health.attempt_ms"},
        {"health.http", NULL, "health"},
        {"install", "{\"npm\":[{\"package\":\"a\"},{\"arch\":\"x\"}]}", "install.npm[1].package"},
        {"install", "{\"npm\":[{\"package\":\"a\",\"integrity\":\"md5-x\"}]}",
         "install.npm[0].integrity"},
        {"install", "{\"npm_lock\":\"../../etc/passwd\"}", "install.npm_lock"},
        {"install", "{\"commands\":[[\"a\"],[]]}", "install.commands[1]"},
        {"files", "[{\"path\":\"/a\"}]", "files[0]"},
        {"files", "[{\"path\":\"/a\",\"content\":\"\",\"mode\":\"rw\"}]", "files[0].mode"},
        {"files", "[{\"from\":\"/etc\",\"into\":\"/x\"}]", "files[0].from"},
        {"timeouts", "{\"start_ms\":99999999}", "timeouts.start_ms"},
        {"restart", "{\"max\":-1}", "restart.max"},
        {"restart", "{\"max\":51}", "restart.max"},
        {"check", "{}", "check.argv"},
        {"unheard_of", "1", "unheard_of"},
    };

    for (size_t i = 0; i < N_ELEMENTS(rows); i++) {
        json_t *v = rows[i].json ? json_loads(rows[i].json, JSON_DECODE_ANY, NULL) : NULL;
        struct err e = {0};

        T_OK(!rows[i].json || v);
        T_INT(load_with(rows[i].path, v, &e), -ERR_INVALID);
        T_STR(e.field, rows[i].field);
        T_OK(e.message[0]);
    }
}

TEST(recipe_without_changes_is_good)
{
    struct err e = {0};

    T_INT(load_with("port", json_integer(1), &e), 0);
}

TEST(recipe_unknown_name_lists_the_known_ones)
{
    struct recipe rec = {0};
    struct err e = {0};

    T_INT(mkdir("r", 0700), 0);
    write_text("r/zeta.json", good);
    write_text("r/alpha.json", good);
    write_text("r/schema.json", "{}");
    T_INT(recipe_load("r", "opncode", &rec, &e), -ERR_NOT_FOUND);
    T_STR(e.field, "agent");
    T_OK(strstr(e.message, "'opncode'"));
    T_OK(strstr(e.message, "alpha, zeta, none"));
}

TEST(recipe_version_follows_the_at_sign)
{
    struct recipe rec = {0};
    struct err e = {0};

    T_INT(mkdir("r", 0700), 0);
    write_text("r/mine.json", good);
    T_INT(recipe_load("r", "mine@2.5.0", &rec, &e), 0);
    T_STR(rec.version, "2.5.0");
    T_STR(rec.own_version, "1.0");
    recipe_done(&rec);
    T_INT(recipe_load("r", "mine@latest", &rec, &e), -ERR_INVALID);
    T_STR(e.field, "agent");
    T_INT(recipe_load("r", "mine@1;rm", &rec, &e), -ERR_INVALID);
}

TEST(recipe_of_a_user_comes_from_its_path)
{
    struct recipe rec = {0};
    struct err e = {0};

    write_text("own.json", good);
    T_INT(recipe_load("/nowhere", "./own.json", &rec, &e), 0);
    T_STR(rec.name, "mine");
    T_STR(rec.dir, ".");
    T_INT(rec.port, 8000);
    T_INT(rec.restart_max, 5);
    T_INT(rec.health.total_ms, RECIPE_TOTAL_MS);
    T_INT(rec.health.attempt_ms, RECIPE_ATTEMPT_MS);
    T_INT(rec.health.interval_ms, RECIPE_INTERVAL_MS);
    recipe_done(&rec);
    T_INT(recipe_load("/nowhere", "./gone.json", &rec, &e), -ERR_NOT_FOUND);
    T_STR(e.field, "agent");
}

TEST(recipe_that_is_not_json_says_where)
{
    struct recipe rec = {0};
    struct err e = {0};

    write_text("bad.json", "{\"name\": }");
    T_INT(recipe_load(".", "./bad.json", &rec, &e), -ERR_INVALID);
    T_OK(strstr(e.message, "bad.json"));
}
