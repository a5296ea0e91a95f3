/* Layers of snapshots: manifests, copies, hostile trees, damage. */
#include "test.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/socket.h>
#include <sys/xattr.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/layer_store.h"
#include "lib/util/beneath.h"

#define BASE 0x70000000u /* of a box's ids */

static struct bh_ctx test_ctx(void)
{
    static char dir[4096];

    T_OK(getcwd(dir, sizeof(dir)) != NULL);
    return (struct bh_ctx){.state_dir = dir, .cancel_fd = -1};
}

static void need_root(void)
{
    if (geteuid() != 0)
        T_SKIP("needs root");
}

static void put_file(const char *path, const char *text)
{
    T_INT(io_write_file(AT_FDCWD, path, text, strlen(text), 0644, false, NULL), 0);
    T_INT(chown(path, BASE + 1000, BASE + 1000), 0);
    T_INT(utimensat(AT_FDCWD, path, (const struct timespec[2]){{1, 0}, {1, 5}}, 0), 0);
}

static void put_dir(const char *path)
{
    T_INT(mkdir(path, 0755), 0);
    T_INT(chown(path, BASE, BASE), 0);
}

static void set_times(const char *path)
{
    T_INT(
        utimensat(AT_FDCWD, path, (const struct timespec[2]){{1, 0}, {1, 0}}, AT_SYMLINK_NOFOLLOW),
        0);
}

/* A file counts as unchanged if it was older than LAYER_CLOCK_STEP_NS at the copy before. */
static void wait_until_old(const char *path)
{
    struct stat st;

    T_INT(stat(path, &st), 0);
    while (clock_real_ns() - ((int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec) <=
           LAYER_CLOCK_STEP_NS)
        (void)poll(NULL, 0, 10);
}

/* A tree with one of each type. */
static void put_tree(const char *top)
{
    T_INT(mkdir(top, 0755), 0);
    T_INT(chown(top, BASE, BASE), 0);
    T_INT(chdir(top), 0);
    put_dir("b");
    put_dir("b/empty");
    put_dir("a");
    put_file("a/x", "one");
    put_file("a.x", "two");
    T_INT(link("a/x", "b/second"), 0);
    T_INT(symlink("/etc/passwd", "b/link"), 0);
    T_INT(lchown("b/link", BASE + 7, BASE + 8), 0);
    T_INT(mknod("b/gone", S_IFCHR, makedev(0, 0)), 0);
    T_INT(mknod("b/device", S_IFBLK | 0600, makedev(7, 0)), 0);
    T_INT(mkfifo("b/pipe", 0600), 0);
    T_INT(chown("b/pipe", BASE, BASE), 0);
    T_INT(setxattr("b", "trusted.overlay.opaque", "y", 1, 0), 0);
    T_INT(setxattr("a", "trusted.overlay.origin", "zzzz", 4, 0), 0);
    T_INT(setxattr("a/x", "user.b", "2", 1, 0), 0);
    T_INT(setxattr("a/x", "user.a", "1", 1, 0), 0);
    T_INT(setxattr("a/x", "trusted.overlay.overlay.opaque", "y", 1, 0), 0);
    T_INT(setxattr("a/x", "user.overlay.opaque", "y", 1, 0), 0);
    set_times("b/empty");
    set_times("b/link");
    set_times("b/pipe");
    set_times("a");
    set_times("b");
    set_times(".");
    T_INT(chdir(".."), 0);
}

static const char tree_manifest[] =
    "bellhop-layer 1\n"
    "d\t0755\t0\t0\t1.000000000\t0\t-\t.\t-\n"
    "d\t0755\t0\t0\t1.000000000\t0\t-\ta\t-\n"
    "f\t0644\t1000\t1000\t1.000000005\t3\t"
    "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3\ta.x\t-\n"
    "o\t0755\t0\t0\t1.000000000\t0\t-\tb\t-\n"
    "f\t0644\t1000\t1000\t1.000000005\t3\t"
    "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed\ta/x\t-"
    "\tuser.a=31\tuser.b=32\tuser.overlay.opaque=79\n"
    "d\t0755\t0\t0\t1.000000000\t0\t-\tb/empty\t-\n"
    "w\t-\t-\t-\t-\t-\t-\tb/gone\t-\n"
    "l\t0777\t7\t8\t1.000000000\t0\t-\tb/link\t/etc/passwd\n"
    "p\t0600\t0\t0\t1.000000000\t0\t-\tb/pipe\t-\n"
    "h\t-\t-\t-\t-\t-\t-\tb/second\ta/x\n";

static int make_layer(struct bh_ctx *ctx, const char *id, const char *from,
                      struct layer_facts *facts, struct err *e)
{
    _cleanup_close_ int fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct layer_make m = {
        .ctx = ctx, .id = id, .from = fd, .base = BASE, .known_path = "known"};
    int r = layer_make(&m, facts, e);

    return r < 0 ? r : layer_commit(ctx, id, facts->digest, e);
}

static void check_manifest(const char *digest, const char *want)
{
    _cleanup_free_ char *path = NULL, *text = NULL;

    T_OK(asprintf(&path, "snapshots/layers/%s/manifest", digest) > 0);
    T_INT(io_read_file(AT_FDCWD, path, 1 << 20, &text, NULL, NULL), 0);
    T_STR(text, want);
}

static char *in_layer(const char *digest, const char *name)
{
    char *path;

    T_OK(asprintf(&path, "snapshots/layers/%s/tree/%s", digest, name) > 0);
    return path;
}

static struct stat stat_in(const char *digest, const char *name)
{
    _cleanup_free_ char *path = in_layer(digest, name);
    struct stat st;

    T_INT(lstat(path, &st), 0);
    return st;
}

TEST(a_manifest_has_every_type_with_the_ids_of_the_box_in_one_order)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}}, again = {{0}};
    _cleanup_free_ char *forged = NULL;
    struct err e = {0};

    need_root();
    put_tree("upper");
    T_INT(make_layer(&ctx, "1", "upper", &facts, &e), 0);
    check_manifest(facts.digest, tree_manifest);
    T_INT(facts.n_devices, 1);
    T_INT(layer_check(&ctx, facts.digest, &e), 0);
    T_INT(layer_verify(&ctx, facts.digest, 0, &e), 0);
    T_INT(stat_in(facts.digest, "a/x").st_uid, 1000);
    T_INT(stat_in(facts.digest, "b/link").st_gid, 8);
    T_INT(stat_in(facts.digest, "b").st_mtim.tv_sec, 1);
    T_INT(stat_in(facts.digest, "a/x").st_ino, stat_in(facts.digest, "b/second").st_ino);
    forged = in_layer(facts.digest, "a/x");
    T_OK(getxattr(forged, "trusted.overlay.overlay.opaque", NULL, 0) < 0);
    /* the same tree, made in another order, is the same layer */
    T_INT(rename("upper/a", "upper/c"), 0);
    T_INT(rename("upper/c", "upper/a"), 0);
    set_times("upper");
    T_INT(make_layer(&ctx, "2", "upper", &again, &e), 0);
    T_STR(again.digest, facts.digest);
    T_OK(access("snapshots/making/2", F_OK) < 0);
}

