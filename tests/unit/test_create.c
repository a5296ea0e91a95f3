#include <sys/xattr.h>

#define T_ALARM_S 120
#include "test.h"

#include "fs_help.h"

#include "archive_help.h"

#include "archive/create.h"
#include "archive/extract.h"

static struct err e;
static struct archive_create_counts counts;

static int create(struct fs_caller *c, const char *path, const struct archive_create_options *o,
                  const char *out, size_t piece)
{
    _cleanup_free_ char *data = malloc(piece);
    struct archive_create *a = NULL;
    int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    size_t n = 0;
    int r;

    T_OK(fd >= 0 && data);
    r = archive_create_new(c, path, o, &a, &e);
    while (r == 0) {
        r = archive_create_read(a, data, piece, &n, &e);
        if (r < 0 || n == 0)
            break;
        T_INT(write(fd, data, n), n);
    }
    if (r == 0)
        archive_create_counts(a, &counts);
    archive_create_free(a);
    close(fd);
    return r;
}

static int extract(struct fs_caller *c, const char *file, const char *target)
{
    struct archive_extract_options o = {0};
    struct archive_extract_result res;
    struct archive_extract *x = NULL;
    int r = archive_extract_begin(c, target, &o, &x, &e);

    if (r == 0)
        r = h_archive_file(x, file, 4096, &e);
    if (r == 0)
        r = archive_extract_commit(x, &res, &e);
    archive_extract_free(x);
    return r;
}

static void tree(void)
{
    int fd;

    T_INT(mkdir("t", 0755), 0);
    T_INT(mkdir("t/d", 0700), 0);
    T_INT(mkdir("t/empty", 0555), 0);
    h_file("t/d/f", "text");
    T_INT(link("t/d/f", "t/hard"), 0);
    T_INT(symlink("../outside", "t/out"), 0);
    T_INT(symlink("d/f", "t/in"), 0);
    T_INT(mkfifo("t/fifo", 0600), 0);
    h_file("t/caf\xe9", "latin");
    h_file("t/\xe2\x82\xac", "euro");
    T_INT(chmod("t/d/f", 0640), 0);
    fd = open("t/sparse", O_WRONLY | O_CREAT, 0644);
    T_INT(pwrite(fd, "middle", 6, 4 << 20), 6);
    T_INT(ftruncate(fd, 9 << 20), 0);
    close(fd);
    fd = open("t/long", O_WRONLY | O_CREAT, 0644);
    for (int i = 0; i < 100000; i++)
        T_INT(write(fd, &i, 4), 4);
    close(fd);
}

TEST(create_and_extract_give_the_same_tree)
{
    static const char *const formats[] = {"tar", "tar.gz", "tar.zst"};
    struct fs_caller *c = h_caller();
    char want[128], got[128], target[16], value[16] = "";
    struct stat a, b;
    bool xattrs;

    tree();
    xattrs = setxattr("t/long", "user.color", "blue", 4, 0) == 0;
    h_snapshot("t", want);
    for (size_t i = 0; i < 3; i++) {
        struct archive_create_options o = {0};
        char path[32];

        T_INT(archive_format_parse(formats[i], &o.format, &e), 0);
        snprintf(target, sizeof(target), "u%zu", i);
        T_INT(create(c, "t", &o, "a", i == 1 ? 777 : 65536), 0);
        T_INT(counts.entries, 12);
        T_INT(counts.left_out + counts.changed, 0);
        if (extract(c, "a", target) < 0)
            t_fail(__FILE__, __LINE__, "%s", e.message);
        h_snapshot(target, got);
        T_STR(got, want);
        snprintf(path, sizeof(path), "%s/long", target);
        T_OK(stat("t/long", &a) == 0 && stat(path, &b) == 0);
        T_INT(b.st_mtim.tv_nsec, a.st_mtim.tv_nsec);
        if (xattrs)
            T_INT(getxattr(path, "user.color", value, sizeof(value)), 4);
        snprintf(path, sizeof(path), "%s/sparse", target);
        T_OK(stat(path, &b) == 0 && b.st_blocks * 512 < 1 << 20);
        T_OK(stat("t/d", &a) == 0);
        snprintf(path, sizeof(path), "%s/d", target);
        T_OK(stat(path, &b) == 0 && b.st_mtim.tv_nsec == a.st_mtim.tv_nsec);
    }
    h_drop(c);
}

