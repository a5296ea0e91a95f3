/* The provider `kubernetes` against an API server that fails: gc, retries, records, exit codes, another's pod. */
#include "kube_case.h"

#include <signal.h>
#include <sys/wait.h>

#include "lib/provider/kubernetes/kube_watch.h"
#include "lib/provider/provider.h"

static const char case_manifest[] =
    "{\"name\": \"tests\", \"version\": \"1\", \"user\": {\"name\": \"dev\", \"uid\": 1000, "
    "\"gid\": 1000}}";

static int start_box(struct err *e)
{
    struct provider_run run;

    return provider_kubernetes.start(&case_box, &run, e);
}

static int find_box(struct err *e)
{
    struct provider_run run;

    return provider_kubernetes.find(&case_box, &run, e);
}

static void begin_box(void)
{
    case_begin();
    case_write("image/manifest.json", case_manifest);
}

static void begin_started(void)
{
    struct err e = {0};

    begin_box();
    if (start_box(&e) < 0)
        t_fail(__FILE__, __LINE__, "start: %s", e.message);
}

/* ---- gc ---- */

static bool keeps_none(void *arg, const char *id, bool has_disk)
{
    (void)arg, (void)id, (void)has_disk;
    return false;
}

static bool keeps_even(void *arg, const char *id, bool has_disk)
{
    (void)arg, (void)has_disk;
    return (id[15] - '0') % 2 == 0;
}

static void put_boxes(const char *kind, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        char id[17];

        (void)snprintf(id, sizeof(id), "%016u", i);
        api_put(kind, json_pack("{s:o}", "metadata", case_meta(id)));
    }
}

TEST(gc_sees_every_page_of_a_long_list)
{
    struct err e = {0};

    case_begin();
    put_boxes("secrets", 1310);
    put_boxes("pods", 650);
    T_INT(kube_sweep(&case_ctx, keeps_even, NULL, NULL, NULL, &e), 0);
    T_INT(api_count("secrets"), 655);
    T_INT(api_count("pods"), 325);
    T_INT(api_calls("GET /api/v1/namespaces/default/secrets"), 14);
}

static bool expire_second_page(const struct kube_call *c, struct kube_answer *a)
{
    static bool is_done;

    if (is_done || !strstr(c->path, "/secrets?") || !strstr(c->path, "continue="))
        return false;
    is_done = true;
    *a = (struct kube_answer){410, .body = api_status(410, "Expired", "the continue is too old")};
    return true;
}

TEST(a_place_in_a_list_that_has_expired_begins_the_list_anew)
{
    const struct kube_sweep_limits limits = {60000, 20000, .page = 10, .pages = 20};
    struct err e = {0};

    case_begin();
    put_boxes("secrets", 95);
    api.answer = expire_second_page;
    T_INT(kube_sweep_within(&case_ctx, &limits, keeps_none, NULL, NULL, NULL, &e), 0);
    T_INT(api_count("secrets"), 0);
}

TEST(gc_says_so_when_pages_or_time_run_out)
{
    const struct kube_sweep_limits few = {60000, 20000, .page = 10, .pages = 3};
    const struct kube_sweep_limits no_time = {-1, 20000, .page = 10, .pages = 3};
    struct err e = {0};

    case_begin();
    put_boxes("secrets", 95);
    T_INT(kube_sweep_within(&case_ctx, &few, keeps_none, NULL, NULL, NULL, &e), -ERR_DEADLINE);
    T_OK(strstr(e.message, "more than 3 pages"));
    T_INT(api_count("secrets"), 65);
    T_INT(kube_sweep_within(&case_ctx, &no_time, keeps_none, NULL, NULL, NULL, &e), -ERR_DEADLINE);
    T_OK(strstr(e.message, "not all of them"));
    T_INT(api_calls("GET /api/v1/namespaces/default/pods"), 1);
    T_INT(api_count("secrets"), 65);
}

static bool hang_one_deletion(const struct kube_call *c, struct kube_answer *a)
{
    if (strcmp(c->method, "DELETE") != 0 || !strstr(c->path, "0000000000000003"))
        return false;
    a->how = KUBE_SILENT;
    return true;
}

TEST(an_object_whose_deletion_hangs_does_not_hold_the_others)
{
    const struct kube_sweep_limits limits = {60000, 300, .page = 10, .pages = 20};
    struct err e = {0};

    case_begin();
    put_boxes("secrets", 25);
    put_boxes("networkpolicies", 4);
    api.answer = hang_one_deletion;
    T_INT(kube_sweep_within(&case_ctx, &limits, keeps_none, NULL, NULL, NULL, &e), -ERR_DEADLINE);
    if (!strstr(e.message, "0000000000000003"))
        t_fail(__FILE__, __LINE__, "%s", e.message);
    T_INT(api_count("secrets"), 1);
    T_INT(api_count("networkpolicies"), 1);
}

