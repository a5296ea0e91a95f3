#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/clock.h"
#include "common/str.h"

#define TABLE_COLUMNS_MAX 8

int cli_exit_for(const struct bh_error *err)
{
    if (err->step[0] && err->code != BH_CANCELED)
        return EXIT_CLI_BOOTSTRAP;
    switch ((enum bh_code)err->code) {
    case BH_INVALID_ARGUMENT:
    case BH_OUT_OF_RANGE:
        return EXIT_CLI_USAGE;
    case BH_NOT_FOUND:
        return EXIT_CLI_NOT_FOUND;
    case BH_ALREADY_EXISTS:
    case BH_FAILED_PRECONDITION:
    case BH_ABORTED:
        return EXIT_CLI_CONFLICT;
    case BH_UNAVAILABLE:
        return EXIT_CLI_UNAVAILABLE;
    case BH_DEADLINE_EXCEEDED:
        return EXIT_CLI_DEADLINE;
    case BH_PERMISSION_DENIED:
    case BH_UNAUTHENTICATED:
        return EXIT_CLI_DENIED;
    case BH_RESOURCE_EXHAUSTED:
        return EXIT_CLI_EXHAUSTED;
    case BH_UNIMPLEMENTED:
        return EXIT_CLI_UNSUPPORTED;
    case BH_DATA_LOSS:
        return EXIT_CLI_DATA_LOSS;
    case BH_CANCELED:
        return EXIT_CLI_INTERRUPTED;
    case BH_OK:
    case BH_UNKNOWN:
    case BH_INTERNAL:
        break;
    }
    return EXIT_CLI_ERROR;
}

/* ---- names and content from a box ---- */

#define TEXTS 4
#define CONTENT_KEEP "\n\t"

static struct {
    bool raw, tty_out, tty_err;
    char *texts[TEXTS]; /* of cli_text() */
    unsigned next;
} output_state;

void cli_output_init(const struct cli *c)
{
    output_state.raw = c->raw;
    output_state.tty_out = c->tty_out;
    output_state.tty_err = c->tty_err;
}

bool cli_shows_raw(int fd)
{
    return output_state.raw || !(fd == STDERR_FILENO ? output_state.tty_err : output_state.tty_out);
}

const char *cli_text(const char *s)
{
    char **at = &output_state.texts[output_state.next++ % TEXTS];

    free(*at);
    *at = str_escape(s, strlen(s), "", NULL);
    return *at ? *at : "?";
}

static void put_escaped(FILE *f, const char *s, size_t len, const char *keep)
{
    size_t n = 0;
    char *text = str_escape(s, len, keep, &n);

    if (text)
        (void)fwrite(text, 1, n, f);
    free(text);
}

void cli_put_name(const char *s, size_t len)
{
    if (output_state.raw)
        (void)fwrite(s, 1, len, stdout);
    else
        put_escaped(stdout, s, len, "");
}

void cli_put_content(const char *s, size_t len)
{
    if (cli_shows_raw(STDOUT_FILENO))
        (void)fwrite(s, 1, len, stdout);
    else
        put_escaped(stdout, s, len, CONTENT_KEEP);
}

char *cli_escape_content(struct cli_held *held, const char *s, size_t len, bool is_last,
                         size_t *ret_len)
{
    char *all = malloc(held->n + len + 1), *text;
    size_t whole;

    if (!all)
        return NULL;
    memcpy(all, held->bytes, held->n);
    if (len)
        memcpy(all + held->n, s, len);
    len += held->n;
    whole = is_last ? len : str_utf8_whole(all, len);
    text = str_escape(all, whole, CONTENT_KEEP, ret_len);
    if (text) {
        held->n = len - whole;
        memcpy(held->bytes, all + whole, held->n);
    }
    free(all);
    return text;
}

/* ---- messages ---- */

json_t *cli_error_json(const struct bh_error *err)
{
    json_t *o = json_pack("{s:s, s:s}", "code", bh_code_name(err->code), "message", err->message);

    if (o && err->field[0])
        (void)json_object_set_new(o, "field", json_string(err->field));
    if (o && err->step[0])
        (void)json_object_set_new(o, "step", json_string(err->step));
    if (o && err->detail[0])
        (void)json_object_set_new(o, "detail", json_string(err->detail));
    return o;
}

