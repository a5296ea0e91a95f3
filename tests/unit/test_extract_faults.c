/*
 * Archives that are cut, bent, raced or met by a failing disk: the target is the old tree or the
 * new one, never a mixture, and nothing outside it changes. Each system call that changes files
 * fails once (the linker puts the functions below in their place; see the Makefile).
 *
 * early (it is a long one)
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define T_ALARM_S 240
#include "test.h"

#include "fs_help.h"

#include "archive_help.h"
#include "archive/extract.h"
#include "fs/change.h"

/* ---- failing calls --------------------------------------------------------------------------- */

static atomic_int calls;      /* since armed */
static atomic_int fail_at;    /* the call that fails; 0: none */
static atomic_int n_fail = 1; /* the length of a run of failures */
static atomic_bool no_flags;  /* the disk knows no flags of renameat2 */

static bool fails(void)
{
    int at = atomic_load(&fail_at);

    int call = at ? atomic_fetch_add(&calls, 1) + 1 : 0;

    if (!at || call < abs(at) || call >= abs(at) + atomic_load(&n_fail))
        return false;
    if (at < 0)
        (void)raise(SIGKILL);
    errno = EIO;
    return true;
}

#ifdef __GLIBC__
#define LARGE(name) name##64
#else
#define LARGE(name) name
#endif
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

/* A function with fixed arguments that may fail. */
#define WRAP(type, name, params, args) \
    type JOIN(__real_, name) params; \
    type JOIN(__wrap_, name) params; \
    type JOIN(__wrap_, name) params \
    { \
        return fails() ? (type)-1 : JOIN(__real_, name) args; \
    }

WRAP(int, mkdirat, (int d, const char *n, mode_t m), (d, n, m))
WRAP(int, renameat, (int d, const char *n, int d2, const char *n2), (d, n, d2, n2))
WRAP(int, unlinkat, (int d, const char *n, int f), (d, n, f))
WRAP(int, fchmod, (int f, mode_t m), (f, m))
WRAP(int, futimens, (int f, const struct timespec *t), (f, t))
WRAP(int, symlinkat, (const char *t, int d, const char *n), (t, d, n))
WRAP(int, linkat, (int d, const char *n, int d2, const char *n2, int f), (d, n, d2, n2, f))
WRAP(ssize_t, LARGE(pwrite), (int f, const void *b, size_t n, off_t o), (f, b, n, o))
WRAP(ssize_t, LARGE(pwritev), (int f, const struct iovec *v, int n, off_t o), (f, v, n, o))
WRAP(int, LARGE(ftruncate), (int f, off_t n), (f, n))

int JOIN(__real_, LARGE(openat))(int d, const char *n, int f, ...);
int JOIN(__wrap_, LARGE(openat))(int d, const char *n, int f, ...);
int JOIN(__wrap_, LARGE(openat))(int d, const char *n, int f, ...)
{
    mode_t mode = 0;
    va_list ap;

    if (f & (O_CREAT | __O_TMPFILE)) {
        va_start(ap, f);
        mode = va_arg(ap, mode_t);
        va_end(ap);
    }
    return fails() ? -1 : JOIN(__real_, LARGE(openat))(d, n, f, mode);
}

