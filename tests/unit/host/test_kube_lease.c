/*
 * kube_lease by a clock of the test, against an API server that is scripted here: it keeps one Lease, with versions, and
 * refuses a write that names another one.
 */
#include "test.h"

#include <inttypes.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/provider/kubernetes/kube_lease.h"
#include "lib/util/transport.h"

#define ENGINE "proxy:s?namespace=boxes"
#define PLACE "/apis/coordination.k8s.io/v1/namespaces/boxes/leases"

/* ---- the clock ---- */

static int64_t now_ms = 1000000;

int64_t __wrap_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void)
{
    return now_ms;
}

/* ---- the API server ---- */

static struct {
    json_t *lease; /* NULL: there is none */
    int version;
    bool is_away;              /* no answer until the request's deadline */
    int status;                /* of all answers; 0: as it should be */
    bool loses_answers;        /* writes count, and no answer comes */
    const char *raw;           /* of all answers, with 200 */
    const char *steals_before; /* a write: this holder's comes first */
    int64_t takes_ms;          /* for each answer */
    int n_requests, n_writes;
} api;

static void store_lease(json_t *lease)
{
    char version[16];

    (void)snprintf(version, sizeof(version), "%d", ++api.version);
    (void)json_object_set_new(json_object_get(lease, "metadata"), "resourceVersion",
                              json_string(version));
    json_decref(api.lease);
    api.lease = lease;
}

static void hold_by(const char *holder, int duration_s)
{
    store_lease(json_pack("{s:{s:s, s:{s:s}}, s:{s:s, s:i, s:s, s:i}}", "metadata", "name", "one",
                          "labels", "team", "a", "spec", "holderIdentity", holder,
                          "leaseDurationSeconds", duration_s, "acquireTime",
                          "2020-01-01T00:00:00.000000Z", "leaseTransitions", 4));
}

static void delete_lease(void)
{
    json_decref(api.lease);
    api.lease = NULL;
}

static int refuse(int status, const char *reason, char **ret)
{
    T_OK(asprintf(ret, "{\"kind\":\"Status\",\"reason\":\"%s\",\"message\":\"no\"}", reason) > 0);
    return status;
}

static int serve_write(const struct http_request *q, bool is_new, char **ret)
{
    json_t *body = json_loadb(q->body, q->body_len, 0, NULL);
    const char *version = kube_text(body, "metadata", "resourceVersion");

    T_OK(body);
    T_STR(kube_text(body, "metadata", "name"), "one");
    if (api.steals_before)
        hold_by(TAKE(api.steals_before), 15);
    if (is_new && api.lease) {
        json_decref(body);
        return refuse(409, "AlreadyExists", ret);
    }
    if (!is_new &&
        (!api.lease || !str_eq(version, kube_text(api.lease, "metadata", "resourceVersion")))) {
        json_decref(body);
        return api.lease ? refuse(409, "Conflict", ret) : refuse(404, "NotFound", ret);
    }
    api.n_writes++;
    store_lease(body);
    *ret = json_dumps(api.lease, 0);
    return is_new ? 201 : 200;
}

static int serve(const struct http_request *q, char **ret)
{
    bool is_new = str_eq(q->method, "POST");

    T_STR(q->url, is_new ? "http://localhost" PLACE : "http://localhost" PLACE "/one");
    if (api.status)
        return refuse(api.status, "Broken", ret);
    if (api.raw) {
        *ret = strdup(api.raw);
        return 200;
    }
    if (!str_eq(q->method, "GET"))
        return serve_write(q, is_new, ret);
    if (!api.lease)
        return refuse(404, "NotFound", ret);
    *ret = json_dumps(api.lease, 0);
    return 200;
}

int __wrap_http_do(struct http *h, const struct http_request *q, struct http_response *ret,
                   struct err *e);
int __wrap_http_do(struct http *h, const struct http_request *q, struct http_response *ret,
                   struct err *e)
{
    _cleanup_free_ char *text = NULL;
    int status;

    (void)h;
    api.n_requests++;
    T_OK(q->deadline_mono_ms > now_ms);
    T_OK(q->deadline_mono_ms <= now_ms + 5000);
    status = api.is_away ? 0 : serve(q, &text);
    now_ms += api.takes_ms;
    if (!status || (api.loses_answers && !str_eq(q->method, "GET"))) {
        now_ms = q->deadline_mono_ms;
        return err_set(e, ERR_DEADLINE, "no answer");
    }
    *ret = (struct http_response){.status = status};
    buf_init(&ret->body, 64 << 20);
    return buf_add(&ret->body, text, strlen(text), e);
}

