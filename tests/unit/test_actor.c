/* The identity of a thread in user namespaces, which refuse some of what root does elsewhere. */
#include "test.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "common/io.h"
#include "fs/actor.h"

#define OTHER "65534:65534" /* by number: the test needs no such user */

static struct err e;

static bool write_proc(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        (void)close(fd);
    return ok;
}

/* In a child: once the parent has a namespace, maps its root to the user that runs the test. Without
 * denying setgroups, only a process outside of the namespace can. */
static pid_t fork_mapper(bool denies_setgroups, int begin)
{
    pid_t parent = getpid(), pid = fork();
    char path[64], text[64];
    bool ok;

    if (pid != 0)
        return pid;
    ok = read(begin, text, 1) == 1;
    (void)snprintf(path, sizeof(path), "/proc/%d/setgroups", (int)parent);
    ok = ok && (!denies_setgroups || write_proc(path, "deny"));
    (void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)parent);
    (void)snprintf(text, sizeof(text), "0 %u 1", (unsigned)geteuid());
    ok = ok && write_proc(path, text);
    (void)snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)parent);
    (void)snprintf(text, sizeof(text), "0 %u 1", (unsigned)getegid());
    _exit(ok && write_proc(path, text) ? 0 : 1);
}

/* As `unshare -r`: root of a user namespace that has no other user. */
static void enter_namespace(bool denies_setgroups)
{
    int begin[2], status = 1;
    pid_t mapper;

    T_INT(pipe(begin), 0);
    mapper = fork_mapper(denies_setgroups, begin[0]);
    if (unshare(CLONE_NEWUSER) < 0)
        T_SKIP("no user namespace can be made here");
    T_INT(write(begin[1], "x", 1), 1);
    T_INT(waitpid(mapper, &status, 0), mapper);
    if (status != 0)
        T_SKIP("no user can be mapped into a namespace here");
    T_INT(geteuid(), 0);
}

/* Refused by name, and the thread is what it was: it can still make a file of root's. */
static void is_refused(void)
{
    struct fs_actor a;

    T_INT(fs_actor_init(&a, OTHER, &e), 0);
    T_OK(!a.is_self);
    T_INT(fs_actor_enter(&a, &e), -ERR_DENIED);
    T_STR(e.field, "user");
    T_INT(setfsuid((uid_t)-1), 0);
    T_INT(setfsgid((gid_t)-1), 0);
    T_INT(io_write_file(AT_FDCWD, "f", "x", 1, 0644, false, &e), 0);
    fs_actor_done(&a);
}

TEST(actor_is_refused_where_the_namespace_denies_setgroups_and_the_agent_goes_on)
{
    enter_namespace(true);
    is_refused();
}

TEST(actor_is_refused_where_the_user_is_not_mapped_and_the_agent_has_its_identity_back)
{
    if (geteuid() != 0)
        T_SKIP("only root can map a group without denying setgroups");
    enter_namespace(false);
    is_refused();
}

TEST(actor_is_taken_and_given_back)
{
    const struct fs_actor *acting = NULL;
    struct fs_actor a;

    if (geteuid() != 0)
        T_SKIP("only root acts for another user");
    T_INT(fs_actor_init(&a, OTHER, &e), 0);
    T_INT(fs_act(&a, &acting, &e), 0);
    T_OK(acting == &a);
    T_INT(setfsuid((uid_t)-1), 65534);
    T_INT(setfsgid((gid_t)-1), 65534);
    fs_actor_leave(&a);
    T_INT(setfsuid((uid_t)-1), 0);
    T_INT(setfsgid((gid_t)-1), 0);
    fs_actor_done(&a);
}

/* As gVisor. */
static void lose_fsuid(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setfsuid, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setfsgid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(*code), .filter = code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        T_SKIP("no filter of system calls can be had here");
}

TEST(actor_is_taken_and_given_back_where_the_kernel_has_no_fsuid)
{
    const struct fs_actor *acting = NULL;
    struct fs_actor a = {0};

    if (geteuid() != 0)
        T_SKIP("only root acts for another user");
    T_INT(io_write_file(AT_FDCWD, "private", "x", 1, 0600, false, NULL), 0);
    lose_fsuid();
    for (int i = 0; i < 2; i++) {
        T_INT(fs_actor_init(&a, OTHER, &e), 0);
        T_INT(fs_act(&a, &acting, &e), 0);
        T_OK(access("private", R_OK) == 0); /* by the real user */
        T_INT(open("private", O_RDONLY | O_CLOEXEC), -1);
        fs_actor_leave(acting);
        T_INT(geteuid(), 0);
        T_INT(getegid(), 0);
        T_INT(faccessat(AT_FDCWD, "private", R_OK, AT_EACCESS), 0);
        fs_actor_done(&a);
    }
}