TEST(create_is_read_by_tar)
{
    struct fs_caller *c = h_caller();
    struct archive_create_options o = {0};
    char want[128], got[128];

    tree();
    h_snapshot("t", want);
    T_INT(create(c, "t", &o, "a.tar", 10000), 0);
    T_INT(system("mkdir u && tar -xpf a.tar -C u 2>tar.log"), 0);
    h_snapshot("u", got);
    T_STR(got, want);
    h_drop(c);
}

TEST(create_leaves_out_what_is_excluded)
{
    struct fs_caller *c = h_caller();
    char *const excludes[] = {(char *)"*.o", (char *)"d/sub", NULL};
    struct archive_create_options o = {.filter.excludes = excludes};

    T_INT(system("mkdir -p t/d/sub t/e/sub; touch t/a.o t/d/b.o t/d/sub/x t/e/sub/x t/d/y"), 0);
    T_INT(create(c, "t", &o, "a.tar", 10000), 0);
    T_INT(system("test \"$(tar -tf a.tar | tr '\\n' ' ')\" = './ d/ d/y e/ e/sub/ e/sub/x '"), 0);
    h_drop(c);
}

TEST(create_does_not_read_holes)
{
    const off_t size = 1LL << 38, at = size - (1 << 30);
    struct fs_caller *c = h_caller();
    struct archive_create_options o = {0};
    struct stat st;
    char got[4];
    int fd = open("sparse", O_RDWR | O_CREAT, 0644);

    /* To read it would take longer than the test may. */
    T_INT(pwrite(fd, "head", 4, 0), 4);
    T_INT(pwrite(fd, "tail", 4, at), 4);
    T_INT(ftruncate(fd, size), 0);
    close(fd);
    T_INT(create(c, "sparse", &o, "a.tar", 65536), 0);
    T_INT(counts.bytes, size);
    T_INT(counts.changed, 0);
    T_INT(stat("a.tar", &st), 0);
    T_OK(st.st_size < 100000);
    T_INT(system("mkdir to && tar -xf a.tar -C to"), 0);
    fd = open("to/sparse", O_RDONLY);
    T_INT(fstat(fd, &st), 0);
    T_INT(st.st_size, size);
    T_INT(pread(fd, got, 4, 0), 4);
    T_OK(memcmp(got, "head", 4) == 0);
    T_INT(pread(fd, got, 4, at), 4);
    T_OK(memcmp(got, "tail", 4) == 0);
    close(fd);
    h_drop(c);
}

TEST(create_reproducibly_gives_the_same_bytes)
{
    struct fs_caller *c = h_caller();
    struct archive_create_options o = {.reproducible = true};

    T_INT(archive_format_parse("tar.gz", &o.format, &e), 0);
    tree();
    T_INT(create(c, "t", &o, "a", 10000), 0);
    T_INT(system("cp -r t u && sleep 0.01 && touch u/d/f"), 0);
    T_INT(create(c, "t", &o, "b", 333), 0);
    T_INT(system("cmp a b"), 0);
    h_drop(c);
}

TEST(create_of_one_file_has_its_name)
{
    struct fs_caller *c = h_caller();
    struct archive_create_options o = {0};

    tree();
    T_INT(create(c, "t/d/f", &o, "a.tar", 10000), 0);
    T_INT(system("test \"$(tar -xOf a.tar f)\" = text"), 0);
    T_INT(create(c, "t/none", &o, "b.tar", 10000), -ERR_NOT_FOUND);
    T_STR(e.field, "path");
    h_drop(c);
}

