#include "test.h"

#include "common/cleanup.h"
#include "common/str.h"
#include "lib/provider/spec.h"

#define NAMED(name_, ...) \
    (&(struct bh_create_options){ \
        .size = sizeof(struct bh_create_options), .name = (name_), ##__VA_ARGS__})
#define OPTS(...) NAMED("box", ##__VA_ARGS__)

static void refused(const char *field, const struct bh_create_options *o)
{
    struct spec s = {0};
    struct err e = {0};
    int r = spec_from_options(o, &s, &e);

    T_INT(r, -ERR_INVALID);
    T_STR(e.field, field);
    T_OK(!s.provider);
}

TEST(a_provider_without_snapshots_refuses_one_at_the_end_of_the_time)
{
    struct spec s = {0};
    struct err e = {0};

    T_INT(spec_from_options(OPTS(.provider = "process", .on_timeout = "snapshot"), &s, &e),
          -ERR_UNIMPLEMENTED);
    T_STR(e.field, "on-timeout");
    T_STR(e.message, "on-timeout: the provider 'process' cannot make snapshots");
    T_OK(!s.provider);
    T_INT(spec_from_options(OPTS(.provider = "oci", .on_timeout = "snapshot"), &s, &e), 0);
    T_STR(s.on_timeout, "snapshot");
    spec_done(&s);
}

TEST(every_wrong_option_is_refused_by_name)
{
    const char *const no_eq[] = {"K", NULL};
    const char *const bad_name[] = {"1K=v", NULL};
    const char *const empty[] = {"", NULL};
    const char *const not_utf8[] = {"K=\xff", NULL};
    const char *const no_piece[] = {"seccomp", "bogus", NULL};

    refused("name", NAMED(NULL));
    refused("name", NAMED(""));
    refused("name", NAMED("-a"));
    refused("name", NAMED("A"));
    refused("name", NAMED("a/b"));
    refused("name", NAMED("a123456789012345678901234567890123456789012345678901234567890123"));
    refused("provider", OPTS(.provider = ""));
    refused("image", OPTS(.image = ""));
    refused("runtime", OPTS(.runtime = "rkt"));
    refused("pool", OPTS(.pool = ""));
    refused("pool", OPTS(.pool = "a/b"));
    refused("pool", OPTS(.pool = "..%2Fsecrets"));
    refused("agent", OPTS(.agent = ""));
    refused("dest", OPTS(.dest = "relative"));
    refused("dest", OPTS(.dest = "/"));
    refused("dest", OPTS(.dest = "/a/../b"));
    refused("dest", OPTS(.dest = "/a/.."));
    refused("git", OPTS(.git = "half"));
    refused("network", OPTS(.network = "bridge"));
    refused("privilege", OPTS(.privilege = "root"));
    refused("on-timeout", OPTS(.on_timeout = "explode"));
    refused("on-gone", OPTS(.on_gone = "explode"));
    refused("on-idle", OPTS(.on_idle = "explode"));
    refused("idle", OPTS(.idle_ms = 999));
    refused("idle", OPTS(.idle_ms = 31LL * 24 * 3600 * 1000));
    refused("timeout", OPTS(.timeout_ms = -1));
    refused("timeout", OPTS(.timeout_ms = 999));
    refused("timeout", OPTS(.timeout_ms = 31LL * 24 * 3600 * 1000));
    refused("start-timeout", OPTS(.start_timeout_ms = -1));
    refused("cpus", OPTS(.cpu_millis = 9));
    refused("cpus", OPTS(.cpu_millis = 2000000));
    refused("memory", OPTS(.memory_bytes = 1000));
    refused("memory", OPTS(.memory_bytes = 1ULL << 50));
    refused("disk", OPTS(.disk_bytes = 1 << 20));
    refused("pids", OPTS(.pids = 3));
    refused("env", OPTS(.env = no_eq));
    refused("env", OPTS(.env = bad_name));
    refused("env", OPTS(.env = not_utf8));
    refused("secret", OPTS(.secrets = bad_name));
    refused("label", OPTS(.labels = no_eq));
    refused("allow-missing", OPTS(.allow_missing = empty));
    refused("allow-missing", OPTS(.allow_missing = no_piece, .provider = "oci"));
    refused("allow-missing", OPTS(.allow_missing = no_piece, .provider = "docker"));
    refused("allow-missing", OPTS(.allow_missing = no_piece, .provider = "kubernetes"));
    refused("allow-missing", OPTS(.allow_missing = no_piece, .provider = "process"));
    refused("port", OPTS(.agent_port = 80));
    refused("agent-config", OPTS(.agent_config = "/tmp"));
    refused("repo", OPTS(.repo_url = "ssh://host/x"));
    refused("repo", OPTS(.repo_url = "https://host/x", .project = "."));
    refused("repo", OPTS(.repo_url = "https://user:word@host/x"));
    refused("git-token-file", OPTS(.git_token_file = "t"));
    refused("git-token-file", OPTS(.git_token_file = "t", .repo_url = "file:///x"));
}

TEST(a_wrong_secret_is_not_quoted)
{
    const char *const secrets[] = {"1K=hunter2", NULL};
    struct spec s = {0};
    struct err e = {0};

    T_INT(spec_from_options(OPTS(.secrets = secrets), &s, &e), -ERR_INVALID);
    T_OK(!strstr(e.message, "hunter2"));
}

TEST(a_repo_may_have_an_at_sign_after_its_host)
{
    struct spec s = {0};
    struct err e = {0};

    T_INT(spec_from_options(OPTS(.repo_url = "https://host/x@y"), &s, &e), 0);
    spec_done(&s);
}

TEST(what_is_not_asked_has_a_default)
{
    struct spec s = {0};
    struct err e = {0};

    T_INT(spec_from_options(OPTS(), &s, &e), 0);
    T_STR(s.provider, "oci");
    T_STR(s.image, "slim");
    T_STR(s.runtime, "");
    T_STR(s.agent, "none");
    T_STR(s.dest, "/workspace");
    T_STR(s.network, "user");
    T_STR(s.privilege, "sudo");
    T_STR(s.on_timeout, "stop");
    T_INT(s.timeout_ms, 600000);
    T_STR(s.on_idle, "pause");
    T_STR(s.on_gone, "destroy");
    T_OK(!s.content);
    T_INT(s.idle_ms, 600000);
    T_INT(s.pids, 4096);
    T_INT(s.asked, 0);
    T_OK(s.env && !s.env[0]);
    spec_done(&s);
}

TEST(a_spec_survives_the_store)
{
    const char *const env[] = {"A=b c", "B=", NULL};
    json_t *obj;
    struct spec a = {0};
    struct spec b = {0};
    struct err e = {0};

    T_INT(spec_from_options(OPTS(.env = env, .network = "none", .dest = "/srv//x/",
                                 .memory_bytes = 1ULL << 30, .cpu_millis = 1500,
                                 .disk_bytes = 1ULL << 40, .pool = "small"),
                            &a, &e),
          0);
    obj = spec_to_json(&a);
    T_OK(obj);
    T_INT(spec_from_json(obj, &b, &e), 0);
    json_decref(obj);
    T_STR(b.dest, "/srv/x");
    T_STR(b.network, "none");
    T_STR(b.pool, "small");
    T_STR(b.env[0], "A=b c");
    T_STR(b.env[1], "B=");
    T_INT(b.memory_bytes, 1LL << 30);
    T_INT(b.disk_bytes, 1LL << 40);
    T_INT(b.asked, a.asked);
    T_INT(spec_compare(&a, &b, &e), 0);
    spec_done(&a);
    spec_done(&b);
}

TEST(a_stored_spec_that_lacks_a_field_names_it)
{
    json_t *obj = json_pack("{s:s}", "provider", "oci");
    struct spec s = {0};
    struct err e = {0};

    T_OK(spec_from_json(obj, &s, &e) < 0);
    T_OK(e.field[0]);
    json_decref(obj);
}

TEST(a_box_of_an_earlier_version_has_no_idle_time_and_is_not_recreated)
{
    struct spec a = {0};
    struct spec b = {0};
    struct err e = {0};
    json_t *obj;

    T_INT(spec_from_options(OPTS(.on_idle = "rm", .idle_ms = 5000, .on_gone = "recreate"), &a, &e),
          0);
    obj = spec_to_json(&a);
    T_INT(spec_from_json(obj, &b, &e), 0);
    T_STR(b.on_idle, "rm");
    T_INT(b.idle_ms, 5000);
    T_STR(b.on_gone, "recreate");
    T_OK(json_equal(a.content, b.content));
    spec_done(&b);
    T_INT(json_object_del(obj, "on_idle") | json_object_del(obj, "idle_ms") |
              json_object_del(obj, "on_gone") | json_object_del(obj, "content"),
          0);
    T_INT(spec_from_json(obj, &b, &e), 0);
    T_STR(b.on_idle, "keep");
    T_STR(b.on_gone, "destroy");
    json_decref(obj);
    spec_done(&a);
    spec_done(&b);
}

static int compare(const struct bh_create_options *have, const struct bh_create_options *want,
                   struct err *e)
{
    struct spec a = {0};
    struct spec b = {0};
    int r;

    T_INT(spec_from_options(have, &a, e), 0);
    T_INT(spec_from_options(want, &b, e), 0);
    r = spec_compare(&a, &b, e);
    spec_done(&a);
    spec_done(&b);
    return r;
}

TEST(a_second_up_is_compared_by_what_it_asks_for)
{
    struct err e = {0};

    T_INT(compare(OPTS(.image = "big", .network = "none"), OPTS(), &e), 0);
    T_INT(compare(OPTS(), OPTS(.timeout_ms = 3600000), &e), 0);
    T_INT(compare(OPTS(.image = "big"), OPTS(.image = "small"), &e), -ERR_PRECONDITION);
    T_STR(e.field, "image");
    T_INT(compare(OPTS(), OPTS(.provider = "process"), &e), -ERR_PRECONDITION);
    T_STR(e.field, "provider");
    T_INT(compare(OPTS(.pool = "small"), OPTS(.pool = "large"), &e), -ERR_PRECONDITION);
    T_STR(e.field, "pool");
    T_INT(compare(OPTS(), OPTS(.pool = "large"), &e), -ERR_PRECONDITION);
    T_STR(e.message, "pool: the box was made with 'none', not 'large'; remove it first");
    T_INT(compare(OPTS(.memory_bytes = 1 << 30), OPTS(.memory_bytes = 1 << 29), &e),
          -ERR_PRECONDITION);
    T_STR(e.field, "memory");
    T_STR(e.message, "memory: the box was made with '1024M', not '512M'; remove it first");
    T_INT(compare(OPTS(.memory_bytes = 20220850995), OPTS(.memory_bytes = 1 << 30), &e),
          -ERR_PRECONDITION);
    T_STR(e.message, "memory: the box was made with '19284.1062M', not '1024M'; remove it first");
    T_INT(compare(OPTS(), OPTS(.cpu_millis = 1500), &e), -ERR_PRECONDITION);
    T_STR(e.message, "cpus: the box was made with 'none', not '1.5'; remove it first");
    T_INT(compare(OPTS(.agent = "pi", .agent_port = 80), OPTS(.agent = "pi", .agent_port = 81), &e),
          -ERR_PRECONDITION);
    T_STR(e.message, "port: the box was made with '80', not '81'; remove it first");
}

TEST(a_default_is_not_compared_and_sources_survive_the_store)
{
    const char *const sources[] = {"memory=/x:1", "network=flag --network", NULL};
    const char *const defaults[] = {"memory", "network", "pids", "env", NULL};
    const char *const env[] = {"A=b", NULL};
    json_t *obj;
    struct spec have = {0};
    struct spec want = {0};
    struct err e = {0};

    T_INT(spec_from_options(OPTS(.sources = sources), &want, &e), 0);
    obj = spec_to_json(&want);
    T_INT(spec_from_json(obj, &have, &e), 0);
    json_decref(obj);
    T_STR(have.sources[0], sources[0]);
    T_STR(have.sources[1], sources[1]);
    T_OK(!have.sources[2]);
    spec_done(&want);
    T_INT(spec_from_options(OPTS(.memory_bytes = 1ULL << 30, .network = "none", .pids = 99,
                                 .env = env, .defaults = defaults),
                            &want, &e),
          0);
    T_INT(spec_compare(&have, &want, &e), 0);
    (void)strv_free(want.defaults);
    want.defaults = NULL;
    T_INT(spec_compare(&have, &want, &e), -ERR_PRECONDITION);
    spec_done(&have);
    spec_done(&want);
}