long __real_syscall(long n, ...);
long __wrap_syscall(long n, ...);
long __wrap_syscall(long n, ...)
{
    long a[6];
    va_list ap;

    va_start(ap, n);
    for (size_t i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (n == SYS_renameat2 && fails())
        return -1;
    if (n == SYS_renameat2 && atomic_load(&no_flags) && a[4]) {
        errno = EINVAL;
        return -1;
    }
    return __real_syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- help ------------------------------------------------------------------------------------ */

static struct err e;
static struct archive_extract_result res;

static void python(const char *script)
{
    FILE *f = popen("python3 -", "w");

    if (!f)
        T_SKIP("no python3");
    fputs(script, f);
    T_INT(pclose(f), 0);
}

/* Names, kinds, modes, times, inodes, contents; files with the agent's own names are skipped. */
static void snapshot(const char *dir, char out[128])
{
    char command[512];
    FILE *f;

    snprintf(command, sizeof(command),
             "cd '%s' && { find . -mindepth 1 -name '.bellhop-tmp*' -prune -o -mindepth 1 -printf "
             "'%%p %%y %%m %%T@ %%l %%n %%i\\n' | sort; find . -name '.bellhop-tmp*' -prune -o "
             "-type f -print0 | sort -z | xargs -0 -r cat; } | sha256sum",
             dir);
    f = popen(command, "r");
    if (!f || !fgets(out, 128, f))
        t_fail(__FILE__, __LINE__, "no snapshot");
    pclose(f);
}

/* The same without times and inodes, for new files. */
static void shape(const char *dir, char out[128])
{
    h_snapshot(dir, out);
}

static int extract_bytes(struct fs_caller *c, const void *data, size_t len, const char *target,
                         const struct archive_extract_options *o)
{
    struct archive_extract *x = NULL;
    int r;

    e = (struct err){0};
    r = archive_extract_begin(c, target, o, &x, &e);
    if (r == 0)
        r = h_archive_bytes(x, data, len, &e);
    if (r == 0)
        r = archive_extract_commit(x, &res, &e);
    archive_extract_free(x);
    return r;
}

static char *read_whole(const char *path, size_t *ret_len)
{
    char *data = NULL;

    T_INT(io_read_file(AT_FDCWD, path, 1 << 20, &data, ret_len, &e), 0);
    return data;
}

static const char archives[] =
    "import tarfile, zipfile, io, os\n"
    "def t(name, *entries, mode='w'):\n"
    "    tf = tarfile.open(name, mode)\n"
    "    for en in entries:\n"
    "        ti = tarfile.TarInfo(en[0]); ti.mtime = 1000000000; ti.mode = 0o755 if en[1] == 'd' "
    "else 0o640\n"
    "        if en[1] == 'f': ti.size = len(en[2]); tf.addfile(ti, io.BytesIO(en[2])); continue\n"
    "        ti.type = {'d': tarfile.DIRTYPE, 'l': tarfile.SYMTYPE, 'h': tarfile.LNKTYPE}[en[1]]\n"
    "        if en[1] in 'lh': ti.linkname = en[2]\n"
    "        tf.addfile(ti)\n"
    "    tf.close()\n"
    "old = [('d','d'),('d/a','f',b'old a'),('d/b','f',b'old b'),('d/s','d'),('d/s/c','f',b'old "
    "c'),\n"
    "       ('e','d'),('e/f','f',b'old f'),('l','l','d/a'),('keep','f',b'keep')]\n"
    "new = [('.bellhop-tmp-removals','f',b'e/f\\0e/\\0'),('d','d'),('d/a','f',b'new "
    "a'),('d/n','f',b'new'),\n"
    "       ('d/s','d'),('d/s/c','f',b'new "
    "c'),('l','l','keep'),('x','d'),('x/y','f',b'y'),('x/z','h','d/n')]\n"
    "t('old', *old); t('new', *new); t('replacing', *new[1:])\n"
    "big = [('f%d' % i,'f',os.urandom(700) + b'z' * 300) for i in range(6)] + "
    "[('l','l','f1'),('h','h','f2')]\n"
    "t('tar', *big); t('gz', *big, mode='w:gz'); t('bz2', *big, mode='w:bz2'); t('xz', *big, "
    "mode='w:xz')\n"
    "os.system('zstd -q tar -o zst')\n"
    "z = zipfile.ZipFile('zip', 'w', zipfile.ZIP_DEFLATED)\n"
    "for n, k, d in big[:6]: z.writestr(n, d)\n"
    "z.close()\n";

/* ---- a failing call -------------------------------------------------------------------------- */

static void fail_everywhere(const char *archive, const struct archive_extract_options *o)
{
    struct fs_caller *c = h_caller();
    char old[128], new[128], now[128], left[128];
    size_t n_old, n_new;
    char *old_tar, *new_tar;
    int n, r, kept = 0;

    python(archives);
    old_tar = read_whole("old", &n_old);
    new_tar = read_whole(archive, &n_new);
    T_INT(extract_bytes(c, old_tar, n_old, "t", &(struct archive_extract_options){0}), 0);
    T_INT(extract_bytes(c, new_tar, n_new, "t", o), 0);
    shape("t", new);
    for (n = 1; n < 2000; n++) {
        T_INT(system("rm -rf t"), 0);
        T_INT(extract_bytes(c, old_tar, n_old, "t", &(struct archive_extract_options){0}), 0);
        snapshot("t", old);
        atomic_store(&calls, 0);
        atomic_store(&fail_at, n);
        r = extract_bytes(c, new_tar, n_new, "t", o);
        atomic_store(&fail_at, 0);
        if (r < 0) {
            snapshot("t", now);
            if (strcmp(old, now) != 0)
                t_fail(__FILE__, __LINE__, "call %d failed (%s) and the target changed", n,
                       e.message);
            kept++;
        }
        /* The next archive removes the leftovers of a failed clean-up. */
        T_INT(extract_bytes(c, new_tar, 0, "t", o), -ERR_INVALID);
        if (system("find . -name '.bellhop*' | grep .") == 0)
            t_fail(__FILE__, __LINE__, "call %d failed and something is left", n);
        shape("t", now);
        snapshot("t", left);
        if (r == 0 && strcmp(new, now) != 0)
            t_fail(__FILE__, __LINE__,
                   "call %d failed, the archive did not, and the target is not it", n);
        if (r < 0 && strcmp(left, old) != 0)
            t_fail(__FILE__, __LINE__, "call %d failed and cleaning up changed the target", n);
        if (atomic_load(&calls) < n)
            break; /* there are no more */
    }
    printf("# %d calls, %d of which kept the old tree\n", n - 1, kept);
    T_OK(n > 50 && n < 2000);
    free(old_tar);
    free(new_tar);
    h_drop(c);
}

TEST(a_merge_that_fails_at_any_call_changes_nothing)
{
    fail_everywhere("new", &(struct archive_extract_options){.removals = true});
}

TEST(a_replacement_without_exchange_that_fails_at_any_call_changes_nothing)
{
    atomic_store(&no_flags, true);
    fail_everywhere("replacing", &(struct archive_extract_options){.mode = ARCHIVE_REPLACE});
}

TEST(a_replacement_that_fails_at_any_call_changes_nothing)
{
    fail_everywhere("replacing", &(struct archive_extract_options){.mode = ARCHIVE_REPLACE});
}

/* ---- a disk that fails during the rollback, too ---------------------------------------------- */

/* k calls in a row fail. Afterwards the old tree is there, or comes back with the next start, whole. */
static void fail_in_a_row(const char *archive, const struct archive_extract_options *o, int k)
{
    struct fs_caller *c = h_caller();
    char old[128], now[128];
    size_t n_old, n_new;
    char *old_tar, *new_tar;
    int n, n_kept = 0;

    python(archives);
    old_tar = read_whole("old", &n_old);
    new_tar = read_whole(archive, &n_new);
    for (n = 1; n < 2000; n++) {
        int r;

        T_INT(system("rm -rf t"), 0);
        T_INT(extract_bytes(c, old_tar, n_old, "t", &(struct archive_extract_options){0}), 0);
        snapshot("t", old);
        atomic_store(&calls, 0);
        atomic_store(&n_fail, k);
        atomic_store(&fail_at, n);
        r = extract_bytes(c, new_tar, n_new, "t", o);
        atomic_store(&fail_at, 0);
        atomic_store(&n_fail, 1);
        snapshot("t", now);
        if (r < 0 && strcmp(old, now) != 0) {
            n_kept++;
            if (!strstr(e.message, "keeps the originals"))
                t_fail(__FILE__, __LINE__, "call %d: the error does not say it: %s", n, e.message);
            (void)archive_recover_all();
            snapshot("t", now);
            if (strcmp(old, now) != 0)
                t_fail(__FILE__, __LINE__, "calls %d..%d failed (%s), and the old tree is lost", n,
                       n + k - 1, e.message);
        }
        /* The next archive removes the leftovers of a failed clean-up, and changes nothing. */
        T_INT(extract_bytes(c, new_tar, 0, "t", o), -ERR_INVALID);
        if (system("find . -path ./registry -prune -o -name '.bellhop*' -print | grep .") == 0)
            t_fail(__FILE__, __LINE__, "calls %d..%d failed and something is left", n, n + k - 1);
        snapshot("t", now);
        if (r < 0 && strcmp(old, now) != 0)
            t_fail(__FILE__, __LINE__, "calls %d..%d failed and cleaning up changed the target", n,
                   n + k - 1);
        if (atomic_load(&calls) < n)
            break; /* there are no more */
    }
    printf("# %d in a row: %d calls, %d left originals\n", k, n - 1, n_kept);
    T_OK(n > 50 && n < 2000 && n_kept > 0);
    free(old_tar);
    free(new_tar);
    h_drop(c);
}

TEST(a_merge_whose_rollback_fails_keeps_the_originals)
{
    T_INT(archive_use_registry("registry", &e), 0);
    for (int k = 2; k <= 6; k++)
        fail_in_a_row("new", &(struct archive_extract_options){.removals = true}, k);
}

static atomic_bool is_over;

/* Each archive first recovers what a dead agent may have left in the directory. */
static void *extract_until_over(void *arg)
{
    struct fs_caller *c = h_caller();

    (void)arg;
    while (!atomic_load(&is_over))
        (void)extract_bytes(c, "", 0, "h", &(struct archive_extract_options){0});
    h_drop(c);
    return NULL;
}

TEST(a_copy_is_whole_though_an_archive_comes_to_its_directory_meanwhile)
{
    const struct fs_copy_options o = {.recursive = true, .overwrite = true};
    struct fs_caller *c = h_caller();
    struct err why = {0};
    pthread_t thread;

    T_INT(system("mkdir -p h from/a from/b; for i in $(seq 200); do echo x > from/a/$i; done; cp "
                 "-r from/a from/b"),
          0);
    T_INT(pthread_create(&thread, NULL, extract_until_over, NULL), 0);
    for (int i = 0; i < 50; i++) {
        struct fs_copy_result counts;
        char to[32];

        (void)snprintf(to, sizeof(to), "h/t%d", i);
        T_INT(fs_copy(c, "from", to, &o, &counts, &why), 0);
    }
    atomic_store(&is_over, true);
    T_INT(pthread_join(thread, NULL), 0);
    T_INT(system("for i in $(seq 0 49); do diff -r from h/t$i || exit 1; done"), 0);
    h_drop(c);
}

TEST(a_copy_whose_rollback_fails_keeps_the_originals_until_the_next_archive)
{
    const struct fs_copy_options o = {.recursive = true, .overwrite = true};
    struct fs_caller *c = h_caller();
    char old[128], now[128];
    int n, n_kept = 0, k;

    for (k = 2; k <= 6; k += 2) {
        for (n = 1; n < 1000; n++) {
            struct fs_copy_result counts;
            int r;

            T_INT(
                system(
                    "rm -rf h from; mkdir -p h/t/d from/d/n; echo old > h/t/d/a; echo old > h/t/l; "
                    "echo new > from/d/a; echo new > from/d/b; ln -s a from/l; chmod 775 from"),
                0);
            snapshot("h", old);
            atomic_store(&calls, 0);
            atomic_store(&n_fail, k);
            atomic_store(&fail_at, n);
            e = (struct err){0};
            r = fs_copy(c, "from", "h/t", &o, &counts, &e);
            atomic_store(&fail_at, 0);
            snapshot("h/t", now);
            bool is_kept = r < 0 && strstr(e.message, "keeps the originals");

            n_kept += is_kept;
            T_INT(extract_bytes(c, "", 0, "h", &(struct archive_extract_options){0}), -ERR_INVALID);
            snapshot("h", now);
            if (r < 0 && strcmp(old, now) != 0)
                t_fail(__FILE__, __LINE__, "calls %d..%d failed, and the old tree is lost", n,
                       n + k - 1);
            if (is_kept)
                T_INT(system("find h -name '.bellhop*' | grep -q ."), 256);
            if (atomic_load(&calls) < n)
                break;
        }
        T_OK(n > 20 && n < 1000);
    }
    printf("# %d left originals\n", n_kept);
    T_OK(n_kept > 0);
    h_drop(c);
}

TEST(a_replacement_whose_rollback_fails_keeps_the_originals_on_a_disk_without_exchange)
{
    atomic_store(&no_flags, true);
    T_INT(archive_use_registry("registry", &e), 0);
    for (int k = 2; k <= 6; k++)
        fail_in_a_row("replacing", &(struct archive_extract_options){.mode = ARCHIVE_REPLACE}, k);
}

/* ---- cut and bent archives ------------------------------------------------------------------- */

static const char *const formats[] = {"tar", "gz", "bz2", "xz", "zst", "zip"};

#define CUTS 40
#define TAR_BYTES (6 * (512 + 1024) + 2 * 512 + 1024) /* six files, two links, the end mark */

TEST(an_archive_that_is_cut_anywhere_changes_nothing)
{
    struct fs_caller *c = h_caller();
    char before[128], now[128];
    size_t len;

    python(archives);
    T_INT(mkdir("t", 0755), 0);
    h_file("t/f1", "own");
    snapshot("t", before);
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        char *data = read_whole(formats[i], &len);

        for (size_t k = 0; k < CUTS; k++) {
            /* tarfile pads its last record: a cut there removes only padding. */
            size_t whole = i == 0 ? TAR_BYTES : len;
            size_t at = k < 20 ? whole - 1 - k : whole * k / CUTS;

            if (extract_bytes(c, data, at, "t", &(struct archive_extract_options){0}) == 0)
                t_fail(__FILE__, __LINE__, "%s cut at %zu of %zu was taken", formats[i], at, len);
            T_OK(e.code == ERR_INVALID);
        }
        snapshot("t", now);
        T_STR(now, before);
        free(data);
    }
    h_drop(c);
}

/*
 * A compressed tar has checksums over everything: a flipped bit is found, or it did not matter. A
 * plain tar has a checksum for each header only, a zip has none for its directory.
 */
static bool has_checksum(size_t format)
{
    return strcmp(formats[format], "tar") != 0 && strcmp(formats[format], "zip") != 0;
}

TEST(an_archive_with_a_wrong_bit_is_refused_or_right)
{
    struct fs_caller *c = h_caller();
    char before[128], now[128], right[128];
    size_t len, taken = 0;

    python(archives);
    T_INT(mkdir("t", 0755), 0);
    h_file("t/own", "own");
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        char *data = read_whole(formats[i], &len);

        T_INT(system("rm -rf r t; mkdir r t; echo own > t/own; cp -a t/own r/own"), 0);
        T_INT(extract_bytes(c, data, len, "r", &(struct archive_extract_options){0}), 0);
        shape("r", right);
        snapshot("t", before);
        for (size_t k = 0; k < 80; k++) {
            size_t at = k * (len - 1) / 79;
            int r;

            data[at] ^= (char)(1 << (k % 8));
            r = extract_bytes(c, data, len, "t", &(struct archive_extract_options){0});
            data[at] ^= (char)(1 << (k % 8));
            snapshot("t", now);
            if (r < 0 && strcmp(now, before) != 0)
                t_fail(__FILE__, __LINE__, "%s with a wrong bit at %zu changed the target",
                       formats[i], at);
            if (r < 0)
                continue;
            shape("t", now);
            if (has_checksum(i) && strcmp(now, right) != 0)
                t_fail(__FILE__, __LINE__, "%s with a wrong bit at %zu was taken", formats[i], at);
            taken++;
            T_INT(system("rm -rf t; mkdir t; echo own > t/own"), 0);
            snapshot("t", before);
        }
        T_OK(!h_exists("../evil") && !h_exists("evil"));
        free(data);
    }
    printf("# %zu with a bit that did not matter\n", taken);
    h_drop(c);
}

