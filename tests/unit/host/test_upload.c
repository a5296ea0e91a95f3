#include "test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/str.h"
#include "lib/util/beneath.h"
#include "lib/util/context.h"
#include "lib/project/gitfiles.h"
#include "lib/project/project_archive.h"

static struct bh_ctx ctx;

/* A shell command that must succeed, with git set up for nobody in particular. */
__attribute__((format(printf, 1, 2))) static void sh(const char *fmt, ...)
{
    _cleanup_free_ char *body = NULL, *line = NULL;
    va_list ap;

    va_start(ap, fmt);
    T_OK(vasprintf(&body, fmt, ap) >= 0);
    va_end(ap);
    T_OK(asprintf(&line,
                  "set -eu; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a "
                  "GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_GLOBAL=/dev/null; %s",
                  body) >= 0);
    T_INT(system(line), 0);
}

/* Lists a directory of the test. */
static int list(const char *src, const char *git, bool with_secrets, struct gitfiles *ret,
                struct err *e)
{
    static char source[PATH_MAX], cache[PATH_MAX + 8];
    char cwd[PATH_MAX];
    struct gitfiles_options o = {
        .ctx = &ctx, .git = git, .with_secrets = with_secrets, .source = source};

    T_OK(realpath(src, source));
    T_OK(getcwd(cwd, sizeof(cwd)));
    (void)snprintf(cache, sizeof(cache), "%s/cache", cwd);
    T_INT(io_mkdir_p(cache, 0700, NULL), 0);
    ctx = (struct bh_ctx){.cache_dir = cache, .cancel_fd = -1};
    o.deadline_mono_ms = clock_mono_ms() + 100000;
    return gitfiles_list(&o, ret, e);
}

