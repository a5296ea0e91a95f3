#include "system/metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"

#include "common/banned.h"

#define MAX_NAME 64

/* The statuses that are told apart; what is not here counts as `other`, 0 as `cut_off`. */
static const short statuses[] = {0,   101, 200, 201, 204, 206, 304, 400, 401, 403, 404, 405, 408,
                                 409, 412, 413, 415, 416, 429, 499, 500, 501, 502, 503, 504, 507};
#define N_STATUSES (N_ELEMENTS(statuses) + 1)

struct route_counters {
    char name[MAX_NAME];
    _Atomic uint64_t n[N_STATUSES];
    _Atomic uint64_t ms;
};

static struct route_counters routes[METRICS_MAX_ROUTES];
static size_t n_routes; /* read-only once threads run */
static _Atomic uint64_t total_in, total_out, relayed_in, relayed_out, refused;
static _Atomic int64_t last_use_ms;

int metrics_init(const char *const *names, size_t n_names, struct err *e)
{
    if (n_names > METRICS_MAX_ROUTES)
        return err_set(e, ERR_INTERNAL, "more than %d routes to count", METRICS_MAX_ROUTES);
    for (size_t i = 0; i < n_names; i++)
        (void)snprintf(routes[i].name, sizeof(routes[i].name), "%s", names[i]);
    n_routes = n_names;
    last_use_ms = clock_mono_ms();
    return 0;
}

static size_t status_index(int status)
{
    size_t i = 0;

    while (i < N_ELEMENTS(statuses) && statuses[i] != status)
        i++;
    return i;
}

void metrics_request(int route, int status, uint64_t bytes_in, uint64_t bytes_out, int64_t ms)
{
    struct route_counters *r = &routes[(size_t)route < n_routes ? (size_t)route : 0];

    r->n[status_index(status)]++;
    r->ms += (uint64_t)ms;
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

void metrics_touch(void)
{
    last_use_ms = clock_mono_ms();
}

int64_t metrics_idle_ms(void)
{
    return clock_mono_ms() - last_use_ms;
}

uint64_t metrics_rss_bytes(void)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/statm", "re");
    unsigned long long total, resident;

    if (!f || fscanf(f, "%llu %llu", &total, &resident) != 2)
        return 0;
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

unsigned metrics_n_fds(void)
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
    uint64_t value;
};

static int add_one(struct buf *out, const struct one *m, struct err *e)
{
    return buf_addf(out, e, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", m->name, m->help,
                    m->name, m->type, m->name, m->value);
}

static int add_status(struct buf *out, const struct route_counters *r, size_t i, struct err *e)
{
    char code[16];

    if (!r->n[i])
        return 0;
    if (i == N_ELEMENTS(statuses))
        (void)snprintf(code, sizeof(code), "other");
    else if (!statuses[i])
        (void)snprintf(code, sizeof(code), "cut_off");
    else
        (void)snprintf(code, sizeof(code), "%d", statuses[i]);
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
            r = add_status(out, &routes[i], j, e);
    if (r == 0)
        r = buf_adds(out,
                     "# HELP bellhop_request_seconds_total Time from first line to end.\n"
                     "# TYPE bellhop_request_seconds_total counter\n",
                     e);
    for (size_t i = 0; i < n_routes && r == 0; i++)
        if (routes[i].ms)
            r = buf_addf(out, e, "bellhop_request_seconds_total{route=\"%s\"} %" PRIu64 ".%03d\n",
                         routes[i].name, routes[i].ms / 1000, (int)(routes[i].ms % 1000));
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
        {"bellhop_output_bytes_total", "counter", "Bytes that commands wrote.", now->output_bytes},
        {"bellhop_output_bytes_kept", "gauge", "Bytes of commands' output in memory.",
         now->output_bytes_kept},
        {"bellhop_idle_seconds", "gauge", "Since the box was last used.",
         (uint64_t)metrics_idle_ms() / 1000},
        {"bellhop_uptime_seconds", "gauge", "Since the agent started.",
         (uint64_t)now->uptime_ms / 1000},
        {"process_resident_memory_bytes", "gauge", "Resident memory.", metrics_rss_bytes()},
        {"process_open_fds", "gauge", "Open descriptors.", metrics_n_fds()},
    };
    int r = add_requests(out, e);

    for (size_t i = 0; i < N_ELEMENTS(ones) && r == 0; i++)
        r = add_one(out, &ones[i], e);
    return r;
}
