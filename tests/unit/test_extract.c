/* early (it is a long one) */
#include <archive.h>
#include <archive_entry.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mount.h>
#include <sys/xattr.h>

#define T_ALARM_S 120
#include "test.h"

#include "fs_help.h"

#include "archive_help.h"

#include "archive/extract.h"
#include "common/clock.h"

static struct err e;
static struct archive_extract_result res;

/* Archives in files beside the target, made by Python's tarfile and zipfile. */
static void make_archives(const char *script)
{
    static const char head[] =
        "import tarfile, zipfile, io, os, gzip, stat\n"
        "def t(name, *entries, **kw):\n"
        "    tf = tarfile.open(name, kw.get('mode', 'w'), format=kw.get('format', "
        "tarfile.GNU_FORMAT))\n"
        "    for en in entries:\n"
        "        ti = tarfile.TarInfo(en[0]); ti.mtime = 1000000000\n"
        "        k = en[1]\n"
        "        if k == 'f':\n"
        "            d = en[2].encode(); ti.size = len(d); ti.mode = en[3] if len(en) > 3 else "
        "0o644\n"
        "            tf.addfile(ti, io.BytesIO(d)); continue\n"
        "        if k == 'd': ti.type = tarfile.DIRTYPE; ti.mode = en[2] if len(en) > 2 else "
        "0o755\n"
        "        if k == 'l': ti.type = tarfile.SYMTYPE; ti.linkname = en[2]\n"
        "        if k == 'h': ti.type = tarfile.LNKTYPE; ti.linkname = en[2]\n"
        "        if k == 'c': ti.type = tarfile.CHRTYPE; ti.devmajor = 1; ti.devminor = 3\n"
        "        if k == 'b': ti.type = tarfile.BLKTYPE\n"
        "        if k == 'p': ti.type = tarfile.FIFOTYPE\n"
        "        tf.addfile(ti)\n"
        "    tf.close()\n"
        "def cut(src, dst, n):\n"
        "    d = open(src, 'rb').read(); open(dst, 'wb').write(d[:n] if n >= 0 else d[:len(d) + "
        "n])\n"
        "def flip(src, dst, at):\n"
        "    d = bytearray(open(src, 'rb').read()); d[at] ^= 0x40; open(dst, 'wb').write(d)\n";
    FILE *f = popen("python3 -", "w");

    if (!f)
        T_SKIP("no python3");
    fputs(head, f);
    fputs(script, f);
    T_INT(pclose(f), 0);
}

static int extract_with(struct fs_caller *c, const char *file, const char *target,
                        const struct archive_extract_options *o, size_t piece)
{
    struct archive_extract *x = NULL;
    int r;

    e = (struct err){0};
    r = archive_extract_begin(c, target, o, &x, &e);
    if (r == 0)
        r = h_archive_file(x, file, piece, &e);
    if (r == 0)
        r = archive_extract_commit(x, &res, &e);
    archive_extract_free(x);
    return r;
}

static int extract(struct fs_caller *c, const char *file, const char *target)
{
    return extract_with(c, file, target, &(struct archive_extract_options){0}, 4096);
}