TEST(a_second_layer_shares_the_files_that_have_not_changed)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts one = {{0}}, two = {{0}};
    struct err e = {0};

    need_root();
    T_INT(mkdir("upper", 0755), 0);
    put_file("upper/kept", "kept");
    put_file("upper/changed", "before");
    wait_until_old("upper/changed");
    T_INT(make_layer(&ctx, "1", "upper", &one, &e), 0);
    put_file("upper/changed", "after");
    T_INT(make_layer(&ctx, "2", "upper", &two, &e), 0);
    T_INT(one.copied, 10);
    T_INT(two.copied, 5);
    T_INT(stat_in(one.digest, "kept").st_ino, stat_in(two.digest, "kept").st_ino);
    T_OK(stat_in(one.digest, "changed").st_ino != stat_in(two.digest, "changed").st_ino);
    T_INT(layer_verify(&ctx, one.digest, 0, &e), 0);
    T_INT(layer_verify(&ctx, two.digest, 0, &e), 0);
}

TEST(damage_is_named_by_its_path_also_if_that_is_no_plain_text)
{
    static const char *const names[] = {"with a blank", "back\\x41slash", "tab\there", "\xc3\xa9"};
    struct bh_ctx ctx = test_ctx();

    need_root();
    T_INT(mkdir("upper", 0755), 0);
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        _cleanup_free_ char *path = path_join("upper", names[i]);

        put_file(path, "whole");
    }
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        struct layer_facts facts = {{0}};
        struct err e = {0};
        char id[8], message[128];
        struct stat st;
        _cleanup_free_ char *path = NULL;

        (void)snprintf(id, sizeof(id), "%zu", i);
        T_INT(make_layer(&ctx, id, "upper", &facts, &e), 0);
        path = in_layer(facts.digest, names[i]);
        (void)snprintf(message, sizeof(message), "damaged: '%s'", names[i]);
        T_INT(truncate(path, 3), 0);
        T_INT(layer_verify(&ctx, facts.digest, 0, &e), -ERR_DATA_LOSS);
        T_OK(strstr(e.message, message));
        T_OK(!strstr(e.message, "not there"));
        e = (struct err){0};
        st = stat_in(facts.digest, ".");
        T_INT(unlink(path), 0);
        *strrchr(path, '/') = '\0'; /* its directory is not what is damaged */
        T_INT(utimensat(AT_FDCWD, path, (const struct timespec[2]){st.st_atim, st.st_mtim}, 0), 0);
        T_INT(layer_verify(&ctx, facts.digest, 0, &e), -ERR_DATA_LOSS);
        T_OK(strstr(e.message, message));
        T_OK(strstr(e.message, "not there"));
        T_INT(dirtree_remove("snapshots", &e), 0);
    }
}