/* The list's bytes as `path` would have them, unpacked into `dir` by tar. */
static void pack_into(struct gitfiles *files, const char *dir)
{
    struct upload_stream *s = NULL;
    struct err e = {0};
    char piece[10000];
    int64_t n;
    int fd = open("upload.tar.zst", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    T_OK(fd >= 0);
    T_INT(upload_stream_new(&ctx, files, &s, &e), 0);
    while ((n = upload_stream_read(s, piece, sizeof(piece), &e)) > 0)
        T_INT(io_write_all(fd, piece, (size_t)n, &e), 0);
    if (n < 0)
        t_fail(__FILE__, __LINE__, "%s", e.message);
    upload_stream_free(s);
    T_INT(close(fd), 0);
    sh("mkdir -p %s; tar -C %s --warning=no-unknown-keyword --zstd -xpf "
       "upload.tar.zst",
       dir, dir);
}

static void round_trip(const char *src, const char *git, const char *dir)
{
    struct gitfiles files = {0};
    struct err e = {0};

    if (list(src, git, false, &files, &e) < 0)
        t_fail(__FILE__, __LINE__, "%s", e.message);
    pack_into(&files, dir);
    gitfiles_done(&files);
}

static void make_dirty_repository(const char *dir)
{
    sh("git init -q -b main %s; cd %s; "
       "printf 'a\\n' >a; printf 'b\\n' >b; printf 'c\\n' >gone; mkdir d; printf 'x\\n' >d/run; "
       "chmod +x d/run; ln -s ../a d/link; printf 'ign\\nbuild/\\n' >.gitignore; git add -A; "
       "git commit -qm one; printf 'a2\\n' >a; printf 'b2\\n' >b; git add b; printf 'b3\\n' >b; "
       "rm gone; printf 'new\\n' >new; printf 'sp\\n' >'with space'; mkdir build; printf 'o\\n' "
       ">build/o; "
       "printf 'i\\n' >ign; git mv d/run d/ran",
       dir, dir);
}

TEST(upload_dirty_tree_round_trips)
{
    make_dirty_repository("src");
    round_trip("src", "full", "box");
    sh("git -C src status --porcelain >1; git -C box status --porcelain >2; cmp 1 2; "
       "test -s 1; test -x box/d/ran; test -L box/d/link; test ! -e box/ign; test ! -e box/build; "
       "cmp src/new box/new; git -C box fsck --no-progress; "
       "test \"$(git -C src rev-parse HEAD)\" = \"$(git -C box rev-parse HEAD)\"");
}

TEST(upload_keeps_times_modes_and_odd_names)
{
    make_dirty_repository("src");
    sh("cd src; printf x >\"$(printf 'bad\\377name')\"; printf y >'line\nfeed'; "
       "touch -d '2001-02-03 04:05:06.789' new; chmod 0640 new; : >empty");
    round_trip("src", "none", "box");
    sh("test \"$(stat -c '%%a %%.Y' src/new)\" = \"$(stat -c '%%a %%.Y' box/new)\"; "
       "test ! -e box/.git; (cd src; git ls-files -z -co --exclude-standard | sort -z) >1; "
       "(cd box; find . -type f -o -type l | wc -l) >n; cmp \"src/$(printf 'bad\\377name')\" "
       "\"box/$(printf 'bad\\377name')\"; test -e 'box/line\nfeed'; test -e box/empty");
}

TEST(upload_shallow_copy_has_one_commit_and_the_same_changes)
{
    make_dirty_repository("src");
    sh("cd src; git commit -qam two; printf 'more\\n' >>a; git remote add origin https://x.test/r");
    round_trip("src", "shallow", "box");
    sh("test \"$(git -C box rev-list --count HEAD)\" = 1; "
       "test \"$(git -C src rev-parse HEAD)\" = \"$(git -C box rev-parse HEAD)\"; "
       "git -C src status --porcelain >1; git -C box status --porcelain >2; cmp 1 2; "
       "test \"$(git -C box remote get-url origin)\" = https://x.test/r");
}

TEST(upload_linked_work_tree_becomes_a_repository)
{
    make_dirty_repository("main");
    sh("git -C main commit -qam two; git -C main worktree add -q -b side ../src; cd src; "
       "printf 'more\\n' >>a; git add a; printf 'and\\n' >>a");
    round_trip("src", "full", "box");
    sh("rm -rf main; test \"$(git -C box branch --show-current)\" = side; "
       "test \"$(git -C box status --porcelain)\" = 'MM a'; git -C box fsck --no-progress");
}

TEST(upload_takes_submodules_and_nested_repositories_along)
{
    make_dirty_repository("lib");
    sh("git -C lib commit -qam two; git init -q -b main src; cd src; "
       "git -c protocol.file.allow=always submodule --quiet add \"$PWD/../lib\" lib; "
       "git commit -qm sub; printf 'dirty\\n' >>lib/a; git init -q -b main nested; "
       "printf 'n\\n' >nested/file; printf 'file2\\n' >nested/.gitignore; : >nested/file2");
    round_trip("src", "full", "box");
    sh("git -C src status --porcelain >1; git -C box status --porcelain >2; cmp 1 2; "
       "git -C box/lib status --porcelain | grep -q '^ M a'; test -e box/nested/.git/HEAD; "
       "test -e box/nested/file; test ! -e box/nested/file2");
}

TEST(upload_leaves_untracked_secrets_out_and_lists_them)
{
    struct gitfiles files = {0};
    struct err e = {0};

    make_dirty_repository("src");
    sh("cd src; printf s >tracked.pem; git add -f tracked.pem; printf s >.env; printf s "
       ">.env.example; "
       "mkdir k; printf s >k/id_rsa; printf s >k/id_rsa.pub; printf '//r/:_authToken=x\\n' "
       ">.npmrc; "
       "mkdir q; printf 'fund=false\\n' >q/.npmrc");
    T_INT(list("src", "none", false, &files, &e), 0);
    pack_into(&files, "box");
    T_INT(strv_len(files.left_out), 3);
    T_STR(files.left_out[0], ".env");
    T_STR(files.left_out[1], ".npmrc");
    T_STR(files.left_out[2], "k/id_rsa");
    gitfiles_done(&files);
    sh("test -e box/tracked.pem; test -e box/.env.example; test -e box/k/id_rsa.pub; "
       "test -e box/q/.npmrc; test ! -e box/.env; test ! -e box/k/id_rsa; test ! -e box/.npmrc");

    T_INT(list("src", "none", true, &files, &e), 0);
    pack_into(&files, "box2");
    T_OK(!files.left_out);
    gitfiles_done(&files);
    sh("test -e box2/.env; test -e box2/k/id_rsa");
}

TEST(upload_applies_bellhopignore_in_a_repository)
{
    make_dirty_repository("src");
    sh("cd src; printf '/a\\n*.log\\n!keep.log\\nd/\\n' >.bellhopignore; : >x.log; : >keep.log");
    round_trip("src", "none", "box");
    sh("test ! -e box/a; test ! -e box/x.log; test -e box/keep.log; test ! -e box/d; test -e "
       "box/b");
}

TEST(upload_applies_bellhopignore_elsewhere)
{
    sh("mkdir -p src/d/e src/node_modules/m src/empty; cd src; : >a; : >d/x.log; : >d/e/y; "
       ": >node_modules/m/i; : >.gitignore; printf 'node_modules/\\n*.log\\n' >.bellhopignore");
    round_trip("src", "full", "box");
    sh("test -e box/a; test -e box/d/e/y; test ! -e box/d/x.log; test ! -e box/node_modules; "
       "test -d box/empty; test -e box/.gitignore");
}

TEST(upload_elsewhere_sends_everything)
{
    sh("mkdir -p src/empty; cd src; : >a; printf 'a\\n' >.gitignore; mkfifo pipe; ln -s nowhere "
       "dangling");
    round_trip("src", "full", "box");
    sh("test -e box/a; test -d box/empty; test ! -e box/pipe; test -L box/dangling");
}

TEST(upload_part_of_a_repository_goes_without_git)
{
    struct gitfiles files = {0};
    struct err e = {0};

    make_dirty_repository("src");
    sh(": >src/d/ign; : >src/d/new");
    T_INT(list("src/d", "full", false, &files, &e), 0);
    T_OK(files.note);
    pack_into(&files, "box");
    gitfiles_done(&files);
    sh("test -e box/ran; test -e box/new; test ! -e box/ign; test ! -e box/.git");
}

TEST(upload_broken_repository_is_an_error_and_not_sent_whole)
{
    struct gitfiles files = {0};
    struct err e = {0};

    make_dirty_repository("src");
    sh("printf 'nonsense' >src/.git/HEAD");
    T_OK(list("src", "full", false, &files, &e) < 0);
    T_STR(e.field, "project");
}

TEST(upload_runs_no_program_that_the_repository_names)
{
    make_dirty_repository("src");
    sh("cd src; git config core.fsmonitor \"touch $PWD/../ran; false\"; "
       "printf '#!/bin/sh\\ntouch %%s/../ran\\n' \"$PWD\" >.git/hooks/post-index-change; "
       "chmod +x .git/hooks/post-index-change");
    round_trip("src", "full", "box");
    round_trip("src", "shallow", "box2");
    sh("test ! -e ran; test -e box/.git/hooks/post-index-change");
}

/* A tree that git needs is missing, and the remote it would come from names a program. */
TEST(upload_fetches_nothing_by_a_program_that_the_repository_names)
{
    struct gitfiles files = {0};
    struct err e = {0};

    sh("git init -q src; cd src; mkdir d; echo x >d/f; echo x >good; git add .; git commit -qm "
       "one; "
       "git sparse-checkout set --cone --sparse-index .; tree=$(git rev-parse HEAD:d); "
       "git config extensions.partialClone origin; git config remote.origin.promisor true; "
       "git config remote.origin.url \"$PWD/none\"; "
       "git config remote.origin.uploadpack \"touch $PWD/../ran; false\"; "
       "rm -f .git/objects/$(printf %%s $tree | cut -c1-2)/$(printf %%s $tree | cut -c3-)");
    for (size_t i = 0; i < 3; i++) {
        static const char *const git[] = {"none", "full", "shallow"};

        if (list("src", git[i], false, &files, &e) == 0)
            gitfiles_done(&files);
        sh("test ! -e ran");
    }
}

TEST(upload_of_a_file_that_vanishes_goes_on)
{
    struct gitfiles files = {0};
    struct err e = {0};

    make_dirty_repository("src");
    T_INT(list("src", "none", false, &files, &e), 0);
    sh("rm src/new");
    pack_into(&files, "box");
    gitfiles_done(&files);
    sh("test ! -e box/new; test -e box/a");
}

TEST(upload_of_a_file_that_gets_shorter_fails_and_names_it)
{
    struct upload_stream *s = NULL;
    struct gitfiles files = {0};
    struct err e = {0};
    char piece[65536];
    int64_t n;

    sh("mkdir src; head -c 9000000 /dev/urandom >src/big");
    T_INT(list("src", "full", false, &files, &e), 0);
    T_INT(upload_stream_new(&ctx, &files, &s, &e), 0);
    T_OK(upload_stream_read(s, piece, sizeof(piece), &e) > 0);
    T_INT(truncate("src/big", 1000), 0);
    while ((n = upload_stream_read(s, piece, sizeof(piece), &e)) > 0)
        ;
    T_INT(n, -ERR_ABORTED);
    T_STR(e.field, "big");
    upload_stream_free(s);
    gitfiles_done(&files);
}

TEST(upload_of_one_file_has_its_name)
{
    struct gitfiles files = {0};
    struct err e = {0};

    sh("printf hi >one");
    T_INT(list("one", "as-is", false, &files, &e), 0);
    T_INT(files.files, 1);
    T_INT(files.bytes, 2);
    pack_into(&files, "box");
    gitfiles_done(&files);
    sh("cmp one box/one");
}

/* ---- links and names that lead out of the project ---- */

/* A file outside, with a word that must not be sent. */
static void make_outside(void)
{
    sh("mkdir outside; echo SECRET >outside/id_rsa; chmod 600 outside/id_rsa");
}

static void check_no_secret(void)
{
    sh("test -e box/good; if grep -r SECRET box; then exit 1; fi; "
       "if tar --zstd -xOf upload.tar.zst --warning=no-unknown-keyword | grep SECRET; then exit 1; "
       "fi");
}

/* Whatever is sent, the word is not in it, nor below .git. */
static void sends_no_secret(const char *src, const char *git)
{
    struct gitfiles files = {0};
    struct err e = {0};

    if (list(src, git, true, &files, &e) < 0)
        t_fail(__FILE__, __LINE__, "%s", e.message);
    pack_into(&files, "box");
    gitfiles_done(&files);
    check_no_secret();
    sh("rm -r box");
}

static void make_link_over_tracked(void)
{
    make_outside();
    sh("git init -q src; cd src; mkdir d; echo x >d/id_rsa; echo x >good; git add .; git commit "
       "-qm one; "
       "rm -r d; ln -s ../outside d");
}

TEST(upload_sends_no_tracked_file_from_behind_a_link)
{
    make_link_over_tracked();
    sends_no_secret("src", "none");
    sends_no_secret("src", "full");
    /* As git has it, it is deleted there, and the link is new. */
    round_trip("src", "full", "box");
    sh("git -C src status --porcelain >1; git -C box status --porcelain >2; cmp 1 2; "
       "test \"$(cat 1)\" = \"$(printf ' D d/id_rsa\\n?? d')\"");
}

TEST(upload_sends_no_tracked_file_from_behind_a_link_without_openat2)
{
    beneath_force_walk(true);
    make_link_over_tracked();
    sends_no_secret("src", "full");
}

/* A nested repository in the index is one of the person's, behind a link. */
TEST(upload_sends_no_nested_repository_from_behind_a_link)
{
    make_outside();
    sh("git init -q outside/repo; echo SECRET >outside/repo/f; git -C outside/repo add .; "
       "git -C outside/repo commit -qm one; mkdir outside/plain; echo SECRET >outside/plain/f; "
       "git init -q src; cd src; echo x >good; git add .; id=$(git -C ../outside/repo rev-parse "
       "HEAD); "
       "git update-index --add --cacheinfo 160000,$id,a/repo --cacheinfo 160000,$id,a/plain; "
       "git commit -qm one; ln -s ../outside a");
    sends_no_secret("src", "none");
    sends_no_secret("src", "full");
}

/* An index with a name that git would not write: that of the same length is replaced. */
static void forge_index(const char *name)
{
    sh("rm -rf src; git init -q src; cd src; echo x >good; n='%s'; long=$(printf '%%s' \"$n\" | tr "
       "-c x x); "
       "git update-index --add --cacheinfo 100644,$(git hash-object -w good),$long; git add good; "
       "python3 -c 'import sys; d = open(\".git/index\", \"rb\").read(); n = sys.argv[1].encode(); "
       "assert d.count(b\"x\" * len(n)) == 1; "
       "open(\".git/index\", \"wb\").write(d.replace(b\"x\" * len(n), n))' \"$n\"",
       name);
}

TEST(upload_refuses_an_index_with_names_outside_the_project)
{
    char cwd[PATH_MAX], absolute[PATH_MAX + 32];
    const char *names[] = {absolute,      "../outside/id_rsa", "d/../../outside/id_rsa",
                           ".git/config", "sub/.GIT/config",   ".git /config"};

    T_OK(getcwd(cwd, sizeof(cwd)));
    (void)snprintf(absolute, sizeof(absolute), "%s/outside/id_rsa", cwd);
    make_outside();
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        struct gitfiles files = {0};
        struct err e = {0};

        forge_index(names[i]);
        T_INT(list("src", "none", true, &files, &e), -ERR_PRECONDITION);
        T_STR(e.field, "project");
        T_INT(list("src", "full", true, &files, &e), -ERR_PRECONDITION);
    }
}