static bool deny_policies(const struct kube_call *c, struct kube_answer *a)
{
    if (!strstr(c->path, "/networkpolicies"))
        return false;
    *a = (struct kube_answer){403, .body = api_status(403, "Forbidden", "cannot list")};
    return true;
}

TEST(a_role_without_policies_keeps_no_other_object)
{
    struct err e = {0};

    case_begin();
    put_boxes("secrets", 3);
    put_boxes("persistentvolumeclaims", 3);
    api.answer = deny_policies;
    T_INT(kube_sweep(&case_ctx, keeps_none, NULL, NULL, NULL, &e), -ERR_DENIED);
    T_INT(api_count("secrets"), 0);
    T_INT(api_count("persistentvolumeclaims"), 0);
}

/* ---- its cluster ---- */

static const char two_clusters[] =
    "{\"current-context\": \"%s\", \"clusters\": [{\"name\": \"k\", \"cluster\": {\"server\": "
    "\"https://127.0.0.1:1\"}}], \"users\": [{\"name\": \"u\", \"user\": {\"token\": \"t\"}}], "
    "\"contexts\": [{\"name\": \"one\", \"context\": {\"cluster\": \"k\", \"user\": \"u\", "
    "\"namespace\": "
    "\"boxes\"}}, {\"name\": \"a&b\", \"context\": {\"cluster\": \"k\", \"user\": \"u\"}}]}";

/* A new box with that current context has that engine. */
static void choose_with(const char *current, const char *engine)
{
    char text[1024];
    struct err e = {0};

    (void)snprintf(text, sizeof(text), two_clusters, current);
    case_write("config", text);
    case_spec.engine = strdup("");
    (void)provider_kubernetes.check(&case_ctx, &case_spec, &e); /* nobody may answer */
    T_STR(case_spec.engine, engine);
    free(case_spec.engine);
}

TEST(a_box_stays_with_its_context_when_another_one_becomes_the_current_one)
{
    case_begin();
    case_ctx.kubeconfig = (char *)"config";
    case_spec.privilege = strdup("strict"); /* check() replaces it */
    choose_with("one", "kubeconfig:config?context=one&namespace=boxes");
    choose_with("a&b", "kubeconfig:config?namespace=default"); /* it cannot be named */
    case_ctx.kube_context = (char *)"one";
    case_ctx.kube_namespace = (char *)"mine";
    choose_with("a&b", "kubeconfig:config?context=one&namespace=mine");
    case_ctx.kubeconfig = (char *)"proxy:api";
    choose_with("one", "proxy:api?context=one&namespace=mine");
}

/* ---- retries ---- */

static struct {
    const char *method, *path; /* the call that fails */
    unsigned times;
    struct kube_answer answer;
    const char *reason, *message; /* NULL: some */
} fault;

static bool answer_fault(const struct kube_call *c, struct kube_answer *a)
{
    if (strcmp(c->method, fault.method) != 0 || !strstr(c->path, fault.path) ||
        strstr(c->path, "watch=1") || !fault.times)
        return false;
    fault.times--;
    *a = fault.answer;
    if (a->status)
        a->body = api_status(a->status, fault.reason ? fault.reason : "Because",
                             fault.message ? fault.message : "the server says no");
    return true;
}

static const struct kube_answer passing[] = {
    {429}, {500}, {502}, {503}, {504}, {200, .how = KUBE_CUT}, {0, .how = KUBE_CLOSED},
};

static void fail_calls(const char *method, const char *path, unsigned times, struct kube_answer a)
{
    (void)pthread_mutex_lock(&api.lock);
    api.answer = answer_fault;
    fault.method = method;
    fault.path = path;
    fault.times = times;
    fault.answer = a;
    (void)pthread_mutex_unlock(&api.lock);
}

TEST(a_start_and_a_stop_and_a_removal_repeat_a_call_that_fails_for_a_moment)
{
    begin_box();
    for (size_t i = 0; i < sizeof(passing) / sizeof(*passing); i++) {
        struct err e = {0};

        fail_calls("POST", "/pods", 1, passing[i]);
        if (start_box(&e) < 0)
            t_fail(__FILE__, __LINE__, "start %zu: %s", i, e.message);
        T_INT(fault.times, 0);
        T_INT(api_count("pods"), 1);
        fail_calls("GET", "/pods/" CASE_POD, 1, passing[i]);
        if (provider_kubernetes.stop(&case_box, 1000, &e) < 0)
            t_fail(__FILE__, __LINE__, "stop %zu: %s", i, e.message);
        T_INT(fault.times, 0);
        T_INT(api_count("pods"), 0);
        fail_calls("DELETE", "/secrets/" CASE_POD, 1, passing[i]);
        if (provider_kubernetes.destroy(&case_box, &e) < 0)
            t_fail(__FILE__, __LINE__, "destroy %zu: %s", i, e.message);
        T_INT(fault.times, 0);
        T_INT(api_count("secrets"), 0);
    }
}