/* ---- a tree that changes between the first copy and the moment that counts ---- */

/* Every kind of change. Called where the box is frozen. */
static int change_tree(void *arg, struct err *e)
{
    int *n_frozen = arg;

    (void)e;
    (*n_frozen)++;
    T_INT(chdir("upper"), 0);
    put_file("a.x", "longer than before");
    put_file("new", "new");
    T_INT(unlink("b/link"), 0);
    T_INT(symlink("elsewhere", "b/link"), 0);
    T_INT(rmdir("b/empty"), 0);
    put_file("b/empty", "a file now");
    T_INT(unlink("b/gone"), 0);
    T_INT(mkdir("b/gone", 0700), 0);
    T_INT(removexattr("b", "trusted.overlay.opaque"), 0);
    T_INT(setxattr("b", "user.new", "1", 1, 0), 0);
    T_INT(rename("moved", "other"), 0);
    T_INT(mkdir("moved", 0755), 0);
    put_file("moved/inner", "not the one that was here");
    T_INT(link("a/x", "a/w"), 0);
    T_INT(chmod("kept", 0600), 0);
    T_INT(setxattr("attributes", "user.b", "3", 1, 0), 0);
    (void)unlink("vanishes");
    T_INT(dirtree_remove("vanishing", NULL), 0);
    T_INT(dirtree_remove("deep", NULL), 0);
    T_INT(mkfifo("deep", 0600), 0);
    set_times(".");
    set_times("b");
    T_INT(chdir(".."), 0);
    return 0;
}

static int count_thaw(void *arg, struct err *e)
{
    int *n_frozen = arg;

    (void)e;
    (*n_frozen)--;
    return 0;
}