/* ---- candidates ---- */

static struct bh_ctx ctx = {.cancel_fd = -1};

static struct kube_lease *candidate(const char *holder)
{
    struct kube_lease *l = NULL;
    struct err e = {0};

    T_INT(kube_lease_new(&ctx, ENGINE, "one", holder, &l, &e), 0);
    return l;
}

/* As the daemon does it, until the state is another one or the time is over; the time that it took. */
static int64_t run_until(struct kube_lease *l, enum kube_lease_state state, int64_t most_ms)
{
    int64_t begun_ms = now_ms;
    struct err why;

    while (now_ms - begun_ms <= most_ms) {
        if (kube_lease_step(l, &why) == state)
            return now_ms - begun_ms;
        if (now_ms < kube_lease_next_ms(l))
            now_ms = kube_lease_next_ms(l);
        else
            now_ms++; /* a call took longer than the pause */
    }
    return -1;
}

/* At once, or, if there is no Lease, after its duration. */
static void lead(struct kube_lease *l)
{
    int64_t most_ms = api.lease ? 0 : KUBE_LEASE_DURATION_MS + KUBE_LEASE_RETRY_MS;

    T_OK(run_until(l, KUBE_LEASE_HELD, most_ms) >= 0);
}

/* A step that is due. */
static enum kube_lease_state step(struct kube_lease *l, struct err *why)
{
    if (now_ms < kube_lease_next_ms(l))
        now_ms = kube_lease_next_ms(l);
    return kube_lease_step(l, why);
}

static void done(struct kube_lease *l)
{
    (void)kube_lease_free(l);
    json_decref(api.lease);
}

TEST(a_lease_that_is_not_there_is_made_after_its_duration)
{
    struct kube_lease *l = candidate("a");
    struct err why;
    int64_t took;

    T_INT(kube_lease_step(l, &why), KUBE_LEASE_WAITING);
    T_INT(why.code, 0);
    took = run_until(l, KUBE_LEASE_HELD, 60000);
    T_OK(took >= KUBE_LEASE_DURATION_MS);
    T_OK(took <= KUBE_LEASE_DURATION_MS + KUBE_LEASE_RETRY_MS);
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "a");
    T_INT(json_integer_value(
              json_object_get(json_object_get(api.lease, "spec"), "leaseDurationSeconds")),
          15);
    T_INT(strlen(kube_text(api.lease, "spec", "renewTime")), strlen("2026-01-01T00:00:00.000000Z"));
    done(l);
}

TEST(a_lease_that_was_given_up_is_taken_at_once_and_its_metadata_stay)
{
    struct kube_lease *l = candidate("a");

    hold_by("", 15);
    lead(l);
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "a");
    T_STR(kube_text(api.lease, "metadata", "labels", "team"), "a");
    T_INT(
        json_integer_value(json_object_get(json_object_get(api.lease, "spec"), "leaseTransitions")),
        5);
    done(l);
}

TEST(a_held_lease_is_taken_when_nobody_has_changed_it_for_its_duration)
{
    struct kube_lease *l = candidate("b");
    int64_t took;

    hold_by("a", 15);
    took = run_until(l, KUBE_LEASE_HELD, 60000);
    T_OK(took >= KUBE_LEASE_DURATION_MS);
    T_OK(took <= KUBE_LEASE_DURATION_MS + KUBE_LEASE_RETRY_MS);
    done(l);
}

TEST(a_candidate_counts_from_the_last_change_that_it_has_seen)
{
    struct kube_lease *l = candidate("b");

    hold_by("a", 15);
    for (int i = 0; i < 20; i++) {
        T_INT(run_until(l, KUBE_LEASE_HELD, 12000), -1);
        hold_by("a", 15);
    }
    T_STR(kube_lease_seen_holder(l), "a");
    T_OK(run_until(l, KUBE_LEASE_HELD, 60000) >= KUBE_LEASE_DURATION_MS - KUBE_LEASE_RETRY_MS);
    done(l);
}

TEST(of_two_candidates_one_wins)
{
    struct kube_lease *l = candidate("b");
    struct err why;

    hold_by("", 15);
    api.steals_before = "c";
    T_INT(step(l, &why), KUBE_LEASE_WAITING);
    T_INT(why.code, 0);
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "c");
    T_INT(run_until(l, KUBE_LEASE_HELD, KUBE_LEASE_DURATION_MS - 1), -1);
    done(l);
}

