#include "lib/util/transport_internal.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/util/socket.h"

#define HTTP_CONNECT_TIMEOUT_MS 10000L
#define HTTP_ERROR_BODY_BYTES (64 * 1024)
#define HTTP_BODY_BYTES (16 * 1024 * 1024)
#define HTTP_HEADER_BYTES (64 * 1024)
#define HTTP_POLL_MS 60000
#define HTTP_ADDED_HEADERS 16
#define CURL_LIBRARY "libcurl.so.4"

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
struct job {
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

/* ---- libcurl ---- */

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

static struct {
#define CURL_MEMBER(name) __typeof__(curl_##name) *name;
    CURL_CALLS(CURL_MEMBER)
} curl_calls;
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static bool curl_is_loaded; /* read after curl_once */

static void load_curl(void)
{
    void *lib = dlopen(CURL_LIBRARY, RTLD_LAZY | RTLD_LOCAL);

    if (!lib)
        return;
    curl_is_loaded = true;
#define CURL_LOAD(name) \
    *(void **)&curl_calls.name = dlsym(lib, "curl_" #name); \
    curl_is_loaded = curl_is_loaded && curl_calls.name;
    CURL_CALLS(CURL_LOAD)
    if (curl_is_loaded)
        (void)curl_calls.global_init(CURL_GLOBAL_DEFAULT);
}

int http_load(struct err *e)
{
    (void)pthread_once(&curl_once, load_curl);
    return curl_is_loaded ? 0 : err_set(e, ERR_PRECONDITION, "'%s' cannot be loaded", CURL_LIBRARY);
}

int http_new(int cancel_fd, struct http **ret, struct err *e)
{
    int r = http_load(e);
    struct http *h = r == 0 ? calloc(1, sizeof(*h)) : NULL;

    if (r < 0)
        return r;
    if (!h)
        return err_oom(e);
    h->cancel_fd = cancel_fd;
    h->dir_fd = -1;
    h->easy = curl_calls.easy_init();
    h->multi = curl_calls.multi_init();
    if (!h->easy || !h->multi) {
        (void)http_free(h);
        return err_oom(e);
    }
    *ret = h;
    return 0;
}

struct http *http_free(struct http *h)
{
    if (!h)
        return NULL;
    curl_calls.easy_cleanup(h->easy);
    (void)curl_calls.multi_cleanup(h->multi);
    fd_close(h->dir_fd);
    free(h->long_path);
    free(h->short_path);
    free(h);
    return NULL;
}

void http_response_done(struct http_response *r)
{
    if (!r)
        return;
    buf_done(&r->body);
    buf_done(&r->headers);
}

bool http_header(const struct http_response *r, const char *name, char *out, size_t out_bytes)
{
    size_t n = strlen(name);

    for (const char *p = r->headers.data; p && *p;) {
        const char *end = strstr(p, "\r\n");

        if (!end)
            return false;
        if (strncasecmp(p, name, n) == 0 && p[n] == ':') {
            p += n + 1;
            p += strspn(p, " \t");
            (void)snprintf(out, out_bytes, "%.*s", (int)(end - p), p);
            return true;
        }
        p = end + 2;
    }
    return false;
}

/* ---- callbacks ---- */

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    struct job *j = arg;
    size_t len = size * n;

    if (len >= 5 && memcmp(data, "HTTP/", 5) == 0) {
        const char *space = memchr(data, ' ', len);

        buf_clear(&j->res->headers);
        j->is_streaming = space && space + 1 < data + len && space[1] == '2' && j->req->write;
        j->is_interim = space && space + 1 < data + len && space[1] == '1';
        return len;
    }
    if (len <= 2 && !j->is_interim) {
        j->has_head = true;
        j->received_mono_ms = clock_mono_ms();
    }
    if (len > 2 && buf_add(&j->res->headers, data, len, &j->why) < 0) {
        j->failed = err_set(&j->why, ERR_EXHAUSTED, "the answer's headers pass %d bytes",
                            HTTP_HEADER_BYTES);
        return 0;
    }
    return len;
}

/* The time that write() took since `before` does not count against the sender. */
static void note_received(struct job *j, int64_t before_mono_ms, size_t len)
{
    int64_t now = clock_mono_ms();

    bool is_more;

    j->received += len;
    j->received_mono_ms += now - before_mono_ms;
    is_more = j->req->n_taken ? *j->req->n_taken != j->n_taken : j->received >= j->req->stall_bytes;
    if (!is_more)
        return;
    j->n_taken = j->req->n_taken ? *j->req->n_taken : 0;
    j->received = 0;
    j->received_mono_ms = now;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct job *j = arg;
    size_t len = size * n;

    j->n_body += len;
    if (j->is_streaming) {
        int64_t before = clock_mono_ms();
        int r = j->req->write(j->req->write_arg, data, len);

        note_received(j, before, len);
        if (r == 0)
            return len;
        j->failed = err_set(&j->why, ERR_CANCELED, "the receiver ended the answer");
        return CURL_WRITEFUNC_ERROR;
    }
    /* Cut off a long error page. */
    if (j->req->write && j->res->body.len + len > j->res->body.max)
        return len;
    if (buf_add(&j->res->body, data, len, &j->why) < 0) {
        j->failed = err_set(&j->why, ERR_EXHAUSTED, "the answer is larger than %zu bytes",
                            j->res->body.max);
        return CURL_WRITEFUNC_ERROR;
    }
    return len;
}

static size_t on_read(char *out, size_t size, size_t n, void *arg)
{
    struct job *j = arg;
    size_t max = size * n;
    int64_t got;

    if (!j->req->read) {
        size_t left = j->req->body_len - j->sent;

        max = left < max ? left : max;
        if (max)
            memcpy(out, (const char *)j->req->body + j->sent, max);
        j->sent += max;
        j->sent_mono_ms = clock_mono_ms();
        return max;
    }
    got = j->req->read(j->req->read_arg, out, max, &j->why);
    j->sent_mono_ms = clock_mono_ms();
    if (got >= 0)
        return (size_t)got;
    j->failed = (int)got;
    if (!j->why.code)
        (void)err_set(&j->why, (enum err_code) - got, "the body could not be produced");
    return CURL_READFUNC_ABORT;
}

/* curl retries on a new connection if a kept one has closed: rewind the body. */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct job *j = arg;

