/* Boxes of a pool against an API server that lacks agent-sandbox, denies, or has put other objects in the place of a box's. */
#include "kube_case.h"

#include "lib/provider/provider.h"

#define EXTENSIONS "extensions.agents.x-k8s.io"
#define CLAIMS "/apis/" EXTENSIONS "/v1beta1/namespaces/default/sandboxclaims"

static void begin_pool(void)
{
    case_begin();
    case_spec.pool = (char *)"small";
    case_spec.privilege = strdup("sudo"); /* check() replaces it */
}

/* ---- objects ---- */

static json_t *new_owned(const char *name, const char *uid, const char *owner)
{
    return json_pack("{s:{s:s, s:s, s:[{s:b, s:s}]}, s:{}}", "metadata", "name", name, "uid", uid,
                     "ownerReferences", "controller", 1, "uid", owner, "spec");
}

/* The claim of the box and its Sandbox, which `owner` owns; the claim's uid is "claim". */
static void put_claim(const char *owner)
{
    json_t *claim = json_pack("{s:o, s:{s:{s:s}}}", "metadata", case_meta(CASE_BOX), "status",
                              "sandbox", "name", "small-1");

    (void)json_object_set_new(json_object_get(claim, "metadata"), "uid", json_string("claim"));
    api_put("sandboxclaims", claim);
    api_put("sandboxes", new_owned("small-1", "sandbox", owner));
}

static void put_pod(const char *uid, const char *owner)
{
    json_t *pod = new_owned("small-1", uid, owner);

    api_run_pod(pod);
    api_put("pods", pod);
}

/* ---- agent-sandbox that is there, or is not ---- */

static bool serve_groups(const struct kube_call *c, struct kube_answer *a)
{
    if (strcmp(c->path, "/apis") == 0)
        *a = (struct kube_answer){200, .body = json_pack("{s:[{s:s, s:[{s:s}]}]}", "groups", "name",
                                                         EXTENSIONS, "versions", "groupVersion",
                                                         EXTENSIONS "/v1beta1")};
    else if (strcmp(c->path, "/apis/" EXTENSIONS "/v1beta1") == 0)
        *a = (struct kube_answer){200,
                                  .body = json_pack("{s:[{s:s}, {s:s}]}", "resources", "name",
                                                    "sandboxclaims", "name", "sandboxwarmpools")};
    else
        return false;
    return true;
}

static bool lose_claims(const struct kube_call *c, struct kube_answer *a)
{
    if (!strstr(c->path, CLAIMS))
        return false;
    *a = (struct kube_answer){
        404,
        .body = api_status(404, "NotFound", "the server could not find the requested resource")};
    return true;
}

static bool lose_claims_for_a_moment(const struct kube_call *c, struct kube_answer *a)
{
    return lose_claims(c, a) || serve_groups(c, a);
}

static bool lose_everything(const struct kube_call *c, struct kube_answer *a)
{
    (void)c;
    *a = (struct kube_answer){404, .body = json_pack("{s:s}", "404", "page not found")};
    return true;
}

TEST(a_pool_that_is_missing_is_told_from_agent_sandbox_that_is)
{
    struct err e = {0};

    begin_pool();
    T_INT(provider_kubernetes.check(&case_ctx, &case_spec, &e), -ERR_PRECONDITION);
    T_STR(e.field, "pool");
    T_OK(strstr(e.message, "no agent-sandbox"));
    api.answer = serve_groups;
    T_INT(provider_kubernetes.check(&case_ctx, &case_spec, &e), -ERR_NOT_FOUND);
    T_STR(e.field, "pool");
    api_put("sandboxwarmpools", json_pack("{s:{s:s}}", "metadata", "name", "small"));
    T_INT(provider_kubernetes.check(&case_ctx, &case_spec, &e), 0);
    T_INT(api_count("sandboxclaims"), 0);
}

TEST(a_404_of_the_kind_does_not_prove_that_a_claim_is_gone)
{
    struct err e = {0};

    begin_pool();
    put_claim("claim");
    api.answer = lose_claims_for_a_moment;
    T_INT(provider_kubernetes.destroy(&case_box, &e), -ERR_UNAVAILABLE);
    T_INT(provider_kubernetes.has_disk(&case_box, &e), -ERR_UNAVAILABLE);
    api.answer = lose_everything;
    T_OK(provider_kubernetes.destroy(&case_box, &e) < 0);
    T_INT(api_count("sandboxclaims"), 1);
    api.answer =
        lose_claims; /* and the group is not served: the claims went with their definition */
    T_INT(provider_kubernetes.destroy(&case_box, &e), 0);
}

/* ---- removal ---- */

