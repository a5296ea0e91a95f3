/* cmdline: options for a machine's first process on the kernel's command line. */
#include "system/boot/cmdline.h"

#include <arpa/inet.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "test.h"

static int parse(const char *text, struct cmdline *ret, struct err *e)
{
    char copy[CMDLINE_MAX_BYTES];

    (void)snprintf(copy, sizeof(copy), "%s", text);
    return cmdline_parse(copy, ret, e);
}

static void is_address(struct in_addr got, const char *want)
{
    char text[INET_ADDRSTRLEN];

    T_STR(inet_ntop(AF_INET, &got, text, sizeof(text)), want);
}

TEST(cmdline_without_words_for_us_means_the_first_disk_and_qemus_network)
{
    struct cmdline c;

    T_INT(parse("console=ttyS0 quiet panic=-1\n", &c, NULL), 0);
    T_STR(c.root, "/dev/vda");
    T_STR(c.hostname, "");
    is_address(c.net.client, "10.0.2.15");
    is_address(c.net.netmask, "255.255.255.0");
    is_address(c.net.gateway, "10.0.2.2");
    is_address(c.net.dns[0], "10.0.2.3");
    T_OK(!c.net.is_off && !c.net.is_asked && !c.options);
    cmdline_done(&c);
}

TEST(cmdline_takes_addresses_as_the_kernel_has_them)
{
    struct cmdline c;

    T_INT(
        parse("root=/dev/vdb "
              "ip=192.168.7.9:1.2.3.4:192.168.7.1:255.255.0.0:box:eth1:off:9.9.9.9:8.8.8.8:7.7.7.7",
              &c, NULL),
        0);
    T_STR(c.root, "/dev/vdb");
    T_STR(c.hostname, "box");
    T_STR(c.net.device, "eth1");
    is_address(c.net.client, "192.168.7.9");
    is_address(c.net.gateway, "192.168.7.1");
    is_address(c.net.netmask, "255.255.0.0");
    is_address(c.net.dns[0], "9.9.9.9");
    is_address(c.net.dns[1], "8.8.8.8");
    T_OK(c.net.is_asked);
    cmdline_done(&c);

    T_INT(parse("ip=10.1.1.1", &c, NULL), 0);
    is_address(c.net.client, "10.1.1.1");
    is_address(c.net.netmask, "255.255.255.0");
    T_OK(!c.net.gateway.s_addr && !c.net.dns[0].s_addr);
    cmdline_done(&c);

    T_INT(parse("ip=off hostname=one hostname=two", &c, NULL), 0);
    T_OK(c.net.is_off);
    T_STR(c.hostname, "two");
    cmdline_done(&c);
}

TEST(cmdline_gives_the_words_after_two_dashes_to_the_agent)
{
    struct cmdline c;

    T_INT(parse("ip=off -- --user \"a b\" --log=debug root=/dev/no \n", &c, NULL), 0);
    T_INT(strv_len(c.options), 4);
    T_STR(c.options[1], "a b");
    T_STR(c.options[3], "root=/dev/no");
    T_STR(c.root, "/dev/vda");
    cmdline_done(&c);
}

TEST(cmdline_refuses_what_it_cannot_do_and_names_the_word)
{
    static const struct {
        const char *text, *field;
    } rows[] = {
        {"ip=dhcp", "ip"},
        {"ip=on", "ip"},
        {"ip=1.2.3", "ip"},
        {"ip=1.2.3.4.5", "ip"},
        {"ip=::10.0.0.1", "ip"},
        {"ip=1.2.3.4:::255.255.255.256", "ip"},
        {"ip=1.2.3.4:::::averylonginterfacename", "ip"},
        {"root=/dev/0123456789012345678901234567890123456789012345678901234567890123456789",
         "root"},
        {"hostname=0123456789012345678901234567890123456789012345678901234567890123456789",
         "hostname"},
    };

    for (size_t i = 0; i < N_ELEMENTS(rows); i++) {
        struct cmdline c;
        struct err e = {0};

        T_INT(parse(rows[i].text, &c, &e), -ERR_INVALID);
        T_STR(e.field, rows[i].field);
    }
}

TEST(cmdline_bounds_the_words_for_the_agent)
{
    char text[CMDLINE_MAX_BYTES] = "--";
    struct cmdline c;
    struct err e = {0};

    for (int i = 0; i < CMDLINE_MAX_OPTIONS; i++)
        (void)strncat(text, " x", sizeof(text) - strlen(text) - 1);
    T_INT(parse(text, &c, &e), 0);
    T_INT(strv_len(c.options), CMDLINE_MAX_OPTIONS);
    cmdline_done(&c);
    (void)strncat(text, " x", sizeof(text) - strlen(text) - 1);
    T_INT(parse(text, &c, &e), -ERR_INVALID);
}
