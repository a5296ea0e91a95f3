#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd_image.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "common/wire/method.h"

#define FILE_BYTES (16 * 1024 * 1024) /* the manifest of 'full' has a few hundred packages */
#define OUTPUT_BYTES (64 * 1024)
#define START_ID "start" /* id of the template's start_cmd */
#define ROUND_TRIP_BYTES (1024 * 1024)

void image_report_done(struct image_report *r)
{
    for (size_t i = 0; i < r->n_checks; i++) {
        free(r->checks[i].name);
        free(r->checks[i].package);
        free(r->checks[i].shell);
    }
    free(r->image);
    free(r->dir);
    free(r->user);
    memset(r, 0, sizeof(*r));
}

typedef int builtin_fn(struct bh_box *box, const char *user, struct image_result *ret,
                       struct bh_error *err);
static builtin_fn run_agent_check, run_start_check;

/* ---- the list of checks ---- */

static int read_text(const char *dir, const char *name, char **ret, struct bh_error *err)
{
    _cleanup_free_ char *path = path_join(dir, name);
    struct err e = {0};
    size_t len = 0;
    int r = path ? io_read_file(AT_FDCWD, path, FILE_BYTES, ret, &len, &e) : err_oom(&e);

    return r < 0 ? cli_fail(err, (enum bh_code) - r, e.field, "%s", e.message) : 0;
}

/* True if the manifest has a package of any kind, a coding agent, or a template's command of this
 * name. */
static bool has_package(json_t *manifest, const char *name)
{
    static const char *const tables[] = {"packages", "npm_packages", "pip_packages", "agents"};

    for (size_t i = 0; i < N_ELEMENTS(tables); i++)
        if (json_object_get(json_object_get(manifest, tables[i]), name))
            return true;
    return json_string_length(json_object_get(manifest, name)) > 0;
}

/* Checks that are functions of this program, not scripts. */
struct builtin {
    const char *name;
    builtin_fn *run;
};

static const struct builtin builtin_checks[] = {{"agent", run_agent_check},
                                                {"start", run_start_check}};

static const struct builtin *find_builtin(const char *name)
{
    for (size_t i = 0; i < N_ELEMENTS(builtin_checks); i++)
        if (str_eq(builtin_checks[i].name, name))
            return &builtin_checks[i];
    return NULL;
}

/* "NAME | PACKAGE" */
static int add_check(struct image_report *r, char *line, const char *dir, const char *shared,
                     struct bh_error *err)
{
    struct image_check *check = &r->checks[r->n_checks];
    _cleanup_free_ char *file = NULL;
    _cleanup_free_ char *script = NULL;
    char *save = NULL;
    char *name = strtok_r(line, " \t|", &save);
    char *package = name ? strtok_r(NULL, " \t|", &save) : NULL;

    if (!name || *name == '#')
        return 0;
    if (!package || r->n_checks == IMAGE_CHECKS_MAX)
        return cli_fail(err, BH_INTERNAL, "", "'%s/list.txt' has a bad line, or too many", dir);
    r->n_checks++;
    check->name = strdup(name);
    check->package = strdup(package);
    if (find_builtin(name))
        return 0;
    if (asprintf(&file, "%s.sh", name) < 0)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    if (read_text(dir, file, &script, err) < 0)
        return -err->code;
    if (asprintf(&check->shell, "%s\n%s", shared, script) < 0)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    return 0;
}

static bool is_check(const struct image_report *r, const char *name)
{
    for (size_t i = 0; i < r->n_checks; i++)
        if (str_eq(r->checks[i].name, name))
            return true;
    return false;
}

/* The error for an unknown name lists the known ones. */
static int no_check(const struct image_report *r, const char *name, struct bh_error *err)
{
    struct buf names;
    int n = 0;

    buf_init(&names, sizeof(err->message));
    for (size_t i = 0; n == 0 && i < r->n_checks; i++)
        n = buf_addf(&names, NULL, "%s%s", i ? ", " : "", r->checks[i].name);
    n = cli_fail(err, BH_INVALID_ARGUMENT, "check", "there is no check '%.40s': %s", name,
                 names.data ? names.data : "");
    buf_done(&names);
    return n;
}