TEST(a_pod_whose_creation_was_not_answered_is_the_boxs_own)
{
    struct err e = {0};

    begin_box();
    fail_calls("POST", "/pods", 1, (struct kube_answer){.how = KUBE_CLOSED, .is_made_first = true});
    T_INT(start_box(&e), 0);
    T_INT(api_calls("POST /api/v1/namespaces/default/pods"), 2);
    T_INT(api_count("pods"), 1);
    T_INT(find_box(&e), 1);
}

TEST(an_answer_that_refuses_is_not_repeated)
{
    static const struct {
        int status;
        int code;
    } answers[] = {{400, ERR_INVALID}, {401, ERR_DENIED}, {403, ERR_DENIED}, {422, ERR_INVALID}};

    begin_box();
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        unsigned before = api_calls("POST /api/v1/namespaces/default/pods");
        struct err e = {0};

        fail_calls("POST", "/pods", 10, (struct kube_answer){answers[i].status});
        T_INT(start_box(&e), -answers[i].code);
        T_INT(api_calls("POST /api/v1/namespaces/default/pods"), before + 1);
    }
}

/* As of a webhook that is gone. */
TEST(an_internal_error_that_does_not_pass_ends_a_start_soon)
{
    struct err e = {0};

    begin_box();
    fail_calls("POST", "/pods", 1000, (struct kube_answer){500});
    T_INT(start_box(&e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "the server says no"));
    T_INT(api_calls("POST /api/v1/namespaces/default/pods"), 4);
}

TEST(an_internal_error_that_says_that_it_passes_is_repeated)
{
    static const struct {
        const char *reason, *message, *header;
    } answers[] = {{"ServerTimeout", "try again", NULL},
                   {"", "etcdserver: leader changed", NULL},
                   {"InternalError", "busy", "Retry-After: 1\r\n"}};

    begin_box();
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        struct err e = {0};

        fault.reason = answers[i].reason;
        fault.message = answers[i].message;
        fail_calls("POST", "/pods", 5, (struct kube_answer){500, .header = answers[i].header});
        if (start_box(&e) < 0)
            t_fail(__FILE__, __LINE__, "start %zu: %s", i, e.message);
        T_INT(fault.times, 0);
        T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    }
}

TEST(the_dry_run_of_a_new_box_repeats_a_call_that_fails_for_a_moment)
{
    begin_box();
    case_spec.privilege = strdup("strict"); /* check() replaces it */
    for (size_t i = 0; i < sizeof(passing) / sizeof(*passing); i++) {
        struct err e = {0};

        fail_calls("POST", "/secrets", 1, passing[i]);
        if (provider_kubernetes.check(&case_ctx, &case_spec, &e) < 0)
            t_fail(__FILE__, __LINE__, "check %zu: %s", i, e.message);
        T_INT(fault.times, 0);
    }
    T_INT(api_count("pods"), 0);
}

TEST(a_conflict_that_is_not_about_the_uid_is_no_deletion)
{
    _cleanup_kube_ struct kube *k = NULL;
    struct err e = {0};

    begin_started();
    T_INT(kube_open(&case_ctx, "proxy:api", clock_mono_ms() + 60000, &k, &e), 0);
    T_INT(kube_delete(k, KUBE_SECRETS, CASE_POD, "another uid", -1, &e), 0);
    T_INT(api_count("secrets"), 1);
    fail_calls("DELETE", "/secrets", 1, (struct kube_answer){409});
    T_INT(kube_delete(k, KUBE_SECRETS, CASE_POD, "uid-1", -1, &e), -ERR_ABORTED);
    T_OK(strstr(e.message, "the server says no"));
    fail_calls("DELETE", "/secrets", 1, (struct kube_answer){409});
    T_INT(provider_kubernetes.destroy(&case_box, &e), 0);
    T_INT(fault.times, 0);
    T_INT(api_count("secrets"), 0);
}

TEST(a_start_waits_as_long_as_retry_after_says)
{
    int64_t begun = clock_mono_ms();
    struct err e = {0};

    begin_box();
    fail_calls("POST", "/pods", 1, (struct kube_answer){429, .header = "Retry-After: 2\r\n"});
    T_INT(start_box(&e), 0);
    T_OK(clock_mono_ms() - begun >= 2000);
    T_INT(api_calls("POST /api/v1/namespaces/default/pods"), 2);
}

