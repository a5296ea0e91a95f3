/* The parts of the oci provider that need no kernel. */
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "common/io.h"
#include "common/cleanup.h"
#include "lib/util/beneath.h"
#include "lib/provider/oci/host_image.h"
#include "lib/provider/oci/bundle.h"
#include "lib/provider/freezer.h"
#include "lib/provider/oci/cgroup.h"
#include "lib/provider/oci/runtime_exec.h"
#include "lib/provider/oci/keeper.h"
#include "lib/provider/oci/layers.h"
#include "lib/provider/oci/network.h"
#include "lib/provider/oci/record.h"
#include "lib/provider/oci/rootfs.h"

#include <fcntl.h>
#include <sys/stat.h>

static struct provider_box test_box(struct bh_ctx *ctx, struct spec *spec, char *dir)
{
    *ctx = (struct bh_ctx){.state_dir = dir, .agent_path = (char *)"/bin/true"};
    *spec = (struct spec){.image = (char *)"slim",
                          .image_dir = dir,
                          .dest = (char *)"/workspace",
                          .network = (char *)"none",
                          .privilege = (char *)"sudo",
                          .pids = 100};
    return (struct provider_box){
        .ctx = ctx, .id = "0011223344556677", .name = "b", .dir = dir, .spec = spec};
}

static uid_t owner_of(const char *path)
{
    struct stat st;

    T_INT(stat(path, &st), 0);
    return st.st_uid;
}

