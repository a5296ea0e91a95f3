#include "api/stream.h"

#include <stdlib.h>
#include <string.h>

#include "api/dialect.h"
#include "common/jsonx.h"
#include "http/respond.h"
#include "system/metrics.h"

#define BLOCK_BYTES 64 /* the library's buffer, which chunked replies do not use */

struct stream {
    struct request *request; /* a reference */
    struct source *source;
    const struct codec *codec;
    struct buf out;
    size_t sent;    /* of out */
    bool is_single; /* it ends after one message */
    bool is_over;
};

void stream_wake_request(void *request)
{
    request_wake(request);
}

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

static int end_stream(struct stream *s, const struct err *error, struct err *e)
{
    const struct dialect *d = request_dialect(s->request);
    struct err own;

    s->is_over = true;
    if (error && d->reword) {
        own = *error;
        d->reword(&own);
        error = &own;
    }
    return encode_end(s->codec->encoding, error, &s->out, e);
}

static int stream_add_message(struct stream *s, const json_t *msg, struct err *e)
{
    return codec_write_message(s->codec, s->request->method, msg, &s->out, e);
}

/* Encodes messages of the source, up to about max bytes. It may have parked, and added none. */
static int fill_out(struct stream *s, size_t max, struct err *e)
{
    struct err error = {0};
    int r = SOURCE_MESSAGE;

    while (s->out.len < max && (r == SOURCE_MESSAGE || r == SOURCE_TEXT)) {
        json_t *msg = NULL;
        int n = 0;

        r = s->out.len ? s->source->ops->next(s->source, &msg, &error)
                       : stream_pull(s->request, s->source, &msg, &error);
        if (r == SOURCE_MESSAGE)
            n = stream_add_message(s, msg, &error);
        else if (r == SOURCE_TEXT)
            n = encode_lines(s->codec->encoding, s->source->text, s->source->text_len, &s->out,
                             &error);
        json_decref(msg);
        if (n < 0)
            r = n;
        else if (r == SOURCE_MESSAGE && s->is_single)
            r = SOURCE_END;
    }
    if (r < 0)
        return end_stream(s, &error, e);
    return r == SOURCE_END ? end_stream(s, NULL, e) : 0;
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
            return REPLY_END;
        request_set_silent(q, true); /* before it parks: the sweep checks parked requests only */
        if (request_is_late(q)) {
            struct err late = {0};

            (void)dialect_set_late(q, &late);
            (void)end_stream(s, &late, NULL);
        } else if (request_take_keepalive(q)) {
            (void)encode_keepalive(s->codec->encoding, &s->out, NULL);
        }
        if (!s->out.len && !s->is_over && fill_out(s, max, NULL) < 0)
            return request_break_off(q, data);
        if (!s->out.len)
            return s->is_over ? REPLY_END : 0;
        request_set_silent(q, false);
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

static struct stream *stream_new(struct request *q)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->request = request_ref(q);
    s->codec = request_codec(q);
    buf_init(&s->out, STREAM_MESSAGE_MAX);
    metrics_stream(1);
    return s;
}

static int stream_reply_take(struct request *q, struct stream *s, struct err *e)
{
    struct reply *response =
        reply_new_stream(REPLY_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, s, free_stream);

    if (!response) {
        free_stream(s);
        return err_oom(e);
    }
    reply_add_header(response, "Content-Type", s->codec->reply_type);
    request_limit_unsent(q);
    if (s->codec->encoding == ENCODING_SSE)
        reply_add_header(response, "X-Accel-Buffering", "no");
    return respond_queue(q, HTTP_OK, response, e);
}

int stream_begin_take(struct request *q, struct source *source, json_t *first, struct err *e)
{
    struct stream *s = stream_new(q);
    int r = s ? 0 : err_oom(e);

    if (s)
        s->is_single = request_method(q)->flags & RPC_SINGLE;
    if (r == 0 && first)
        r = stream_add_message(s, first, e);
    else if (r == 0 && source->text_len)
        r = encode_lines(s->codec->encoding, source->text, source->text_len, &s->out, e);
    if (r == 0 && first && s->is_single)
        r = end_stream(s, NULL, e);
    json_decref(first);
    if (r < 0) {
        source->ops->free(source);
        if (s)
            free_stream(s);
        return r;
    }
    s->source = source;
    return stream_reply_take(q, s, e);
}

int stream_error(struct request *q, const struct err *error, struct err *e)
{
    struct stream *s = stream_new(q);

    if (!s)
        return err_oom(e);
    if (end_stream(s, error, e) < 0) {
        free_stream(s);
        return -ERR_EXHAUSTED;
    }
    return stream_reply_take(q, s, e);
}
