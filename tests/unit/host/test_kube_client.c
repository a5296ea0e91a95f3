/* The calls of the API of a cluster, on a server that is a child of the test. */
#include "test.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "fake_server.h"
#include "lib/provider/kubernetes/kube_client.h"

/* A server that waits for the body before it answers, as some proxies do, would cost a second a call. */
TEST(a_call_sends_its_body_without_waiting_for_leave)
{
    const struct reply r[] = {
        {.bytes = "HTTP/1.1 201 Created\r\nContent-Length: 14\r\n\r\n{\"kind\":\"Pod\"}",
         .keeps_open = true}};
    struct bh_ctx ctx = {.cancel_fd = -1};
    struct err e = {0};
    _cleanup_json_ json_t *body = json_pack("{s:s}", "kind", "Pod"), *made = NULL;
    _cleanup_kube_ struct kube *k = NULL;
    char log[4096] = "";
    int fds[2];

    T_INT(pipe(fds), 0);
    T_OK(fake_server("s", r, 1, fds[1]) > 0);
    T_INT(kube_open(&ctx, "proxy:s", clock_mono_ms() + 60000, &k, &e), 0);
    T_INT(kube_create(k, KUBE_PODS, body, false, &made, &e), 0);
    T_STR(kube_text(made, "kind"), "Pod");
    T_OK(read(fds[0], log, sizeof(log) - 1) > 0);
    T_OK(strstr(log, "POST /api/v1/namespaces/default/pods HTTP/1.1\r\n"));
    T_OK(!strstr(log, "Expect:"));
    (void)close(fds[0]);
    (void)close(fds[1]);
}

/* The command adds the variable of an error's field: an interrupt is no fault of KUBECONFIG. */
TEST(a_call_that_is_interrupted_says_no_more_than_that)
{
    const struct reply r[] = {{.bytes = "", .keeps_open = true}};
    _cleanup_close_ int cancel = eventfd(1, EFD_CLOEXEC);
    struct bh_ctx ctx = {.cancel_fd = cancel};
    struct err e = {0};
    _cleanup_json_ json_t *list = NULL;
    _cleanup_kube_ struct kube *k = NULL;

    T_OK(fake_server("s", r, 1, -1) > 0);
    T_INT(kube_open(&ctx, "proxy:s", clock_mono_ms() + 60000, &k, &e), 0);
    T_INT(kube_list(k, KUBE_PODS, "limit=1", &list, &e), -ERR_CANCELED);
    T_STR(e.message, "canceled");
    T_STR(e.field, "");
}