static bool is_among(char *const *list, const char *name)
{
    for (; list && *list; list++)
        if (str_eq(*list, name))
            return true;
    return false;
}

static int keep_only(struct image_report *r, char *const *only, struct bh_error *err)
{
    size_t n = 0;

    for (char *const *o = only; o && *o; o++)
        if (!is_check(r, *o))
            return no_check(r, *o, err);
    for (size_t i = 0; only && *only && i < r->n_checks; i++) {
        struct image_check check = r->checks[i];

        memset(&r->checks[i], 0, sizeof(r->checks[i]));
        if (is_among(only, check.name)) {
            r->checks[n++] = check;
            continue;
        }
        free(check.name);
        free(check.package);
        free(check.shell);
    }
    if (n)
        r->n_checks = n;
    return 0;
}

int image_checks_load(struct image_report *r, const char *checks_dir, char *const *only,
                      struct bh_error *err)
{
    _cleanup_free_ char *list = NULL;
    _cleanup_free_ char *shared = NULL;
    char *save = NULL;
    int n = read_text(checks_dir, "lib.sh", &shared, err);

    if (n == 0)
        n = read_text(checks_dir, "list.txt", &list, err);
    if (n < 0)
        return n;
    for (char *line = strtok_r(list, "\n", &save); n == 0 && line;
         line = strtok_r(NULL, "\n", &save))
        n = add_check(r, line, checks_dir, shared, err);
    return n < 0 ? n : keep_only(r, only, err);
}

int image_checks_match(struct image_report *r, struct bh_error *err)
{
    _cleanup_free_ char *text = NULL;
    json_auto_t *manifest = NULL;
    const char *user = NULL;
    int n = read_text(r->dir, "manifest.json", &text, err);

    if (n < 0)
        return n;
    manifest = json_loads(text, 0, NULL);
    if (!json_is_object(manifest))
        return cli_fail(err, BH_DATA_LOSS, "image", "'%s/manifest.json' is not a manifest", r->dir);
    if (json_unpack(manifest, "{s:{s:s}}", "user", "name", &user) == 0 && !(r->user = strdup(user)))
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    for (size_t i = 0; i < r->n_checks; i++)
        r->checks[i].is_wanted =
            str_eq(r->checks[i].package, "-") || has_package(manifest, r->checks[i].package);
    return 0;
}

/* ---- running one ---- */

struct output {
    struct buf out;
    struct buf err;
};

static int collect_output(void *arg, int stream, const char *data, size_t len)
{
    struct output *o = arg;

    /* Keeps the first bytes of the output and drops the rest. */
    (void)buf_add(stream == 1 ? &o->out : &o->err, data, len, NULL);
    return 0;
}

/* Copies the line at `at` for a table: without control characters. */
static void copy_line(const char *at, char *out, size_t out_bytes)
{
    size_t n = strcspn(at, "\r\n");

    if (n >= out_bytes)
        n = str_utf8_whole(at, out_bytes - 1);
    memcpy(out, at, n);
    out[n] = '\0';
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    str_make_utf8(out);
}

static const char *last_line(struct buf *b)
{
    while (b->len && (b->data[b->len - 1] == '\n' || b->data[b->len - 1] == ' '))
        b->data[--b->len] = '\0';
    for (size_t i = b->len; i > 0; i--)
        if (b->data[i - 1] == '\n')
            return b->data + i;
    return b->data ? b->data : "";
}

static void judge_output(const struct bh_run_result *run, struct output *o,
                         struct image_result *ret)
{
    bool is_ok = str_eq(run->reason, "exited") && run->code == 0;