static bool end_slowly(const struct kube_call *c, struct kube_answer *a)
{
    static bool is_ending;
    static unsigned n_looks;

    if (strcmp(c->method, "DELETE") == 0 && strstr(c->path, CLAIMS)) {
        is_ending = strstr(c->body, "\"propagationPolicy\":\"Foreground\"") &&
                    strstr(c->body, "\"uid\":\"claim\"");
        *a = (struct kube_answer){200, .body = json_object()};
        return true;
    }
    if (is_ending && strstr(c->path, "watch=1")) { /* no watch: it looks again soon */
        *a = (struct kube_answer){403, .body = api_status(403, "Forbidden", "no watch")};
        return true;
    }
    if (is_ending && strstr(c->path, CLAIMS "?") && ++n_looks == 3)
        (void)json_object_clear(api_kind("sandboxclaims"));
    return false;
}

TEST(rm_suspends_deletes_the_claim_in_the_foreground_and_waits_for_its_end)
{
    struct err e = {0};

    begin_pool();
    put_claim("claim");
    put_pod("pod", "sandbox");
    api.answer = end_slowly;
    T_INT(provider_kubernetes.destroy(&case_box, &e), 0);
    T_INT(api_count("sandboxclaims"), 0);
    T_INT(api_count("pods"), 0);
    T_INT(api_calls("PATCH /apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes/small-1"), 1);
    T_INT(api_calls("GET " CLAIMS), 7); /* three looks with a watch each, and the last look */
}

TEST(a_sandbox_and_a_pod_of_other_owners_are_not_the_box_s)
{
    struct err e = {0};

    begin_pool();
    put_claim("another claim");
    put_pod("pod", "sandbox");
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    T_INT(api_calls("PATCH"), 0);
    T_INT(api_count("pods"), 1);
    put_claim("claim");
    put_pod("pod", "another sandbox");
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    T_INT(api_calls("PATCH"), 1);
    T_INT(api_count("pods"), 1);
}

/* ---- records ---- */

static const char case_record[] =
    "{\"way\": \"exec\", \"uid\": \"pod\", \"address\": \"10.0.0.1\", "
    "\"pod\": \"small-1\", \"container\": \"\"}";

TEST(the_pod_of_a_pool_s_box_is_the_recorded_one_and_an_unreadable_record_is_an_error)
{
    struct provider_run run;
    struct err e = {0};

    begin_pool();
    T_INT(provider_kubernetes.find(&case_box, &run, &e), 0);
    case_write("box/kubernetes.json", case_record);
    T_INT(provider_kubernetes.find(&case_box, &run, &e), 0);
    put_pod("pod", "sandbox");
    T_INT(provider_kubernetes.find(&case_box, &run, &e), 1);
    put_pod("another pod", "sandbox");
    T_INT(provider_kubernetes.find(&case_box, &run, &e), 0);
    case_write("box/kubernetes.json", "{");
    T_OK(provider_kubernetes.find(&case_box, &run, &e) < 0);
}

TEST(a_box_is_gone_with_its_claim_or_its_sandbox)
{
    struct err e = {0};

    begin_pool();
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 0);
    put_claim("claim");
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 1);
    case_write("box/kubernetes-claim.json", "{\"claim\": \"claim\", \"sandbox\": \"\"}");
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 1);
    case_write("box/kubernetes-claim.json", "{\"claim\": \"claim\", \"sandbox\": \"sandbox\"}");
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 1);
    case_write("box/kubernetes-claim.json", "{\"claim\": \"claim\", \"sandbox\": \"earlier\"}");
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 0);
    case_write("box/kubernetes-claim.json", "{\"claim\": \"earlier\", \"sandbox\": \"sandbox\"}");
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 0);
    case_write("box/kubernetes-claim.json", "{\"claim\"");
    T_OK(provider_kubernetes.has_disk(&case_box, &e) < 0);
}

static json_t *stored(const char *kind, const char *name)
{
    return json_object_get(json_object_get(api.objects, kind), name);
}

TEST(a_claim_that_names_no_sandbox_does_not_prove_that_the_sandbox_is_gone)
{
    struct err e = {0};

    begin_pool();
    put_claim("claim");
    case_write("box/kubernetes-claim.json",
               "{\"claim\": \"claim\", \"sandbox\": \"sandbox\", \"name\": \"small-1\"}");
    (void)json_object_del(stored("sandboxclaims", CASE_POD), "status");
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 1);
    api_put("sandboxes", new_owned("small-1", "sandbox", "nobody"));
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 1);
    case_write("box/kubernetes-claim.json", "{\"claim\": \"claim\", \"sandbox\": \"sandbox\"}");
    T_INT(provider_kubernetes.has_disk(&case_box, &e), -ERR_UNAVAILABLE);
    case_write("box/kubernetes-claim.json",
               "{\"claim\": \"claim\", \"sandbox\": \"sandbox\", \"name\": \"small-1\"}");
    api_put("sandboxes", new_owned("small-1", "another sandbox", "claim"));
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 0);
    (void)json_object_clear(json_object_get(api.objects, "sandboxes"));
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 0);
}