TEST(upload_sends_untracked_files_with_names_like_git)
{
    sh("git init -q src; cd src; mkdir .GIT .git.; echo x >.GIT/config; echo x >.git./config; echo "
       "x >good; "
       "git add good; git commit -qm one");
    round_trip("src", "none", "box");
    sh("test -e box/.GIT/config; test -e box/.git./config; test -e box/good; test ! -e box/.git");
}

/* Between the list and the stream a directory becomes a link. */
static void swap_while_listed(const char *git)
{
    struct gitfiles files = {0};
    struct err e = {0};

    T_INT(list("src", git, true, &files, &e), 0);
    sh("rm -rf src/d; ln -s ../outside src/d; rm src/l; ln -s ../outside/id_rsa src/l");
    pack_into(&files, "box");
    gitfiles_done(&files);
    check_no_secret();
}

static const char swap_project[] =
    "mkdir -p src/d; cd src; echo x >d/id_rsa; echo x >good; echo x >l";

TEST(upload_follows_no_link_that_comes_while_it_runs)
{
    make_outside();
    sh("%s", swap_project);
    swap_while_listed("full");
}

TEST(upload_follows_no_link_that_comes_while_it_runs_without_openat2)
{
    beneath_force_walk(true);
    make_outside();
    sh("%s; git init -q; git add .; git commit -qm one", swap_project);
    swap_while_listed("none");
}