TEST(a_start_ends_with_the_last_failure_when_its_time_is_over)
{
    struct err e = {0};

    begin_box();
    /* The last call has more than a second of it. */
    case_box.deadline_mono_ms = clock_mono_ms() + 5500;
    fail_calls("POST", "/pods", 1000, (struct kube_answer){503});
    T_INT(start_box(&e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "the server says no"));
}

/* ---- records ---- */

TEST(a_record_that_cannot_be_read_is_an_error_and_no_end)
{
    struct provider_run run;
    struct err e = {0};
    int status = 0, fd = -1;
    bool is_oom;

    begin_started();
    T_INT(find_box(&e), 1);
    case_write("box/kubernetes.json", "{\"way\": \"exec\", ");
    T_OK(find_box(&e) < 0);
    T_OK(provider_kubernetes.exit_status(&case_box, &run, &status, &is_oom, &e) < 0);
    T_OK(provider_kubernetes.dial(&case_box, &fd, &e) < 0);
    T_INT(unlink("box/kubernetes.json"), 0);
    T_INT(mkdir("box/kubernetes.json", 0700), 0);
    T_OK(find_box(&e) < 0);
    T_INT(start_box(&e) < 0, 1);
    T_INT(api_count("pods"), 1);
    T_INT(api_calls("POST /api/v1/namespaces/default/pods"), 1);
}

#define CLAIM_CALL "/persistentvolumeclaims"

static void clear_kind(const char *kind)
{
    (void)pthread_mutex_lock(&api.lock);
    (void)json_object_clear(api_kind(kind));
    (void)pthread_mutex_unlock(&api.lock);
}

TEST(a_box_is_gone_with_its_claim)
{
    struct err e = {0};

    begin_started();
    T_INT(provider_kubernetes.prepare(&case_box, &e), 0);
    fail_calls("GET", CLAIM_CALL, 2, (struct kube_answer){503});
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 1);
    fail_calls("GET", CLAIM_CALL, 1, (struct kube_answer){403});
    T_INT(provider_kubernetes.has_disk(&case_box, &e), -ERR_DENIED);
    clear_kind("persistentvolumeclaims");
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 0);
    case_spec.read_only = true;
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 1);
}

/* A box that is taken for gone is removed, and its claim with it. */
TEST(a_404_or_another_cluster_does_not_prove_that_a_claim_is_gone)
{
    struct err e = {0};

    begin_started();
    T_INT(provider_kubernetes.prepare(&case_box, &e), 0);
    fail_calls("GET", CLAIM_CALL, 1, (struct kube_answer){404});
    T_INT(provider_kubernetes.has_disk(&case_box, &e), -ERR_UNAVAILABLE);
    T_INT(provider_kubernetes.has_disk(&case_box, &e), 1);
    clear_kind("persistentvolumeclaims");
    clear_kind("secrets");
    T_INT(provider_kubernetes.has_disk(&case_box, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "made in"));
}

TEST(a_404_of_a_gateway_is_no_end_of_the_box)
{
    struct err e = {0};

    begin_started();
    fail_calls("GET", "/pods", 2, (struct kube_answer){404});
    T_INT(find_box(&e), -ERR_UNAVAILABLE);
    T_INT(find_box(&e), 1);
    fail_calls("GET", "/pods", 1, (struct kube_answer){404});
    T_INT(find_box(&e), -ERR_UNAVAILABLE);
    clear_kind("pods");
    T_INT(find_box(&e), 0);
}

TEST(a_404_of_a_gateway_leaves_neither_a_pod_nor_an_object_behind)
{
    struct err e = {0};

    begin_started();
    fail_calls("GET", "/pods/" CASE_POD, 1, (struct kube_answer){404});
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    T_INT(api_count("pods"), 0);
    T_INT(start_box(&e), 0);
    fail_calls("GET", "/pods", 1, (struct kube_answer){404});
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), -ERR_UNAVAILABLE);
    T_INT(api_count("pods"), 1);
    fail_calls("GET", "/pods/" CASE_POD, 1, (struct kube_answer){404});
    T_INT(provider_kubernetes.destroy(&case_box, &e), 0);
    T_INT(api_count("pods"), 0);
    T_INT(start_box(&e), 0);
    fail_calls("GET", "/secrets/" CASE_POD, 1, (struct kube_answer){404});
    T_INT(provider_kubernetes.destroy(&case_box, &e), 0);
    T_INT(api_count("secrets"), 0);
}

static unsigned n_lost; /* guarded by the server's lock */

