#include <stdio.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/wire/method.h"

struct ports {
    struct cli_table *table;
};

static int add_port(void *arg, const struct bh_port *p)
{
    struct ports *ports = arg;
    char number[8], connections[16], process[80];

    if (p->is_agent)
        return 0;
    (void)snprintf(number, sizeof(number), "%u", (unsigned)p->port);
    (void)snprintf(connections, sizeof(connections), "%u", p->connections);
    (void)snprintf(process, sizeof(process), p->pid ? "%.60s (%d)" : "-", p->process, p->pid);
    cli_table_add(ports->table, (const char *const[]){
                                    number, p->protocol, p->address, p->reachable ? "yes" : "no",
                                    connections, process, *p->command ? p->command : "-", NULL});
    return 0;
}

static int run_ports(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"PORT",        "PROTOCOL", "ADDRESS", "REACHABLE",
                                        "CONNECTIONS", "PROCESS",  "COMMAND", NULL};
    _cleanup_box_ struct bh_box *box = NULL;
    struct ports ports = {0};
    _cleanup_free_ char *reply = NULL;
    int r = bh_get(c->ctx, operands[0], &box, err);

    (void)args;
    if (r == 0 && c->json) {
        r = bh_call(box, rpc_method_name(RPC_system_ports), NULL, NULL, NULL, 0, &reply, err);
        if (r == 0)
            cli_puts_json(reply);
        return r;
    }
    if (r == 0)
        ports.table = cli_table_new(heads);
    if (r == 0)
        r = bh_ports(box, add_port, &ports, err);
    cli_table_print_free(ports.table, c->tty_out);
    return r;
}

const struct cli_command cmd_ports = {
    .name = "ports",
    .group = "Work",
    .operands = "NAME",
    .summary = "list what listens in a box",
    .details =
        "REACHABLE: 'bellhop url --port' works for the port. COMMAND is the id that 'ps' shows.",
    .examples = "  bellhop ports api\n"
                "  bellhop url api --port 3000\n",
    .min_operands = 1,
    .max_operands = 1,
    .flags = CLI_TAKES_BOX | CLI_AT_DAEMON,
    .run = run_ports,
};
