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

/* ---- gc ---- */

static bool keeps_none(void *arg, const char *id)
{
    (void)arg, (void)id;
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