/* The calls of the pod, until the gateway reaches its cluster again. */
static bool lose_pod(const struct kube_call *c, struct kube_answer *a)
{
    if (!n_lost || !strstr(c->path, "/pods/" CASE_POD))
        return false;
    n_lost--;
    *a = (struct kube_answer){404, .body = api_status(404, "NotFound", "not found")};
    return true;
}

TEST(a_404_of_a_deletion_is_believed_if_the_list_agrees)
{
    _cleanup_kube_ struct kube *k = NULL;
    _cleanup_kube_pod_ struct kube_pod p = {0};
    struct err e = {0};

    begin_started();
    api.answer = lose_pod;
    n_lost = 2; /* the deletion, and the look at the pod after it */
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    T_INT(api_count("pods"), 0);
    T_INT(start_box(&e), 0);
    T_INT(kube_open(&case_ctx, "proxy:api", clock_mono_ms() + 60000, &k, &e), 0);
    T_INT(kube_find_pod(&case_box, k, &p, &e), 1);
    n_lost = 1000;
    T_INT(kube_delete(k, KUBE_PODS, CASE_POD, p.uid, 1, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "lists it"));
    n_lost = 0;
    T_INT(kube_delete(k, KUBE_PODS, CASE_POD, p.uid, 1, &e), 0);
    T_INT(kube_delete(k, KUBE_PODS, CASE_POD, p.uid, 1, &e), 0); /* it is gone */
}

TEST(a_stop_in_another_cluster_is_an_error_and_a_removal_is_the_way_out)
{
    struct err e = {0};

    begin_started();
    clear_kind("pods");
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0); /* its Secret is there */
    clear_kind("secrets");
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "made in"));
    T_INT(provider_kubernetes.prepare(&case_box, &e), 0);
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0); /* or its claim */
    clear_kind("persistentvolumeclaims");
    T_INT(provider_kubernetes.destroy(&case_box, &e), 0);
}

/* An end that another cluster tells would be stored, and done to the pod when the box's own answers again. */
TEST(another_cluster_does_not_tell_of_an_end)
{
    json_t *shown = NULL;
    struct err e = {0};
    int fd = -1;

    begin_started();
    clear_kind("pods");
    T_INT(find_box(&e), 0); /* its Secret is there */
    clear_kind("secrets");
    T_INT(find_box(&e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "made in"));
    fail_calls("GET", "/exec", 1, (struct kube_answer){404});
    e = (struct err){0};
    T_INT(provider_kubernetes.dial(&case_box, &fd, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "made in"));
    T_INT(provider_kubernetes.inspect(&case_box, &shown, &e), -ERR_UNAVAILABLE);
    case_spec.read_only = true;
    T_INT(find_box(&e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "has not the secret"));
    case_spec.read_only = false;
    T_INT(provider_kubernetes.prepare(&case_box, &e), 0);
    T_INT(find_box(&e), 0); /* or its claim */
    T_INT(provider_kubernetes.destroy(&case_box, &e), 0);
    T_INT(find_box(&e), 0); /* it has nothing there any more */
}

/* ---- the network policy ---- */

TEST(a_role_without_policies_is_told_before_anything_is_made)
{
    struct err e = {0};

    begin_box();
    case_spec.privilege = strdup("strict"); /* check() replaces it */
    fail_calls("POST", "/networkpolicies", 2, (struct kube_answer){403});
    T_INT(provider_kubernetes.check(&case_ctx, &case_spec, &e), 0);
    T_INT(fault.times, 2);
    case_spec.network = (char *)"none";
    T_INT(provider_kubernetes.check(&case_ctx, &case_spec, &e), -ERR_DENIED);
}

static json_t *stored_policy_spec(void)
{
    return json_object_get(json_object_get(api_kind("networkpolicies"), CASE_POD), "spec");
}

TEST(a_policy_that_somebody_has_changed_is_made_anew_before_the_pod)
{
    static const struct {
        const char *field, *value;
    } changes[] = {
        {"egress", "[{}]"},
        {"ingress", "[{\"from\": []}]"},
        {"policyTypes", "[\"Ingress\"]"},
        {"podSelector", "{\"matchLabels\": {\"dev.bellhop.box\": \"another\"}}"},
        {"podSelector",
         "{\"matchLabels\": {\"dev.bellhop.box\": \"" CASE_BOX "\", \"absent\": \"1\"}}"},
        {"podSelector", "{\"matchLabels\": {\"dev.bellhop.box\": \"" CASE_BOX
                        "\"}, \"matchExpressions\": [{\"key\": \"a\", \"operator\": \"Exists\"}]}"},
    };
    struct err e = {0};

    case_spec.network = (char *)"none";
    begin_started();
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        json_t *wanted = json_deep_copy(stored_policy_spec());

        T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
        (void)json_object_set_new(stored_policy_spec(), changes[i].field,
                                  json_loads(changes[i].value, 0, NULL));
        if (start_box(&e) < 0)
            t_fail(__FILE__, __LINE__, "start %zu: %s", i, e.message);
        if (!json_equal(stored_policy_spec(), wanted))
            t_fail(__FILE__, __LINE__, "change %zu stays", i);
        json_decref(wanted);
    }
    T_INT(provider_kubernetes.stop(&case_box, 1000, &e), 0);
    T_INT(start_box(&e), 0); /* one that is as it should be stays */
    T_INT(api_calls("DELETE /apis/networking.k8s.io"), sizeof(changes) / sizeof(*changes));
}