TEST(of_two_that_make_the_lease_one_wins)
{
    struct kube_lease *l = candidate("b");

    api.steals_before = "c";
    T_INT(run_until(l, KUBE_LEASE_HELD, KUBE_LEASE_DURATION_MS + 2 * KUBE_LEASE_RETRY_MS), -1);
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "c");
    done(l);
}

TEST(a_leader_renews_and_another_waits_for_as_long)
{
    struct kube_lease *a = candidate("a"), *b = candidate("b");
    struct err why;

    lead(a);
    for (int64_t end = now_ms + 600000; now_ms < end;) {
        T_INT(kube_lease_step(a, &why), KUBE_LEASE_HELD);
        T_INT(kube_lease_step(b, &why), KUBE_LEASE_WAITING);
        now_ms += 500;
    }
    T_OK(api.n_writes > 600000 / KUBE_LEASE_RENEW_MS - 2);
    (void)kube_lease_free(b);
    done(a);
}

TEST(a_leader_that_cannot_renew_ends_before_another_may_take_the_lease)
{
    struct kube_lease *a = candidate("a"), *b = candidate("b");
    int64_t renewed_ms;
    struct err why;

    lead(a);
    T_INT(step(a, &why), KUBE_LEASE_HELD);
    renewed_ms = now_ms;
    T_INT(step(b, &why), KUBE_LEASE_WAITING);
    api.is_away = true; /* for the leader alone: the other's clock runs on below */
    T_OK(run_until(a, KUBE_LEASE_LOST, 60000) >= 0);
    T_INT(now_ms - renewed_ms, KUBE_LEASE_DEADLINE_MS);
    T_INT(step(a, &why), KUBE_LEASE_LOST);
    api.is_away = false;
    T_INT(kube_lease_step(b, &why), KUBE_LEASE_WAITING);
    T_OK(run_until(b, KUBE_LEASE_HELD, 60000) >=
         KUBE_LEASE_DURATION_MS - KUBE_LEASE_DEADLINE_MS - KUBE_LEASE_RETRY_MS);
    T_OK(now_ms - renewed_ms >= KUBE_LEASE_DURATION_MS);
    (void)kube_lease_free(b);
    done(a);
}

TEST(the_deadline_counts_from_before_the_request_of_a_slow_renewal)
{
    struct kube_lease *a = candidate("a");
    int64_t begun_ms;
    struct err why;

    lead(a);
    now_ms = begun_ms = kube_lease_next_ms(a);
    api.takes_ms = 3000;
    T_INT(kube_lease_step(a, &why), KUBE_LEASE_HELD);
    api.is_away = true;
    T_OK(run_until(a, KUBE_LEASE_LOST, 60000) >= 0);
    T_INT(now_ms - begun_ms, KUBE_LEASE_DEADLINE_MS);
    done(a);
}

TEST(errors_of_the_server_for_less_than_the_deadline_change_nothing)
{
    static const int statuses[] = {401, 403, 429, 500, 503};
    struct kube_lease *a = candidate("a");
    struct err why;

    lead(a);
    for (size_t i = 0; i < N_ELEMENTS(statuses); i++) {
        api.status = statuses[i];
        T_INT(step(a, &why), KUBE_LEASE_HELD);
        T_OK(why.code != 0);
        T_INT(step(a, &why), KUBE_LEASE_HELD);
        api.status = 0;
        T_INT(step(a, &why), KUBE_LEASE_HELD);
        T_INT(why.code, 0);
    }
    api.status = 503;
    T_OK(run_until(a, KUBE_LEASE_LOST, 60000) >= 0);
    done(a);
}

TEST(a_leader_whose_lease_another_has_taken_ends_at_once)
{
    struct kube_lease *a = candidate("a");
    struct err why;

    lead(a);
    hold_by("b", 15);
    T_INT(step(a, &why), KUBE_LEASE_LOST);
    T_OK(strstr(why.message, "held by 'b'"));
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "b");
    T_INT(kube_lease_release(a, &why), 0);
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "b");
    done(a);
}

