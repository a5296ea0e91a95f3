#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/clock.h"
#include "common/str.h"

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
    if (!c->tty_err && !c->quiet && strcmp(p->phase, "image") == 0)
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