/* ---- whose repository ---- */

static void refuses_repository(const char *src, const char *git)
{
    struct gitfiles files = {0};
    struct err e = {0};

    if (list(src, git, true, &files, &e) != -ERR_PRECONDITION)
        t_fail(__FILE__, __LINE__, "%s %s: %s", src, git, e.message);
    T_STR(e.field, "git");
    T_OK(strstr(e.message, "none"));
}

/* victim: a repository of the person's, with a password in its configuration. src: a project. */
static void make_victim(void)
{
    sh("git init -q victim; cd victim; echo SECRET >v; git add .; git commit -qm one; "
       "git remote add origin https://me:SECRET@example.org/v; mkdir ../src; echo x >../src/good");
}

/* Neither all of it nor a shallow copy; without its repository the project goes. */
static void takes_no_victim(void)
{
    refuses_repository("src", "full");
    refuses_repository("src", "shallow");
    sends_no_secret("src", "none");
}

TEST(upload_takes_no_other_repository_that_a_git_file_points_to)
{
    make_victim();
    sh("echo \"gitdir: $PWD/victim/.git\" >src/.git");
    takes_no_victim();
    sh("rm src/.git; ln -s ../victim/.git src/.git");
    takes_no_victim();
    /* Also where it says where its own files are. */
    sh("git -C victim config core.worktree \"$PWD/victim\"");
    refuses_repository("src", "full");
    refuses_repository("src", "shallow");
    sh("git -C victim config --unset core.worktree");
    /* Nor that of one of its work trees. */
    sh("git -C victim worktree add -q ../tree; rm src/.git; cp tree/.git src/.git");
    takes_no_victim();
}