TEST(extract_every_format_tells_itself_apart)
{
    struct fs_caller *c = h_caller();
    static const struct {
        const char *file, *format;
    } rows[] = {
        {"a.tar", "tar"},         {"a.tar.gz", "tar.gz"}, {"a.tar.bz2", "tar.bz2"},
        {"a.tar.xz", "tar.xz"},   {"pax.tar", "tar"},     {"a.tar.zst", "tar.zst"},
        {"two.tar.gz", "tar.gz"}, {"a.zip", "zip"},
    };

    make_archives(
        "E = "
        "[('d','d'),('d/f','f','text',0o755),('d/l','l','f'),('d/h','h','d/f'),('n'*120+'/"
        "x','f','x')]\n"
        "t('a.tar', *E)\nt('a.tar.gz', *E, mode='w:gz')\nt('a.tar.bz2', *E, mode='w:bz2')\n"
        "t('a.tar.xz', *E, mode='w:xz')\nt('pax.tar', *E, format=tarfile.PAX_FORMAT)\n"
        "os.system('zstd -q a.tar -o a.tar.zst || cp a.tar a.tar.zst')\n"
        "d = open('a.tar','rb').read(); "
        "open('two.tar.gz','wb').write(gzip.compress(d[:700])+gzip.compress(d[700:]))\n"
        "z = zipfile.ZipFile('a.zip','w',zipfile.ZIP_DEFLATED)\n"
        "def za(n, mode, data):\n"
        "    i = zipfile.ZipInfo(n, (2001,9,9,1,46,40)); i.external_attr = mode << 16; "
        "i.create_system = 3; z.writestr(i, data)\n"
        "za('d/', 0o40755, ''); za('d/f', 0o100755, 'text'); za('d/l', 0o120777, 'f'); za('d/h', "
        "0o100755, 'text'); za('n'*120+'/x', 0o100644, 'x'); z.close()\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char target[32], path[300];
        struct stat st;

        snprintf(target, sizeof(target), "t%zu", i);
        if (extract(c, rows[i].file, target) < 0)
            t_fail(__FILE__, __LINE__, "%s: %s", rows[i].file, e.message);
        if (strcmp(rows[i].format, "tar.zst") != 0 || strcmp(res.format, "tar") != 0)
            T_STR(res.format, rows[i].format);
        T_INT(res.entries, 5);
        snprintf(path, sizeof(path), "%s/d/f", target);
        T_STR(h_text(path), "text");
        T_INT(h_mode(path), 0755);
        T_OK(stat(path, &st) == 0);
        if (strcmp(rows[i].format, "zip") != 0) {
            T_INT(st.st_mtime, 1000000000);
            T_INT(st.st_nlink, 2);
        }
        snprintf(path, sizeof(path), "%s/d/l", target);
        T_OK(lstat(path, &st) == 0 && S_ISLNK(st.st_mode));
        snprintf(path, sizeof(path), "%s/%0120d/x", target, 0);
        memset(path + strlen(target) + 1, 'n', 120);
        T_STR(h_text(path), "x");
    }
    h_drop(c);
}

/* Each of these must be refused, with the target unchanged, byte for byte. */
static const char hostile[] =
    "ok = ('ok', 'f', 'fine')\n"
    "t('dotdot', ok, ('../evil', 'f', 'x'))\n"
    "t('middle', ok, ('a/../../evil', 'f', 'x'))\n"
    "t('absolute', ok, ('/tmp/bellhop-evil', 'f', 'x'))\n"
    "t('link_then_file', ok, ('l', 'l', '..'), ('l/evil', 'f', 'x'))\n"
    "t('abs_link_then_file', ok, ('l', 'l', '/tmp'), ('l/bellhop-evil', 'f', 'x'))\n"
    "t('link_chain', ok, ('a', 'd'), ('a/b', 'l', '../..'), ('c', 'l', 'a/b'), ('c/evil', 'f', "
    "'x'))\n"
    "t('file_then_below', ok, ('f', 'f', 'x'), ('f/below', 'f', 'x'))\n"
    "t('hard_out', ok, ('h', 'h', '../outside'))\n"
    "t('hard_abs', ok, ('h', 'h', '/etc/passwd'))\n"
    "t('hard_missing', ok, ('h', 'h', 'existing'))\n"
    "t('hard_through_link', ok, ('l', 'l', '..'), ('h', 'h', 'l/outside'))\n"
    "t('hard_self', ok, ('h', 'h', 'h'))\n"
    "t('chardev', ok, ('null', 'c'))\n"
    "t('blockdev', ok, ('disk', 'b'))\n"
    "t('dir_then_file', ok, ('d', 'd'), ('d/x', 'f', 'x'), ('d', 'f', 'x'))\n"
    "t('our_name', ok, ('" FS_TEMP_PREFIX "x', 'f', 'x'))\n"
    "t('deep', ok, ('/'.join(['d'] * 300), 'f', 'x'))\n"
    "t('long_name', ok, ('n' * 300, 'f', 'x'))\n"
    "t('over_a_directory', ok, ('keep', 'f', 'x'))\n"
    "E = [('a%d' % i, 'f', 'text %d ' % i * 200) for i in range(20)]\n"
    "t('good', *E); t('good.gz', *E, mode='w:gz'); t('good.xz', *E, mode='w:xz'); t('good.bz2', "
    "*E, mode='w:bz2')\n"
    "cut('good', 'cut_in_data', 5000)\n"
    "size = os.path.getsize('good')\n"
    "end = 20 * (512 + 2048)\n"
    "for i in range(10): pass\n"
    "tf = tarfile.open('good'); last = tf.getmembers()[-1]; end = last.offset_data + (last.size + "
    "511) // 512 * 512\n"
    "cut('good', 'cut_at_an_entry', last.offset)\n"
    "cut('good', 'cut_before_the_end_mark', end)\n"
    "cut('good', 'cut_in_the_end_mark', end + 512)\n"
    "cut('good', 'cut_to_nothing', 0)\n"
    "t('zeros', ('z', 'f', '\\0' * 4096)); tz = tarfile.open('zeros').getmembers()[0]\n"
    "cut('zeros', 'zeros_without_end_mark', tz.offset_data + 4096)\n"
    "open('tail', 'wb').write(open('good', 'rb').read() + b'more')\n"
    "cut('good.gz', 'cut_gz', -1); cut('good.gz', 'cut_gz_half', os.path.getsize('good.gz') // 2)\n"
    "cut('good.xz', 'cut_xz', -4); cut('good.bz2', 'cut_bz2', -2)\n"
    "flip('good.gz', 'bad_crc_gz', -6); flip('good.gz', 'bad_length_gz', -2)\n"
    "flip('good', 'bad_header', 512 * 10 + 120 if False else last.offset + 3)\n"
    "z = zipfile.ZipFile('good.zip', 'w', zipfile.ZIP_DEFLATED)\n"
    "[z.writestr('a%d' % i, os.urandom(3000)) for i in range(5)]; z.close()\n"
    "cut('good.zip', 'cut_zip', -30); flip('good.zip', 'flipped_zip', 2000)\n"
    "z = zipfile.ZipFile('zip_dotdot', 'w'); z.writestr('../evil', 'x'); z.close()\n"
    "z = zipfile.ZipFile('zip_absolute', 'w'); i = zipfile.ZipInfo('x'); i.filename = "
    "'/tmp/bellhop-evil'; z.writestr(i, 'x'); z.close()\n"
    "z = zipfile.ZipFile('zip_link', 'w'); i = zipfile.ZipInfo('l'); i.create_system = 3; "
    "i.external_attr = 0o120777 << 16\n"
    "z.writestr(i, '..'); z.writestr('l/evil', 'x'); z.close()\n"
    "open('garbage', 'wb').write(b'this is not an archive' * 100); open('random', "
    "'wb').write(os.urandom(20000))\n"
    "for f in ['good', 'good.gz', 'good.xz', 'good.bz2', 'good.zip', 'zeros']: os.rename(f, '../' "
    "+ f)\n";

