/*
 * libcalls STATE_DIR CACHE_DIR BOX: the library's calls that no program of ours makes, on a box: files
 * moved, copied and given attributes, archives both ways, searches, output by offset, metrics, and
 * details of errors.
 * Each is checked here; prints "all is well", or the line that is not.
 */
#define _POSIX_C_SOURCE 200809L /* fileno */

#include <bellhop/bellhop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(x) \
    do { \
        if (!(x)) { \
            printf("line %d: %s: %s (%s)\n", __LINE__, #x, e.message, e.detail); \
            exit(1); \
        } \
    } while (0)

static struct bh_error e;

struct bytes {
    char data[65536];
    size_t len, at;
};

static int keep(void *arg, const char *data, size_t len)
{
    struct bytes *b = arg;

    if (b->len + len > sizeof(b->data))
        return -1;
    memcpy(b->data + b->len, data, len);
    b->len += len;
    return 0;
}

static int64_t give(void *arg, char *out, size_t max)
{
    struct bytes *b = arg;
    size_t n = b->len - b->at < max ? b->len - b->at : max;

    memcpy(out, b->data + b->at, n);
    b->at += n;
    return (int64_t)n;
}

static int64_t give_up(void *arg, char *out, size_t max)
{
    (void)arg, (void)out, (void)max;
    return -1;
}

struct seen {
    uint32_t mode;
    uint64_t bytes;
    char etag[BH_ETAG_BYTES];
    char mtime[64];
    char target[64];
};

static int see(void *arg, const struct bh_file_info *f)
{
    struct seen *s = arg;

    s->mode = f->mode;
    s->bytes = f->bytes;
    snprintf(s->etag, sizeof(s->etag), "%s", f->etag);
    snprintf(s->mtime, sizeof(s->mtime), "%s", f->mtime);
    return 0;
}

static void write_file(struct bh_box *box, const char *path, const char *text)
{
    CHECK(bh_write(box, path, text, strlen(text), 0, &e) == 0);
}

static void is_file(struct bh_box *box, const char *path, const char *text)
{
    char *data = NULL;
    size_t len;

    CHECK(bh_read(box, path, 4096, &data, &len, &e) == 0);
    CHECK(len == strlen(text) && memcmp(data, text, len) == 0);
    free(data);
}

static void is_gone(struct bh_box *box, const char *path)
{
    struct seen s = {0};

    CHECK(bh_file_stat(box, path, false, see, &s, &e) == -BH_NOT_FOUND);
}

static void moves(struct bh_box *box)
{
    struct bh_file_change_options over = {.size = sizeof(over), .overwrite = true};
    struct bh_file_change_options tagged = {.size = sizeof(tagged), .if_match = "other"};
    struct bh_file_change_options bare = {.size = sizeof(bare), .no_parents = true};

    write_file(box, "m/a", "one");
    write_file(box, "m/b", "two");
    CHECK(bh_file_move(box, "m/a", "m/b", NULL, &e) == -BH_ALREADY_EXISTS);
    CHECK(bh_file_move(box, "m/a", "m/new/deep", &bare, &e) == -BH_NOT_FOUND);
    CHECK(bh_file_move(box, "m/a", "m/c", &tagged, &e) == -BH_ABORTED);
    CHECK(strcmp(e.field, "if_match") == 0 && strncmp(e.detail, "{\"etag\":\"", 9) == 0);
    is_file(box, "m/a", "one");
    CHECK(bh_file_move(box, "m/a", "m/b", &over, &e) == 0);
    is_file(box, "m/b", "one");
    is_gone(box, "m/a");
    CHECK(bh_file_move(box, "m/b", "m/new/deep", NULL, &e) == 0);
    is_file(box, "m/new/deep", "one");
}

static void copies(struct bh_box *box)
{
    struct bh_file_change_options tree = {.size = sizeof(tree), .recursive = true};

    write_file(box, "c/d/f", "deep");
    CHECK(bh_file_copy(box, "c/d", "c/e", NULL, &e) == -BH_FAILED_PRECONDITION ||
          bh_file_copy(box, "c/d", "c/e", NULL, &e) == -BH_INVALID_ARGUMENT);
    is_gone(box, "c/e");
    CHECK(bh_file_copy(box, "c/d", "c/e", &tree, &e) == 0);
    is_file(box, "c/e/f", "deep");
    is_file(box, "c/d/f", "deep");
    CHECK(bh_file_copy(box, "c/d/f", "c/g", NULL, &e) == 0);
    is_file(box, "c/g", "deep");
    CHECK(bh_file_copy(box, "c/none", "c/h", NULL, &e) == -BH_NOT_FOUND);
}

static void attributes(struct bh_box *box)
{
    struct bh_file_change_options o = {.size = sizeof(o), .mode = 0751};
    struct seen s = {0};

    o.mtime = "2001-02-03T04:05:06Z";
    write_file(box, "attr", "x");
    CHECK(bh_file_set_attr(box, "attr", &o, &e) == 0);
    CHECK(bh_file_stat(box, "attr", true, see, &s, &e) == 0);
    CHECK(s.mode == 0751 && strncmp(s.mtime, "2001-02-03T04:05:06", 19) == 0 && s.etag[0]);
    o.owner = "nobody-at-all";
    CHECK(bh_file_set_attr(box, "attr", &o, &e) < 0 && strcmp(e.field, "owner") == 0);
}

static void archives(struct bh_box *box)
{
    static struct bytes b;
    const char *const excludes[] = {"*.o", NULL};
    struct bh_archive_get_options get = {.size = sizeof(get), .path = "tree"};
    struct bh_archive_put_options put = {.size = sizeof(put), .path = "back", .read = give};
    uint64_t entries = 0;

    write_file(box, "tree/a.c", "source");
    write_file(box, "tree/a.o", "object");
    get.format = "tar.gz";
    get.excludes = excludes;
    get.write = keep;
    get.arg = &b;
    CHECK(bh_archive_get(box, &get, &e) == 0 && b.len > 20 && memcmp(b.data, "\x1f\x8b", 2) == 0);
    put.arg = &b;
    CHECK(bh_archive_put(box, &put, &entries, &e) == 0 && entries >= 1);
    is_file(box, "back/a.c", "source");
    is_gone(box, "back/a.o");

    write_file(box, "back/more", "x");
    b.at = 0;
    put.replace = true;
    CHECK(bh_archive_put(box, &put, NULL, &e) == 0);
    is_gone(box, "back/more");
    /* A sender that gives up, and an archive that is none, leave what is there. */
    put.read = give_up;
    CHECK(bh_archive_put(box, &put, NULL, &e) == -BH_CANCELED);
    put.read = give;
    b.at = 0;
    memset(b.data, 'x', b.len);
    CHECK(bh_archive_put(box, &put, NULL, &e) == -BH_INVALID_ARGUMENT);
    is_file(box, "back/a.c", "source");
    get.path = "none";
    CHECK(bh_archive_get(box, &get, &e) == -BH_NOT_FOUND);
}

static void metrics(struct bh_box *box)
{
    char *text = NULL;

    CHECK(bh_metrics(box, &text, &e) == 0);
    CHECK(strstr(text, "\nbellhop_connections ") && strstr(text, "# TYPE "));
    free(text);
}

static void directories(struct bh_box *box)
{
    struct bh_file_change_options bare = {.size = sizeof(bare), .no_parents = true, .mode = 0700};
    struct seen s = {0};

    CHECK(bh_file_mkdir(box, "d/e", &bare, &e) == -BH_NOT_FOUND);
    CHECK(bh_file_mkdir(box, "d/e", NULL, &e) == 0);
    CHECK(bh_file_mkdir(box, "d/e/f", &bare, &e) == 0);
    CHECK(bh_file_stat(box, "d/e/f", false, see, &s, &e) == 0 && s.mode == 0700);
}

/* Output by offset, without waiting. */
static void reads(struct bh_box *box)
{
    struct bh_run_options o = {.size = sizeof(o), .shell = "printf 0123456789; printf err >&2"};
    struct bh_exec *exec = NULL;
    char data[64];
    size_t len = 0;
    bool eof = false;

    CHECK(bh_exec_start(box, &o, &exec, &e) == 0);
    CHECK(bh_exec_wait(exec, 0, NULL, &e) == 0);
    CHECK(bh_exec_read(exec, 1, data, 4, &len, &eof, &e) == 0);
    CHECK(len == 4 && memcmp(data, "0123", 4) == 0 && !eof && bh_exec_offset(exec, 1) == 4);
    CHECK(bh_exec_read(exec, 1, data, sizeof(data), &len, &eof, &e) == 0);
    CHECK(len == 6 && memcmp(data, "456789", 6) == 0 && bh_exec_offset(exec, 1) == 10);
    CHECK(bh_exec_read(exec, 1, data, sizeof(data), &len, &eof, &e) == 0 && len == 0 && eof);
    CHECK(bh_exec_read(exec, 2, data, sizeof(data), &len, NULL, &e) == 0 && len == 3);
    CHECK(bh_exec_read(exec, 3, data, sizeof(data), &len, NULL, &e) == -BH_INVALID_ARGUMENT);
    bh_exec_free(exec);
}

/* A write that fails half-way is repeated as a whole. */
static void writes(struct bh_box *box)
{
    static char data[300 * 1024];
    struct bh_run_options o = {.size = sizeof(o),
                               .shell = "until [ -d go ]; do sleep 0.05; done; wc -c",
                               .stdin_open = true};
    struct bh_exec *exec = NULL;
    char count[16] = "";
    size_t len = 0;

    CHECK(bh_exec_start(box, &o, &exec, &e) == 0);
    CHECK(bh_exec_write(exec, data, sizeof(data), 500, &e) == -BH_DEADLINE_EXCEEDED);
    CHECK(bh_exec_write(exec, data, sizeof(data), 500, &e) == -BH_DEADLINE_EXCEEDED);
    CHECK(bh_file_mkdir(box, "go", NULL, &e) == 0);
    CHECK(bh_exec_write(exec, data, sizeof(data), 0, &e) == 0);
    CHECK(bh_exec_write(exec, "more", 4, 0, &e) == 0);
    CHECK(bh_exec_close_stdin(exec, &e) == 0);
    CHECK(bh_exec_wait(exec, 0, NULL, &e) == 0);
    CHECK(bh_exec_read(exec, 1, count, sizeof(count) - 1, &len, NULL, &e) == 0);
    CHECK(strtoul(count, NULL, 10) == sizeof(data) + 4);
    bh_exec_free(exec);
}

static int take_count(void *arg, int stream, const char *data, size_t len)
{
    char *count = arg;

    if (stream == 1 && strlen(count) + len < 16)
        strncat(count, data, len);
    return 0;
}

/* Input that a follow has read when its time is over is not lost for the next one. */
static void follows(struct bh_box *box)
{
    static const char data[300 * 1024];
    struct bh_run_options o = {.size = sizeof(o),
                               .shell = "until [ -d gone ]; do sleep 0.05; done; wc -c",
                               .stdin_open = true};
    struct bh_run_result result = {.size = sizeof(result)};
    char count[16] = "";
    FILE *file = tmpfile();
    struct bh_follow_options f = {.size = sizeof(f), .output = take_count, .arg = count};
    struct bh_exec *exec = NULL;

    CHECK(file && fwrite(data, 1, sizeof(data), file) == sizeof(data) && fflush(file) == 0);
    rewind(file);
    f.stdin_fd = fileno(file);
    f.timeout_ms = 500;
    CHECK(bh_exec_start(box, &o, &exec, &e) == 0);
    CHECK(bh_exec_follow(exec, &f, &result, &e) == -BH_DEADLINE_EXCEEDED);
    CHECK(bh_exec_follow(exec, &f, &result, &e) == -BH_DEADLINE_EXCEEDED);
    CHECK(bh_file_mkdir(box, "gone", NULL, &e) == 0);
    f.timeout_ms = 0;
    CHECK(bh_exec_follow(exec, &f, &result, &e) == 0);
    CHECK(strtoul(count, NULL, 10) == sizeof(data));
    bh_exec_free(exec);
    fclose(file);
}

static int count_match(void *arg, const struct bh_match *match)
{
    struct seen *s = arg;

    s->bytes++;
    snprintf(s->target, sizeof(s->target), "%s", match->path);
    return 0;
}

static int count_path(void *arg, const char *path, const char *type)
{
    struct seen *s = arg;

    (void)type;
    s->bytes++;
    snprintf(s->target, sizeof(s->target), "%s", path);
    return 0;
}

static void searches(struct bh_box *box)
{
    const char *const patterns[] = {"needle", "pin", NULL}, *const extensions[] = {"txt", NULL};
    const char *const broken[] = {"\xff", NULL};
    struct bh_search_options o = {.size = sizeof(o), .path = "s", .patterns = patterns};
    struct seen s = {0};

    write_file(box, "s/a.txt", "a needle\na pin\nhay\n");
    write_file(box, "s/b.c", "hay\n");
    CHECK(bh_grep(box, &o, count_match, &s, NULL, &e) == 0 && s.bytes == 2 && s.target[0] == '/');
    o.keep_relative = true;
    CHECK(bh_grep(box, &o, count_match, &s, NULL, &e) == 0 && strcmp(s.target, "s/a.txt") == 0);
    /* An option that only the other search has is refused by its name, and so is text that JSON cannot hold. */
    o.extensions = extensions;
    CHECK(bh_grep(box, &o, count_match, &s, NULL, &e) == -BH_INVALID_ARGUMENT);
    CHECK(strcmp(e.field, "extensions") == 0);
    o.extensions = NULL;
    o.globs = broken;
    CHECK(bh_grep(box, &o, count_match, &s, NULL, &e) == -BH_INVALID_ARGUMENT);
    CHECK(strcmp(e.field, "globs") == 0);

    o = (struct bh_search_options){
        .size = sizeof(o), .path = "s", .pattern = "*", .extensions = extensions};
    s.bytes = 0;
    CHECK(bh_glob(box, &o, count_path, &s, NULL, &e) == 0 && s.bytes == 1);
    o.extensions = NULL;
    o.min_size = 10;
    CHECK(bh_glob(box, &o, count_path, &s, NULL, &e) == 0 && s.bytes == 2);
}

/* The box must outlive a command that was started with a timeout, by a minute. */
static void leases(struct bh_ctx *ctx, const char *name, struct bh_box *box)
{
    const char *const argv[] = {"true", NULL};
    struct bh_run_options o = {.size = sizeof(o), .argv = argv, .timeout_ms = 30 * 60 * 1000};
    int64_t begun_ms = (int64_t)time(NULL) * 1000;
    struct bh_exec *exec = NULL;
    struct bh_box *again = NULL;

    CHECK(bh_exec_start(box, &o, &exec, &e) == 0);
    bh_exec_free(exec);
    CHECK(bh_get(ctx, name, &again, &e) == 0);
    CHECK(bh_box_info(again)->deadline_ms >= begun_ms + 31 * 60 * 1000);
    bh_box_free(again);
}

int main(int argc, char **argv)
{
    struct bh_options opts = {.size = sizeof(opts)};
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;

    if (argc != 4)
        return 2;
    opts.state_dir = argv[1];
    opts.cache_dir = argv[2];
    CHECK(bh_open(&opts, &ctx, &e) == 0);
    CHECK(bh_get(ctx, argv[3], &box, &e) == 0);
    moves(box);
    copies(box);
    attributes(box);
    archives(box);
    metrics(box);
    directories(box);
    reads(box);
    writes(box);
    follows(box);
    searches(box);
    leases(ctx, argv[3], box);
    bh_box_free(box);
    CHECK(bh_gc(ctx, NULL, NULL, &e) == 0);
    bh_close(ctx);
    puts("all is well");
    return 0;
}