TEST(a_copy_that_began_before_the_freeze_is_the_tree_of_the_freeze)
{
    struct bh_ctx ctx = test_ctx();
    _cleanup_close_ int fd = -1;
    int n_frozen = 0;
    struct layer_make m = {.ctx = &ctx,
                           .id = "1",
                           .base = BASE,
                           .freeze = change_tree,
                           .thaw = count_thaw,
                           .arg = &n_frozen};
    struct layer_facts live = {{0}}, still = {{0}};
    struct err e = {0};
    struct stat st;

    need_root();
    put_tree("upper");
    T_INT(chdir("upper"), 0);
    put_file("kept", "kept");
    put_file("attributes", "x");
    T_INT(setxattr("attributes", "user.a", "1", 1, 0), 0);
    put_dir("moved");
    put_file("moved/inner", "inner");
    put_file("vanishes", "x");
    put_dir("vanishing");
    put_file("vanishing/file", "x");
    put_dir("deep");
    put_dir("deep/er");
    put_file("deep/er/file", "x");
    wait_until_old("deep/er/file");
    T_INT(chdir(".."), 0);
    m.from = fd = open("upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    T_INT(layer_make(&m, &live, &e), 0);
    T_INT(n_frozen, 0);
    T_INT(layer_commit(&ctx, "1", live.digest, &e), 0);
    T_INT(layer_verify(&ctx, live.digest, 0, &e), 0);
    T_INT(make_layer(&ctx, "2", "upper", &still, &e), 0);
    T_STR(live.digest, still.digest);
    st = stat_in(live.digest, "a/w");
    T_INT(st.st_ino, stat_in(live.digest, "b/second").st_ino);
    T_INT(stat_in(live.digest, "kept").st_mode & 0777, 0600);
    T_OK(live.copied < 120); /* once each, and again what changed */
}

/* A file that is not made in the directory, and does not inherit its ACL. */
static int move_in(void *arg, struct err *e)
{
    (void)arg;
    (void)e;
    put_file("upper/file", "x");
    return rename("upper/file", "upper/dir/file");
}

/* user::rw-, user:1000:rw-, group::r--, mask::rw-, other::r-- */
static const uint8_t acl[] = {2,    0,    0,    0,    1,    0,    6,    0,    0xff, 0xff, 0xff,
                              0xff, 2,    0,    6,    0,    0xe8, 3,    0,    0,    4,    0,
                              4,    0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,    6,    0,    0xff,
                              0xff, 0xff, 0xff, 0x20, 0,    4,    0,    0xff, 0xff, 0xff, 0xff};

TEST(what_is_new_in_the_freeze_inherits_no_acl_from_the_copy)
{
    struct bh_ctx ctx = test_ctx();
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int fd = -1;
    int n_frozen = 1;
    struct layer_make m = {.ctx = &ctx,
                           .id = "1",
                           .base = BASE,
                           .freeze = move_in,
                           .thaw = count_thaw,
                           .arg = &n_frozen};
    struct layer_facts facts = {{0}};
    struct err e = {0};

    need_root();
    T_INT(mkdir("upper", 0755), 0);
    put_dir("upper/dir");
    if (setxattr("upper/dir", "system.posix_acl_default", acl, sizeof(acl), 0) < 0)
        T_SKIP("the file system has no ACLs");
    m.from = fd = open("upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    T_INT(layer_make(&m, &facts, &e), 0);
    T_INT(layer_commit(&ctx, "1", facts.digest, &e), 0);
    T_INT(layer_verify(&ctx, facts.digest, 0, &e), 0);
    path = in_layer(facts.digest, "dir/file");
    T_INT(getxattr(path, "system.posix_acl_access", NULL, 0), -1);
}

static int refuse_freeze(void *arg, struct err *e)
{
    (void)arg;
    return err_set(e, ERR_DEADLINE, "a process does not stand still");
}

static int vanish_in_freeze(void *arg, struct err *e)
{
    (void)e;
    T_INT(change_tree(arg, e), 0);
    T_INT(setxattr("upper/a", "trusted.overlay.redirect", "/x", 2, 0), 0);
    return 0;
}

TEST(a_layer_that_fails_in_the_freeze_is_thawed_and_leaves_nothing)
{
    struct bh_ctx ctx = test_ctx();
    _cleanup_close_ int fd = -1;
    int n_frozen = 0;
    struct layer_make m = {
        .ctx = &ctx, .id = "1", .base = BASE, .thaw = count_thaw, .arg = &n_frozen};
    struct layer_facts facts = {{0}};
    struct err e = {0};

    need_root();
    put_tree("upper");
    put_dir("upper/moved");
    put_file("upper/kept", "");
    put_file("upper/attributes", "");
    m.from = fd = open("upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    m.freeze = refuse_freeze;
    T_INT(layer_make(&m, &facts, &e), -ERR_DEADLINE);
    T_INT(n_frozen, 0);
    T_OK(access("snapshots/making/1", F_OK) < 0);
    m.freeze = vanish_in_freeze;
    T_INT(layer_make(&m, &facts, &e), -ERR_UNIMPLEMENTED);
    T_INT(n_frozen, 0);
    T_OK(access("snapshots/making/1", F_OK) < 0);
}

/* The ACL of the disk: its user is the box's 1000. */
static void put_acl(const char *path)
{
    const uint32_t id = htole32(BASE + 1000);
    uint8_t value[sizeof(acl)];

    memcpy(value, acl, sizeof(acl));
    memcpy(value + 16, &id, sizeof(id));
    if (setxattr(path, "system.posix_acl_access", value, sizeof(value), 0) < 0)
        T_SKIP("the file system has no ACLs");
}

static void check_acl(const char *path, uint32_t user)
{
    const uint32_t id = htole32(user);
    uint8_t value[sizeof(acl)];

    T_INT(getxattr(path, "system.posix_acl_access", value, sizeof(value)), sizeof(value));
    T_INT(memcmp(value + 16, &id, sizeof(id)), 0);
    T_INT(memcmp(value + 20, acl + 20, sizeof(acl) - 20), 0);
}

TEST(fifos_sockets_and_the_root_keep_their_acls)
{
    static const char *const names[] = {".", "pipe", "socket", "dir", "dir/file"};
    struct bh_ctx ctx = test_ctx();
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "upper/socket"};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), root, disk;
    struct layer_facts facts = {{0}};
    _cleanup_free_ char *path = NULL;
    struct err e = {0};

    need_root();
    T_INT(mkdir("upper", 0755), 0);
    put_dir("upper/dir");
    put_file("upper/dir/file", "x");
    T_INT(mkfifo("upper/pipe", 0600), 0);
    T_INT(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    fd_close(fd);
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        _cleanup_free_ char *on_disk = path_join("upper", names[i]);

        put_acl(on_disk);
    }
    T_INT(make_layer(&ctx, "1", "upper", &facts, &e), 0);
    T_INT(layer_verify(&ctx, facts.digest, 0, &e), 0);
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        _cleanup_free_ char *in = in_layer(facts.digest, names[i]);

        check_acl(in, 1000);
    }
    path = in_layer(facts.digest, ".");
    root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    T_INT(mkdir("again", 0755), 0);
    disk = open("again", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    T_INT(layer_file_attributes_to_disk(root, disk, BASE, &e), 0);
    check_acl("again", BASE + 1000);
    fd_close(root);
    fd_close(disk);
    free(TAKE(path));
    path = in_layer(facts.digest, "pipe");
    T_INT(removexattr(path, "system.posix_acl_access"), 0);
    T_INT(layer_verify(&ctx, facts.digest, 0, &e), -ERR_DATA_LOSS);
    T_OK(strstr(e.message, "'pipe'") != NULL);
}

/* ---- hostile trees ---- */

TEST(a_file_of_holes_costs_nothing_and_its_digest_does_not_depend_on_them)
{
    struct layer_budget b = {.cancel_fd = -1};
    char holes[LAYER_HEX_BYTES], zeros[LAYER_HEX_BYTES], moved[LAYER_HEX_BYTES];
    _cleanup_free_ char *block = calloc(1, 1 << 20);
    int fd = open("holes", O_RDWR | O_CREAT | O_EXCL, 0600);
    int full = open("full", O_RDWR | O_CREAT | O_EXCL, 0600);
    int copy = open("copy", O_RDWR | O_CREAT | O_EXCL, 0600);
    struct err e = {0};
    struct stat st;

    T_INT(ftruncate(fd, (off_t)1 << 40), 0);
    T_INT(pwrite(fd, "end", 3, ((off_t)1 << 40) - 3), 3);
    T_INT(layer_file_digest(fd, copy, &b, holes, &e), 0);
    T_INT(fstat(copy, &st), 0);
    T_INT(st.st_size, (off_t)1 << 40);
    T_OK(st.st_blocks < 256);
    T_INT(layer_file_digest(copy, -1, &b, zeros, &e), 0);
    T_STR(zeros, holes);
    /* written zeros and a hole are the same; the same bytes at another place are not */
    T_INT(ftruncate(fd, 1 << 20), 0);
    T_INT(pwrite(fd, "x", 1, 200000), 1);
    T_INT(layer_file_digest(fd, -1, &b, holes, &e), 0);
    T_INT(pwrite(full, block, 1 << 20, 0), 1 << 20);
    T_INT(pwrite(full, "x", 1, 200000), 1);
    T_INT(layer_file_digest(full, -1, &b, zeros, &e), 0);
    T_STR(zeros, holes);
    T_INT(pwrite(full, "\0", 1, 200000), 1);
    T_INT(pwrite(full, "x", 1, 200000 + 65536), 1);
    T_INT(layer_file_digest(full, -1, &b, moved, &e), 0);
    T_OK(!str_eq(moved, holes));
    fd_close(fd);
    fd_close(full);
    fd_close(copy);
}

TEST(a_copy_takes_no_more_of_the_disk_than_its_file)
{
    struct layer_budget b = {.cancel_fd = -1};
    char hex[LAYER_HEX_BYTES], copied[LAYER_HEX_BYTES];
    int fd = open("sparse", O_RDWR | O_CREAT | O_EXCL, 0600);
    int copy = open("copy", O_RDWR | O_CREAT | O_EXCL, 0600);
    struct stat had, has;
    struct err e = {0};

    for (int i = 0; i < 64; i++)
        T_INT(pwrite(fd, "x", 1, (off_t)i * 65536 + i % 16 * 4096), 1);
    T_INT(ftruncate(fd, 64 * 65536 + 5), 0);
    T_INT(layer_file_digest(fd, copy, &b, hex, &e), 0);
    T_INT(layer_file_digest(copy, -1, &b, copied, &e), 0);
    T_STR(copied, hex);
    T_INT(fstat(fd, &had), 0);
    T_INT(fstat(copy, &has), 0);
    T_INT(has.st_size, had.st_size);
    T_OK(has.st_blocks <= had.st_blocks + 64);
    fd_close(fd);
    fd_close(copy);
}

TEST(names_with_any_bytes_and_attributes_come_back)
{
    static const char name[] = "a\tb\nc \\x20\xff";
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}}, again = {{0}};
    _cleanup_free_ char *path = NULL;
    struct err e = {0};

    need_root();
    T_INT(mkdir("upper", 0755), 0);
    T_INT(chdir("upper"), 0);
    put_file(name, "x");
    wait_until_old(name);
    T_INT(chdir(".."), 0);
    T_INT(make_layer(&ctx, "1", "upper", &facts, &e), 0);
    path = in_layer(facts.digest, name);
    T_INT(access(path, F_OK), 0);
    T_INT(layer_verify(&ctx, facts.digest, 0, &e), 0);
    put_file("upper/other", "y");
    T_INT(make_layer(&ctx, "2", "upper", &again, &e), 0);
    T_INT(again.copied, 1); /* the one with that name was known */
    T_INT(stat_in(again.digest, name).st_ino, stat_in(facts.digest, name).st_ino);
}