static void make_target(void)
{
    T_INT(mkdir("target", 0755), 0);
    T_INT(mkdir("target/keep", 0750), 0);
    h_file("target/keep/f", "kept");
    h_file("target/existing", "here");
    T_INT(symlink("keep", "target/link"), 0);
    h_file("outside", "outside");
    T_INT(mkdir("bad", 0755), 0);
    T_INT(chdir("bad"), 0);
    make_archives(hostile);
    T_INT(chdir(".."), 0);
}

static int next_bad(DIR *d, char out[300])
{
    struct dirent *de;

    while ((de = readdir(d))) {
        if (de->d_name[0] == '.')
            continue;
        snprintf(out, 300, "bad/%s", de->d_name);
        return 1;
    }
    return 0;
}

static void refuse_all(enum archive_mode mode, const char *user, int at_least)
{
    struct fs_caller *c = h_caller_in("/", user);
    struct archive_extract_options o = {.mode = mode};
    char before[128], after[128], file[300];
    struct stat a, b;
    DIR *d;
    int n = 0;

    d = opendir("bad");
    h_snapshot("target", before);
    T_OK(stat("target", &a) == 0);
    while (next_bad(d, file)) {
        int r = extract_with(c, file, "target", &o, 1000 + (size_t)n);

        if (strcmp(file, "bad/over_a_directory") == 0 ? r != -ERR_PRECONDITION : r != -ERR_INVALID)
            if (!(mode == ARCHIVE_REPLACE && strcmp(file, "bad/over_a_directory") == 0 && r == 0))
                t_fail(__FILE__, __LINE__, "%s gives %d %s", file, r, e.message);
        if (mode == ARCHIVE_REPLACE && r == 0)
            continue;
        h_snapshot("target", after);
        if (strcmp(after, before) != 0)
            t_fail(__FILE__, __LINE__, "%s changed the target", file);
        T_OK(stat("target", &b) == 0 && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec);
        T_OK(!h_exists("evil") && !h_exists("/tmp/bellhop-evil"));
        T_STR(h_text("outside"), "outside");
        n++;
    }
    closedir(d);
    T_OK(n >= at_least);
    h_drop(c);
}

TEST(extract_refuses_every_hostile_archive_and_changes_nothing)
{
    make_target();
    refuse_all(ARCHIVE_MERGE, NULL, 35);
}