void cli_print_error(struct cli *c, const struct bh_error *err)
{
    cli_progress_clear(c);
    if (c->json) {
        (void)cli_print_json_take(json_pack("{s:o}", "error", cli_error_json(err)));
        return;
    }
    if (err->detail[0] &&
        err->step[0]) { /* without a step, the detail is JSON for programs: only --json prints it */
        put_escaped(stderr, err->detail, strlen(err->detail), CONTENT_KEEP);
        if (err->detail[strlen(err->detail) - 1] != '\n')
            (void)fputc('\n', stderr);
    }
    /* ready_cmd and start_cmd belong to the template, not to the agent. */
    if (err->step[0] && !str_has_suffix(err->step, "_cmd"))
        (void)fprintf(stderr, "bellhop: the agent's %s step failed: %s\n", err->step,
                      cli_text(err->message));
    else
        (void)fprintf(stderr, "bellhop: %s\n", cli_text(err->message));
    /* The engine's address comes from the environment, a context or a file. */
    if (err->code == BH_INVALID_ARGUMENT && c->command && !c->quiet &&
        strcmp(err->field, "docker_host") != 0)
        (void)fprintf(stderr, "Try 'bellhop help %s'.\n", c->command->name);
}

void cli_warn(const struct cli *c, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    if (c->quiet)
        return;
    cli_progress_clear(c);
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    (void)fprintf(stderr, "bellhop: %s\n", text ? cli_text(text) : "out of memory");
    free(text);
}

/* JSON does not escape DEL, C1 and bidirectional controls, which occur only in strings. */
void cli_put_json(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    for (size_t n; *p; p += n) {
        unsigned odd;

        n = strcspn((const char *)p, "\x7f\xc2\xd8\xe2");
        (void)fwrite(p, 1, n, stdout);
        p += n;
        odd = *p == 0x7f ? *p : str_odd_control((const char *)p, strnlen((const char *)p, 3));
        n = odd >= 0x800 ? 3 : odd >= 0x80 ? 2 : *p ? 1 : 0;
        if (odd)
            (void)printf("\\u%04x", odd);
        else
            (void)fwrite(p, 1, n, stdout);
    }
}

void cli_puts_json(const char *text)
{
    cli_put_json(text);
    (void)putchar('\n');
}

int cli_print_json_take(json_t *v)
{
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    json_decref(v);
    if (!text) {
        (void)fprintf(stderr, "bellhop: the result cannot be written as JSON\n");
        return EXIT_CLI_ERROR;
    }
    cli_puts_json(text);
    free(text);
    return EXIT_CLI_OK;
}

int cli_fail(struct bh_error *err, enum bh_code code, const char *field, const char *fmt, ...)
{
    va_list ap;

    *err = (struct bh_error){.code = code};
    (void)snprintf(err->field, sizeof(err->field), "%s", field);
    va_start(ap, fmt);
    (void)vsnprintf(err->message, sizeof(err->message), fmt, ap);
    va_end(ap);
    return -(int)code;
}

/* ---- tables ---- */

struct cli_table {
    size_t columns;
    size_t n_rows;
    char ***rows; /* row 0: the headings */
};

struct cli_table *cli_table_new(const char *const *heads)
{
    struct cli_table *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    while (heads[t->columns] && t->columns < TABLE_COLUMNS_MAX)
        t->columns++;
    cli_table_add(t, heads);
    return t;
}

/* A tab or line feed in a cell would end the cell. */
static char *cell_text(const char *s)
{
    return output_state.raw ? strdup(s) : str_escape(s, strlen(s), "", NULL);
}

void cli_table_add(struct cli_table *t, const char *const *cells)
{
    char ***rows = t ? realloc(t->rows, (t->n_rows + 1) * sizeof(*rows)) : NULL;

    if (!rows)
        return;
    t->rows = rows;
    rows[t->n_rows] = calloc(t->columns + 1, sizeof(char *));
    for (size_t i = 0; rows[t->n_rows] && i < t->columns; i++)
        rows[t->n_rows][i] = cell_text(cells[i] ? cells[i] : "");
    t->n_rows++;
}

