/*
 * faulty: stands between the host's programs and every provider, for the tests of this folder. Linked with
 * --wrap=provider_find,--wrap=provider_at, so that any provider has it without knowing.
 *
 * STATE_DIR/fault has a line "FUNCTION MODE" for each function that is to go wrong:
 *   error   fails before the provider is asked        late    fails after the provider has done it
 *   hang    waits until it is canceled, then fails    kill    the program dies by SIGKILL before
 *   killed  the program dies by SIGKILL after the provider has done it
 *   slow:N  waits for N seconds, or until it is canceled, then asks the provider
 * STATE_DIR/asked gets a line "PROGRAM FUNCTION" for each call.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "lib/provider/provider.h"

const struct provider *__real_provider_find(const char *name);
const struct provider *__real_provider_at(size_t i);
const struct provider *__wrap_provider_find(const char *name);
const struct provider *__wrap_provider_at(size_t i);

static void fault_record(const struct bh_ctx *ctx, const char *function)
{
    char path[4096], line[128];
    int n = snprintf(line, sizeof(line), "%s %s\n", program_invocation_short_name, function), fd;

    (void)snprintf(path, sizeof(path), "%s/asked", ctx->state_dir);
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)!write(fd, line, (size_t)n);
    (void)close(fd);
}

/* "": it works. */
static void fault_mode(const struct bh_ctx *ctx, const char *function, char ret[16])
{
    char path[4096], name[32], mode[16];
    FILE *f;

    *ret = '\0';
    (void)snprintf(path, sizeof(path), "%s/fault", ctx->state_dir);
    f = fopen(path, "re");
    while (f && fscanf(f, "%31s %15s", name, mode) == 2)
        if (str_eq(name, function))
            (void)strcpy(ret, mode);
    if (f)
        (void)fclose(f);
}

static int fault_error(const char *function, struct err *e)
{
    return err_set(e, ERR_UNAVAILABLE, "the fault in %s", function);
}

/* 0: go on; *ret_mode is for fault_after(). */
static int fault_before(const struct bh_ctx *ctx, const char *function, char ret_mode[16],
                        struct err *e)
{
    fault_record(ctx, function);
    fault_mode(ctx, function, ret_mode);
    if (str_eq(ret_mode, "kill"))
        (void)kill(getpid(), SIGKILL);
    if (str_eq(ret_mode, "hang") || strncmp(ret_mode, "slow:", 5) == 0) {
        struct pollfd p = {.fd = ctx->cancel_fd > 0 ? ctx->cancel_fd : -1, .events = POLLIN};
        uint64_t s = 0;
        int r;

        (void)str_parse_u64(ret_mode + strlen("slow:"), 0, 1000, &s, NULL);
        while ((r = poll(&p, 1, str_eq(ret_mode, "hang") ? -1 : (int)s * 1000)) < 0)
            continue;
        return r == 0 ? 0 : err_set(e, ERR_CANCELED, "canceled in %s", function);
    }
    return str_eq(ret_mode, "error") ? fault_error(function, e) : 0;
}

static int fault_after(const char *mode, const char *function, int r, struct err *e)
{
    if (r >= 0 && str_eq(mode, "killed"))
        (void)kill(getpid(), SIGKILL);
    return r >= 0 && str_eq(mode, "late") ? fault_error(function, e) : r;
}