    if (j->req->read || origin != SEEK_SET || offset < 0 || (uint64_t)offset > j->req->body_len)
        return CURL_SEEKFUNC_CANTSEEK;
    j->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct job *j = arg;

    (void)purpose;
    j->new_fd = socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
    return j->new_fd < 0 ? CURL_SOCKET_BAD : j->new_fd;
}

/* Connected, and nothing sent yet: the only moment to check the listener. */
static int on_connected(void *arg, char *peer_ip, char *own_ip, int peer_port, int own_port)
{
    struct job *j = arg;
    struct sockaddr_un un;
    socklen_t len = sizeof(un);

    (void)peer_ip;
    (void)own_ip;
    (void)peer_port;
    (void)own_port;
    j->is_connected = true;
    if (j->new_fd < 0 || !j->req->unix_socket)
        return CURL_PREREQFUNC_OK; /* a kept connection, or one over the network */
    /* curl takes a connect() refused by a full backlog for one in progress. */
    if (getpeername(j->new_fd, (struct sockaddr *)&un, &len) < 0)
        j->failed =
            err_set(&j->why, ERR_UNAVAILABLE, "'%s' accepts no connections", j->req->unix_socket);
    else if (j->req->check_peer)
        j->failed = j->req->check_peer(j->req->check_arg, j->new_fd, &j->why);
    if (j->failed == 0)
        return CURL_PREREQFUNC_OK;
    (void)shutdown(j->new_fd, SHUT_RDWR); /* keeps curl from reusing it */
    return CURL_PREREQFUNC_ABORT;
}

/* ---- set-up ---- */