TEST(an_answer_that_was_lost_costs_no_leadership)
{
    struct kube_lease *a = candidate("a");
    struct err why;

    api.loses_answers = true;
    T_INT(run_until(a, KUBE_LEASE_HELD, KUBE_LEASE_DURATION_MS + KUBE_LEASE_RETRY_MS), -1);
    T_OK(api.lease);
    api.loses_answers = false;
    T_INT(step(a, &why), KUBE_LEASE_HELD); /* its own, by the answer that was lost */
    api.loses_answers = true;
    T_INT(step(a, &why), KUBE_LEASE_HELD);
    api.loses_answers = false;
    T_INT(step(a, &why), KUBE_LEASE_HELD);
    T_INT(why.code, 0);
    done(a);
}

TEST(a_change_of_the_leases_metadata_costs_no_leadership)
{
    struct kube_lease *a = candidate("a");
    struct err why;

    lead(a);
    (void)json_object_set_new(json_object_get(api.lease, "metadata"), "labels",
                              json_pack("{s:s}", "by", "somebody"));
    store_lease(json_incref(api.lease));
    T_INT(step(a, &why), KUBE_LEASE_HELD);
    T_INT(why.code, 0);
    T_STR(kube_text(api.lease, "metadata", "labels", "by"), "somebody");
    done(a);
}

TEST(a_leader_makes_a_lease_that_was_deleted_again_and_another_waits_for_it)
{
    struct kube_lease *a = candidate("a"), *b = candidate("b");
    struct err why;

    lead(a);
    T_INT(step(b, &why), KUBE_LEASE_WAITING);
    delete_lease();
    T_INT(step(b, &why), KUBE_LEASE_WAITING);
    T_OK(!api.lease);
    T_INT(step(a, &why), KUBE_LEASE_HELD);
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "a");
    (void)kube_lease_free(b);
    done(a);
}

TEST(a_candidate_that_finds_no_lease_does_not_lead_beside_the_leader_of_a_deleted_one)
{
    struct kube_lease *a = candidate("a"), *b = candidate("b");
    struct err why;

    lead(a);
    T_INT(step(a, &why), KUBE_LEASE_HELD);
    delete_lease();
    for (int64_t end = now_ms + 60000; now_ms < end; now_ms += 500) {
        bool leads = kube_lease_step(a, &why) == KUBE_LEASE_HELD;

        T_OK(kube_lease_step(b, &why) != KUBE_LEASE_HELD || !leads);
    }
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "a");
    (void)kube_lease_free(b);
    done(a);
}

TEST(a_lease_deleted_while_its_leader_cannot_renew_is_made_when_the_leader_has_ended)
{
    struct kube_lease *a = candidate("a"), *b = candidate("b");
    int64_t renewed_ms;
    struct err why;

    lead(a);
    T_INT(step(b, &why), KUBE_LEASE_WAITING);
    now_ms += KUBE_LEASE_DURATION_MS; /* it has not asked for a long time */
    hold_by("a", 15);
    renewed_ms = now_ms;
    delete_lease();
    T_INT(kube_lease_step(b, &why), KUBE_LEASE_WAITING);
    T_OK(run_until(b, KUBE_LEASE_HELD, 60000) >= 0);
    T_OK(now_ms - renewed_ms >= KUBE_LEASE_DURATION_MS);
    (void)kube_lease_free(b);
    done(a);
}

/* It may have been there meanwhile. */
TEST(the_time_without_a_lease_begins_anew_after_a_look_that_failed)
{
    struct kube_lease *b = candidate("b");
    struct err why;

    T_INT(step(b, &why), KUBE_LEASE_WAITING);
    now_ms += KUBE_LEASE_DURATION_MS - 1000;
    api.status = 503;
    T_INT(step(b, &why), KUBE_LEASE_WAITING);
    api.status = 0;
    T_OK(run_until(b, KUBE_LEASE_HELD, 60000) >= KUBE_LEASE_DURATION_MS);
    done(b);
}

TEST(a_lease_that_was_deleted_with_its_leader_is_made_after_its_duration)
{
    struct kube_lease *b = candidate("b");
    struct err why;

    hold_by("a", 15);
    T_INT(step(b, &why), KUBE_LEASE_WAITING);
    delete_lease();
    T_OK(run_until(b, KUBE_LEASE_HELD, 60000) >= KUBE_LEASE_DURATION_MS);
    done(b);
}

TEST(a_deleted_lease_that_another_has_made_ends_the_leader)
{
    struct kube_lease *a = candidate("a");
    struct err why;

    lead(a);
    json_decref(api.lease);
    api.lease = NULL;
    api.steals_before = "b"; /* between the answer that it is gone, and ours */
    T_INT(step(a, &why), KUBE_LEASE_LOST);
    done(a);
}

