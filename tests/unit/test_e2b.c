#include "test.h"

#include <pthread.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "dialect/e2b/e2b.h"
#include "dialect/e2b/hosts.h"
#include "dialect/e2b/meta.h"
#include "dialect/e2b/file_query.h"
#include "dialect/e2b/proto.h"
#include "event/loop.h"
#include "proc/registry.h"
#include "agent.h"
#include "api/dialect.h"
#include "dialect/e2b/media.h"
#include "http/range.h"
#include "system/auth.h"
#include "event/pool.h"

TEST(signatures_are_those_of_the_sdk)
{
    char out[SIGN_TEXT_BYTES];

    sign_file("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", NULL, out);
    T_STR(out, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
    sign_file("hello.txt", "read", "user", "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0", "1", out);
    T_OK(strcmp(out, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E") != 0);
    T_INT((long long)strlen(out), SIGN_TEXT_BYTES - 2);
}

TEST(times_that_do_not_fit_are_refused)
{
    int64_t ns = 7;

    T_INT(proto_parse_time("2026-11-22T02:35:00.5+01:00", &ns, NULL), 0);
    T_OK(ns == 1795311300500000000);
    ns = 7;
    T_INT(proto_parse_time("9999-12-31T23:59:59Z", &ns, NULL), -ERR_INVALID);
    T_INT(proto_parse_time("0001-01-01T00:00:00Z", &ns, NULL), -ERR_INVALID);
    T_INT(ns, 7);
}

TEST(a_name_in_hosts_has_one_address_of_a_family)
{
    static const struct {
        const char *before, *address, *after; /* NULL: refused */
    } rows[] = {
        {"", "10.0.0.1", "10.0.0.1\tn.x\n"},
        {"127.0.0.1 localhost", "10.0.0.1", "127.0.0.1 localhost\n10.0.0.1\tn.x\n"},
        {"# n.x\n\n10.0.0.1\tn.x # of E2B\n", "10.0.0.1", "# n.x\n\n10.0.0.1\tn.x # of E2B\n"},
        {"10.0.0.2\tn.x\nother words\n", "10.0.0.1", "other words\n10.0.0.1\tn.x\n"},
        {"10.0.0.2  a N.X\tb#c\n", "10.0.0.1", "10.0.0.2\ta b #c\n10.0.0.1\tn.x\n"},
        {"10.0.0.1 n.x\n10.0.0.1 a n.x\n", "10.0.0.1", "10.0.0.1 n.x\n10.0.0.1\ta\n"},
        {"10.0.0.1 n.x\n10.0.0.2 n.x", "10.0.0.1", "10.0.0.1 n.x\n"},
        {"fd00::1 n.x\n", "10.0.0.1", "fd00::1 n.x\n10.0.0.1\tn.x\n"},
        {"10.0.0.2 n.x\nFD00:0::1 n.x\n", "fd00::1", "10.0.0.2 n.x\nFD00:0::1 n.x\n"},
        {"10.0.0.2 n.xx xn.x\n", "10.0.0.1", "10.0.0.2 n.xx xn.x\n10.0.0.1\tn.x\n"},
        {"n.x n.x\n", "10.0.0.1", "n.x n.x\n10.0.0.1\tn.x\n"},
        {"", "10.0.0.1 evil", NULL},
        {"", "10.0.0.1\n", NULL},
        {"", "events", NULL},
        {"", "fe80::1%eth0", NULL},
        {"", "", NULL},
    };

    for (size_t i = 0; i < N_ELEMENTS(rows); i++) {
        _cleanup_buf_ struct buf out;
        struct err e = {0};
        int r;

        buf_init(&out, 1000);
        r = hosts_edit(rows[i].before, "n.x", rows[i].address, &out, &e);
        T_INT(r, rows[i].after ? 0 : -ERR_INVALID);
        if (rows[i].after)
            T_STR(out.data, rows[i].after);
    }
}

TEST(a_download_is_compressed_for_who_asks_for_nothing_else)
{
    static const struct {
        const char *header;
        enum coding whole, part;
    } rows[] = {
        {NULL, CODING_IDENTITY, CODING_IDENTITY},
        {"", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip", CODING_GZIP, CODING_IDENTITY},
        {"GZIP;q=0.1", CODING_GZIP, CODING_IDENTITY},
        {"gzip;q=0", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, deflate", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, deflate, br, zstd", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, deflate;q=0", CODING_GZIP, CODING_IDENTITY},
        {"identity", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, identity;q=0.5", CODING_GZIP, CODING_IDENTITY},
        {"gzip;q=0.5, identity", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip;q=0.5, identity;q=0.501", CODING_IDENTITY, CODING_IDENTITY},
        {"gzip, identity;q=0", CODING_GZIP, CODING_NONE},
        {"gzip, deflate, identity; q=0.0", CODING_GZIP, CODING_NONE},
        {"deflate, *;q=0", CODING_NONE, CODING_NONE},
        {"gzip, *;q=0", CODING_GZIP, CODING_NONE},
        {"*;q=0, identity", CODING_IDENTITY, CODING_IDENTITY},
        {"*", CODING_IDENTITY, CODING_IDENTITY},
        {"*, identity;q=0", CODING_GZIP, CODING_NONE},
        {"br", CODING_IDENTITY, CODING_IDENTITY},
        {"identity;q=0", CODING_NONE, CODING_NONE},
        {"identity;q=0, br", CODING_NONE, CODING_NONE},
        {" , ;q=1,", CODING_IDENTITY, CODING_IDENTITY},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        T_INT(accept_coding(rows[i].header, true), rows[i].whole);
        T_INT(accept_coding(rows[i].header, false), rows[i].part);
    }
}

TEST(notes_on_files_have_limits)
{
    static char key[300], value[5000];
    struct meta m = {0};
    struct err e = {0};

    T_INT(meta_add(&m, "Author", "me", &e), 0);
    T_INT(meta_add(&m, "author", "you", &e), 0); /* the first one counts */
    T_INT((long long)m.n, 1);
    T_STR(m.v[0].key, "author");
    T_STR(m.v[0].value, "me");
    T_INT(meta_add(&m, "", "x", &e), -ERR_INVALID);
    T_INT(meta_add(&m, "a", "\xc3\xa4", &e), -ERR_INVALID);
    T_STR(e.message, "invalid metadata: metadata value for key \"a\" contains non-printable-ASCII "
                     "byte 0xc3 at offset 0");
    memset(key, 'k', META_KEY_MAX_BYTES + 1);
    T_INT(meta_add(&m, key, "x", &e), -ERR_INVALID);
    key[META_KEY_MAX_BYTES] = '\0';
    T_INT(meta_add(&m, key, "x", &e), 0);
    T_INT(meta_check(&m, &e), 0);
    /* 9 + 6 + 2, 9 + 246 + 1, 9 + 1: together 4096 */
    memset(value, 'v', META_TOTAL_MAX_BYTES - 17 - 256 - 10);
    T_INT(meta_add(&m, "v", value, &e), 0);
    T_INT(meta_check(&m, &e), 0);
    T_INT(meta_add(&m, "w", "", &e), 0);
    T_INT(meta_check(&m, &e), -ERR_INVALID);
    T_STR(e.message, "invalid metadata: total metadata size 4106 exceeds 4096 bytes");
    meta_done(&m);
}

TEST(downloads_are_named_as_headers_can)
{
    static const struct {
        const char *name, *want;
    } rows[] = {
        {"a.txt", "inline; filename=a.txt"},
        {"{a}'*%!~", "inline; filename={a}'*%!~"},
        {"a b", "inline; filename=\"a b\""},
        {"a=b", "inline; filename=\"a=b\""},
        {"a\tb", "inline; filename=\"a\tb\""},
        {"", "inline; filename=\"\""},
        {"a \"b\"\\", "inline; filename=\"a \\\"b\\\"\\\\\""},
        {"\xc3\xa4 b", "inline; filename*=utf-8''%C3%A4%20b"},
        {"a\nb", "inline; filename*=utf-8''a%0Ab"},
        {"{\xc3\xa4}'*", "inline; filename*=utf-8''{%C3%A4}%27%2A"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *got = media_disposition(rows[i].name);

        T_STR(got, rows[i].want);
        free(got);
    }
    T_STR(media_type("/a/b.HTML"), "text/html; charset=utf-8");
    T_STR(media_type("/a.html/b"), "application/octet-stream");
}

TEST(dates_of_headers_are_read_in_three_forms)
{
    time_t t = 0;

    T_OK(range_parse_date("Sun, 06 Nov 1994 08:49:37 GMT", &t) && t == 784111777);
    t = 0;
    T_OK(range_parse_date("Sunday, 06-Nov-94 08:49:37 GMT", &t) && t == 784111777);
    t = 0;
    T_OK(range_parse_date("Sun Nov  6 08:49:37 1994", &t) && t == 784111777);
    T_OK(!range_parse_date("yesterday", &t));
    T_OK(!range_parse_date("Sun, 06 Nov 1994 08:49:37 GMT+1", &t));
}

/* ---- /init ---- */

struct claim {
    struct agent *agent;
    pthread_barrier_t *both;
    char who;
    int r;
};

static void *claim(void *arg)
{
    struct claim *c = arg;
    char body[128];
    int len =
        snprintf(body, sizeof(body),
                 "{\"accessToken\":\"%c\",\"envVars\":{\"WHO\":\"%c\"},\"defaultWorkdir\":\"/%c\"}",
                 c->who, c->who, c->who);

    (void)pthread_barrier_wait(c->both);
    c->r = e2b_init(c->agent, body, (size_t)len, NULL);
    return NULL;
}

/* A refused call leaves nothing, although it came while the agent was still open. */
static void race(struct agent *a)
{
    pthread_barrier_t both;
    struct claim claims[] = {{.agent = a, .both = &both, .who = 'x'},
                             {.agent = a, .both = &both, .who = 'y'}};
    char want_env[] = "WHO=?", want_dir[] = "/?";
    _cleanup_strv_ char **env = NULL;
    _cleanup_free_ char *dir = NULL;
    struct e2b *e2b = NULL;
    pthread_t threads[2];

    T_INT(auth_new(NULL, 0, &a->auth, NULL), 0);
    T_INT(e2b_new("root", "/", &e2b, NULL), 0);
    a->dialects = (struct dialect_slot[]){{&e2b_dialect, e2b}, {NULL, NULL}};
    T_INT(pthread_barrier_init(&both, NULL, 2), 0);
    for (int i = 0; i < 2; i++)
        T_INT(pthread_create(&threads[i], NULL, claim, &claims[i]), 0);
    for (int i = 0; i < 2; i++)
        T_INT(pthread_join(threads[i], NULL), 0);
    (void)pthread_barrier_destroy(&both);
    T_OK((claims[0].r == 0) != (claims[1].r == 0));
    T_INT(claims[0].r == 0 ? claims[1].r : claims[0].r, -ERR_UNAUTHENTICATED);
    want_env[4] = want_dir[1] = claims[0].r == 0 ? 'x' : 'y';
    T_INT(environ_copy(a->registry, &env, NULL), 0);
    T_STR(env[0], want_env);
    T_INT(e2b_default_workdir(e2b, &dir, NULL), 0);
    T_STR(dir, want_dir);
    a->dialects = NULL;
    e2b_free(e2b);
    a->auth = auth_free(a->auth);
}

TEST(of_two_who_claim_an_open_agent_at_once_one_has_it)
{
    const struct registry_options o = {0};
    struct agent a = {0};

    T_INT(loop_new(&a.loop, NULL), 0);
    T_INT(pool_new(&a.pool, NULL), 0);
    T_INT(registry_new(a.loop, a.pool, &o, &a.registry, NULL), 0);
    for (int i = 0; i < 1000; i++)
        race(&a);
    T_OK(!pool_free(a.pool, 60000));
    registry_free(a.registry);
    loop_free(a.loop);
}