TEST(extract_refuses_them_as_a_user_too)
{
    if (geteuid() != 0)
        T_SKIP("only root can act as another");
    make_target();
    T_INT(chmod(".", 0755), 0);
    T_INT(system("chown -R 12345:12345 target"), 0);
    refuse_all(ARCHIVE_MERGE, "12345", 35);
}

TEST(extract_refuses_them_when_it_would_replace)
{
    make_target();
    unlink("bad/over_a_directory");
    refuse_all(ARCHIVE_REPLACE, NULL, 34);
}

TEST(extract_takes_the_good_ones_of_that_set)
{
    struct fs_caller *c = h_caller();
    static const char *const good[] = {"good",     "good.gz",  "good.xz",
                                       "good.bz2", "good.zip", "zeros"};

    make_target();
    for (size_t i = 0; i < 6; i++)
        if (extract(c, good[i], "target") < 0)
            t_fail(__FILE__, __LINE__, "%s: %s", good[i], e.message);
    T_STR(h_text("target/keep/f"), "kept");
    h_drop(c);
}

TEST(extract_merges_as_tar_does)
{
    struct fs_caller *c = h_caller();
    struct stat st;

    make_archives(
        "t('a.tar', ('d','d',0o700), ('d/new','f','new'), ('d/old','f','newer'), "
        "('was_link','f','file'),"
        "('was_file','l','d'), ('linkdir','d'), ('linkdir/x','f','x'), ('sub/deep/er','f','1'))\n");
    T_INT(mkdir("t", 0755), 0);
    T_INT(mkdir("t/d", 0755), 0);
    h_file("t/d/old", "old");
    h_file("t/d/other", "other");
    h_file("t/was_file", "was");
    h_file("elsewhere", "untouched");
    T_INT(mkdir("dir", 0755), 0);
    T_INT(symlink("../elsewhere", "t/was_link"), 0);
    T_INT(symlink("../dir", "t/linkdir"), 0);
    T_INT(extract(c, "a.tar", "t"), 0);
    T_STR(h_text("t/d/old"), "newer");
    T_STR(h_text("t/d/new"), "new");
    T_STR(h_text("t/d/other"), "other");
    T_INT(h_mode("t/d"), 0700);
    T_STR(h_text("t/was_link"), "file");
    T_STR(h_text("elsewhere"), "untouched");
    T_OK(lstat("t/was_file", &st) == 0 && S_ISLNK(st.st_mode));
    T_STR(h_text("t/linkdir/x"), "x");
    T_OK(!h_exists("dir/x"));
    T_STR(h_text("t/sub/deep/er"), "1");
    T_INT(h_mode("t/sub/deep"), 0755);
    T_OK(stat("t/d", &st) == 0 && st.st_mtime == 1000000000);
    T_INT(system("test -z \"$(ls -A t | grep bellhop)\""), 0);
    h_drop(c);
}

TEST(extract_rolls_back_when_putting_in_place_fails_half_way)
{
    struct fs_caller *c = h_caller();
    char before[128], after[128];

    make_archives("t('a.tar', ('a','f','new'), ('b/c','f','new'), ('d','d'), ('d/e','f','new'), "
                  "('m/x','f','new'), ('z','f','conflict'))\n");
    T_INT(mkdir("t", 0755), 0);
    T_INT(mkdir("t/d", 0755), 0);
    T_INT(mkdir("t/m", 0755), 0);
    T_INT(mkdir("t/z", 0755), 0);
    h_file("t/a", "old");
    h_file("t/d/e", "old");
    h_snapshot("t", before);
    T_INT(extract(c, "a.tar", "t"), -ERR_PRECONDITION);
    h_snapshot("t", after);
    T_STR(after, before);
    h_drop(c);
}

TEST(extract_replaces_a_directory)
{
    struct fs_caller *c = h_caller();
    struct archive_extract_options o = {.mode = ARCHIVE_REPLACE};

    make_archives("t('a.tar', ('new','f','new'), ('d','d',0o500), ('d/x','f','x'))\n");
    T_INT(mkdir("t", 0751), 0);
    T_INT(mkdir("t/old", 0500), 0);
    h_file("t/f", "old");
    T_INT(extract_with(c, "a.tar", "t", &o, 4096), 0);
    T_STR(h_text("t/new"), "new");
    T_OK(!h_exists("t/old") && !h_exists("t/f"));
    T_INT(h_mode("t"), 0751);
    T_INT(h_mode("t/d"), 0500);
    T_INT(system("test -z \"$(ls -A . t | grep bellhop)\""), 0);
    h_drop(c);
}