TEST(a_tree_that_is_deeper_than_a_path_is_refused_and_leaves_nothing)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}};
    char name[201];
    struct err e = {0};

    need_root();
    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    T_INT(mkdir("upper", 0755), 0);
    T_INT(chdir("upper"), 0);
    for (int i = 0; i < 25; i++) {
        T_INT(mkdir(name, 0755), 0);
        T_INT(chdir(name), 0);
    }
    T_INT(chdir(ctx.state_dir), 0);
    T_INT(make_layer(&ctx, "1", "upper", &facts, &e), -ERR_EXHAUSTED);
    T_OK(access("snapshots/making/1", F_OK) < 0);
    T_INT(dirtree_remove("upper", &e), 0);
}

/* Makes a layer of upper/, which fails, and leaves nothing. */
static void refuse_layer(struct layer_make *m, int want, const char *words)
{
    _cleanup_close_ int fd = open("upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct layer_facts facts = {{0}};
    struct err e = {0};

    m->id = "1";
    m->from = fd;
    T_INT(layer_make(m, &facts, &e), want);
    T_OK(strstr(e.message, words) != NULL);
    T_OK(access("snapshots/making/1", F_OK) < 0);
}

TEST(the_limit_of_entries_the_deadline_and_a_cancel_end_a_copy_which_leaves_nothing)
{
    struct bh_ctx ctx = test_ctx(), canceled = ctx;
    int ends[2];

    need_root();
    T_INT(mkdir("upper", 0755), 0);
    for (int i = 0; i < 2500; i++) { /* the clock is looked at every 8 MiB, or 2,048 entries */
        char name[32];

        (void)snprintf(name, sizeof(name), "upper/%d", i);
        T_INT(mkfifo(name, 0600), 0);
    }
    refuse_layer(&(struct layer_make){.ctx = &ctx, .max_entries = 2499}, -ERR_EXHAUSTED, "2499");
    refuse_layer(&(struct layer_make){.ctx = &ctx, .deadline_mono_ms = 1}, -ERR_DEADLINE,
                 "deadline");
    T_INT(pipe(ends), 0);
    T_INT(write(ends[1], "x", 1), 1);
    canceled.cancel_fd = ends[0];
    refuse_layer(&(struct layer_make){.ctx = &canceled}, -ERR_CANCELED, "canceled");
}

/* Called where the box is frozen: the file that was copied already has another name. */
static int move_file(void *arg, struct err *e)
{
    int *n_frozen = arg;

    (void)e;
    (*n_frozen)++;
    T_INT(rename("upper/a", "upper/b"), 0);
    return 0;
}

TEST(a_file_that_moves_ahead_of_the_copy_counts_again_and_holes_do_not_count)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}};
    _cleanup_close_ int fd = -1;
    int n_frozen = 0;
    struct layer_make m = {.ctx = &ctx, .freeze = move_file, .thaw = count_thaw, .arg = &n_frozen};
    uint64_t bytes;
    char words[64];
    struct statfs fs;
    struct err e = {0};

    need_root();
    T_INT(statfs(".", &fs), 0);
    bytes = fs.f_type == TMPFS_MAGIC ? 4096 : 8192; /* there nothing is copied before the freeze */
    T_INT(mkdir("upper", 0755), 0);
    put_file("upper/a", "a page with data, and pages without");
    T_INT(truncate("upper/a", 1 << 20), 0);
    m.max_copied = bytes - 1;
    (void)snprintf(words, sizeof(words), "more than %" PRIu64 " bytes would be", m.max_copied);
    refuse_layer(&m, -ERR_EXHAUSTED, words);
    T_INT(n_frozen, 0);
    T_INT(rename("upper/b", "upper/a"), 0);
    m.max_copied = bytes;
    m.from = fd = open("upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    T_INT(layer_make(&m, &facts, &e), 0);
    T_INT(facts.copied, bytes);
}

