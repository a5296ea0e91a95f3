/* bellhop image test: boots each form in turn, runs the checks in it and removes it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cmd_image.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/process.h"
#include "common/str.h"

#define NO_ENGINE_STATUS 3 /* of a form's script: this machine lacks an engine */
#define URL_BYTES 256
#define TOKEN_BYTES 256
#define BOOT_MS (3 * 60 * 1000)
#define TTL_MS (60 * 60 * 1000)

extern char **environ;

/* ---- a script of image/ ---- */

#define ARGV_MAX 16
#define KILL_GRACE_MS 10000
#define SCRIPT_TAIL_BYTES 1500

struct script {
    const char *const *argv;          /* argv[0] is the script's path, run by sh */
    const char *phase;                /* of the progress */
    bool must_finish;                 /* it cleans up: ^C does not end it */
    int status;                       /* out: its exit status, or 128 and the signal */
    char tail[SCRIPT_TAIL_BYTES + 1]; /* out: the end of what it printed */
};

struct running {
    struct cli *cli;
    struct script *script;
    pid_t pid;
    int out;   /* read end of its output */
    int pidfd; /* readable once it has ended */
    bool is_canceled;
};

static int script_start(struct running *run, struct bh_error *err)
{
    const char *argv[ARGV_MAX + 2] = {"sh"};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int ends[2];
    int r;

    for (size_t i = 0; i < ARGV_MAX && run->script->argv[i]; i++)
        argv[i + 1] = run->script->argv[i];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return cli_fail(err, BH_INTERNAL, "", "a pipe: %m");
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    (void)posix_spawnattr_init(&attr);
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    r = posix_spawn(&run->pid, "/bin/sh", &actions, &attr, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attr);
    (void)close(ends[1]);
    run->out = ends[0];
    (void)fcntl(run->out, F_SETFL, O_NONBLOCK);
    if (r != 0) {
        errno = r;
        return cli_fail(err, BH_INTERNAL, "", "/bin/sh could not be started: %m");
    }
    run->pidfd = pidfd_open(run->pid, 0);
    return 0;
}

static void keep_tail(struct script *s, const char *data, size_t len)
{
    size_t have = strlen(s->tail);

    if (len > SCRIPT_TAIL_BYTES) {
        data += len - SCRIPT_TAIL_BYTES;
        len = SCRIPT_TAIL_BYTES;
    }
    if (have + len > SCRIPT_TAIL_BYTES) {
        size_t drop = have + len - SCRIPT_TAIL_BYTES;

        memmove(s->tail, s->tail + drop, have - drop + 1);
        have -= drop;
    }
    memcpy(s->tail + have, data, len);
    s->tail[have + len] = '\0';
}

/* Shows the last line of the output as progress. */
static void show_last_line(const struct running *run)
{
    struct bh_progress p = {.phase = run->script->phase};
    char text[120];
    const char *at = run->script->tail + strlen(run->script->tail);
    const char *end;

    while (at > run->script->tail && (at[-1] == '\n' || at[-1] == '\r'))
        at--;
    end = at;
    while (at > run->script->tail && at[-1] != '\n' && at[-1] != '\r')
        at--;
    (void)snprintf(text, sizeof(text), "%.*s", (int)(end - at), at);
    p.text = text;
    cli_progress(run->cli, &p);
}

/* Reads all that is available. NULs become spaces, since the tail is a string. */
static void read_output(struct running *run)
{
    char data[4096];
    ssize_t n;

    while ((n = read(run->out, data, sizeof(data))) > 0) {
        for (ssize_t i = 0; i < n; i++)
            if (!data[i])
                data[i] = ' ';
        keep_tail(run->script, data, (size_t)n);
        show_last_line(run);
    }
    if (n == 0) { /* end of file */
        (void)close(run->out);
        run->out = -1;
    }
}

static void script_follow(struct running *run)
{
    int cancel_fd = run->script->must_finish ? -1 : run->cli->opts.cancel_fd;

    for (;;) {
        struct pollfd fds[] = {{run->pidfd, POLLIN, 0},
                               {run->out, POLLIN, 0},
                               {run->is_canceled ? -1 : cancel_fd, POLLIN, 0}};
        int n = poll(fds, N_ELEMENTS(fds), run->is_canceled ? KILL_GRACE_MS : -1);

        if (n < 0 && errno != EINTR)
            return;
        if (fds[1].revents)
            read_output(run);
        if (fds[0].revents)
            return;
        if (n == 0)
            (void)process_signal_child_group(run->pid, SIGKILL);
        if (fds[2].revents) {
            run->is_canceled = true;
            (void)process_signal_child_group(run->pid, SIGTERM);
        }
    }
}