/* A mount point can't be exchanged, and a lower directory of an overlay can't be renamed. */
static void replace_on(const char *what)
{
    struct fs_caller *c = h_caller();
    struct archive_extract_options o = {.mode = ARCHIVE_REPLACE};
    int r;

    make_archives("t('a.tar', ('same','d'), ('same/new','f','new'), ('same/both','f','new'), "
                  "('top','f','new'))\n");
    h_file("t/own", "old");
    r = extract_with(c, "a.tar", "t", &o, 4096);
    if (r == 0)
        r = system("cd t && test \"$(find . | sort | tr '\\n' ' ')\" = "
                   "'. ./same ./same/both ./same/new ./top ' && grep -q new same/both");
    T_INT(umount("t"), 0);
    if (r)
        t_fail(__FILE__, __LINE__, "%s: %d %s", what, r, e.message);
    h_drop(c);
}

TEST(extract_replaces_what_is_in_a_mount_point)
{
    T_INT(mkdir("t", 0755), 0);
    if (mount("t", "t", "tmpfs", 0, "size=4m") < 0)
        T_SKIP("can't mount a tmpfs");
    T_INT(system("mkdir -p t/gone/deep t/same; touch t/gone/deep/f t/same/old t/same/both"), 0);
    replace_on("mount point");
}

static void overlay(const char *lower)
{
    T_INT(mkdir("o", 0755), 0);
    T_INT(mkdir("t", 0755), 0);
    if (mount("t", "o", "tmpfs", 0, "size=16m") < 0)
        T_SKIP("can't mount a tmpfs");
    if (system("mkdir -p o/low o/up o/work") != 0 || system(lower) != 0 ||
        mount("o", "t", "overlay", 0,
              "lowerdir=o/low,upperdir=o/up,workdir=o/work,redirect_dir=off") < 0) {
        umount("o");
        T_SKIP("can't mount an overlay");
    }
}

TEST(extract_replaces_lower_directories_of_an_overlay)
{
    overlay("cd o/low && mkdir -p gone/deep same && touch gone/deep/f same/old same/both");
    replace_on("overlay");
    T_INT(umount("o"), 0);
}

TEST(extract_replaces_an_overlay_directory_and_takes_it_back_on_failure)
{
    struct fs_caller *c = h_caller();
    struct archive_extract_options o = {.mode = ARCHIVE_REPLACE};
    char before[128], after[128];
    int r1, r2;

    overlay("cd o/low && mkdir -p x/gone/deep x/same && echo f > x/gone/deep/f && echo old > "
            "x/same/old");
    make_archives("t('a.tar', ('same','d'), ('same/new','f','new'))\n"
                  "t('bad.tar', ('same','d'), ('same/new','f','new'), ('m','f','x'))\n");
    h_snapshot("t/x", before);
    T_INT(mkdir("t/x/m", 0755), 0);
    T_INT(mount("t/x/m", "t/x/m", "tmpfs", 0, "size=1m"), 0);
    r1 = extract_with(c, "bad.tar", "t/x", &o, 4096);
    umount("t/x/m");
    rmdir("t/x/m");
    h_snapshot("t/x", after);
    r2 = extract_with(c, "a.tar", "t/x", &o, 4096);
    int listing =
        system("test \"$(find t/x | sort | tr '\\n' ' ')\" = 't/x t/x/same t/x/same/new '");
    umount("t");
    umount("o");
    T_OK(r1 < 0);
    T_STR(after, before);
    T_INT(r2, 0);
    T_INT(listing, 0);
    h_drop(c);
}

TEST(extract_limits_are_enforced)
{
    struct fs_caller *c = h_caller();
    struct archive_extract_options few = {.max_entries = 5}, small = {.max_bytes = 1000};

    make_archives(
        "t('many.tar', *[('f%d' % i, 'f', 'x') for i in range(6)])\nt('big.tar', ('b', 'f', 'x' * "
        "1001))\n"
        "t('sum.tar', ('a', 'f', 'x' * 600), ('b', 'f', 'x' * 600))\n"
        "import gzip\n"
        "f = gzip.open('bomb.tar.gz', 'wb', 9); ti = tarfile.TarInfo('bomb'); ti.size = 300 << 20\n"
        "f.write(ti.tobuf(tarfile.GNU_FORMAT)); z = b'\\0' * (1 << 20)\n"
        "[f.write(z) for i in range(300)]; f.write(b'\\0' * 1024); f.close()\n");
    T_INT(extract_with(c, "many.tar", "t", &few, 4096), -ERR_EXHAUSTED);
    T_INT(e.sys, EFBIG);
    T_INT(extract_with(c, "big.tar", "t", &small, 4096), -ERR_EXHAUSTED);
    T_INT(e.sys, EFBIG);
    T_INT(extract_with(c, "sum.tar", "t", &small, 4096), -ERR_EXHAUSTED);
    T_OK(!h_exists("t"));
    h_drop(c);
}