static bool open_policies(const struct kube_call *c, struct kube_answer *a)
{
    json_t *body;

    if (strcmp(c->method, "POST") != 0 || !strstr(c->path, "/networkpolicies"))
        return false;
    body = json_loads(c->body, 0, NULL);
    (void)json_object_set_new(json_object_get(body, "spec"), "egress", json_pack("[{}]"));
    *a = (struct kube_answer){201, .body = json_deep_copy(api_put_new("networkpolicies", body))};
    return true;
}

TEST(a_cluster_that_opens_the_policy_gets_no_pod_of_a_box_without_a_network)
{
    struct err e = {0};

    case_spec.network = (char *)"none";
    begin_box();
    api.answer = open_policies;
    T_INT(start_box(&e), -ERR_PRECONDITION);
    T_STR(e.field, "network");
    T_INT(api_calls("POST /api/v1/namespaces/default/pods"), 0);
    T_INT(api_count("networkpolicies"), 0);
}

/* ---- a node that tells, or does not ---- */

static void set_ready(const char *reason)
{
    json_t *pod, *ready;

    (void)pthread_mutex_lock(&api.lock);
    pod = json_object_get(api_kind("pods"), CASE_POD);
    ready = json_array_get(json_object_get(json_object_get(pod, "status"), "conditions"), 0);
    (void)json_object_set_new(ready, "status", json_string("False"));
    (void)json_object_set_new(ready, "reason", json_string(reason));
    (void)pthread_mutex_unlock(&api.lock);
}

/* The controller that looks after nodes sets the status alone. */
TEST(a_pod_whose_probe_fails_is_of_no_lost_node)
{
    struct err e = {0};

    begin_started();
    set_ready("ContainersNotReady");
    T_INT(find_box(&e), 1);
    set_ready("");
    T_INT(find_box(&e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "NodeStatusUnknown"));
}

TEST(a_pod_that_ends_has_its_own_grace_before_its_node_is_blamed)
{
    static const struct {
        const char *grace;
        int asked_s, expected_s;
    } ends[] = {{"60", 5, 60},  {"5", 5, 5},   {"1", 30, 30},
                {"null", 7, 7}, {"1e9", 7, 7}, {"99999999", 7, 24 * 3600}};

    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        _cleanup_kube_pod_ struct kube_pod p = {0};
        int64_t before = clock_mono_ms(), by;

        kube_read_pod_take(json_pack("{s:{s:o}}", "metadata", "deletionGracePeriodSeconds",
                                     json_loads(ends[i].grace, JSON_DECODE_ANY, NULL)),
                           &p);
        by = kube_end_by_ms(&p, ends[i].asked_s) - KUBE_FORCE_AFTER_MS - ends[i].expected_s * 1000;
        T_OK(by >= before && by <= clock_mono_ms());
    }
}

TEST(a_pod_that_does_not_end_is_told_in_kubernetes_words)
{
    static const struct {
        const char *ready, *expected;
    } pods[] = {
        {"{\"type\": \"Ready\", \"status\": \"False\"}", "NodeStatusUnknown"},
        {"{\"type\": \"Ready\", \"status\": \"False\", \"reason\": \"ContainersNotReady\", "
         "\"message\": \"containers with unready status: [box]\"}",
         "does not end the pod, whose time is over: ContainersNotReady: containers with"},
    };

    for (size_t i = 0; i < sizeof(pods) / sizeof(*pods); i++) {
        _cleanup_kube_pod_ struct kube_pod p = {0};
        struct err e = {0};

        kube_read_pod_take(json_pack("{s:{s:s, s:[{s:s, s:{s:{}}}], s:[o]}}", "status", "phase",
                                     "Running", "containerStatuses", "name", "box", "state",
                                     "running", "conditions", json_loads(pods[i].ready, 0, NULL)),
                           &p);
        T_INT(kube_pod_does_not_end(&p, &e), -ERR_UNAVAILABLE);
        if (!strstr(e.message, pods[i].expected))
            t_fail(__FILE__, __LINE__, "%s", e.message);
    }
}

