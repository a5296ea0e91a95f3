#include "system/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"

#define MAX_NAME 64

/* Statuses with a counter of their own; others count as `other`, 0 as `cut_off`. */
static const short counted_statuses[] = {0,   101, 200, 201, 204, 206, 304, 400, 401,
                                         403, 404, 405, 408, 409, 412, 413, 415, 416,
                                         429, 499, 500, 501, 502, 503, 504, 507};
#define N_STATUSES (N_ELEMENTS(counted_statuses) + 1)

/* Upper bounds of the histogram, in milliseconds: from a call in memory to a command of minutes. */
struct bucket {
    int64_t ms;
    const char *text; /* in seconds */
};

static const struct bucket time_buckets[] = {{1, "0.001"},  {5, "0.005"}, {25, "0.025"},
                                             {100, "0.1"},  {500, "0.5"}, {2500, "2.5"},
                                             {10000, "10"}, {60000, "60"}};
#define N_BUCKETS N_ELEMENTS(time_buckets)

struct route_counters {
    char name[MAX_NAME];
    _Atomic uint64_t n[N_STATUSES];
    _Atomic uint64_t in, out;                /* bytes of bodies */
    _Atomic uint64_t by_time[N_BUCKETS + 1]; /* requests per bucket; the last: above all bounds */
    _Atomic uint64_t ms;
};

static struct route_counters route_counts[METRICS_MAX_ROUTES];
static size_t n_routes; /* read-only once threads run */
static _Atomic uint64_t total_in, total_out, relayed_in, relayed_out, refused, searched_bytes;
static _Atomic int64_t last_use_ms;
static _Atomic unsigned n_uses, n_streams;

int metrics_init(const char *const *names, size_t n_names, struct err *e)
{
    if (n_names > METRICS_MAX_ROUTES)
        return err_set(e, ERR_INTERNAL, "more than %d routes to count", METRICS_MAX_ROUTES);
    for (size_t i = 0; i < n_names; i++)
        (void)snprintf(route_counts[i].name, sizeof(route_counts[i].name), "%s", names[i]);
    n_routes = n_names;
    last_use_ms = clock_mono_ms();
    return 0;
}

static size_t status_index(int status)
{
    size_t i = 0;

    while (i < N_ELEMENTS(counted_statuses) && counted_statuses[i] != status)
        i++;
    return i;
}

void metrics_request(int route, int status, uint64_t bytes_in, uint64_t bytes_out, int64_t ms)
{
    struct route_counters *r = &route_counts[(size_t)route < n_routes ? (size_t)route : 0];

    size_t bucket = 0;

    while (bucket < N_BUCKETS && ms > time_buckets[bucket].ms)
        bucket++;
    r->n[status_index(status)]++;
    r->by_time[bucket]++;
    r->ms += (uint64_t)ms;
    r->in += bytes_in;
    r->out += bytes_out;
    total_in += bytes_in;
    total_out += bytes_out;
}

void metrics_connection_refused(void)
{
    refused++;
}

void metrics_relayed(uint64_t bytes_in, uint64_t bytes_out)
{
    relayed_in += bytes_in;
    relayed_out += bytes_out;
}

void metrics_use_begin(void)
{
    n_uses++;
    last_use_ms = clock_mono_ms();
}

void metrics_use_end(void)
{
    n_uses--;
    last_use_ms = clock_mono_ms();
}

void metrics_use(struct metrics_use *ret)
{
    *ret = (struct metrics_use){.open = n_uses, .last_mono_ms = last_use_ms};
}

void metrics_stream(int change)
{
    n_streams += (unsigned)change;
}

void metrics_searched(uint64_t bytes)
{
    searched_bytes += bytes;
}

int64_t metrics_idle_ms(void)
{
    return clock_mono_ms() - last_use_ms;
}

/* 0: /proc does not say. */
static uint64_t resident_bytes(void)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/statm", "re");
    unsigned long long total, resident;

    if (!f || fscanf(f, "%llu %llu", &total, &resident) != 2)
        return 0;
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static unsigned count_fds(void)
{
    _cleanup_closedir_ DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    while (d && readdir(d))
        n++;
    return n > 3 ? n - 3 : 0; /* ".", ".." and the directory itself */
}