    copy_line(o->out.data ? o->out.data : "", ret->version, sizeof(ret->version));
    ret->state = is_ok && ret->version[0] ? IMAGE_OK : IMAGE_FAILED;
    if (ret->state == IMAGE_OK)
        return;
    if (is_ok)
        (void)snprintf(ret->message, sizeof(ret->message), "it printed no version");
    else if (!str_eq(run->reason, "exited"))
        (void)snprintf(ret->message, sizeof(ret->message), "ended by %s %s", run->reason,
                       run->signal);
    else
        copy_line(last_line(&o->err), ret->message, sizeof(ret->message));
    if (!ret->message[0])
        (void)snprintf(ret->message, sizeof(ret->message), "exit status %d", run->code);
}

static int run_script(const struct image_check *check, const char *user, struct bh_box *box,
                      struct image_result *ret, struct bh_error *err)
{
    char env_user[64];
    const char *const env[] = {env_user, NULL};
    struct output o = {0};
    struct bh_run_result result = {.size = sizeof(result)};
    struct bh_run_options opts = {.size = sizeof(opts),
                                  .shell = check->shell,
                                  .cwd = "/",
                                  .env = env,
                                  .user = user,
                                  .stdin_fd = -1,
                                  .timeout_ms = IMAGE_CHECK_MS,
                                  .kill_on_exit = true,
                                  .output = collect_output,
                                  .output_arg = &o};
    int r;

    (void)snprintf(env_user, sizeof(env_user), "BOX_USER=%s", user);
    buf_init(&o.out, OUTPUT_BYTES);
    buf_init(&o.err, OUTPUT_BYTES);
    r = bh_run(box, &opts, &result, err);
    ret->ms = result.wall_ms;
    if (r == 0)
        judge_output(&result, &o, ret);
    buf_done(&o.out);
    buf_done(&o.err);
    return r;
}

static int copy_in_box(struct bh_box *box, const char *user, struct bh_error *err)
{
    const char *const argv[] = {"cp", "sent", "copied", NULL};
    struct bh_run_result result = {.size = sizeof(result)};
    struct bh_run_options opts = {.size = sizeof(opts),
                                  .argv = argv,
                                  .cwd = "/tmp",
                                  .user = user,
                                  .stdin_fd = -1,
                                  .timeout_ms = IMAGE_CHECK_MS};
    int r = bh_run(box, &opts, &result, err);

    if (r == 0 && (!str_eq(result.reason, "exited") || result.code != 0))
        return cli_fail(err, BH_DATA_LOSS, "", "cp in the box: %s %d", result.reason, result.code);
    return r;
}

/* A megabyte of random bytes is uploaded, copied by a command, and downloaded. */
static int round_trip(struct bh_box *box, const char *user, struct bh_error *err)
{
    _cleanup_free_ char *sent = malloc(ROUND_TRIP_BYTES);
    _cleanup_free_ char *got = NULL;
    size_t len = 0;
    int r;

    if (!sent || io_random(sent, ROUND_TRIP_BYTES, NULL) < 0)
        return cli_fail(err, BH_RESOURCE_EXHAUSTED, "", "out of memory");
    r = bh_write(box, "/tmp/sent", sent, ROUND_TRIP_BYTES, 0644, err);
    if (r == 0)
        r = copy_in_box(box, user, err);
    if (r == 0)
        r = bh_read(box, "/tmp/copied", ROUND_TRIP_BYTES, &got, &len, err);
    if (r == 0 && (len != ROUND_TRIP_BYTES || memcmp(sent, got, len) != 0))
        return cli_fail(err, BH_DATA_LOSS, "", "the file that came back differs");
    return r;
}

static int run_agent_check(struct bh_box *box, const char *user, struct image_result *ret,
                           struct bh_error *err)
{
    json_auto_t *info = NULL;
    _cleanup_free_ char *text = NULL;
    int64_t start = clock_mono_ms();
    const char *version;
    int r = bh_call(box, rpc_method_name(RPC_system_info), NULL, NULL, NULL, 0, &text, err);