TEST(a_reason_that_cannot_be_read_is_said_to_be_unreadable)
{
    char why[320];

    begin_started();
    provider_kubernetes.end_reason(&case_box, why, sizeof(why));
    T_STR(why, "");
    T_INT(mkdir("box/kubernetes-end", 0700), 0);
    provider_kubernetes.end_reason(&case_box, why, sizeof(why));
    T_OK(strstr(why, "cannot be read"));
}

/* ---- exit codes ---- */

static void end_pod_with(const char *state)
{
    json_t *pod = case_pod("Failed", state);

    (void)pthread_mutex_lock(&api.lock);
    (void)json_object_set(
        json_object_get(pod, "metadata"), "uid",
        json_object_get(json_object_get(json_object_get(api_kind("pods"), CASE_POD), "metadata"),
                        "uid"));
    (void)api_put_new("pods", pod);
    (void)pthread_mutex_unlock(&api.lock);
}

TEST(the_exit_status_is_the_containers_whatever_it_is)
{
    static const struct {
        const char *state;
        int code, signal; /* -1: not that */
    } ends[] = {
        {"{\"terminated\": {\"exitCode\": 0, \"reason\": \"Completed\"}}", 0, -1},
        {"{\"terminated\": {\"exitCode\": 7, \"reason\": \"Error\"}}", 7, -1},
        {"{\"terminated\": {\"exitCode\": 128, \"reason\": \"StartError\"}}", 128, -1},
        {"{\"terminated\": {\"exitCode\": 137, \"reason\": \"OOMKilled\"}}", -1, SIGKILL},
        {"{\"terminated\": {\"exitCode\": 137, \"reason\": \"Error\"}}", -1, SIGKILL},
        {"{\"terminated\": {\"exitCode\": 143, \"reason\": \"Error\"}}", -1, SIGTERM},
        {"{\"terminated\": {\"exitCode\": 192, \"reason\": \"Error\"}}", -1, 64},
        {"{\"terminated\": {\"exitCode\": 200, \"reason\": \"Error\"}}", 200, -1},
        {"{\"terminated\": {\"exitCode\": 255, \"reason\": \"Error\"}}", 255, -1},
        {"{\"terminated\": {\"exitCode\": 255, \"reason\": \"Unknown\"}}", -1, -1},
        {"{\"terminated\": {\"exitCode\": 137, \"reason\": \"ContainerStatusUnknown\"}}", -1, -1},
        {"{\"terminated\": {\"reason\": \"Error\"}}", -1, -1},
    };

    begin_started();
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        struct provider_run run = {0};
        struct err e = {0};
        bool is_oom = false;
        int status = 0, r;

        end_pod_with(ends[i].state);
        T_INT(find_box(&e), 0);
        r = provider_kubernetes.exit_status(&case_box, &run, &status, &is_oom, &e);
        if (ends[i].code < 0 && ends[i].signal < 0) {
            T_INT(r, -ERR_NOT_FOUND);
            continue;
        }
        T_INT(r, 0);
        T_INT(WIFEXITED(status) ? WEXITSTATUS(status) : -1, ends[i].code);
        T_INT(WIFSIGNALED(status) ? WTERMSIG(status) : -1, ends[i].signal);
    }
}

TEST(the_reason_of_an_end_is_the_boxs_containers_and_not_a_side_containers)
{
    _cleanup_kube_pod_ struct kube_pod p = {0};
    json_t *doc =
        case_pod("Running", "{\"terminated\": {\"exitCode\": 0, \"reason\": \"Completed\"}}");
    char why[KUBE_WHY_BYTES];

    (void)json_array_insert_new(
        json_object_get(json_object_get(doc, "status"), "containerStatuses"), 0,
        json_pack("{s:s, s:{s:{s:i, s:s}}}", "name", "side", "state", "terminated", "exitCode", 137,
                  "reason", "OOMKilled"));
    kube_read_pod_take(doc, &p);
    kube_pod_why(&p, why);
    T_STR(why, "");
}

TEST(a_boxs_name_that_ends_with_a_dash_is_a_label_without_it)
{
    struct provider_box b = case_box;
    json_t *claim;

    case_begin();
    b.name = "demo--";
    claim = kube_new_claim(&b, case_mark);
    T_STR(kube_text(claim, "metadata", "labels", KUBE_LABEL_NAME), "demo");
    json_decref(claim);
}

/* ---- another's pod ---- */