TEST(upload_takes_no_other_repository_behind_a_git_directory_that_names_the_project)
{
    make_victim();
    /* The project's own, which names it; its objects and references are the other's. */
    sh("mkdir -p src/x/worktrees/y; cd src; echo 'gitdir: x/worktrees/y' >.git; cd x/worktrees/y; "
       "echo \"$OLDPWD/.git\" >gitdir; echo ../../../../victim/.git >commondir; "
       "cp ../../../../victim/.git/HEAD ../../../../victim/.git/index .");
    takes_no_victim();
    sh("rm src/x/worktrees/y/commondir; cd src/x; ln -s ../../victim/.git/refs "
       "../../victim/.git/objects "
       "../../victim/.git/config .; cp ../../victim/.git/HEAD .; echo ../.. "
       ">worktrees/y/commondir");
    refuses_repository("src", "shallow");
}

TEST(upload_shallow_copies_nothing_from_behind_a_git_directory)
{
    make_victim();
    sh("git init -q src; cd src; git add good; cp ../victim/.git/HEAD .git/HEAD; "
       "echo ../../victim/.git >.git/commondir");
    refuses_repository("src", "shallow");
    sh("cd src/.git; rm -r commondir refs objects; ln -s ../../victim/.git/refs "
       "../../victim/.git/objects .");
    refuses_repository("src", "shallow");
    sh("cd src/.git; rm refs objects; mkdir -p refs/heads; cp -r ../../victim/.git/objects .; "
       "ln -s ../../../../victim/.git/refs/heads/* refs/heads/");
    refuses_repository("src", "shallow");
}