/* A file system that shares blocks: a clone of it is a copy here. */
static bool can_clone;

int ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    long arg;

    va_start(ap, request);
    arg = va_arg(ap, long);
    va_end(ap);
    if (request == FICLONE && can_clone) {
        off_t from = 0, to = 0;

        while (copy_file_range((int)arg, &from, fd, &to, 1 << 20, 0) > 0)
            ;
        return 0;
    }
    return (int)syscall(SYS_ioctl, fd, request, arg);
}

TEST(clones_count_for_the_limit_of_a_copy_and_take_no_room)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}};
    _cleanup_close_ int fd = -1;
    struct layer_make m = {.ctx = &ctx, .max_copied = 8191};
    struct err e = {0};

    need_root();
    can_clone = true;
    T_INT(mkdir("upper", 0755), 0);
    put_file("upper/a", "a page with data, and pages without");
    T_INT(truncate("upper/a", 1 << 20), 0);
    put_file("upper/b", "another page");
    T_INT(truncate("upper/b", 4096), 0);
    refuse_layer(&m, -ERR_EXHAUSTED, "more than 8191 bytes would be");
    m.max_copied = 8192;
    m.from = fd = open("upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    T_INT(layer_make(&m, &facts, &e), 0);
    T_INT(facts.copied, 0);
}