    if (r == 0)
        r = round_trip(box, user, err);
    ret->ms = clock_mono_ms() - start;
    if (r < 0)
        return r;
    info = json_loads(text, JSON_ALLOW_NUL, NULL);
    version = json_string_value(json_object_get(info, "version"));
    copy_line(version ? version : "?", ret->version, sizeof(ret->version));
    ret->state = IMAGE_OK;
    return 0;
}

static int take_start_state(void *arg, const struct bh_exec_info *info)
{
    *(struct bh_run_result *)arg = info->result;
    return 0;
}

/* The template's start_cmd runs, or has exited with status 0. */
static int run_start_check(struct bh_box *box, const char *user, struct image_result *ret,
                           struct bh_error *err)
{
    struct bh_run_result result = {.size = sizeof(result)};
    struct bh_exec *exec = NULL;
    int64_t start = clock_mono_ms();
    int r = bh_exec_attach(box, START_ID, &exec, err);

    (void)user;
    if (r == 0)
        r = bh_exec_get(exec, take_start_state, &result, err);
    (void)bh_exec_free(exec);
    ret->ms = clock_mono_ms() - start;
    if (r < 0)
        return r;
    if (result.code != 0 || (*result.reason && !str_eq(result.reason, "exited")))
        return cli_fail(err, BH_FAILED_PRECONDITION, "", "start_cmd %s with status %d",
                        result.reason, result.code);
    copy_line("started", ret->version, sizeof(ret->version));
    ret->state = IMAGE_OK;
    return 0;
}

int image_check_run(struct image_report *r, size_t f, size_t i, struct bh_box *box,
                    struct bh_error *err)
{
    const struct image_check *check = &r->checks[i];
    struct image_result *result = &r->results[f][i];
    const char *user = r->user ? r->user : "user";
    int n;

    n = check->shell ? run_script(check, user, box, result, err)
                     : find_builtin(check->name)->run(box, user, result, err);
    if (n == 0 || err->code == BH_CANCELED)
        return n;
    result->state = IMAGE_FAILED;
    (void)snprintf(result->message, sizeof(result->message), "%.200s", err->message);
    return 0;
}

/* ---- the report ---- */

/* The version that the first form reported. */
static const char *version_of(const struct image_report *r, size_t check)
{
    for (size_t f = 0; f < r->n_forms; f++)
        if (r->results[f][check].version[0])
            return r->results[f][check].version;
    return "";
}

void image_report_compare(struct image_report *r)
{
    for (size_t i = 0; i < r->n_checks; i++)
        for (size_t f = 0; f < r->n_forms; f++) {
            struct image_result *result = &r->results[f][i];

            if (result->state != IMAGE_OK || str_eq(result->version, version_of(r, i)))
                continue;
            result->state = IMAGE_FAILED;
            (void)snprintf(result->message, sizeof(result->message), "version %s, elsewhere %s",
                           result->version, version_of(r, i));
        }
}

bool image_report_is_ok(const struct image_report *r)
{
    size_t n_ok = 0;

    for (size_t f = 0; f < r->n_forms; f++) {
        if (r->forms[f].boot == IMAGE_FAILED)
            return false;
        for (size_t i = 0; i < r->n_checks; i++) {
            if (r->results[f][i].state == IMAGE_FAILED)
                return false;
            n_ok += r->results[f][i].state == IMAGE_OK;
        }
    }
    return n_ok > 0;
}

/* ---- the table ---- */

static void cell_text_of(enum image_state state, int64_t ms, char *out, size_t out_bytes)
{
    static const char *const words[] = {
        [IMAGE_NOT_RUN] = "-", [IMAGE_OK] = "ok", [IMAGE_FAILED] = "failed"};

    if (state == IMAGE_NOT_RUN)
        (void)snprintf(out, out_bytes, "-");
    else
        (void)snprintf(out, out_bytes, "%-6s %3" PRId64 ".%02d s", words[state], ms / 1000,
                       (int)(ms % 1000 / 10));
}