/* Else a stop would leave its pod running. */
TEST(a_sandbox_is_stopped_also_while_its_claim_does_not_name_it)
{
    struct err e = {0};

    begin_pool();
    put_claim("claim");
    put_pod("pod", "sandbox");
    case_write("box/kubernetes-claim.json",
               "{\"claim\": \"claim\", \"sandbox\": \"sandbox\", \"name\": \"small-1\"}");
    (void)json_object_del(stored("sandboxclaims", CASE_POD), "status");
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    T_INT(api_calls("PATCH"), 1);
    T_INT(api_count("pods"), 0);
}

/* ---- its cluster ---- */

static char *read_text(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "r");

    T_OK(f);
    out[fread(out, 1, size - 1, f)] = '\0';
    (void)fclose(f);
    return out;
}

TEST(a_claim_that_is_not_there_is_gone_only_in_the_cluster_of_its_pool)
{
    struct provider_run run;
    char text[512];
    struct err e = {0};

    begin_pool();
    api_put("sandboxwarmpools",
            json_pack("{s:{s:s, s:s}}", "metadata", "name", "small", "uid", "p"));
    T_INT(provider_kubernetes.prepare(&case_box, &e), 0);
    T_OK(strstr(read_text("box/kubernetes-claim.json", text, sizeof(text)), "\"pool\":\"p\""));
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 1);
    (void)json_object_clear(api_kind("sandboxclaims"));
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 0);
    case_write("box/kubernetes.json",
               "{\"way\": \"exec\", \"uid\": \"pod\", \"address\": \"\", \"pod\": \"small-1\"}");
    T_INT(provider_kubernetes.find(&case_box, &run, &e), 0);
    api_put("sandboxwarmpools",
            json_pack("{s:{s:s, s:s}}", "metadata", "name", "small", "uid", "q"));
    T_INT(provider_kubernetes.find(&case_box, &run, &e), -ERR_UNAVAILABLE);
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), -ERR_UNAVAILABLE);
    T_INT(provider_kubernetes.has_disk(&case_box, &e), -ERR_UNAVAILABLE);
    (void)json_object_clear(api_kind("sandboxwarmpools"));
    T_INT(provider_kubernetes.has_disk(&case_box, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "made in"));
    T_INT(provider_kubernetes.destroy(&case_box, &e), 0);
}

static bool refuse_one_patch(const struct kube_call *c, struct kube_answer *a)
{
    if (strcmp(c->method, "PATCH") != 0 || c->nth > 1)
        return false;
    *a =
        (struct kube_answer){409, .body = api_status(409, "Conflict", "please apply your changes")};
    return true;
}

/* Else its pod would be made anew. */
TEST(a_sandbox_that_a_conflict_kept_from_its_suspension_is_suspended)
{
    struct err e = {0};

    begin_pool();
    put_claim("claim");
    put_pod("pod", "sandbox");
    api.answer = refuse_one_patch;
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    T_STR(kube_text(stored("sandboxes", "small-1"), "spec", "operatingMode"), "Suspended");
}

static bool lose_one_patch(const struct kube_call *c, struct kube_answer *a)
{
    if (strcmp(c->method, "PATCH") != 0 || c->nth > 1)
        return false;
    *a = (struct kube_answer){404, .body = api_status(404, "NotFound", "not found")};
    return true;
}

TEST(a_sandbox_that_a_gateway_did_not_find_is_suspended)
{
    struct err e = {0};

    begin_pool();
    put_claim("claim");
    put_pod("pod", "sandbox");
    api.answer = lose_one_patch;
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    T_STR(kube_text(stored("sandboxes", "small-1"), "spec", "operatingMode"), "Suspended");
}

/* ---- the token ---- */

static unsigned n_given, n_restarts; /* guarded by the server's lock */

/* The first containers end when they have got the token. */
static const char *give_and_restart(const struct kube_call *c)
{
    json_t *status;
    char id[16];

    if (!strstr(c->path, "read"))
        return NULL;
    n_given++;
    if (n_restarts) {
        n_restarts--;
        status =
            json_array_get(json_object_get(json_object_get(stored("pods", "small-1"), "status"),
                                           "containerStatuses"),
                           0);
        (void)snprintf(id, sizeof(id), "again-%u", n_given);
        (void)json_object_set_new(status, "containerID", json_string(id));
        (void)json_object_set_new(
            status, "lastState",
            json_pack("{s:{s:i, s:s}}", "terminated", "exitCode", 137, "reason", "OOMKilled"));
    }
    return "given\n";
}