/* ---- a race ---------------------------------------------------------------------------------- */

static pid_t swap_for_ever(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        for (;;) {
            (void)syscall(SYS_renameat2, AT_FDCWD, "t/d", AT_FDCWD, "link", 2 /* exchange */);
            usleep(20);
        }
    }
    return pid;
}

TEST(a_directory_that_becomes_a_link_meanwhile_leads_nowhere)
{
    struct fs_caller *c = h_caller();
    char before[128], now[128];
    int n_ok = 0, status;
    size_t len;
    char *data;
    pid_t pid;

    python(archives);
    data = read_whole("new", &len);
    T_INT(system(
              "mkdir -p t/d/s t/e outside/s; echo safe > outside/a; echo safe > outside/s/c; ln -s "
              "$PWD/outside link"),
          0);
    snapshot("outside", before);
    pid = swap_for_ever();
    for (int i = 0; i < 400; i++)
        n_ok += extract_bytes(c, data, len, "t",
                              &(struct archive_extract_options){.removals = true}) == 0;
    kill(pid, SIGKILL);
    T_INT(waitpid(pid, &status, 0), pid);
    snapshot("outside", now);
    T_STR(now, before);
    printf("# %d of 400 went in\n", n_ok);
    free(data);
    h_drop(c);
}

/* ---- the next agent -------------------------------------------------------------------------- */