TEST(create_counts_what_it_can_not_read)
{
    struct fs_caller *c;
    struct archive_create_options o = {0};

    if (geteuid() != 0)
        T_SKIP("only root can act as another");
    T_INT(chmod(".", 0755), 0);
    T_INT(system("mkdir -p t/no; touch t/a t/b t/no/x; chmod 600 t/b; chmod 700 t/no"), 0);
    c = h_caller_in("/", "12345");
    T_INT(create(c, "t", &o, "a.tar", 10000), 0);
    T_INT(counts.left_out, 2);
    T_INT(system("test \"$(tar -tf a.tar | tr '\\n' ' ')\" = './ a no/ '"), 0);
    h_drop(c);
}

/* Archives a large file that is truncated after the first piece. */
static int create_while_it_shrinks(const struct archive_create_options *o)
{
    struct fs_caller *c = h_caller();
    struct archive_create *a = NULL;
    static char data[70000];
    size_t n = 0;
    int r;
    int fd = open("a.tar", O_WRONLY | O_CREAT, 0644);

    T_INT(mkdir("t", 0755), 0);
    T_INT(system("head -c 5000000 /dev/urandom > t/f"), 0);
    T_INT(archive_create_new(c, "t", o, &a, &e), 0);
    T_INT(archive_create_read(a, data, sizeof(data), &n, &e), 0);
    T_INT(write(fd, data, n), n);
    T_INT(truncate("t/f", 1000000), 0);
    while ((r = archive_create_read(a, data, sizeof(data), &n, &e)) == 0 && n)
        T_INT(write(fd, data, n), n);
    archive_create_counts(a, &counts);
    archive_create_free(a);
    close(fd);
    h_drop(c);
    return r;
}

TEST(create_of_a_file_that_shrinks_fails_at_its_end)
{
    T_INT(create_while_it_shrinks(&(struct archive_create_options){0}), -ERR_DATA_LOSS);
    T_OK(strstr(e.message, "'f'"));
    T_OK(system("tar -xf a.tar 2>/dev/null") != 0);
}

TEST(create_of_a_file_that_shrinks_can_be_filled_with_zeros)
{
    T_INT(create_while_it_shrinks(&(struct archive_create_options){.pad = true}), 0);
    T_INT(counts.changed, 1);
    T_INT(system("tar -xf a.tar && test $(stat -c %s f) = 5000000"), 0);
}

TEST(create_formats_have_names)
{
    const struct archive_format *f;

    T_INT(archive_format_parse("tgz", &f, &e), 0);
    T_STR(f->name, "tar.gz");
    T_INT(archive_format_parse("rar", &f, &e), -ERR_INVALID);
    T_STR(e.field, "format");
    T_STR(e.message, "format 'rar' is none of tar, tar.gz, tar.zst");
    T_INT(archive_format_parse("zip", &f, &e), -ERR_INVALID); /* is read only */
    T_INT(archive_format_parse("tar.zst", &f, &e), 0);
    T_STR(f->media_type, "application/zstd");
}

TEST(create_formats_are_told_apart_by_their_first_bytes)
{
    static const struct {
        const char *head;
        size_t len;
        const char *name;
    } cases[] = {
        {"\x1f\x8b\x08\0\0\0", 6, "tar.gz"},
        {"BZh91A", 6, "tar.bz2"},
        {"\xfd\x37zXZ\0", 6, "tar.xz"},
        {"\x28\xb5\x2f\xfd\0\0", 6, "tar.zst"},
        {"PK\x03\x04\0\0", 6, "zip"},
        {"PK\x05\x06\0\0", 6, "zip"},
        {"\x1f", 1, "tar"},
        {"", 0, "tar"},
        {"hello/", 6, "tar"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        T_STR(archive_format_detect(cases[i].head, cases[i].len)->name, cases[i].name);
}