TEST(upload_shallow_takes_no_url_of_another_configuration)
{
    make_victim();
    sh("git init -q src; cd src; git add good; git commit -qm one; "
       "git config include.path ../../victim/.git/config");
    sends_no_secret("src", "shallow");
}

TEST(upload_takes_the_repository_of_a_submodule_and_of_its_work_trees)
{
    make_dirty_repository("lib");
    sh("git -C lib commit -qam two; git init -q -b main whole; cd whole; "
       "git -c protocol.file.allow=always submodule --quiet add \"$PWD/../lib\" deep/lib; "
       "cd deep/lib; echo more >>a; git worktree add -q -b side ../../../src");
    round_trip("whole/deep/lib", "shallow", "box1");
    round_trip("whole/deep/lib", "full", "box2");
    round_trip("src", "full", "box3");
    round_trip("src", "shallow", "box4");
    sh("git -C box1 rev-parse HEAD >1; git -C lib rev-parse HEAD >2; cmp 1 2; "
       "for b in box2 box3 box4; do git -C $b rev-parse HEAD >1; cmp 1 2; done; "
       "test \"$(git -C box3 branch --show-current)\" = side; grep -q more box2/a; git -C box3 "
       "fsck --no-progress");
}

/* git sparse-checkout, say, moves where its files are into a file of the work tree's own. */
TEST(upload_takes_the_repository_of_a_submodule_with_a_configuration_of_its_own)
{
    make_dirty_repository("lib");
    sh("git -C lib commit -qam two; git init -q -b main whole; cd whole; "
       "git -c protocol.file.allow=always submodule --quiet add \"$PWD/../lib\" lib; cd lib; "
       "git config extensions.worktreeConfig true; d=$(git rev-parse --git-dir); "
       "git config --file $d/config --unset core.worktree; "
       "git config --file $d/config.worktree core.worktree ../../../lib; git status >/dev/null");
    round_trip("whole/lib", "full", "box");
    round_trip("whole/lib", "shallow", "box2");
    sh("git -C box status >/dev/null; for b in box box2; do test \"$(git -C $b rev-parse HEAD)\" = "
       "\"$(git -C lib rev-parse HEAD)\"; done");
}

TEST(upload_takes_a_separate_git_directory_when_it_names_the_work_tree)
{
    sh("git init -q -b main --separate-git-dir=sep src; cd src; echo x >good; git add .; git "
       "commit -qm one");
    refuses_repository("src", "full");
    sh("git -C src config core.worktree \"$PWD/src\"");
    round_trip("src", "full", "box");
    sh("git -C src rev-parse HEAD >1; git -C box rev-parse HEAD >2; cmp 1 2");
}

static long resident_kb(void)
{
    struct rusage u;

    T_INT(getrusage(RUSAGE_SELF, &u), 0);
    return u.ru_maxrss;
}

TEST(upload_of_a_large_tree_needs_little_memory)
{
    static const uint64_t total = 300ull << 20;
    struct upload_stream *s = NULL;
    struct gitfiles files = {0};
    struct err e = {0};
    static char piece[65536];
    long before;

    sh("mkdir src; truncate -s 200M src/one; truncate -s 90M src/two; cd src; mkdir many; "
       "i=0; while [ $i -lt 2000 ]; do echo $i >many/$i; i=$((i+1)); done; truncate -s 10M three");
    T_INT(list("src", "full", false, &files, &e), 0);
    T_OK(files.bytes >= total);
    before = resident_kb();
    T_INT(upload_stream_new(&ctx, &files, &s, &e), 0);
    while (upload_stream_read(s, piece, sizeof(piece), &e) > 0)
        ;
    T_INT(e.code, 0);
    if (resident_kb() - before > 32 * 1024)
        t_fail(__FILE__, __LINE__, "%ld KB more", resident_kb() - before);
    upload_stream_free(s);
    gitfiles_done(&files);
}