static int shorten_socket_path(struct http *h, const char *path, struct err *e)
{
    _cleanup_free_ char *dir = path_dir(path);
    char *short_path = NULL;

    if (h->long_path && strcmp(h->long_path, path) == 0)
        return 0;
    free(TAKE(h->long_path));
    free(TAKE(h->short_path));
    fd_close(TAKE_FD(h->dir_fd));
    h->dir_fd = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (h->dir_fd < 0)
        return err_sys(e, errno, "open '%s'", dir ? dir : path);
    if (asprintf(&short_path, "/proc/self/fd/%d/%s", h->dir_fd, path_name(path)) < 0)
        return err_oom(e);
    h->short_path = short_path;
    h->long_path = strdup(path);
    return h->long_path ? 0 : err_oom(e);
}

/* Everybody on the way can read it: the proxy too. */
static bool has_token_in_clear(const struct http_request *req)
{
    if (strncasecmp(req->url, "http://", strlen("http://")) != 0)
        return false;
    for (const char *const *l = req->headers; l && *l; l++)
        if (strncasecmp(*l, "Authorization:", strlen("Authorization:")) == 0 ||
            strncasecmp(*l, "X-Access-Token:", strlen("X-Access-Token:")) == 0)
            return true;
    return false;
}

static int set_address(struct http *h, const struct http_request *req, struct err *e)
{
    const struct sockaddr_un *un = NULL;
    const char *path = req->unix_socket;
    int r;

    if (path && strlen(path) >= sizeof(un->sun_path)) {
        r = shorten_socket_path(h, path, e);
        if (r < 0)
            return r;
        path = h->short_path;
    }
    (void)curl_calls.easy_setopt(h->easy, CURLOPT_URL, req->url);
    (void)curl_calls.easy_setopt(h->easy, CURLOPT_UNIX_SOCKET_PATH, path);
    if (path || has_token_in_clear(req)) /* proxies are for the network */
        (void)curl_calls.easy_setopt(h->easy, CURLOPT_PROXY, "");
    return 0;
}

static int set_headers(struct http *h, const struct http_request *req, struct curl_slist **ret,
                       struct err *e)
{
    struct curl_slist *list = NULL;

    for (size_t i = 0; req->headers && req->headers[i]; i++) {
        struct curl_slist *more =
            i < HTTP_ADDED_HEADERS ? curl_calls.slist_append(list, req->headers[i]) : NULL;

        if (!more) {
            curl_calls.slist_free_all(list);
            return err_oom(e);
        }
        list = more;
    }
    (void)curl_calls.easy_setopt(h->easy, CURLOPT_HTTPHEADER, list);
    *ret = list;
    return 0;
}

static void set_body(struct http *h, const struct http_request *req)
{
    bool has_body = req->read || req->body;

    if (strcmp(req->method, "HEAD") == 0)
        (void)curl_calls.easy_setopt(h->easy, CURLOPT_NOBODY, 1L);
    else if (has_body)
        (void)curl_calls.easy_setopt(h->easy, CURLOPT_UPLOAD, 1L);
    else
        (void)curl_calls.easy_setopt(h->easy, CURLOPT_HTTPGET, 1L);
    (void)curl_calls.easy_setopt(h->easy, CURLOPT_CUSTOMREQUEST, req->method);
    if (has_body)
        (void)curl_calls.easy_setopt(
            h->easy, CURLOPT_INFILESIZE_LARGE,
            (curl_off_t)(req->read ? req->read_len : (int64_t)req->body_len));
}

