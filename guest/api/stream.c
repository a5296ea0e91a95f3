#include "api/stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/jsonx.h"
#include "dialect/e2b/wording.h"
#include "api/rpc.h"
#include "api/codec.h"
#include "http/deadline.h"
#include "http/respond.h"
#include "http/state.h"
#include "system/metrics.h"

#define BLOCK_BYTES 64 /* the library's own buffer for a reply, which chunked ones don't use */
#define UNSENT_BYTES (128 * 1024)

struct stream {
    struct request *request; /* borrowed: the reply ends before it */
    struct source *source;
    enum encoding enc;
    struct buf out;
    size_t sent;    /* of out */
    bool is_single; /* one message, and then the end */
    bool is_over;
};

int stream_pull(struct request *q, struct source *source, json_t **ret, struct err *e)
{
    for (;;) {
        int r = source->ops->next(source, ret, e);

        if (r != SOURCE_WAIT || request_park(q))
            return r;
        if (request_is_gone(q))
            return err_set(e, ERR_CANCELED, "the client has gone");
    }
}

static void set_waiting(struct request *q, bool on)
{
    (void)pthread_mutex_lock(&q->lock);
    if (!on)
        q->wait_ms = 0;
    else if (!q->wait_ms)
        q->wait_ms = clock_mono_ms();
    (void)pthread_mutex_unlock(&q->lock);
}

/* Whether the sweep asked for a sign of life. The silence begins anew. */
static bool take_keepalive(struct request *q)
{
    bool wants;

    (void)pthread_mutex_lock(&q->lock);
    wants = q->wants_keepalive;
    q->wants_keepalive = false;
    if (wants)
        q->wait_ms = 0;
    (void)pthread_mutex_unlock(&q->lock);
    return wants;
}

static int finish(struct stream *s, const struct err *error, struct err *e)
{
    struct err copy;

    s->is_over = true;
    if (error && s->request->connect) {
        copy = *error;
        wording_make_rpc_error(&copy);
        error = &copy;
    }
    return encode_end(s->enc, error, &s->out, e);
}

static int add_message(struct stream *s, const json_t *msg, struct err *e)
{
    if (s->request->connect)
        return codec_write_envelope(s->request, msg, &s->out, e);
    return encode_message(s->enc, msg, &s->out, e);
}

/* Encodes what the source has, up to about max bytes. May leave nothing, parked. */
static int fill(struct stream *s, size_t max, struct err *e)
{
    struct err error = {0};
    int r = SOURCE_MESSAGE;

    while (s->out.len < max && (r == SOURCE_MESSAGE || r == SOURCE_TEXT)) {
        json_t *msg = NULL;
        int n = 0;

        r = s->out.len ? s->source->ops->next(s->source, &msg, &error)
                       : stream_pull(s->request, s->source, &msg, &error);
        if (r == SOURCE_MESSAGE)
            n = add_message(s, msg, &error);
        else if (r == SOURCE_TEXT)
            n = encode_lines(s->enc, s->source->text, s->source->text_len, &s->out, &error);
        json_decref(msg);
        if (n < 0)
            r = n;
        else if (r == SOURCE_MESSAGE && s->is_single)
            r = SOURCE_END;
    }
    if (r < 0)
        return finish(s, &error, e);
    return r == SOURCE_END ? finish(s, NULL, e) : 0;
}

static ssize_t read_stream(void *arg, uint64_t pos, char *data, size_t max)
{
    struct stream *s = arg;
    struct request *q = s->request;
    size_t n;

    (void)pos;
    if (request_is_gone(q))
        return request_break_off(q, data);
    if (s->sent == s->out.len) {
        buf_clear(&s->out);
        s->sent = 0;
        if (s->is_over)
            return MHD_CONTENT_READER_END_OF_STREAM;
        set_waiting(q, true); /* before it parks: the sweep only looks at the parked */
        if (request_is_late(q)) {
            struct err late = {0};

            (void)deadline_error(q, &late);
            (void)finish(s, &late, NULL);
        } else if (take_keepalive(q)) {
            (void)encode_keepalive(s->enc, &s->out, NULL);
        }
        if (!s->out.len && !s->is_over && fill(s, max, NULL) < 0)
            return request_break_off(q, data);
        if (!s->out.len)
            return s->is_over ? MHD_CONTENT_READER_END_OF_STREAM : 0;
        set_waiting(q, false);
    }
    n = s->out.len - s->sent;
    if (n > max)
        n = max;
    memcpy(data, s->out.data + s->sent, n);
    s->sent += n;
    q->bytes_out += n;
    return (ssize_t)n;
}

static void free_stream(void *arg)
{
    struct stream *s = arg;

    metrics_stream(-1);
    if (s->source)
        s->source->ops->free(s->source);
    buf_done(&s->out);
    request_unref(s->request);
    free(s);
}

static struct stream *stream_new(struct request *q, enum encoding enc)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->request = request_ref(q);
    s->enc = enc;
    buf_init(&s->out, STREAM_MESSAGE_MAX);
    metrics_stream(1);
    return s;
}

/*
 * The kernel would queue megabytes and then want no more until a third of them is gone. With little
 * before it, a source learns soon that a slow client takes something (see proc_sub.yields).
 */
static void queue_little(const struct request *q)
{
    int n = UNSENT_BYTES;

    if (q->conn->is_tcp)
        (void)setsockopt(q->conn->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &n, sizeof(n));
}

/* Takes s. */
static int reply(struct request *q, struct stream *s, struct err *e)
{
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES,
                                                                      read_stream, s, free_stream);

    if (!response) {
        free_stream(s);
        return err_oom(e);
    }
    respond_add_header(response, "Content-Type",
                       q->connect ? codec_type(q) : encode_media_type(s->enc));
    queue_little(q);
    if (s->enc == ENCODING_SSE)
        respond_add_header(response, "X-Accel-Buffering", "no");
    return respond_queue(q, MHD_HTTP_OK, response, e);
}

int stream_begin_take(struct request *q, enum encoding enc, struct source *source, json_t *first,
                      struct err *e)
{
    struct stream *s = stream_new(q, enc);
    int r = s ? 0 : err_oom(e);

    if (s)
        s->is_single = q->method->flags & RPC_SINGLE;
    if (r == 0 && first)
        r = add_message(s, first, e);
    else if (r == 0 && source->text_len)
        r = encode_lines(enc, source->text, source->text_len, &s->out, e);
    if (r == 0 && first && s->is_single)
        r = finish(s, NULL, e);
    json_decref(first);
    if (r < 0) {
        source->ops->free(source);
        if (s)
            free_stream(s);
        return r;
    }
    s->source = source;
    return reply(q, s, e);
}

int stream_error(struct request *q, enum encoding enc, const struct err *error, struct err *e)
{
    struct stream *s = stream_new(q, enc);

    if (!s)
        return err_oom(e);
    if (finish(s, error, e) < 0) {
        free_stream(s);
        return -ERR_EXHAUSTED;
    }
    return reply(q, s, e);
}