/* Succeeds if the script ran, whatever its status. */
static int script_run(struct cli *c, struct script *s, struct bh_error *err)
{
    struct running run = {.cli = c, .script = s, .out = -1, .pidfd = -1};
    int status = 0;
    int r;

    s->tail[0] = '\0';
    r = script_start(&run, err);
    if (r == 0) {
        script_follow(&run);
        while (waitpid(run.pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (run.out >= 0)
            read_output(&run);
        s->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (run.out >= 0)
        (void)close(run.out);
    if (run.pidfd >= 0)
        (void)close(run.pidfd);
    cli_progress_clear(c);
    if (r == 0 && run.is_canceled)
        return cli_fail(err, BH_CANCELED, "", "canceled");
    return r;
}

/* The last line of the tail, without its line feed; cuts the tail. */
static const char *script_last_line(struct script *s)
{
    size_t len = strlen(s->tail);
    char *line;

    while (len > 0 && (s->tail[len - 1] == '\n' || s->tail[len - 1] == ' '))
        s->tail[--len] = '\0';
    line = strrchr(s->tail, '\n');
    return line ? line + 1 : s->tail;
}

/* ---- the test ---- */

/* A form is booted by a script of image/forms, or by our own provider. */
struct form_source {
    const char *form;
    const char *built;    /* the image's form that it boots */
    const char *script;   /* NULL: a box of the oci provider */
    const char *argument; /* the script's first, or NULL */
    bool is_unasked;      /* part of the default set */
};

static const struct form_source form_sources[] = {
    {"oci", "squashfs", NULL, NULL, true},
    {"docker", "oci", "container.sh", "docker", true},
    {"podman", "oci", "container.sh", "podman", true},
    {"qemu", "vm", "qemu.sh", "-", true},
    {"dockerfile", "dockerfile", "dockerfile.sh", "-", false},
};

struct test {
    struct cli *cli;
    struct image_report *report;
    char *work; /* directory of the form under test: url, token, files of the script */
    const struct form_source *form_sources[IMAGE_FORMS_MAX];
    bool can[IMAGE_FORMS_MAX]; /* this machine can boot it */
    bool is_named;             /* the forms were named: a form that cannot boot is an error */
};

/* ---- the scripts ---- */

/* FORM.sh ARGUMENT VERB IMAGE_DIR WORK_DIR */
static int run_form_script(struct test *t, size_t f, const char *verb, struct script *s,
                           struct bh_error *err)
{
    const struct form_source *source = t->form_sources[f];
    _cleanup_free_ char *path = NULL;
    const char *dir = t->report->dir ? t->report->dir : "-"; /* not known yet while probing */
    const char *argv[] = {NULL, source->argument, verb, dir, t->work, NULL};

    if (asprintf(&path, "%s/forms/%s", t->cli->opts.template_dir, source->script) < 0)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    argv[0] = path;
    s->argv = argv;
    s->phase = source->form;
    return script_run(t->cli, s, err);
}

/* Reads the line that a script has left in the work directory. */
static int read_line(const struct test *t, const char *name, size_t max, char **ret,
                     struct bh_error *err)
{
    _cleanup_free_ char *path = path_join(t->work, name);
    struct err e = {0};
    size_t len = 0;
    int r = path ? io_read_file(AT_FDCWD, path, max, ret, &len, &e) : err_oom(&e);

    if (r < 0)
        return cli_fail(err, (enum bh_code) - r, "", "%s", e.message);
    (*ret)[strcspn(*ret, "\r\n")] = '\0';
    return 0;
}

static int connect_to(struct test *t, const char *form, struct bh_box **ret, struct bh_error *err)
{
    _cleanup_free_ char *url = NULL;
    _cleanup_free_ char *token = NULL;
    struct bh_connect_options o = {.size = sizeof(o),
                                   .name = form,
                                   .timeout_ms = BOOT_MS,
                                   .host_env = (const char *const *)environ};
    int r = read_line(t, "url", URL_BYTES, &url, err);

    if (r == 0)
        r = read_line(t, "token", TOKEN_BYTES, &token, err);
    o.url = url;
    o.token = token;
    return r < 0 ? r : bh_connect(t->cli->ctx, &o, ret, err);
}

/* ---- a form's life ---- */

static int boot_box(struct test *t, struct bh_box **ret, struct bh_error *err)
{
    char name[40];
    struct bh_create_options o = {.size = sizeof(o),
                                  .name = name,
                                  .provider = "oci",
                                  .image = t->report->dir,
                                  .agent = "none",
                                  .timeout_ms = TTL_MS,
                                  .on_timeout = "rm",
                                  .host_env = (const char *const *)environ};

    (void)snprintf(name, sizeof(name), "image-test-%d", (int)getpid());
    return bh_create(t->cli->ctx, &o, ret, err);
}

/* The reason why the agent does not answer is in the form's output. */
static void add_log(struct test *t, size_t f, struct bh_error *err)
{
    struct script s = {0};
    struct bh_error ignored = {0};
    size_t len = strlen(err->message);

    if (err->code == BH_CANCELED || run_form_script(t, f, "log", &s, &ignored) < 0)
        return;
    (void)snprintf(err->message + len, sizeof(err->message) - len, "; its log ends: %.200s",
                   script_last_line(&s));
}

static int boot_script(struct test *t, size_t f, struct bh_box **ret, struct bh_error *err)
{
    struct script s = {0};
    int r = run_form_script(t, f, "start", &s, err);

    if (r < 0)
        return r;
    if (s.status != 0)
        return cli_fail(err, BH_UNAVAILABLE, "", "%.200s", script_last_line(&s));
    r = connect_to(t, t->form_sources[f]->form, ret, err);
    if (r < 0)
        add_log(t, f, err);
    return r;
}

/* Removes the form, however far its boot came. */
static void take_away(struct test *t, size_t f, struct bh_box *box)
{
    struct script s = {.must_finish = true};
    struct bh_error ignored = {0};

    if (!t->form_sources[f]->script) {
        if (box && bh_destroy(box, BOOT_MS, &ignored) < 0)
            cli_warn(t->cli, "the box was not removed: %s", ignored.message);
    } else if (run_form_script(t, f, "stop", &s, &ignored) < 0 || s.status != 0) {
        cli_warn(t->cli, "%s: what was started was not stopped: %s", t->form_sources[f]->form,
                 script_last_line(&s));
    }
    (void)bh_box_free(box);
}

static void show_step(struct test *t, size_t f, const char *what)
{
    struct bh_progress p = {.phase = t->form_sources[f]->form, .text = what};

    cli_progress(t->cli, &p);
}

static int run_checks(struct test *t, size_t f, struct bh_box *box, struct bh_error *err)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < t->report->n_checks; i++) {
        if (!t->report->checks[i].is_wanted)
            continue;
        show_step(t, f, t->report->checks[i].name);
        r = image_check_run(t->report, f, i, box, err);
    }
    return r;
}

static int test_form(struct test *t, size_t f, struct bh_error *err)
{
    struct image_form *form = &t->report->forms[f];
    struct bh_box *box = NULL;
    int64_t start = clock_mono_ms();
    int r;

    show_step(t, f, "booting");
    r = t->form_sources[f]->script ? boot_script(t, f, &box, err) : boot_box(t, &box, err);
    form->boot_ms = clock_mono_ms() - start;
    form->boot = r < 0 ? IMAGE_FAILED : IMAGE_OK;
    if (r < 0)
        (void)snprintf(form->message, sizeof(form->message), "%.200s", err->message);
    else
        r = run_checks(t, f, box, err);
    take_away(t, f, box);
    cli_progress_clear(t->cli);
    return r < 0 && err->code == BH_CANCELED ? r : 0;
}

/* ---- which forms ---- */

static int add_form(struct test *t, const struct form_source *source, struct bh_error *err)
{
    size_t f = t->report->n_forms;

    for (size_t i = 0; i < f; i++)
        if (t->form_sources[i] == source)
            return cli_fail(err, BH_INVALID_ARGUMENT, "form", "the form '%s' is named twice",
                            source->form);
    t->form_sources[f] = source;
    t->report->forms[f].name = source->form;
    t->report->n_forms++;
    return 0;
}

static int choose_forms(struct test *t, char *const *names, struct bh_error *err)
{
    int r = 0;

    t->is_named = names && *names;
    for (size_t i = 0; !t->is_named && r == 0 && i < N_ELEMENTS(form_sources); i++)
        if (form_sources[i].is_unasked)
            r = add_form(t, &form_sources[i], err);
    for (; t->is_named && r == 0 && *names; names++) {
        size_t i = 0;

        while (i < N_ELEMENTS(form_sources) && !str_eq(form_sources[i].form, *names))
            i++;
        if (i == N_ELEMENTS(form_sources))
            return cli_fail(err, BH_INVALID_ARGUMENT, "form",
                            "there is no form '%.40s': oci, docker, podman, qemu, dockerfile",
                            *names);
        r = add_form(t, &form_sources[i], err);
    }
    return r;
}

/* 1: this machine can boot the form; 0: it cannot, and the report has the reason. */
static int can_boot(struct test *t, size_t f, struct bh_error *err)
{
    struct image_form *form = &t->report->forms[f];
    struct script s = {0};
    int r;

    if (!t->form_sources[f]->script)
        return 1;
    r = run_form_script(t, f, "probe", &s, err);
    if (r < 0 || s.status == 0)
        return r < 0 ? r : 1;
    (void)snprintf(form->message, sizeof(form->message), "%.200s", script_last_line(&s));
    if (s.status != NO_ENGINE_STATUS)
        form->boot = IMAGE_FAILED;
    return 0;
}

/* ---- the command ---- */

static int make_work(struct test *t, struct bh_error *err)
{
    const char *tmp = getenv("TMPDIR");

    if (asprintf(&t->work, "%s/bellhop-image-test-XXXXXX", tmp && *tmp ? tmp : "/tmp") < 0)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    if (!mkdtemp(t->work)) {
        free(TAKE(t->work));
        return cli_fail(err, BH_UNAVAILABLE, "", "a temporary directory: %m");
    }
    return 0;
}

static void remove_work(struct test *t, struct bh_error *err)
{
    const char *const argv[] = {"-c", "rm -rf -- \"$0\"", t->work, NULL};
    struct script s = {.argv = argv, .must_finish = true};

    if (t->work)
        (void)script_run(t->cli, &s, err);
    free(TAKE(t->work));
}

static int probe_forms(struct test *t, struct bh_error *err)
{
    for (size_t f = 0; f < t->report->n_forms; f++) {
        int r = can_boot(t, f, err);

        if (r < 0)
            return r;
        t->can[f] = r == 1;
        if (r == 0 && t->is_named)
            return cli_fail(err, BH_FAILED_PRECONDITION, "form", "%s: %s", t->report->forms[f].name,
                            t->report->forms[f].message);
    }
    return 0;
}

/* True for an image's own directory, false for one with a template. */
static bool is_image_dir(const char *name)
{
    _cleanup_free_ char *manifest = strchr(name, '/') ? path_join(name, "manifest.json") : NULL;

    return manifest && access(manifest, F_OK) == 0;
}

/* Builds the missing forms of the image. */
static int build_image(struct test *t, const char *name, struct bh_error *err)
{
    const char *forms[IMAGE_FORMS_MAX + 1] = {NULL};
    struct bh_image_build_options o = {
        .size = sizeof(o), .image = name, .forms = forms, .host_env = (const char *const *)environ};
    size_t n = 0;

    for (size_t f = 0; f < t->report->n_forms; f++)
        if (t->can[f])
            forms[n++] = t->form_sources[f]->built;
    return bh_image_build(t->cli->ctx, &o, &t->report->dir, err);
}

static int find_image(struct test *t, const char *name, struct bh_error *err)
{
    const char *slash;
    int r = 0;

    if (is_image_dir(name))
        t->report->dir = realpath(name, NULL);
    else
        r = build_image(t, name, err);
    if (r < 0)
        return r;
    slash = strrchr(name, '/');
    t->report->image = strdup(slash && slash[1] ? slash + 1 : name);
    return t->report->dir && t->report->image
               ? 0
               : cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
}

/* Checks the arguments before anything is built. */
static int prepare_test(struct test *t, const struct image_args *a, const char *name,
                        struct bh_error *err)
{
    _cleanup_free_ char *checks = path_join(t->cli->opts.template_dir, "checks");
    int r = choose_forms(t, a->forms, err);

    if (r == 0 && !checks)
        r = cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    if (r == 0)
        r = image_checks_load(t->report, checks, a->checks, err);
    if (r == 0)
        r = make_work(t, err);
    if (r == 0)
        r = probe_forms(t, err);
    if (r == 0)
        r = find_image(t, name, err);
    return r < 0 ? r : image_checks_match(t->report, err);
}

static int test_forms(struct test *t, struct bh_error *err)
{
    int r = 0;

    for (size_t f = 0; r == 0 && f < t->report->n_forms; f++)
        if (t->can[f])
            r = test_form(t, f, err);
    return r;
}

int cli_image_test(struct cli *c, const struct image_args *a, char **operands, struct bh_error *err)
{
    struct image_report *report = calloc(1, sizeof(*report));
    struct test t = {.cli = c, .report = report};
    struct bh_error ignored = {0};
    const char *image = NULL;
    int r;

    if (!report)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    r = cli_image_operand(operands, &image, err);
    if (r == 0)
        r = prepare_test(&t, a, image, err);
    if (r == 0)
        r = test_forms(&t, err);
    remove_work(&t, &ignored);
    if (r == 0) {
        image_report_compare(report);
        r = image_report_is_ok(report) ? EXIT_CLI_OK : EXIT_CLI_ERROR;
        if (c->json)
            (void)cli_print_json_take(image_report_json(report));
        else
            image_report_print(c, report);
    }
    image_report_done(report);
    free(report);
    return r;
}