/* Whether the bytes wait in the pump, come in pieces, or are more than the pump holds. */
TEST(extract_refuses_bytes_after_a_compressed_archive)
{
    struct fs_caller *c = h_caller();
    static const char *const names[] = {"gz", "bz2", "xz", "zst"};
    static const size_t tails[] = {1, 600000, 1 << 20, ARCHIVE_PUMP_BYTES + (1 << 20)};
    static const size_t pieces[] = {4096, ARCHIVE_PUMP_BYTES};

    make_archives(
        "import random\n"
        "E = [('f', 'f', 'text' * 5000)]\n"
        "t('a.gz', *E, mode='w:gz'); t('a.bz2', *E, mode='w:bz2'); t('a.xz', *E, mode='w:xz')\n"
        "t('a', *E); os.system('zstd -q a -o a.zst || cp a a.zst')\n"
        "for k in ['gz', 'bz2', 'xz', 'zst']:\n"
        "    d = open('a.' + k, 'rb').read()\n"
        "    for n in [1, 600000, 1 << 20, 4 << 20]:\n"
        "        open('%s.%d' % (k, n), 'wb').write(d + b'!' + random.Random(n).randbytes(n - 1))\n"
        "    open(k + '.zeros', 'wb').write(d + bytes(10240))\n");
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 8; k++) {
            char file[64];

            snprintf(file, sizeof(file), "%s.%zu", names[i], tails[k / 2]);
            if (extract_with(c, file, "t", &(struct archive_extract_options){0}, pieces[k % 2]) !=
                -ERR_INVALID)
                t_fail(__FILE__, __LINE__, "%s: %s", file, e.message);
            if (strcmp(names[i], "bz2") == 0)
                T_STR(e.message, "there are bytes after the archive's end");
            T_OK(!h_exists("t"));
        }
    }
    T_INT(extract(c, "gz.zeros", "gz"), 0);
    T_INT(extract(c, "bz2.zeros", "bz2"), 0);
    T_INT(extract(c, "xz.zeros", "xz"), 0);
    h_drop(c);
}

static void hold_thread(void *gate)
{
    (void)sem_wait(gate);
}

TEST(extract_unpacks_itself_when_the_pool_has_no_thread_left)
{
    struct fs_caller *c = h_caller();
    struct pump_options o = {.max_bytes = 3 << 20};
    struct archive_extract *x = NULL;
    struct pool *pool = NULL;
    struct pump *p = NULL;
    char *data = malloc(3 << 20);
    ssize_t n;
    sem_t gate;
    int fd;

    make_archives("t('b.gz', ('x', 'f', os.urandom(3 << 20).hex()[:3 << 20]), mode='w:gz')\n");
    fd = open("b.gz", O_RDONLY);
    n = read(fd, data, 3 << 20);
    T_OK(n > 1 << 20); /* enough for the unpacking to go ahead */
    (void)sem_init(&gate, 0, 0);
    T_INT(pool_new(&pool, &e), 0);
    for (int i = 0; i < POOL_MAX_THREADS; i++)
        T_INT(pool_run(pool, hold_thread, &gate, &e), 0);
    T_INT(pump_new(&o, &p, &e), 0);
    T_INT(pump_write(p, data, (size_t)n, &e), 0);
    pump_end(p);
    T_INT(archive_extract_begin(c, "t", &(struct archive_extract_options){0}, &x, &e), 0);
    T_INT(archive_extract_read(x, p, pool, &e), 0);
    T_INT(archive_extract_commit(x, &res, &e), 0);
    T_INT(res.bytes, 3 << 20);
    archive_extract_free(x);
    pump_leave(p);
    for (int i = 0; i < POOL_MAX_THREADS; i++)
        (void)sem_post(&gate);
    T_OK(!pool_free(pool, 60000));
    free(data);
    close(fd);
    h_drop(c);
}