static int set_up(struct http *h, struct job *j, struct curl_slist **ret_headers, struct err *e)
{
    CURL *c = h->easy;
    int r;

    curl_calls.easy_reset(c);
    r = set_address(h, j->req, e);
    if (r < 0)
        return r;
    (void)curl_calls.easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_calls.easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    h->reason[0] = '\0';
    (void)curl_calls.easy_setopt(c, CURLOPT_ERRORBUFFER, h->reason);
    /* Over HTTP/2, libcurl 7.88 loses the body of some answers that refuse a request. */
    (void)curl_calls.easy_setopt(c, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
#if LIBCURL_VERSION_NUM >= 0x075700
    /* A canceled request does not wait for the resolver's thread. A libcurl that does not know it says so. */
    (void)curl_calls.easy_setopt(c, CURLOPT_QUICK_EXIT, 1L);
#endif
    (void)curl_calls.easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    (void)curl_calls.easy_setopt(c, CURLOPT_FRESH_CONNECT, j->req->is_sent_once ? 1L : 0L);
    (void)curl_calls.easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, HTTP_CONNECT_TIMEOUT_MS);
    (void)curl_calls.easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_calls.easy_setopt(c, CURLOPT_HEADERDATA, j);
    (void)curl_calls.easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_calls.easy_setopt(c, CURLOPT_WRITEDATA, j);
    (void)curl_calls.easy_setopt(c, CURLOPT_READFUNCTION, on_read);
    (void)curl_calls.easy_setopt(c, CURLOPT_READDATA, j);
    (void)curl_calls.easy_setopt(c, CURLOPT_SEEKFUNCTION, on_seek);
    (void)curl_calls.easy_setopt(c, CURLOPT_SEEKDATA, j);
    (void)curl_calls.easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    (void)curl_calls.easy_setopt(c, CURLOPT_OPENSOCKETDATA, j);
    (void)curl_calls.easy_setopt(c, CURLOPT_PREREQFUNCTION, on_connected);
    (void)curl_calls.easy_setopt(c, CURLOPT_PREREQDATA, j);
    if (h->ca_file) { /* alone: libcurl would take the system's directory besides */
        (void)curl_calls.easy_setopt(c, CURLOPT_CAINFO, h->ca_file);
        (void)curl_calls.easy_setopt(c, CURLOPT_CAPATH, NULL);
    }
    if (h->cert_file && h->key_file) {
        (void)curl_calls.easy_setopt(c, CURLOPT_SSLCERT, h->cert_file);
        (void)curl_calls.easy_setopt(c, CURLOPT_SSLKEY, h->key_file);
    }
    set_body(h, j->req);
    return set_headers(h, j->req, ret_headers, e);
}

/* ---- running ---- */

static enum err_code code_of(CURLcode rc)
{
    switch ((int)rc) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
        return ERR_UNAVAILABLE;
    case CURLE_PARTIAL_FILE:
        return ERR_DATA_LOSS;
    case CURLE_OPERATION_TIMEDOUT:
        return ERR_DEADLINE;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return ERR_INVALID;
    case CURLE_OUT_OF_MEMORY:
        return ERR_EXHAUSTED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
        return ERR_UNAUTHENTICATED;
    default:
        return ERR_INTERNAL;
    }
}

const char *http_place(const struct http_request *req)
{
    return req->unix_socket ? req->unix_socket : req->url;
}

/* Of a URL, the server: no connection is a matter of its path. */
static size_t place_bytes(const char *place)
{
    const char *host = strstr(place, "://");

    return host ? (size_t)(host + 3 - place) + strcspn(host + 3, "/") : strlen(place);
}

/* The earliest deadline, 0: none; *ret_what names it. */
static int64_t next_deadline(const struct job *j, const char **ret_what)
{
    const struct http_request *q = j->req;
    bool waits = !(j->has_head && j->is_streaming);
    int64_t limit = waits ? q->answer_timeout_ms : q->stall_timeout_ms;
    int64_t at = limit ? (waits ? j->sent_mono_ms : j->received_mono_ms) + limit : 0;

    *ret_what = waits ? "no answer in time from" : "no more of the answer came in time from";
    if (q->deadline_mono_ms && (!at || q->deadline_mono_ms <= at)) {
        *ret_what = "the deadline passed while using";
        return q->deadline_mono_ms;
    }
    return at;
}