/* FAULT(NAME, parameters, context, provider's name, arguments) */
#define FAULT(name, params, ctx, provider, ...) \
    static int fault_##name params \
    { \
        char mode[16]; \
        int r = fault_before(ctx, #name, mode, e); \
\
        if (r == 0) \
            r = __real_provider_find(provider)->name(__VA_ARGS__); \
        return fault_after(mode, #name, r, e); \
    }

FAULT(check, (struct bh_ctx * ctx, struct spec *s, struct err *e), ctx, s->provider, ctx, s, e)
FAULT(prepare, (struct provider_box * b, struct err *e), b->ctx, b->spec->provider, b, e)
FAULT(start, (struct provider_box * b, struct provider_run *ret, struct err *e), b->ctx,
      b->spec->provider, b, ret, e)
FAULT(stop, (struct provider_box * b, int grace_ms, struct err *e), b->ctx, b->spec->provider, b,
      grace_ms, e)
FAULT(destroy, (struct provider_box * b, struct err *e), b->ctx, b->spec->provider, b, e)
FAULT(find, (struct provider_box * b, struct provider_run *ret, struct err *e), b->ctx,
      b->spec->provider, b, ret, e)
FAULT(check_pause, (struct provider_box * b, enum provider_pause level, struct err *e), b->ctx,
      b->spec->provider, b, level, e)
FAULT(pause, (struct provider_box * b, enum provider_pause level, struct err *e), b->ctx,
      b->spec->provider, b, level, e)
FAULT(resume, (struct provider_box * b, struct err *e), b->ctx, b->spec->provider, b, e)
FAULT(inspect, (struct provider_box * b, json_t **ret, struct err *e), b->ctx, b->spec->provider, b,
      ret, e)
FAULT(dial, (struct provider_box * b, int *ret_fd, struct err *e), b->ctx, b->spec->provider, b,
      ret_fd, e)
FAULT(check_capture, (struct provider_box * b, struct err *e), b->ctx, b->spec->provider, b, e)
FAULT(capture, (struct provider_box * b, struct provider_capture *c, struct err *e), b->ctx,
      b->spec->provider, b, c, e)
FAULT(restore, (struct provider_box * b, const struct provider_source *source, struct err *e),
      b->ctx, b->spec->provider, b, source, e)
FAULT(has_restored, (struct provider_box * b, const char *tag, struct err *e), b->ctx,
      b->spec->provider, b, tag, e)

/* probe() and sweep() have no box that names their provider: each row has its own. */
#define FAULTS_OF_ROW(i) \
    static int fault_probe_##i(struct bh_ctx *ctx, const char *runtime, \
                               struct provider_facts *ret, struct err *e) \
    { \
        char mode[16]; \
        int r = fault_before(ctx, "probe", mode, e); \
\
        if (r == 0) \
            r = __real_provider_at(i)->probe(ctx, runtime, ret, e); \
        return fault_after(mode, "probe", r, e); \
    } \
    static int fault_sweep_##i(struct bh_ctx *ctx, bool (*is_known)(void *arg, const char *id), \
                               void *arg, void (*report)(void *arg, const char *line), \
                               void *report_arg, struct err *e) \
    { \
        char mode[16]; \
        int r = fault_before(ctx, "sweep", mode, e); \
\
        if (r == 0) \
            r = __real_provider_at(i)->sweep(ctx, is_known, arg, report, report_arg, e); \
        return fault_after(mode, "sweep", r, e); \
    }
FAULTS_OF_ROW(0)
FAULTS_OF_ROW(1)
FAULTS_OF_ROW(2)
FAULTS_OF_ROW(3)
FAULTS_OF_ROW(4)
FAULTS_OF_ROW(5)
FAULTS_OF_ROW(6)
FAULTS_OF_ROW(7)

static const struct {
    int (*probe)(struct bh_ctx *, const char *, struct provider_facts *, struct err *);
    int (*sweep)(struct bh_ctx *, bool (*)(void *, const char *), void *,
                 void (*)(void *, const char *), void *, struct err *);
} of_row[] = {{fault_probe_0, fault_sweep_0}, {fault_probe_1, fault_sweep_1},
              {fault_probe_2, fault_sweep_2}, {fault_probe_3, fault_sweep_3},
              {fault_probe_4, fault_sweep_4}, {fault_probe_5, fault_sweep_5},
              {fault_probe_6, fault_sweep_6}, {fault_probe_7, fault_sweep_7}};

static const struct provider *make_faulty(const struct provider *real)
{
    static struct provider rows[N_ELEMENTS(of_row)];
    size_t i = 0;

    if (!real)
        return NULL;
    while (__real_provider_at(i) != real)
        i++;
    if (i >= N_ELEMENTS(of_row))
        abort(); /* more providers than rows: one more FAULTS_OF_ROW() */
    if (!rows[i].name) {
        struct provider row = *real;

        row.probe = of_row[i].probe;
        row.check = fault_check;
        row.prepare = fault_prepare;
        row.start = fault_start;
        row.stop = fault_stop;
        row.destroy = fault_destroy;
        row.find = fault_find;
        row.check_pause = real->check_pause ? fault_check_pause : NULL;
        row.pause = real->pause ? fault_pause : NULL;
        row.resume = real->resume ? fault_resume : NULL;
        row.check_capture = real->check_capture ? fault_check_capture : NULL;
        row.capture = real->capture ? fault_capture : NULL;
        row.restore = real->restore ? fault_restore : NULL;
        row.has_restored = real->has_restored ? fault_has_restored : NULL;
        row.dial = real->dial ? fault_dial : NULL;
        row.inspect = fault_inspect;
        row.sweep = real->sweep ? of_row[i].sweep : NULL;
        rows[i] = row;
    }
    return &rows[i];
}

const struct provider *__wrap_provider_find(const char *name)
{
    return make_faulty(__real_provider_find(name));
}

const struct provider *__wrap_provider_at(size_t i)
{
    return make_faulty(__real_provider_at(i));
}