/* The ratio is taken to all bytes that have come, read or not. */
TEST(extract_ratio_counts_bytes_received)
{
    struct fs_caller *c = h_caller();
    static const char *const files[] = {"a.xz", "a.zst"};

    make_archives("import random, lzma\n"
                  "tf = tarfile.open('a', 'w')\n"
                  "for n, d in [('zeros', bytes(320 << 20)), ('x', random.randbytes(1 << 20))]:\n"
                  "    ti = tarfile.TarInfo(n); ti.size = len(d); tf.addfile(ti, io.BytesIO(d))\n"
                  "tf.close()\n"
                  "open('a.xz', 'wb').write(lzma.compress(open('a', 'rb').read(), preset=0))\n"
                  "os.system('zstd -q a -o a.zst || cp a.xz a.zst')\n");
    for (int i = 0; i < 2; i++) {
        struct archive_extract *x = NULL;
        struct stat st;
        char *data = malloc(4 << 20);
        int fd = open(files[i], O_RDONLY);
        ssize_t n = read(fd, data, 4 << 20);
        int r = archive_extract_begin(c, "t", &(struct archive_extract_options){0}, &x, &e);

        T_OK(fstat(fd, &st) == 0 && n == st.st_size);
        if (r == 0)
            r = h_archive_bytes(x, data, (size_t)n, &e);
        if (r == 0)
            r = archive_extract_commit(x, &res, &e);
        if (r < 0)
            t_fail(__FILE__, __LINE__, "%s: %s", files[i], e.message);
        T_INT(res.packed_bytes, n);
        archive_extract_free(x);
        free(data);
        close(fd);
    }
    h_drop(c);
}

TEST(extract_on_a_full_disk_leaves_nothing)
{
    struct fs_caller *c = h_caller();
    char before[128], after[128];
    int r;

    make_archives("t('a.tar', *[('f%d' % i, 'f', 'x' * 100000) for i in range(60)])\n");
    T_INT(mkdir("full", 0755), 0);
    if (mount("t", "full", "tmpfs", 0, "size=4m") < 0)
        T_SKIP("can't mount a tmpfs");
    h_file("full/f", "old");
    h_snapshot("full", before);
    r = extract(c, "a.tar", "full");
    h_snapshot("full", after);
    umount("full");
    T_INT(r, -ERR_EXHAUSTED);
    T_INT(e.sys, ENOSPC);
    T_STR(after, before);
    h_drop(c);
}

TEST(extract_that_is_given_up_leaves_nothing)
{
    struct fs_caller *c = h_caller();
    struct archive_extract *x = NULL;

    make_archives("t('a.tar', ('f', 'f', 'x' * 100000))\n");
    T_INT(archive_extract_begin(c, "new/deep/target", &(struct archive_extract_options){0}, &x, &e),
          0);
    T_INT(h_archive_file(x, "a.tar", 5000, &e), 0);
    T_OK(!archive_extract_free(x));
    T_OK(!h_exists("new"));
    h_drop(c);
}

TEST(extract_at_most_sixteen_at_once)
{
    struct fs_caller *c = h_caller();
    struct archive_extract *x[ARCHIVE_MAX_EXTRACTIONS + 1] = {0};
    struct archive_extract_options o = {0};

    T_INT(mkdir("t", 0755), 0);
    for (int i = 0; i < ARCHIVE_MAX_EXTRACTIONS; i++)
        T_INT(archive_extract_begin(c, "t", &o, &x[i], &e), 0);
    T_INT(archive_extract_begin(c, "t", &o, &x[ARCHIVE_MAX_EXTRACTIONS], &e), -ERR_EXHAUSTED);
    T_INT(e.sys, 0);
    for (int i = 0; i < ARCHIVE_MAX_EXTRACTIONS; i++)
        archive_extract_free(x[i]);
    T_INT(archive_extract_begin(c, "t", &o, &x[0], &e), 0);
    archive_extract_free(x[0]);
    T_INT(system("test -z \"$(ls -A t)\""), 0);
    h_drop(c);
}

TEST(extract_refuses_a_target_that_is_not_a_directory)
{
    struct fs_caller *c = h_caller();
    struct archive_extract *x = NULL;
    struct archive_extract_options o = {.no_parents = true};

    h_file("f", "x");
    T_INT(archive_extract_begin(c, "f", &o, &x, &e), -ERR_PRECONDITION);
    T_STR(e.field, "path");
    T_INT(archive_extract_begin(c, "none", &o, &x, &e), -ERR_NOT_FOUND);
    h_drop(c);
}