TEST(a_pod_of_another_uid_is_not_the_boxs_and_gets_no_connection)
{
    char why[320];
    struct err e = {0};
    int fd = -1;

    begin_started();
    T_INT(provider_kubernetes.dial(&case_box, &fd, &e), 0);
    (void)close(fd);
    api_put("pods", case_pod("Running", CASE_RUNNING));
    T_INT(provider_kubernetes.dial(&case_box, &fd, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "Replaced"));
    T_INT(find_box(&e), 0);
    provider_kubernetes.end_reason(&case_box, why, sizeof(why));
    T_OK(strstr(why, "another one"));
    /* The next start makes its own. */
    T_INT(start_box(&e), 0);
    T_INT(find_box(&e), 1);
    T_INT(api_calls("POST /api/v1/namespaces/default/pods"), 2);
}

TEST(the_pod_of_a_start_that_died_is_adopted)
{
    struct err e = {0};

    begin_box();
    api_put("pods", case_pod("Running", CASE_RUNNING));
    T_INT(start_box(&e), 0);
    T_INT(api_calls("POST /api/v1/namespaces/default/pods"), 0);
    T_INT(find_box(&e), 1);
}

TEST(a_connection_to_a_pod_that_is_gone_tells_why)
{
    struct err e = {0};
    int fd = -1;

    begin_started();
    end_pod_with("{\"terminated\": {\"exitCode\": 137, \"reason\": \"OOMKilled\"}}");
    fail_calls("GET", "/exec", 1, (struct kube_answer){404});
    T_INT(provider_kubernetes.dial(&case_box, &fd, &e), -ERR_UNAVAILABLE);
    T_OK(strstr(e.message, "OOMKilled"));
}

/* ---- watches ---- */

static char watched[2048]; /* the last watch's path; guarded by the server's lock */
static int watch_status;   /* of the next ones; 0: they begin */

static bool note_watch(const struct kube_call *c, struct kube_answer *a)
{
    if (!strstr(c->path, "watch=1"))
        return false;
    (void)snprintf(watched, sizeof(watched), "%s", c->path);
    if (!watch_status)
        return false;
    *a = (struct kube_answer){watch_status, .body = api_status(watch_status, "Because", "no")};
    return true;
}

static bool is_readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) > 0;
}

static int watch_box(void)
{
    struct err e = {0};
    int fd = -1;

    begin_started();
    (void)pthread_mutex_lock(&api.lock);
    api.answer = note_watch;
    (void)pthread_mutex_unlock(&api.lock);
    T_INT(provider_kubernetes.watch(&case_box, &fd, &e), 0);
    return fd;
}

#define BOOKMARK "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"4711\"}}}"

TEST(a_watch_that_is_cut_goes_on_from_its_bookmark_and_tells_the_change)
{
    int fd = watch_box();
    unsigned n = api_n_watches();

    T_OK(strstr(watched, "allowWatchBookmarks=true"));
    T_OK(!strstr(watched, "resourceVersion=4711"));
    api_send_event(api_wait_watch(n), BOOKMARK);
    T_INT(shutdown(api_wait_watch(n), SHUT_RDWR), 0);
    (void)api_wait_watch(n + 1);
    T_OK(strstr(watched, "resourceVersion=4711"));
    T_OK(!is_readable(fd, 0));
    api_send_event(api_wait_watch(n + 1), "{\"type\":\"MODIFIED\",\"object\":{}}");
    T_OK(is_readable(fd, 60000));
    (void)close(fd);
}

/* A pod of a pool has the name of its Sandbox. */
TEST(a_watch_of_an_object_with_a_long_name_goes_on_with_that_name)
{
    _cleanup_kube_ struct kube *k = NULL;
    char name[201] = "", wanted[256];
    struct err e = {0};
    int fd = -1;

    memset(name, 'a', sizeof(name) - 1);
    (void)snprintf(wanted, sizeof(wanted), "metadata.name%%3D%s", name);
    begin_box();
    api.answer = note_watch;
    T_INT(kube_open(&case_ctx, "proxy:api", clock_mono_ms() + 60000, &k, &e), 0);
    T_INT(kube_watch(k, KUBE_PODS, name, "1", &fd, &e), 0);
    T_INT(shutdown(api_wait_watch(1), SHUT_RDWR), 0);
    (void)api_wait_watch(2);
    T_OK(strstr(watched, wanted));
    (void)close(fd);
}

TEST(a_watch_whose_version_is_gone_tells_to_look_anew)
{
    int fd = watch_box();

    api_send_event(api_wait_watch(api_n_watches()),
                   "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}");
    T_OK(is_readable(fd, 60000));
    (void)close(fd);
}

TEST(a_watch_that_is_refused_when_it_is_resumed_tells_to_look_anew)
{
    int fd = watch_box();

    (void)pthread_mutex_lock(&api.lock);
    watch_status = 410;
    (void)pthread_mutex_unlock(&api.lock);
    T_INT(shutdown(api_wait_watch(api_n_watches()), SHUT_RDWR), 0);
    T_OK(is_readable(fd, 60000));
    (void)close(fd);
}
