#include "test.h"

#include "common/cleanup.h"
#include "lib/provider/limits.h"

#define OPTS(...) \
    (&(struct bh_create_options){ \
        .size = sizeof(struct bh_create_options), .name = "box", ##__VA_ARGS__})

static const char *const only_none[] = {"none", NULL};
static const char *const only_strict[] = {"strict", NULL};
static const char *const only_process[] = {"process", NULL};
static const struct bh_limits limits = {
    .size = sizeof(limits),
    .memory_bytes = 1ULL << 30,
    .disk_bytes = 1ULL << 31,
    .cpu_millis = 1500,
    .pids = 100,
    .boxes = 2,
    .timeout_ms = 60000,
    .idle_ms = 30000,
    .providers = only_process,
    .networks = only_none,
    .privileges = only_strict,
    .source = "/x",
};

static void refused(const char *field, const char *message, const struct bh_create_options *o)
{
    struct spec s = {0};
    struct err e = {0};

    T_INT(spec_from_options(o, &s, &e), 0);
    T_INT(limits_check_request(&limits, &s, &e), -ERR_DENIED);
    T_STR(e.field, field);
    T_STR(e.message, message);
    T_INT(limits_check_request(NULL, &s, &e), 0);
    spec_done(&s);
}

TEST(a_request_above_a_limit_is_refused_by_name)
{
    refused("memory", "memory: 1025M is more than /x allows, 1024M",
            OPTS(.memory_bytes = 1025ULL << 20));
    refused("disk", "disk: 2049M is more than /x allows, 2048M", OPTS(.disk_bytes = 2049ULL << 20));
    refused("cpus", "cpus: 1.501 is more than /x allows, 1.5", OPTS(.cpu_millis = 1501));
    refused("pids", "pids: 101 is more than /x allows, 100", OPTS(.pids = 101));
    refused("timeout", "timeout: 1m 1s is more than /x allows, 1m", OPTS(.timeout_ms = 61000));
    refused("idle", "idle: 31s is more than /x allows, 30s", OPTS(.idle_ms = 31000));
    refused("on-idle", "on-idle: 'keep' is not allowed by /x", OPTS(.on_idle = "keep"));
    refused("provider", "provider: 'oci' is not allowed by /x", OPTS(.provider = "oci"));
    refused("network", "network: 'user' is not allowed by /x", OPTS(.network = "user"));
    refused("privilege", "privilege: 'sudo' is not allowed by /x", OPTS(.privilege = "sudo"));
}

TEST(what_is_at_the_limit_is_allowed)
{
    struct spec s = {0};
    struct err e = {0};

    T_INT(spec_from_options(OPTS(.memory_bytes = 1ULL << 30, .disk_bytes = 1ULL << 31,
                                 .cpu_millis = 1500, .pids = 100, .timeout_ms = 60000,
                                 .idle_ms = 30000, .provider = "process", .network = "none",
                                 .privilege = "strict"),
                            &s, &e),
          0);
    T_INT(limits_check_request(&limits, &s, &e), 0);
    T_INT(limits_check(&limits, &s, &e), 0);
    spec_done(&s);
}

TEST(a_default_above_a_limit_is_lowered)
{
    struct spec s = {0};
    struct err e = {0};
    bool changed = false;

    T_INT(spec_from_options(OPTS(), &s, &e), 0);
    T_INT(limits_check(&limits, &s, &e), -ERR_DENIED);
    T_INT(limits_check_request(&limits, &s, &e), 0);
    T_STR(s.provider, "process");
    T_STR(s.network, "none");
    T_STR(s.privilege, "strict");
    s.memory_bytes = 1ULL << 40; /* as a provider or an image says */
    limits_lower(&limits, &s, &changed);
    T_OK(changed);
    T_INT(s.memory_bytes, 1LL << 30);
    T_INT(s.disk_bytes, 1LL << 31);
    T_INT(s.cpu_millis, 1500);
    T_INT(s.pids, 100);
    T_OK(s.asked & SPEC_ASKED_PIDS);
    T_INT(s.timeout_ms, 60000);
    T_INT(s.idle_ms, 30000);
    T_INT(limits_check(&limits, &s, &e), 0);
    limits_lower(&limits, &s, &changed);
    T_OK(!changed);
    spec_done(&s);
}

TEST(a_box_that_is_there_is_checked_whoever_chose_its_values)
{
    const struct bh_limits memory = {.size = sizeof(memory), .memory_bytes = 1 << 30};
    struct spec s = {0};
    struct err e = {0};

    T_INT(spec_from_options(OPTS(), &s, &e), 0);
    T_INT(limits_check(&memory, &s, &e), -ERR_DENIED);
    T_STR(e.message, "memory: the box has no limit, the administrator allows 1024M");
    s.memory_bytes = 1 << 30;
    T_INT(limits_check(&memory, &s, &e), 0);
    s.memory_bytes++;
    T_INT(limits_check(&memory, &s, &e), -ERR_DENIED);
    T_INT(limits_check(NULL, &s, &e), 0);
    spec_done(&s);
}

TEST(boxes_and_leases_are_limited)
{
    struct err e = {0};

    T_INT(limits_check_boxes(&limits, 1, &e), 0);
    T_INT(limits_check_boxes(&limits, 2, &e), -ERR_DENIED);
    T_STR(e.message, "boxes: there are 2, and /x allows 2: remove one first");
    T_INT(limits_check_boxes(NULL, 2, &e), 0);
    T_INT(limits_check_time(&limits, "for", 60000, &e), 0);
    T_INT(limits_check_time(&limits, "for", 60001, &e), -ERR_DENIED);
    T_STR(e.field, "for");
}