TEST(extract_as_a_user_belongs_to_him)
{
    struct fs_caller *c;
    struct stat st;

    if (geteuid() != 0)
        T_SKIP("only root can act as another");
    make_archives(
        "t('a.tar', ('d','d',0o500), ('d/f','f','x'), ('s','f','x',0o4755), ('l','l','f'))\n");
    T_INT(chmod(".", 0755), 0);
    T_INT(mkdir("his", 0755), 0);
    T_INT(mkdir("ours", 0755), 0);
    T_INT(chown("his", 12345, 12345), 0);
    c = h_caller_in("/", "12345");
    T_INT(extract(c, "a.tar", "his"), 0);
    T_OK(lstat("his/d/f", &st) == 0 && st.st_uid == 12345 && st.st_gid == 12345);
    T_OK(lstat("his/l", &st) == 0 && st.st_uid == 12345);
    T_INT(h_mode("his/d"), 0500);
    T_INT(h_mode("his/s"), 0755);
    T_INT(extract(c, "a.tar", "ours"), -ERR_DENIED);
    T_INT(extract_with(c, "a.tar", "his", &(struct archive_extract_options){.keep_owner = true},
                       4096),
          -ERR_DENIED);
    T_STR(e.field, "owner");
    h_drop(c);
}

TEST(extract_keeps_names_that_are_not_utf8)
{
    struct fs_caller *c = h_caller();

    make_archives("tf = tarfile.open('a.tar', 'w', format=tarfile.GNU_FORMAT, encoding='latin-1')\n"
                  "ti = tarfile.TarInfo('caf\\xe9'); ti.size = 1; tf.addfile(ti, "
                  "io.BytesIO(b'x')); tf.close()\n");
    T_INT(extract(c, "a.tar", "t"), 0);
    T_STR(h_text("t/caf\xe9"), "x");
    h_drop(c);
}

/*
 * After an agent was killed at any moment, the next call finds or makes the old tree or the new
 * one. Returns how long the child lived, in microseconds.
 */
#define KILLS 16

static long extract_and_be_killed(struct fs_caller *c, enum archive_mode mode, long after_us)
{
    struct archive_extract_options o = {.mode = mode};
    int64_t begun = clock_mono_ns();
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        (void)extract_with(c, "new.tar", "t", &o, 65536);
        _exit(0);
    }
    if (after_us) {
        usleep((useconds_t)after_us);
        kill(pid, SIGKILL);
    }
    T_INT(waitpid(pid, &status, 0), pid);
    return (clock_mono_ns() - begun) / 1000;
}

static void back_to_old(struct fs_caller *c)
{
    T_INT(system("rm -rf t"), 0);
    T_INT(extract(c, "old.tar", "t"), 0);
}

static void kill_many(enum archive_mode mode)
{
    struct fs_caller *c = h_caller();
    char old[128], new[128], now[128];
    int n_old = 0, n_new = 0;
    long whole_us;

    make_archives("t('old.tar', *[('d%d/s/f%d' % (i % 9, i), 'f', 'old %d' % i) for i in "
                  "range(90)])\n"
                  "t('new.tar', *[('d%d/%s/g%d' % (i % 11, 's' if i % 3 else 'n', i), 'f', 'new') "
                  "for i in range(60)],"
                  "*[('d%d/s/f%d' % (i % 9, i), 'f', 'new %d' % i) for i in range(30, 90)])\n");
    T_INT(extract(c, "old.tar", "t"), 0);
    h_snapshot("t", old);
    whole_us = extract_and_be_killed(c, mode, 0);
    h_snapshot("t", new);
    for (int i = 0; i < KILLS; i++) {
        struct archive_extract *x = NULL;

        back_to_old(c);
        (void)extract_and_be_killed(c, mode, whole_us * (KILLS / 3 + i) / KILLS + 1);
        T_INT(archive_extract_begin(c, "t", &(struct archive_extract_options){0}, &x, &e), 0);
        archive_extract_free(x);
        h_snapshot("t", now);
        n_old += strcmp(now, old) == 0;
        n_new += strcmp(now, new) == 0;
        T_INT(n_old + n_new, i + 1);
        T_INT(system("test -z \"$(find . -name '.bellhop*')\""), 0);
    }
    printf("# killed: %d times the old tree, %d times the new one\n", n_old, n_new);
    h_drop(c);
}

TEST(extract_that_is_killed_while_merging_is_taken_back)
{
    kill_many(ARCHIVE_MERGE);
}

TEST(extract_that_is_killed_while_replacing_is_taken_back)
{
    kill_many(ARCHIVE_REPLACE);
}