#define KILLS 12

TEST(what_a_killed_agent_left_is_taken_back_when_the_next_one_starts)
{
    struct fs_caller *c = h_caller();
    char old[128], new[128], now[128];
    size_t n_old, n_new;
    char *old_tar, *new_tar;
    int n_left = 0;

    python(archives);
    old_tar = read_whole("old", &n_old);
    new_tar = read_whole("new", &n_new);
    T_INT(archive_use_registry("registry", &e), 0);
    T_INT(extract_bytes(c, old_tar, n_old, "t", &(struct archive_extract_options){0}), 0);
    T_INT(
        extract_bytes(c, new_tar, n_new, "t", &(struct archive_extract_options){.removals = true}),
        0);
    shape("t", new);
    for (int i = 1; i <= KILLS; i++) {
        int status;
        pid_t pid;

        T_INT(system("rm -rf t"), 0);
        T_INT(extract_bytes(c, old_tar, n_old, "t", &(struct archive_extract_options){0}), 0);
        snapshot("t", old);
        pid = fork();
        if (pid == 0) {
            atomic_store(&calls, 0);
            atomic_store(&fail_at, -i * 12); /* not a failure: the process is killed */
            (void)extract_bytes(c, new_tar, n_new, "t",
                                &(struct archive_extract_options){.removals = true});
            _exit(0);
        }
        T_INT(waitpid(pid, &status, 0), pid);
        n_left += WIFSIGNALED(status);
        (void)archive_recover_all();
        if (system("find . -name '.bellhop*' | grep .") == 0)
            t_fail(__FILE__, __LINE__, "kill %d and something is left", i);
        snapshot("t", now);
        if (strcmp(now, old) != 0) {
            shape("t", now);
            if (strcmp(now, new) != 0)
                t_fail(__FILE__, __LINE__, "kill %d left a mixture", i);
        }
    }
    printf("# %d of %d were killed\n", n_left, KILLS);
    T_OK(n_left > KILLS / 2);
    free(old_tar);
    free(new_tar);
    h_drop(c);
}