static void add_row(struct cli_table *t, const struct image_report *r, size_t check)
{
    char cells[IMAGE_FORMS_MAX][32];
    char absent[96];
    const char *row[IMAGE_FORMS_MAX + 3] = {r->checks[check].name, version_of(r, check)};

    if (!r->checks[check].is_wanted) {
        (void)snprintf(absent, sizeof(absent), "not in %s", r->image);
        row[1] = absent;
    }
    for (size_t f = 0; f < r->n_forms; f++) {
        const struct image_result *result = &r->results[f][check];

        cell_text_of(result->state, result->ms, cells[f], sizeof(cells[f]));
        row[f + 2] = r->checks[check].is_wanted ? cells[f] : "";
    }
    cli_table_add(t, row);
}

static void print_failures(const struct image_report *r)
{
    for (size_t f = 0; f < r->n_forms; f++) {
        if (r->forms[f].boot != IMAGE_OK)
            (void)printf("%s: %s: %s\n", r->forms[f].name,
                         r->forms[f].boot == IMAGE_FAILED ? "not booted" : "not tested",
                         cli_text(r->forms[f].message));
        for (size_t i = 0; i < r->n_checks; i++)
            if (r->results[f][i].state == IMAGE_FAILED)
                (void)printf("%s: %s: %s\n", r->forms[f].name, r->checks[i].name,
                             cli_text(r->results[f][i].message));
    }
}

void image_report_print(const struct cli *c, const struct image_report *r)
{
    char cells[IMAGE_FORMS_MAX][32];
    const char *heads[IMAGE_FORMS_MAX + 3] = {"TOOL", "VERSION"};
    const char *boot[IMAGE_FORMS_MAX + 3] = {"boot", ""};
    struct cli_table *t;

    for (size_t f = 0; f < r->n_forms; f++) {
        heads[f + 2] = r->forms[f].name;
        cell_text_of(r->forms[f].boot, r->forms[f].boot_ms, cells[f], sizeof(cells[f]));
        boot[f + 2] = cells[f];
    }
    t = cli_table_new(heads);
    cli_table_add(t, boot);
    for (size_t i = 0; i < r->n_checks; i++)
        add_row(t, r, i);
    cli_table_print_free(t, c->tty_out);
    print_failures(r);
}

/* ---- JSON ---- */

static const char *state_word(enum image_state state)
{
    static const char *const words[] = {
        [IMAGE_NOT_RUN] = "not_run", [IMAGE_OK] = "ok", [IMAGE_FAILED] = "failed"};

    return words[state];
}

static json_t *forms_json(const struct image_report *r)
{
    json_t *forms = json_object();

    for (size_t f = 0; forms && f < r->n_forms; f++) {
        const struct image_form *form = &r->forms[f];

        (void)json_object_set_new(forms, form->name,
                                  json_pack("{s:s, s:I, s:s}", "boot", state_word(form->boot),
                                            "boot_ms", (json_int_t)form->boot_ms, "message",
                                            form->message));
    }
    return forms;
}

static json_t *check_json(const struct image_report *r, size_t check)
{
    json_t *results = json_object();

    for (size_t f = 0; results && f < r->n_forms; f++) {
        const struct image_result *result = &r->results[f][check];

        if (result->state != IMAGE_NOT_RUN)
            (void)json_object_set_new(results, r->forms[f].name,
                                      json_pack("{s:s, s:I, s:s, s:s}", "state",
                                                state_word(result->state), "ms",
                                                (json_int_t)result->ms, "version", result->version,
                                                "message", result->message));
    }
    return json_pack("{s:s, s:s, s:b, s:o}", "tool", r->checks[check].name, "package",
                     r->checks[check].package, "in_image", r->checks[check].is_wanted, "results",
                     results);
}

json_t *image_report_json(const struct image_report *r)
{
    json_t *checks = json_array();

    for (size_t i = 0; checks && i < r->n_checks; i++)
        (void)json_array_append_new(checks, check_json(r, i));
    return json_pack("{s:s, s:s, s:b, s:o, s:o}", "image", r->image, "dir", r->dir, "ok",
                     image_report_is_ok(r), "forms", forms_json(r), "checks", checks);
}