static int run_job(struct http *h, struct job *j, struct err *e)
{
    struct curl_waitfd extra = {.fd = h->cancel_fd, .events = CURL_WAIT_POLLIN};
    int running = 1;

    for (;;) {
        struct pollfd canceled = {.fd = h->cancel_fd, .events = POLLIN};
        CURLMcode rc = curl_calls.multi_perform(h->multi, &running);
        const char *what;
        int ms;

        if (rc != CURLM_OK)
            return err_set(e, ERR_INTERNAL, "http: %s", curl_calls.multi_strerror(rc));
        if (!running)
            return 0;
        ms = clock_until_ms(next_deadline(j, &what));
        if (ms == 0)
            return err_set(e, ERR_DEADLINE, "%s '%s'", what, http_place(j->req));
        if (h->cancel_fd >= 0 && poll(&canceled, 1, 0) > 0)
            return err_set(e, ERR_CANCELED, "canceled");
        rc = curl_calls.multi_poll(h->multi, &extra, h->cancel_fd >= 0 ? 1 : 0,
                                   ms < 0 || ms > HTTP_POLL_MS ? HTTP_POLL_MS : ms, NULL);
        if (rc != CURLM_OK)
            return err_set(e, ERR_INTERNAL, "http: %s", curl_calls.multi_strerror(rc));
    }
}

static int result_of(struct http *h, struct job *j, struct err *e)
{
    CURLcode rc = CURLE_OK;
    const CURLMsg *msg;
    long status = 0;
    long sys = 0;
    int n;

    while ((msg = curl_calls.multi_info_read(h->multi, &n)))
        if (msg->msg == CURLMSG_DONE)
            rc = msg->data.result;
    if (j->failed < 0) {
        if (e)
            *e = j->why;
        return j->failed;
    }
    (void)curl_calls.easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_calls.easy_getinfo(h->easy, CURLINFO_OS_ERRNO, &sys);
    j->res->status = (int)status;
    if (rc == CURLE_OK)
        return 0;
    /* A complete error response counts even if the server did not read the whole body. */
    if ((rc == CURLE_SEND_ERROR || rc == CURLE_RECV_ERROR) && status >= 400)
        return 0;
    if (j->is_streaming && (rc == CURLE_RECV_ERROR || rc == CURLE_GOT_NOTHING))
        return err_set(e, ERR_DATA_LOSS, "the response of '%s' broke off", http_place(j->req));
    /* curl says "unsupported protocol" of bytes that are no HTTP, and "out of memory" of a line of 100 kB. */
    if (j->is_connected && (rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_WEIRD_SERVER_REPLY))
        return err_set(e, ERR_UNAVAILABLE, "'%s' answers what is no HTTP", http_place(j->req));
    if (j->is_connected && rc == CURLE_OUT_OF_MEMORY)
        return err_set(e, ERR_UNAVAILABLE,
                       "'%s': a header of its answer is too long, or memory is short",
                       http_place(j->req));
    if (rc == CURLE_COULDNT_CONNECT && sys) /* "no such file" and "permission denied" differ */
        (void)err_sys(e, (int)sys, "connect to '%.*s'", (int)place_bytes(http_place(j->req)),
                      http_place(j->req));
    else
        (void)err_set(e, code_of(rc), "'%s': %s", http_place(j->req),
                      *h->reason ? h->reason : curl_calls.easy_strerror(rc));
    if (e) {
        e->code = (int)code_of(rc);
        e->sys = (int)sys;
    }
    return -(int)code_of(rc);
}

void http_set_debug(struct http *h, const struct debug *d)
{
    h->debug = d;
}

void http_set_ca(struct http *h, const char *ca_file)
{
    h->ca_file = ca_file;
}

void http_set_certificate(struct http *h, const char *cert_file, const char *key_file)
{
    h->cert_file = cert_file;
    h->key_file = key_file;
}

/* A request that got no response has the status 0. */
static void report_request(const struct http *h, const struct job *j, int64_t begun_ms, int r)
{
    char url[512];

    debug_line(h->debug, "http", "%s %s %d %llu bytes %lld ms%s%s", j->req->method,
               debug_url(j->req->url, url, sizeof(url)), r < 0 ? 0 : j->res->status,
               (unsigned long long)j->n_body, (long long)(clock_mono_ms() - begun_ms),
               r < 0 ? " " : "", r < 0 ? err_wire_name(r) : "");
}