TEST(a_lease_that_is_given_up_has_no_holder_and_is_the_next_ones_at_once)
{
    struct kube_lease *a = candidate("a"), *b = candidate("b");
    struct err e = {0};

    lead(a);
    T_INT(kube_lease_release(a, &e), 0);
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "");
    T_INT(step(a, &e), KUBE_LEASE_LOST);
    lead(b);
    (void)kube_lease_free(b);
    done(a);
}

TEST(a_candidate_that_ends_does_not_touch_the_lease)
{
    struct kube_lease *b = candidate("b");
    struct err e = {0};

    hold_by("a", 15);
    T_INT(step(b, &e), KUBE_LEASE_WAITING);
    api.n_requests = 0;
    T_INT(kube_lease_release(b, &e), 0);
    T_INT(api.n_requests, 0);
    done(b);
}

TEST(a_lease_given_up_while_it_is_annotated_is_given_up)
{
    struct kube_lease *a = candidate("a");
    struct err e = {0};

    lead(a);
    store_lease(json_incref(api.lease));
    T_INT(kube_lease_release(a, &e), 0);
    T_STR(kube_text(api.lease, "spec", "holderIdentity"), "");
    done(a);
}

TEST(durations_out_of_range_neither_shorten_nor_prolong_the_wait)
{
    static const int durations[] = {-1, 0, 1, INT32_MIN};
    int64_t took;

    for (size_t i = 0; i < N_ELEMENTS(durations); i++) {
        struct kube_lease *l = candidate("b");

        hold_by("a", durations[i]);
        took = run_until(l, KUBE_LEASE_HELD, 60000);
        T_OK(took >= KUBE_LEASE_DURATION_MS);
        (void)kube_lease_free(l);
    }
    struct kube_lease *l = candidate("b");

    hold_by("a", INT32_MAX);
    took = run_until(l, KUBE_LEASE_HELD, 700000);
    T_OK(took >= 600000);
    done(l);
}

TEST(a_holder_of_a_megabyte_is_one_holder)
{
    struct kube_lease *l = candidate("b");
    char *holder = malloc((1 << 20) + 1);
    struct err why;

    memset(holder, 'a', 1 << 20);
    holder[1 << 20] = '\0';
    hold_by(holder, 15);
    free(holder);
    T_INT(step(l, &why), KUBE_LEASE_WAITING);
    T_OK(strlen(kube_lease_seen_holder(l)) <= 100);
    T_OK(run_until(l, KUBE_LEASE_HELD, 60000) >= KUBE_LEASE_DURATION_MS - KUBE_LEASE_RETRY_MS);
    done(l);
}

TEST(answers_that_are_no_lease_give_nobody_the_lease)
{
    static const char *const answers[] = {
        "",
        "x",
        "[]",
        "null",
        "{}",
        "{\"metadata\":{\"resourceVersion\":7},\"spec\":{\"holderIdentity\":\"\"}}",
        "{\"metadata\":[],\"spec\":[]}",
        "{\"metadata\":{\"resourceVersion\":\"1\"},\"spec\":{\"holderIdentity\":\"c\","
        "\"leaseDurationSeconds\":\"1\"}}",
    };

    for (size_t i = 0; i < N_ELEMENTS(answers); i++) {
        struct kube_lease *l = candidate("b");
        struct err why;

        api.raw = answers[i];
        T_INT(step(l, &why), KUBE_LEASE_WAITING);
        T_INT(step(l, &why), KUBE_LEASE_WAITING);
        (void)kube_lease_free(l);
    }
}

TEST(a_write_that_the_server_has_changed_is_no_leadership)
{
    struct kube_lease *l = candidate("b");
    struct err why;

    /* All answers: it is free, and the write's answer is the same. */
    api.raw = "{\"metadata\":{\"name\":\"one\",\"resourceVersion\":\"1\"},\"spec\":{}}";
    T_INT(step(l, &why), KUBE_LEASE_WAITING);
    (void)kube_lease_free(l);
}

TEST(names_that_are_none_are_refused)
{
    static const char *const names[] = {"", "A", "a/b", "-a", "a-", "a b", ".", "a%2f"};
    struct kube_lease *l = NULL;
    struct err e = {0};

    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        T_INT(kube_lease_new(&ctx, ENGINE, names[i], "a", &l, &e), -ERR_INVALID);
        T_STR(e.field, "lease");
    }
    T_INT(kube_lease_check_name("bellhop.one-2", &e), 0);
}