TEST(a_link_in_the_place_of_a_directory_or_file_is_not_followed)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}};
    struct err e = {0};
    struct stat st;

    need_root();
    T_INT(mkdir("outside", 0755), 0);
    put_file("outside/secret", "secret");
    T_INT(mkdir("upper", 0755), 0);
    T_INT(symlink("../outside", "upper/dir"), 0);
    T_INT(symlink("../outside/secret", "upper/file"), 0);
    T_INT(make_layer(&ctx, "1", "upper", &facts, &e), 0);
    st = stat_in(facts.digest, "dir");
    T_OK(S_ISLNK(st.st_mode));
    st = stat_in(facts.digest, "file");
    T_OK(S_ISLNK(st.st_mode));
}

TEST(content_that_overlayfs_keeps_elsewhere_is_refused)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}};
    struct err e = {0};

    need_root();
    T_INT(mkdir("upper", 0755), 0);
    put_dir("upper/moved");
    T_INT(setxattr("upper/moved", "trusted.overlay.redirect", "/etc", 4, 0), 0);
    T_INT(make_layer(&ctx, "1", "upper", &facts, &e), -ERR_UNIMPLEMENTED);
    T_OK(strstr(e.message, "'moved'") != NULL);
}

/* ---- damage ---- */

static void check_damage(struct bh_ctx *ctx, const char *digest, const char *word)
{
    struct err e = {0};

    T_INT(layer_verify(ctx, digest, 0, &e), -ERR_DATA_LOSS);
    if (!strstr(e.message, word) || str_has_prefix(e.message, "'"))
        t_fail(__FILE__, __LINE__, "'%s' has no %s", e.message, word);
}

/* Runs in a child: each damage has a layer of its own. */
static void damage_file(const char *name, const char *how)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}};
    _cleanup_free_ char *path = NULL, *parent = NULL;
    struct err e = {0};

    (void)unlink("known");
    T_INT(dirtree_remove("upper", &e), 0);
    T_INT(dirtree_remove("snapshots", &e), 0);
    put_tree("upper");
    T_INT(make_layer(&ctx, "1", "upper", &facts, &e), 0);
    path = in_layer(facts.digest, name);
    if (str_eq(how, "content")) {
        struct stat st;
        int fd = open(path, O_WRONLY);

        T_INT(stat(path, &st), 0);
        T_INT(pwrite(fd, "!", 1, 0), 1);
        T_INT(futimens(fd, (const struct timespec[2]){st.st_atim, st.st_mtim}), 0);
        fd_close(fd);
    } else if (str_eq(how, "mode")) {
        T_INT(chmod(path, 04755), 0);
    } else if (str_eq(how, "gone")) {
        T_OK(unlink(path) == 0 || rmdir(path) == 0);
    } else if (str_eq(how, "new")) {
        T_INT(mkfifo(path, 0600), 0);
    } else if (str_eq(how, "attribute")) {
        T_INT(setxattr(path, "user.a", "3", 1, 0), 0);
    }
    parent = path_dir(path); /* whose time shows the damage too */
    set_times(parent);
    check_damage(&ctx, facts.digest, name);
    T_INT(layer_check(&ctx, facts.digest, &e), 0); /* it looks at the manifest alone */
}

TEST(damage_of_any_kind_is_found_and_the_path_is_named)
{
    need_root();
    damage_file("a.x", "content");
    damage_file("a/x", "mode");
    damage_file("a/x", "attribute");
    damage_file("b/empty", "gone");
    damage_file("b/gone", "gone");
    damage_file("b/new", "new");
}

