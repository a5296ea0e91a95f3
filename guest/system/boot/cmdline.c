#include "system/boot/cmdline.h"

#include <arpa/inet.h>
#include <string.h>

#include "common/str.h"

#define ROOT_DEFAULT "/dev/vda"

enum ip_field {
    IP_CLIENT,
    IP_SERVER,
    IP_GATEWAY,
    IP_NETMASK,
    IP_HOSTNAME,
    IP_DEVICE,
    IP_AUTOCONF,
    IP_DNS0,
    IP_DNS1,
    N_IP_FIELDS /* the next field, a time server, is ignored */
};

static void use_qemu_network(struct cmdline_net *n)
{
    n->client.s_addr = htonl(0x0a00020f);  /* 10.0.2.15 */
    n->gateway.s_addr = htonl(0x0a000202); /* 10.0.2.2 */
    n->dns[0].s_addr = htonl(0x0a000203);  /* 10.0.2.3 */
    n->netmask.s_addr = htonl(0xffffff00);
}

/* The next word, without its quotes; NULL: the end. */
static char *next_word(char **at)
{
    char *from = *at + strspn(*at, " \t\n"), *to = from, *word = from;
    bool is_quoted = false;

    if (!*from)
        return NULL;
    for (; *from && (is_quoted || !strchr(" \t\n", *from)); from++)
        if (*from == '"')
            is_quoted = !is_quoted;
        else
            *to++ = *from;
    *at = *from ? from + 1 : from;
    *to = '\0';
    return word;
}

static int copy_value(char *out, size_t size, const char *value, const char *what, struct err *e)
{
    if (strlen(value) >= size)
        return err_field(e, ERR_INVALID, what, "'%s' on the kernel's command line is too long",
                         what);
    memcpy(out, value, strlen(value) + 1);
    return 0;
}

static int parse_address(struct in_addr *out, const char *text, struct err *e)
{
    if (!*text || inet_pton(AF_INET, text, out) == 1)
        return 0;
    return err_field(e, ERR_INVALID, "ip", "'%.40s' in 'ip=' is no IPv4 address", text);
}

/* DHCP is refused by name: without an error a user would believe that it works. */
static int set_word(struct cmdline_net *n, const char *value, struct err *e)
{
    if (!str_eq(value, "off") && !str_eq(value, "none"))
        return err_field(e, ERR_INVALID, "ip",
                         "'ip=%.40s' can't be had: it takes addresses, or 'off'", value);
    n->is_off = true;
    return 0;
}

static int set_ip(struct cmdline *c, char *value, struct err *e)
{
    const char *fields[N_IP_FIELDS];
    struct cmdline_net *n = &c->net;
    int r;

    *n = (struct cmdline_net){.is_asked = true};
    if (!strchr(value, ':') && !strchr(value, '.'))
        return set_word(n, value, e);
    for (size_t i = 0; i < N_IP_FIELDS; i++) {
        const char *field = strsep(&value, ":");

        fields[i] = field ? field : "";
    }
    n->netmask.s_addr = htonl(0xffffff00);
    if ((r = parse_address(&n->client, fields[IP_CLIENT], e)) < 0 ||
        (r = parse_address(&n->gateway, fields[IP_GATEWAY], e)) < 0 ||
        (r = parse_address(&n->netmask, fields[IP_NETMASK], e)) < 0 ||
        (r = parse_address(&n->dns[0], fields[IP_DNS0], e)) < 0 ||
        (r = parse_address(&n->dns[1], fields[IP_DNS1], e)) < 0 ||
        (r = copy_value(n->device, sizeof(n->device), fields[IP_DEVICE], "ip", e)) < 0)
        return r;
    if (!n->client.s_addr)
        return err_field(e, ERR_INVALID, "ip", "'ip=' names no address for this machine");
    return *fields[IP_HOSTNAME]
               ? copy_value(c->hostname, sizeof(c->hostname), fields[IP_HOSTNAME], "ip", e)
               : 0;
}

static int set_item(struct cmdline *c, char *word, struct err *e)
{
    if (str_has_prefix(word, "root="))
        return copy_value(c->root, sizeof(c->root), word + strlen("root="), "root", e);
    if (str_has_prefix(word, "hostname="))
        return copy_value(c->hostname, sizeof(c->hostname), word + strlen("hostname="), "hostname",
                          e);
    if (str_has_prefix(word, "ip="))
        return set_ip(c, word + strlen("ip="), e);
    return 0;
}

static int add_options(struct cmdline *c, char *rest, struct err *e)
{
    char *word;
    int r = 0;

    for (size_t n = 0; r == 0 && (word = next_word(&rest)); n++)
        r = n < CMDLINE_MAX_OPTIONS
                ? strv_push(&c->options, word, e)
                : err_set(e, ERR_INVALID,
                          "more than %d words after '--' on the kernel's command line",
                          CMDLINE_MAX_OPTIONS);
    return r;
}

int cmdline_parse(char *text, struct cmdline *ret, struct err *e)
{
    struct cmdline c = {.root = ROOT_DEFAULT};
    char *word;
    int r = 0;

    use_qemu_network(&c.net);
    while (r == 0 && (word = next_word(&text)))
        if (str_eq(word, "--")) {
            r = add_options(&c, text, e);
            break;
        } else {
            r = set_item(&c, word, e);
        }
    if (r < 0) {
        cmdline_done(&c);
        return r;
    }
    *ret = c;
    return 0;
}

void cmdline_done(struct cmdline *c)
{
    c->options = strv_free(c->options);
}