int http_do(struct http *h, const struct http_request *req, struct http_response *ret,
            struct err *e)
{
    struct http_response res = {0};
    struct curl_slist *headers = NULL;
    struct job j = {.req = req, .res = &res, .new_fd = -1, .sent_mono_ms = clock_mono_ms()};
    int64_t begun_ms = j.sent_mono_ms;
    int r;

    buf_init(&res.headers, HTTP_HEADER_BYTES);
    buf_init(&res.body, req->max_body ? req->max_body : HTTP_BODY_BYTES);
    if (req->write)
        res.body.max = HTTP_ERROR_BODY_BYTES;
    r = set_up(h, &j, &headers, e);
    if (r == 0 && curl_calls.multi_add_handle(h->multi, h->easy) != CURLM_OK)
        r = err_oom(e);
    if (r == 0) {
        r = run_job(h, &j, e);
        if (r == 0)
            r = result_of(h, &j, e);
        (void)curl_calls.multi_remove_handle(h->multi, h->easy);
    }
    (void)curl_calls.easy_setopt(h->easy, CURLOPT_HTTPHEADER, NULL);
    curl_calls.slist_free_all(headers);
    report_request(h, &j, begun_ms, r);
    if (r < 0) {
        http_response_done(&res);
        return r;
    }
    *ret = res;
    return 0;
}

/* ---- connections below HTTP ---- */

/* The handle's socket, connected and verified as of any request; it is curl's. */
static int connect_only(struct http *own, const struct http_request *req, int *ret_socket,
                        struct err *e)
{
    struct http_response res = {0};
    struct curl_slist *headers = NULL;
    struct job j = {.req = req, .res = &res, .new_fd = -1, .sent_mono_ms = clock_mono_ms()};
    curl_socket_t socket = CURL_SOCKET_BAD;
    int r = set_up(own, &j, &headers, e);

    (void)curl_calls.easy_setopt(own->easy, CURLOPT_CONNECT_ONLY, 1L);
    (void)curl_calls.easy_setopt(own->easy, CURLOPT_HTTPHEADER, NULL);
    curl_calls.slist_free_all(headers);
    if (r == 0 && curl_calls.multi_add_handle(own->multi, own->easy) != CURLM_OK)
        r = err_oom(e);
    if (r == 0)
        r = run_job(own, &j, e);
    if (r == 0)
        r = result_of(own, &j, e);
    if (r == 0 && (curl_calls.easy_getinfo(own->easy, CURLINFO_ACTIVESOCKET, &socket) != CURLE_OK ||
                   socket == CURL_SOCKET_BAD))
        r = err_set(e, ERR_UNAVAILABLE, "'%s': no connection", http_place(req));
    if (r == 0 && req->unix_socket && req->check_peer)
        r = req->check_peer(req->check_arg, socket, e);
    *ret_socket = socket;
    return r;
}

int http_connect(struct http *like, const struct http_request *req, struct http **ret,
                 int *ret_socket, struct err *e)
{
    struct http *own = NULL;
    int r = http_new(like->cancel_fd, &own, e);

    if (r < 0)
        return r;
    own->ca_file = like->ca_file;
    own->cert_file = like->cert_file;
    own->key_file = like->key_file;
    r = connect_only(own, req, ret_socket, e);
    if (r < 0)
        (void)http_free(own);
    else
        *ret = own;
    return r;
}

int http_raw_send(struct http *h, const char *data, size_t len, size_t *ret_sent, struct err *e)
{
    CURLcode rc = curl_calls.easy_send(h->easy, data, len, ret_sent);

    if (rc == CURLE_AGAIN)
        *ret_sent = 0;
    return rc == CURLE_OK || rc == CURLE_AGAIN
               ? 0
               : err_set(e, ERR_UNAVAILABLE, "%s", curl_calls.easy_strerror(rc));
}

int http_raw_recv(struct http *h, char *buf, size_t bytes, size_t *ret_len)
{
    CURLcode rc = curl_calls.easy_recv(h->easy, buf, bytes, ret_len);

    if (rc == CURLE_AGAIN)
        return 0;
    return rc == CURLE_OK && *ret_len ? 1 : -1;
}

int http_cancel_fd(const struct http *h)
{
    return h->cancel_fd;
}