TEST(oci_cgroup_is_given_without_the_files_that_have_the_boxs_own_limits)
{
    static const char *const files[] = {"g/cgroup.procs", "g/cgroup.subtree_control",
                                        "g/memory.max", "g/cgroup.max.depth"};
    struct err e = {0};

    if (geteuid() != 0)
        T_SKIP("needs root");
    T_INT(mkdir("g", 0755), 0);
    for (size_t i = 0; i < N_ELEMENTS(files); i++)
        fd_close(open(files[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    T_INT(oci_cgroup_give_at("g", 70000, 70001, &e), 0); /* one file of the three is not there */
    T_INT(owner_of("g"), 70000);
    T_INT(owner_of("g/cgroup.procs"), 70000);
    T_INT(owner_of("g/cgroup.subtree_control"), 70000);
    T_INT(owner_of("g/memory.max"), 0);
    T_INT(owner_of("g/cgroup.max.depth"), 0);
    T_INT(oci_cgroup_give_at("nowhere", 1, 1, &e), -ERR_NOT_FOUND);
}

TEST(oci_default_limits_leave_the_machine_usable)
{
    T_INT(oci_default_memory(10ull << 30), 8ull << 30);
    T_INT(oci_default_memory((10ull << 30) + 4096), 8ull << 30); /* whole MiB */
    T_INT(oci_default_cpu_millis(1), 800);
    T_INT(oci_default_cpu_millis(2), 1600);
    T_INT(oci_default_cpu_millis(5), 4000);
    T_INT(oci_default_cpu_millis(64), 63000);
}

TEST(oci_seccomp_has_no_call_that_leaves_the_box)
{
    static const char *const refused[] = {"mount",
                                          "umount2",
                                          "unshare",
                                          "setns",
                                          "bpf",
                                          "keyctl",
                                          "add_key",
                                          "request_key",
                                          "init_module",
                                          "finit_module",
                                          "delete_module",
                                          "kexec_load",
                                          "reboot",
                                          "swapon",
                                          "settimeofday",
                                          "pivot_root",
                                          "open_by_handle_at",
                                          "perf_event_open",
                                          "userfaultfd",
                                          "clone3",
                                          "clone",
                                          "socket",
                                          "personality",
                                          "fsopen",
                                          "move_mount",
                                          "open_tree",
                                          "io_uring_setup",
                                          "quotactl",
                                          "iopl",
                                          "ioperm"};

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        T_OK(!oci_seccomp_allows(refused[i]));
    T_OK(oci_seccomp_allows("read") && oci_seccomp_allows("ptrace"));
}

TEST(oci_seccomp_lists_no_call_twice)
{
    json_t *profile = oci_seccomp_new();
    json_t *seen = json_object();
    json_t *names =
        json_object_get(json_array_get(json_object_get(profile, "syscalls"), 0), "names");
    json_t *name;
    size_t i;

    json_array_foreach (names, i, name) {
        T_OK(!json_object_get(seen, json_string_value(name)));
        json_object_set_new(seen, json_string_value(name), json_true());
    }
    T_OK(json_object_size(seen) > 250);
    json_decref(seen);
    json_decref(profile);
}

static json_t *config_for(struct spec *spec, struct bh_ctx *ctx, uint32_t base)
{
    char dir[] = "/box";
    struct provider_box b = test_box(ctx, spec, dir);
    const struct oci_disk disk = {.base = base, .uid = 1000, .gid = 1000};
    struct oci_run run = {.cgroup = "/bellhop-x", .network = "none"};
    struct oci_stage stage = {.root = "/mnt"};
    const struct oci_bundle bundle = {.box = &b, .disk = &disk, .run = &run, .stage = &stage};
    json_t *config = NULL;

    T_INT(oci_bundle_config(&bundle, &config, NULL), 0);
    return config;
}

TEST(oci_bundle_maps_the_range_and_bounds_the_capabilities)
{
    struct bh_ctx ctx;
    struct spec spec;
    json_t *config = config_for(&spec, &ctx, 2000000000);
    json_t *process = json_object_get(config, "process");
    json_t *caps = json_object_get(process, "capabilities");
    json_t *map =
        json_array_get(json_object_get(json_object_get(config, "linux"), "uidMappings"), 0);

    T_INT(json_integer_value(json_object_get(map, "hostID")), 2000000000);
    T_INT(json_integer_value(json_object_get(map, "size")), 65536);
    T_INT((int)json_array_size(json_object_get(caps, "bounding")), 10);
    T_INT((int)json_array_size(json_object_get(caps, "inheritable")), 0);
    T_OK(!json_object_get(process, "rlimits"));
    T_OK(json_is_false(json_object_get(process, "noNewPrivileges")));
    json_decref(config);
}

TEST(oci_disk_and_run_records_survive_a_round_trip)
{
    char dir[] = ".";
    struct bh_ctx ctx;
    struct spec spec;
    struct provider_box b = test_box(&ctx, &spec, dir);
    const struct oci_disk disk = {.base = 4000000000u, .uid = 1000, .gid = 1001, .user = "bob"};
    struct oci_run run = {.runtime = "runc", .container = "c", .init = {.pid = 7, .start = 1234}};
    struct oci_disk disk2;
    struct oci_run run2;

    T_INT(mkdir("oci", 0700), 0);
    T_INT(oci_disk_load(&b, &disk2, NULL), -ERR_NOT_FOUND);
    T_INT(oci_disk_save(&b, &disk, NULL), 0);
    T_INT(oci_disk_load(&b, &disk2, NULL), 0);
    T_STR(disk2.user, "bob");
    T_OK(disk2.base == disk.base && disk2.uid == 1000 && disk2.gid == 1001);
    T_INT(oci_run_save(&b, &run, NULL), 0);
    T_INT(oci_run_load(&b, &run2, NULL), 0);
    T_STR(run2.runtime, "runc");
    T_OK(run2.init.pid == 7 && run2.init.start == 1234);
    T_INT(oci_run_remove(&b, NULL), 0);
    T_INT(oci_run_load(&b, &run2, NULL), -ERR_NOT_FOUND);
}

TEST(oci_destination_must_be_a_place_of_the_box)
{
    struct err e = {0};

    T_INT(oci_rootfs_check_dest("/workspace", NULL), 0);
    T_INT(oci_rootfs_check_dest("/home/user/x", NULL), 0);
    T_INT(oci_rootfs_check_dest("/", &e), -ERR_INVALID);
    T_STR(e.field, "dest");
    T_INT(oci_rootfs_check_dest("/x/../etc/y", NULL), -ERR_INVALID);
    T_INT(oci_rootfs_check_dest("x", NULL), -ERR_INVALID);
}

TEST(oci_exec_reports_output_status_and_deadline)
{
    const char *const fails[] = {"/bin/sh", "-c", "echo one; echo two >&2; exit 3", NULL};
    const char *const hangs[] = {"/bin/sleep", "100", NULL};
    const char *const missing[] = {"/nonexistent/program", NULL};
    struct oci_output out;
    struct oci_cmd cmd = {.argv = fails, .stdio_fd = -1, .timeout_ms = 60000};
    struct err e = {0};

    T_INT(oci_exec(&cmd, &out, &e), 0);
    T_INT(out.status, 3);
    T_OK(strstr(out.text, "one") && strstr(out.text, "two"));
    T_INT(oci_exec_ok(&cmd, &out, &e), -ERR_INTERNAL);
    T_OK(strstr(e.message, "two") != NULL);
    cmd.argv = hangs;
    cmd.timeout_ms = 50;
    T_INT(oci_exec(&cmd, &out, &e), -ERR_DEADLINE);
    cmd.argv = missing;
    T_INT(oci_exec(&cmd, &out, &e), -ERR_NOT_FOUND);
    T_OK(strstr(e.message, "/nonexistent/program") != NULL);
}

static int failing_setup(void *arg, struct err *e)
{
    return err_set(e, ERR_DENIED, "no %s", (const char *)arg);
}

TEST(oci_exec_feeds_the_input_and_a_failing_setup_fails_the_call)
{
    struct err e = {0};
    const char *const cat[] = {"/bin/cat", NULL};
    struct oci_output out;
    struct oci_cmd cmd = {.argv = cat, .input = "hello", .stdio_fd = -1, .timeout_ms = 60000};

    T_INT(oci_exec_ok(&cmd, &out, NULL), 0);
    T_STR(out.text, "hello");
    cmd.setup = failing_setup;
    cmd.setup_arg = (void *)"way";
    T_INT(oci_exec_ok(&cmd, &out, &e), -ERR_DENIED);
    T_STR(e.message, "no way");
}

TEST(oci_proxies_on_the_loopback_are_found)
{
    char *env[] = {(char *)"PATH=/bin",
                   (char *)"http_proxy=http://user:word@127.0.0.1:3128/",
                   (char *)"HTTPS_PROXY=http://localhost:3128",
                   (char *)"all_proxy=socks5://[::1]:1080",
                   (char *)"ftp_proxy=http://proxy.example.org:8080",
                   (char *)"https_proxy=127.0.0.1:99999",
                   NULL};
    struct oci_proxy proxies[OCI_MAX_PROXIES];
    const struct sockaddr_in *in = (const void *)&proxies[0].addr;
    const struct sockaddr_in6 *in6 = (const void *)&proxies[1].addr;

    T_INT((int)oci_proxies_parse(env, proxies), 2);
    T_INT(ntohs(in->sin_port), 3128);
    T_INT(ntohs(in6->sin6_port), 1080);
    T_INT(in6->sin6_family, AF_INET6);
}

TEST(oci_network_rules_name_every_address_of_the_host)
{
    char *v4[] = {(char *)"192.0.2.7", NULL};
    char *v6[] = {(char *)"2001:db8::7", NULL};
    const struct oci_addresses a = {v4, v6};
    struct buf out;

    buf_init(&out, 4096);
    T_INT(oci_netns_rules(&a, "10.0.2.2", "drop", &out, NULL), 0);
    T_OK(strstr(out.data, "ip daddr 192.0.2.7 drop"));
    T_OK(strstr(out.data, "ip6 daddr 2001:db8::7 drop"));
    T_OK(strstr(out.data, "169.254.0.0/16, 10.0.2.2 "));
    buf_done(&out);
}

TEST(oci_cgroup_names_differ_by_state_directory)
{
    char a[FREEZER_NAME_BYTES], b[FREEZER_NAME_BYTES];

    freezer_name("/a", "0011223344556677", a);
    freezer_name("/b", "0011223344556677", b);
    T_OK(strcmp(a, b) != 0);
    T_OK(strncmp(a, "/bellhop-", 9) == 0);
}

TEST(oci_cgroup_of_no_box_is_never_removed)
{
    static const char *const names[] = {
        "", "/", "/bellhop-", "/bellhop-1/../..", "/init.scope", "bellhop-1"};

    /* Signals of a cgroup kill reach every process of the group, so this one as well. */
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        struct err e = {0};

        T_INT(oci_cgroup_remove(names[i], 0, &e), -ERR_DATA_LOSS);
        T_OK(strstr(e.message, names[i]) != NULL);
    }
}

TEST(host_image_copies_no_secret_of_etc)
{
    static const char *const yes[] = {"ssl/certs/ca.pem", "ld.so.cache",  "alternatives/editor",
                                      "pam.d/passwd",     "python3.11/x", "ssl/openssl.cnf"};
    static const char *const no[] = {
        "shadow",           "gshadow",    "passwd",      "sudoers",   "ssh",
        "ssl/private/x",    "machine-id", "environment", "gitconfig", "ssl/certs/x.key",
        "security/opasswd", "npmrc",      "skel/.netrc", "hosts"};

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        if (!host_image_etc_allows(yes[i]))
            t_fail(__FILE__, __LINE__, "'%s' is refused", yes[i]);
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (host_image_etc_allows(no[i]))
            t_fail(__FILE__, __LINE__, "'%s' is copied", no[i]);
}

TEST(dirtree_removes_a_tree_deeper_than_a_path_and_keeps_what_links_point_to)
{
    int fd = AT_FDCWD;

    T_INT(mkdir("outside", 0755), 0);
    T_INT(mkdir("outside/kept", 0755), 0);
    T_INT(mkdir("tree", 0755), 0);
    T_INT(symlink("../outside", "tree/link"), 0);
    fd = open("tree", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 600; i++) {
        int next;

        T_INT(mkdirat(fd, "a-directory-with-a-long-name", 0755), 0);
        next = openat(fd, "a-directory-with-a-long-name", O_RDONLY | O_DIRECTORY);
        T_OK(next >= 0);
        (void)close(fd);
        fd = next;
    }
    (void)close(fd);
    T_INT(dirtree_remove("tree", NULL), 0);
    T_INT(access("tree", F_OK), -1);
    T_INT(access("outside/kept", F_OK), 0);
    T_INT(dirtree_remove("tree", NULL), 0);
}

/* A removal that was killed, or met a mount, leaves directories under the names that the next
 * one would use. */
TEST(dirtree_removes_what_a_removal_before_has_left)
{
    for (int i = 0; i < 20; i++) {
        char path[64];

        (void)snprintf(path, sizeof(path), "tree/.bellhop-rm-%d/in", i);
        T_INT(io_mkdir_p(path, 0755, NULL), 0);
        (void)snprintf(path, sizeof(path), "tree/dir%d/sub/in", i);
        T_INT(io_mkdir_p(path, 0755, NULL), 0);
        (void)snprintf(path, sizeof(path), "tree/.bellhop-rm-%d", 20 + i);
        T_INT(io_write_file(AT_FDCWD, path, "x", 1, 0600, false, NULL), 0);
    }
    T_INT(dirtree_remove("tree", NULL), 0);
    T_INT(access("tree", F_OK), -1);
}

/* An image whose accounts are a link into the root of this machine. */
TEST(oci_rootfs_copies_no_file_of_the_host_that_an_image_links_to)
{
    struct oci_disk disk = {.base = getuid()};
    struct provider_box b;
    struct bh_ctx ctx;
    struct err e = {0};
    struct spec spec;
    char dir[] = ".";

    if (geteuid() != 0)
        T_SKIP("only root can give files away");
    T_INT(system("mkdir -p image/etc oci; echo user:SECRET:1234:1234:: >host; ln -s \"$PWD/host\" "
                 "image/etc/passwd; "
                 "ln -s \"$PWD/host\" image/etc/group"),
          0);
    b = test_box(&ctx, &spec, dir);
    spec.image_dir = (char *)"";
    if (oci_rootfs_prepare(&b, "image", &disk, &e) < 0)
        t_fail(__FILE__, __LINE__, "%s", e.message);
    T_INT(disk.uid, 1000);
    T_INT(system("grep -q ^user:x:1000: oci/disk/upper/etc/passwd; if grep -r SECRET oci; then "
                 "exit 1; fi"),
          0);
    T_INT(system("echo other:x:1000:1000:: >host; rm image/etc/passwd; cp host image/etc/passwd"),
          0);
    T_INT(oci_rootfs_prepare(&b, "image", &disk, &e), 0);
    T_INT(disk.uid, 1001);
    T_INT(system("grep -q ^other: oci/disk/upper/etc/passwd"), 0);
}

TEST(a_running_box_of_runsc_is_not_captured_and_a_stopped_one_may_be)
{
    char dir[4096];
    struct bh_ctx ctx;
    struct spec spec;
    struct provider_box b;
    struct oci_run run = {.runtime = "runsc"};
    struct err e = {0};

    if (geteuid() != 0)
        T_SKIP("needs root");
    T_OK(getcwd(dir, sizeof(dir)) != NULL);
    b = test_box(&ctx, &spec, dir);
    T_INT(oci_layers_check(&b, &e), 0); /* it never ran */
    T_INT(oci_proc_identify(getpid(), &run.init, &e), 0);
    T_INT(oci_run_save(&b, &run, &e), 0);
    T_INT(oci_layers_check(&b, &e), -ERR_UNIMPLEMENTED);
    T_STR(e.field, "snapshot");
    run.init.start++; /* another process has the pid */
    T_INT(oci_run_save(&b, &run, &e), 0);
    T_INT(oci_layers_check(&b, &e), 0);
}