void cli_table_print_free(struct cli_table *t, bool is_tty)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};

    if (!t)
        return;
    for (size_t r = 0; r < t->n_rows; r++)
        for (size_t i = 0; t->rows[r] && i < t->columns; i++)
            if (t->rows[r][i] && strlen(t->rows[r][i]) > widths[i])
                widths[i] = strlen(t->rows[r][i]);
    for (size_t r = 0; r < t->n_rows; r++) {
        for (size_t i = 0; t->rows[r] && i < t->columns; i++) {
            bool last = i + 1 == t->columns;
            const char *cell = t->rows[r][i] ? t->rows[r][i] : "";

            if (!is_tty)
                (void)printf("%s%s", cell, last ? "\n" : "\t");
            else
                (void)printf("%-*s%s", last ? 0 : (int)widths[i], cell, last ? "\n" : "  ");
        }
        strv_free(t->rows[r]);
    }
    free(t->rows);
    free(t);
}

void cli_listing_begin(struct cli_listing *l, struct cli *c, const char *const *heads)
{
    *l = (struct cli_listing){.cli = c};
    if (c->json)
        l->json = json_array();
    else if (heads)
        l->table = cli_table_new(heads);
}

int cli_listing_end(struct cli_listing *l, const char *key, int r)
{
    cli_table_print_free(l->table, l->cli->tty_out);
    if (r == 0 && l->cli->json)
        return cli_print_json_take(json_pack("{s:o}", key, l->json));
    json_decref(l->json);
    return r;
}

json_t *cli_box_json(const struct bh_box_info *i)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:{s:s, s:s}, s:{s:s, s:s, s:s, s:s}}", "name", i->name,
                     "id", i->id, "provider", i->provider, "state", bh_state_name(i->state),
                     "guest", "url", i->guest_url, "socket", i->guest_socket, "agent", "name",
                     i->agent_name, "version", i->agent_version, "url", i->agent_url, "password",
                     i->agent_password);
}

/* ---- progress ---- */

#define BAR_CELLS 24
#define REDRAW_MS 80

/* The line that is drawn on the terminal: one per process. */
static struct {
    char phase[32];
    int64_t drawn_ms;
    bool is_open;
} progress_line;

void cli_progress_clear(const struct cli *c)
{
    if (c->tty_err && progress_line.is_open)
        (void)fputs("\r\033[K", stderr);
    progress_line.is_open = false;
}

static void draw_bar(const struct bh_progress *p)
{
    char done[24], total[24];
    int full = (int)(p->done >= p->total ? BAR_CELLS : p->done * BAR_CELLS / p->total);

    (void)fputs(" [", stderr);
    for (int i = 0; i < BAR_CELLS; i++)
        (void)fputc(i < full ? '#' : '.', stderr);
    (void)fprintf(stderr, "] %s of %s", str_format_size(p->done, done, sizeof(done)),
                  str_format_size(p->total, total, sizeof(total)));
}

static int terminal_columns(void)
{
    struct winsize w = {0};

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_col < 20)
        return 80;
    return w.ws_col;
}

static void print_warning(const struct cli *c, const struct bh_progress *p)
{
    if (c->quiet)
        return;
    cli_progress_clear(c);
    (void)fprintf(stderr, "bellhop: %s\n", cli_text(p->text ? p->text : ""));
}

void cli_progress(void *arg, const struct bh_progress *p)
{
    const struct cli *c = arg;
    int64_t now = clock_mono_ms();
    bool new_phase = strcmp(progress_line.phase, p->phase) != 0;
    int text_cells = terminal_columns() - 14 - (p->total ? BAR_CELLS + 24 : 0);

    if (strcmp(p->phase, "warning") == 0) {
        print_warning(c, p);
        return;
    }
    /* Minutes of silence in a log look like a hang. */
    if (!c->tty_err && !c->quiet &&
        (strcmp(p->phase, "image") == 0 || (strcmp(p->phase, "health") == 0 && !p->finished)))
        (void)fprintf(stderr, "bellhop: %s\n", cli_text(p->text ? p->text : ""));
    if (!c->tty_err || c->quiet)
        return;
    if (!new_phase && !p->finished && now - progress_line.drawn_ms < REDRAW_MS)
        return;
    if (text_cells < 10)
        text_cells = 10;
    (void)snprintf(progress_line.phase, sizeof(progress_line.phase), "%s", p->phase);
    progress_line.drawn_ms = now;
    cli_progress_clear(c);
    (void)fprintf(stderr, "%-10s %.*s", p->phase, text_cells, cli_text(p->text ? p->text : ""));
    if (p->total && !p->finished)
        draw_bar(p);
    if (p->finished)
        (void)fputc('\n', stderr);
    progress_line.is_open = !p->finished;
    (void)fflush(stderr);
}