/* Each part of a layer lies elsewhere, as it was, behind a link. */
TEST(a_link_in_the_place_of_a_layer_or_its_parts_is_refused_and_replaced)
{
    static const char *const parts[] = {"", "/tree", "/manifest"};
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}};
    struct err e = {0};

    need_root();
    put_tree("upper");
    for (size_t i = 0; i < N_ELEMENTS(parts); i++) {
        _cleanup_free_ char *path = NULL, *away = NULL;

        T_INT(make_layer(&ctx, "1", "upper", &facts, &e), 0);
        T_OK(asprintf(&path, "snapshots/layers/%s%s", facts.digest, parts[i]) > 0);
        T_OK(asprintf(&away, "%s/away%zu", ctx.state_dir, i) > 0);
        T_INT(rename(path, away), 0);
        T_INT(symlink(away, path), 0);
        T_INT(layer_check(&ctx, facts.digest, &e), -ERR_DATA_LOSS);
        T_INT(layer_verify(&ctx, facts.digest, 0, &e), -ERR_DATA_LOSS);
        (void)unlink("known");
        T_INT(make_layer(&ctx, "2", "upper", &facts, &e), 0);
        T_INT(layer_verify(&ctx, facts.digest, 0, &e), 0);
        T_INT(access(away, F_OK), 0);
    }
    T_INT(rmdir("snapshots/making"), 0);
    T_INT(unlink("snapshots/lock") < 0 && errno != ENOENT, 0);
    T_INT(dirtree_remove("snapshots/layers", &e), 0);
    T_INT(rmdir("snapshots"), 0); /* nothing else is left there */
}

TEST(a_layer_whose_manifest_changed_is_not_used_and_is_replaced_when_it_is_made_again)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts facts = {{0}};
    _cleanup_free_ char *manifest = NULL;
    struct err e = {0};

    need_root();
    put_tree("upper");
    T_INT(make_layer(&ctx, "1", "upper", &facts, &e), 0);
    T_OK(asprintf(&manifest, "snapshots/layers/%s/manifest", facts.digest) > 0);
    T_INT(io_write_file(AT_FDCWD, manifest, tree_manifest, sizeof(tree_manifest) - 2, 0600, false,
                        &e),
          0);
    T_INT(layer_check(&ctx, facts.digest, &e), -ERR_DATA_LOSS);
    T_INT(layer_check(&ctx, "../../etc", &e), -ERR_DATA_LOSS);
    T_INT(make_layer(&ctx, "2", "upper", &facts, &e), 0);
    T_INT(layer_verify(&ctx, facts.digest, 0, &e), 0);
}

/* ---- gc ---- */

static bool is_first(void *arg, const char *digest)
{
    return str_eq(arg, digest);
}

static bool is_nobody(void *arg, const char *id)
{
    (void)arg;
    (void)id;
    return false;
}

static bool is_made(void *arg, const char *digest)
{
    (void)arg;
    return access(digest, F_OK) == 0; /* the test's note */
}

static void add_line(void *arg, const char *line)
{
    (void)arg;
    (void)io_write_file(AT_FDCWD, strstr(line, "not ours, kept: ") ? "kept" : "dropped", line,
                        strlen(line), 0600, false, NULL);
}

static void forget(void *arg, const char *digest)
{
    (void)arg;
    (void)unlink(digest);
}

TEST(gc_removes_what_nobody_has_and_keeps_what_its_store_has_not_made)
{
    struct bh_ctx ctx = test_ctx();
    struct layer_facts one = {{0}}, two = {{0}};
    struct layer_gc gc = {.ctx = &ctx,
                          .is_used = is_first,
                          .is_made = is_made,
                          .removed = forget,
                          .is_making = is_nobody,
                          .report = add_line,
                          .arg = one.digest};
    _cleanup_free_ char *told = NULL;
    struct err e = {0};

    need_root();
    put_tree("upper");
    T_INT(make_layer(&ctx, "1", "upper", &one, &e), 0);
    put_file("upper/more", "more");
    T_INT(make_layer(&ctx, "2", "upper", &two, &e), 0);
    T_INT(mkdir("snapshots/making/3", 0700), 0);
    T_INT(mkdir("snapshots/gone-4", 0700), 0);
    gc.dry_run = true;
    T_INT(layer_gc(&gc, &e), 0);
    T_INT(layer_check(&ctx, two.digest, &e), 0);
    gc.dry_run = false;
    T_INT(unlink("kept"), 0);
    T_INT(layer_gc(&gc, &e), 0);
    T_INT(layer_check(&ctx, two.digest, &e), 0);
    T_OK(access("dropped", F_OK) < 0);
    T_INT(rmdir("snapshots/making/3"), 0);
    T_INT(layer_gc(&gc, &e), 0);
    T_INT(io_read_file(AT_FDCWD, "kept", 4096, &told, NULL, &e), 0);
    T_OK(strstr(told, two.digest) && strstr(told, " bytes; remove it with rm -r"));
    put_file(two.digest, "");
    T_INT(layer_gc(&gc, &e), 0);
    T_INT(layer_check(&ctx, two.digest, &e), -ERR_DATA_LOSS);
    T_OK(access("dropped", F_OK) == 0 && access(two.digest, F_OK) < 0);
    T_INT(layer_verify(&ctx, one.digest, 0, &e), 0);
    T_OK(access("snapshots/gone-4", F_OK) < 0);
}