static int start_pool_box(unsigned restarts, struct err *e)
{
    struct provider_run run;

    begin_pool();
    put_claim("claim");
    put_pod("pod", "sandbox");
    api.exec = give_and_restart;
    n_restarts = restarts;
    return provider_kubernetes.start(&case_box, &run, e);
}

TEST(a_container_that_is_started_again_while_the_box_starts_gets_the_token_too)
{
    struct provider_run run;
    char text[512];
    struct err e = {0};

    T_INT(start_pool_box(1, &e), 0);
    T_INT(n_given, 2);
    T_OK(strstr(read_text("box/kubernetes.json", text, sizeof(text)), "\"again-1\""));
    T_INT(provider_kubernetes.find(&case_box, &run, &e), 1);
}

TEST(a_container_that_ends_again_and_again_fails_the_start_with_its_reason)
{
    struct err e = {0};

    T_INT(start_pool_box(1000, &e), -ERR_UNAVAILABLE);
    T_STR(e.field, "pool");
    if (!strstr(e.message, "exit code 137, OOMKilled"))
        t_fail(__FILE__, __LINE__, "%s", e.message);
    T_INT(n_given, 3);
}

static bool is_busy_for_one_suspension(const struct kube_call *c, struct kube_answer *a)
{
    static unsigned n_suspensions;

    if (strcmp(c->method, "PATCH") != 0 || !strstr(c->body, "Suspended") || n_suspensions++)
        return false;
    *a = (struct kube_answer){503, .body = api_status(503, "ServiceUnavailable", "try again")};
    return true;
}

TEST(a_start_that_failed_suspends_its_sandbox_also_if_the_server_is_busy_once)
{
    struct err e = {0};

    api.answer = is_busy_for_one_suspension;
    T_INT(start_pool_box(1000, &e), -ERR_UNAVAILABLE);
    T_STR(kube_text(stored("sandboxes", "small-1"), "spec", "operatingMode"), "Suspended");
}

TEST(a_container_that_was_started_again_later_ends_the_box_with_its_reason)
{
    struct provider_run run;
    char why[320];
    struct err e = {0};

    T_INT(start_pool_box(0, &e), 0);
    T_INT(provider_kubernetes.find(&case_box, &run, &e), 1);
    n_restarts = 1;
    (void)give_and_restart(&(struct kube_call){.path = "read"});
    T_INT(provider_kubernetes.find(&case_box, &run, &e), 0);
    provider_kubernetes.end_reason(&case_box, why, sizeof(why));
    T_OK(strstr(why, "Restarted") && strstr(why, "OOMKilled"));
    T_INT(provider_kubernetes.start(&case_box, &run, &e), 0); /* the new container has the token */
    T_INT(provider_kubernetes.find(&case_box, &run, &e), 1);
}

/* ---- gc ---- */

static bool keeps_none(void *arg, const char *id, bool has_disk)
{
    (void)arg, (void)id, (void)has_disk;
    return false;
}

static bool deny_claims(const struct kube_call *c, struct kube_answer *a)
{
    if (!strstr(c->path, CLAIMS))
        return serve_groups(c, a);
    *a = (struct kube_answer){403, .body = api_status(403, "Forbidden", "cannot list")};
    return true;
}

TEST(gc_deletes_claims_that_no_box_has_and_needs_no_rights_to_them)
{
    struct err e = {0};

    begin_pool();
    put_claim("claim");
    api.answer = deny_claims;
    T_INT(kube_sweep(&case_ctx, keeps_none, NULL, NULL, NULL, &e), 0);
    T_INT(api_count("sandboxclaims"), 1);
    api.answer = serve_groups;
    T_INT(kube_sweep(&case_ctx, keeps_none, NULL, NULL, NULL, &e), 0);
    T_INT(api_count("sandboxclaims"), 0);
}

static bool deny_policies(const struct kube_call *c, struct kube_answer *a)
{
    if (!strstr(c->path, "/networkpolicies"))
        return serve_groups(c, a);
    *a = (struct kube_answer){403, .body = api_status(403, "Forbidden", "cannot list")};
    return true;
}

TEST(gc_deletes_claims_also_under_a_role_without_policies)
{
    struct err e = {0};

    begin_pool();
    put_claim("claim");
    api.answer = deny_policies;
    T_INT(kube_sweep(&case_ctx, keeps_none, NULL, NULL, NULL, &e), -ERR_DENIED);
    T_INT(api_count("sandboxclaims"), 0);
}
