#pragma once
/*
 * transport_internal: what the files of transport share (transport.c: requests; transport_upgrade.c: connections that
 * leave HTTP). No other file includes it.
 */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "lib/util/transport.h"

struct http {
    CURL *easy; /* keeps its connections between requests, through the multi handle */
    CURLM *multi;
    int cancel_fd;
    /* A socket path too long for sockaddr_un goes through a descriptor of its directory. The
     * descriptor stays open, so that the next request has the same name and reuses the
     * connection. */
    char *long_path;
    int dir_fd;
    char *short_path;
    const struct debug *debug; /* or NULL */
    const char *ca_file;       /* or NULL */
    const char *cert_file, *key_file;
    char reason[CURL_ERROR_SIZE]; /* of a failure, in libcurl's and the TLS library's words */
};

/* A request in progress. */
struct http_job {
    const struct http_request *req;
    struct http_response *res;
    size_t sent;              /* bytes sent of req->body */
    bool is_connected;        /* the peer was reached: what fails from then on is its doing */
    bool has_head;            /* all headers of the response have arrived */
    bool is_interim;          /* a 1xx response: another follows */
    bool is_streaming;        /* a 2xx response whose body goes to req->write */
    int new_fd;               /* socket of a new connection, owned by curl; or -1 */
    int64_t sent_mono_ms;     /* time of the last send */
    int64_t received_mono_ms; /* time at which the last stall_bytes had arrived */
    size_t received;          /* bytes received since then */
    uint64_t n_taken;         /* *req->n_taken at that time */
    uint64_t n_body;          /* bytes of the body */
    int failed;               /* error of a callback, which ended it */
    struct err why;
};

/*
 * libcurl brings thirty more libraries, whose loading takes longer than most commands that need no
 * HTTP. It is loaded with the first struct http, and stays.
 */
#define CURL_CALLS(F) \
    F(global_init) \
    F(easy_init) \
    F(easy_reset) \
    F(easy_setopt) \
    F(easy_getinfo) \
    F(easy_strerror) \
    F(easy_cleanup) \
    F(easy_send) \
    F(easy_recv) \
    F(multi_init) \
    F(multi_add_handle) \
    F(multi_remove_handle) \
    F(multi_perform) \
    F(multi_poll) \
    F(multi_info_read) \
    F(multi_strerror) \
    F(multi_cleanup) \
    F(slist_append) \
    F(slist_free_all)

#define CURL_MEMBER(name) __typeof__(curl_##name) *name;
struct curl_calls {
    CURL_CALLS(CURL_MEMBER)
};
#undef CURL_MEMBER
extern struct curl_calls curl_calls;

/* The request's address as errors name it. */
const char *http_place(const struct http_request *req);
/* Sets the handle up for a request; *ret_headers: to free after it. */
int http_set_up(struct http *h, struct http_job *j, struct curl_slist **ret_headers, struct err *e);
int http_run_job(struct http *h, struct http_job *j, struct err *e);
int http_result_of(struct http *h, struct http_job *j, struct err *e);