struct one {
    const char *name;
    const char *type;
    const char *help;
    uint64_t value; /* UINT64_MAX: -1, "none" */
};

static int add_one(struct buf *out, const struct one *m, struct err *e)
{
    return buf_addf(out, e, "# HELP %s %s\n# TYPE %s %s\n%s %s%" PRIu64 "\n", m->name, m->help,
                    m->name, m->type, m->name, m->value == UINT64_MAX ? "-" : "",
                    m->value == UINT64_MAX ? 1 : m->value);
}

static int add_status(struct buf *out, const struct route_counters *r, size_t i, struct err *e)
{
    char code[16];

    if (!r->n[i])
        return 0;
    if (i == N_ELEMENTS(counted_statuses))
        (void)snprintf(code, sizeof(code), "other");
    else if (!counted_statuses[i])
        (void)snprintf(code, sizeof(code), "cut_off");
    else
        (void)snprintf(code, sizeof(code), "%d", counted_statuses[i]);
    return buf_addf(out, e, "bellhop_requests_total{route=\"%s\",code=\"%s\"} %" PRIu64 "\n",
                    r->name, code, (uint64_t)r->n[i]);
}

static int add_requests(struct buf *out, struct err *e)
{
    int r =
        buf_adds(out,
                 "# HELP bellhop_requests_total Requests that have ended, by route and status.\n"
                 "# TYPE bellhop_requests_total counter\n",
                 e);

    for (size_t i = 0; i < n_routes && r == 0; i++)
        for (size_t j = 0; j < N_STATUSES && r == 0; j++)
            r = add_status(out, &route_counts[i], j, e);
    return r;
}

static uint64_t n_requests(const struct route_counters *r)
{
    uint64_t n = 0;

    for (size_t i = 0; i <= N_BUCKETS; i++)
        n += r->by_time[i];
    return n;
}

#define HISTOGRAM "bellhop_request_duration_seconds"

static int add_route_histogram(struct buf *out, const struct route_counters *c, struct err *e)
{
    uint64_t n = 0, all = n_requests(c);
    int r = 0;

    for (size_t i = 0; i < N_BUCKETS && r == 0; i++) {
        n += c->by_time[i];
        r = buf_addf(out, e, HISTOGRAM "_bucket{route=\"%s\",le=\"%s\"} %" PRIu64 "\n", c->name,
                     time_buckets[i].text, n);
    }
    return r < 0 ? r
                 : buf_addf(out, e,
                            HISTOGRAM "_bucket{route=\"%s\",le=\"+Inf\"} %" PRIu64 "\n" HISTOGRAM
                                      "_sum{route=\"%s\"} %" PRIu64 ".%03d\n" HISTOGRAM
                                      "_count{route=\"%s\"} %" PRIu64 "\n",
                            c->name, all, c->name, c->ms / 1000, (int)(c->ms % 1000), c->name, all);
}

/* Routes without requests have no lines. */
static int add_histogram(struct buf *out, struct err *e)
{
    int r = buf_adds(out,
                     "# HELP " HISTOGRAM " Time from first line to end, by route.\n"
                     "# TYPE " HISTOGRAM " histogram\n",
                     e);

    for (size_t i = 0; i < n_routes && r == 0; i++)
        if (n_requests(&route_counts[i]))
            r = add_route_histogram(out, &route_counts[i], e);
    return r;
}

static int add_bodies(struct buf *out, const char *name, const char *help, bool is_in,
                      struct err *e)
{
    int r = buf_addf(out, e, "# HELP %s %s\n# TYPE %s counter\n", name, help, name);

    for (size_t i = 0; i < n_routes && r == 0; i++) {
        uint64_t n = is_in ? route_counts[i].in : route_counts[i].out;

        if (n)
            r = buf_addf(out, e, "%s{route=\"%s\"} %" PRIu64 "\n", name, route_counts[i].name, n);
    }
    return r;
}

static int add_ended(struct buf *out, const struct metrics_named *ended, struct err *e)
{
    int r = buf_adds(out,
                     "# HELP bellhop_commands_ended_total Commands that have ended, by reason.\n"
                     "# TYPE bellhop_commands_ended_total counter\n",
                     e);

    for (; ended && ended->name && r == 0; ended++)
        r = buf_addf(out, e, "bellhop_commands_ended_total{reason=\"%s\"} %" PRIu64 "\n",
                     ended->name, ended->value);
    return r;
}

int metrics_text(const struct metrics_now *now, struct buf *out, struct err *e)
{
    const struct one ones[] = {
        {"bellhop_received_bytes_total", "counter", "Bytes of request bodies.", total_in},
        {"bellhop_sent_bytes_total", "counter", "Bytes of reply bodies.", total_out},
        {"bellhop_relayed_received_bytes_total", "counter", "Bytes from clients, by tunnels.",
         relayed_in},
        {"bellhop_relayed_sent_bytes_total", "counter", "Bytes to clients, by tunnels.",
         relayed_out},
        {"bellhop_connections_refused_total", "counter", "Connections over the bound.", refused},
        {"bellhop_connections", "gauge", "Open connections.", now->connections},
        {"bellhop_tunnels", "gauge", "Open tunnels and upgraded connections.", now->relays},
        {"bellhop_pool_busy", "gauge", "Worker threads at work.", now->pool_busy},
        {"bellhop_pool_waiting", "gauge", "Tasks that wait for a worker.", now->pool_waiting},
        {"bellhop_commands_running", "gauge", "Commands that run.", now->commands_running},
        {"bellhop_commands_kept", "gauge", "Commands whose result is kept.", now->commands_kept},
        {"bellhop_commands_started_total", "counter", "Commands started.", now->commands_started},
        {"bellhop_commands_failed_total", "counter", "Commands that could not be started.",
         now->commands_failed},
        {"bellhop_stdout_bytes_total", "counter", "Bytes that commands wrote to stdout.",
         now->stdout_bytes},
        {"bellhop_stderr_bytes_total", "counter", "Bytes that commands wrote to stderr.",
         now->stderr_bytes},
        {"bellhop_output_bytes_dropped_total", "counter",
         "Bytes of commands' output no longer in memory.", now->output_bytes_dropped},
        {"bellhop_searched_bytes_total", "counter", "Bytes of files that were searched_bytes.",
         searched_bytes},
        {"bellhop_calls", "gauge", "Requests that use the box, at work now.", n_uses},
        {"bellhop_streams", "gauge", "Streaming replies that are open.", n_streams},
        {"bellhop_holds", "gauge", "Holds in force.", now->holds},
        {"bellhop_generation", "gauge", "Raised by each Resync.", now->generation},
        {"bellhop_lease_seconds", "gauge", "Until the box ends; -1 without an end.",
         now->lease_ms < 0 ? UINT64_MAX : (uint64_t)now->lease_ms / 1000},
        {"bellhop_output_bytes_kept", "gauge", "Bytes of commands' output in memory.",
         now->output_bytes_kept},
        {"bellhop_idle_seconds", "gauge", "Since the box was last used.",
         (uint64_t)metrics_idle_ms() / 1000},
        {"bellhop_uptime_seconds", "gauge", "Since the agent started.",
         (uint64_t)now->uptime_ms / 1000},
        {"process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes()},
        {"process_open_fds", "gauge", "Open descriptors.", count_fds()},
    };
    int r = add_requests(out, e);

    if (r == 0)
        r = add_histogram(out, e);
    if (r == 0)
        r = add_bodies(out, "bellhop_route_received_bytes_total",
                       "Bytes of request bodies, by route.", true, e);
    if (r == 0)
        r = add_bodies(out, "bellhop_route_sent_bytes_total", "Bytes of reply bodies, by route.",
                       false, e);
    if (r == 0)
        r = add_ended(out, now->commands_ended, e);
    for (size_t i = 0; i < N_ELEMENTS(ones) && r == 0; i++)
        r = add_one(out, &ones[i], e);
    return r;
}
