#include "lib/box/lifecycle.h"

#include <stddef.h>
#include <string.h>

#define S(state) (1u << BH_STATE_##state)

/*
 * The successors of each state. stopping and destroying follow themselves: a command that finds
 * one interrupted repeats it. A box whose disk is worth keeping goes through stopping to error if
 * its start fails; an error of a running box keeps its processes.
 */
static const struct {
    const char *name;
    unsigned next;
} box_states[LIFECYCLE_N_STATES] = {
    [BH_STATE_UNKNOWN] = {"unknown", 0},
    [BH_STATE_REQUESTED] = {"requested", S(PROVISIONING) | S(DESTROYING) | S(ERROR)},
    [BH_STATE_PROVISIONING] = {"provisioning",
                               S(BOOTSTRAPPING) | S(STOPPING) | S(DESTROYING) | S(ERROR)},
    [BH_STATE_BOOTSTRAPPING] = {"bootstrapping",
                                S(RUNNING) | S(STOPPING) | S(DESTROYING) | S(ERROR)},
    [BH_STATE_RUNNING] = {"running", S(PAUSING) | S(STOPPING) | S(DESTROYING) | S(ERROR)},
    [BH_STATE_PAUSING] = {"pausing",
                          S(PAUSED) | S(RUNNING) | S(STOPPING) | S(DESTROYING) | S(ERROR)},
    [BH_STATE_PAUSED] = {"paused", S(RESUMING) | S(STOPPING) | S(DESTROYING) | S(ERROR)},
    [BH_STATE_RESUMING] = {"resuming",
                           S(RUNNING) | S(PAUSED) | S(STOPPING) | S(DESTROYING) | S(ERROR)},
    [BH_STATE_STOPPING] = {"stopping", S(STOPPING) | S(STOPPED) | S(DESTROYING) | S(ERROR)},
    [BH_STATE_STOPPED] = {"stopped", S(PROVISIONING) | S(DESTROYING) | S(ERROR)},
    [BH_STATE_DESTROYING] = {"destroying", S(DESTROYING) | S(DESTROYED) | S(ERROR)},
    [BH_STATE_DESTROYED] = {"destroyed", 0},
    [BH_STATE_ERROR] = {"error", S(PROVISIONING) | S(BOOTSTRAPPING) | S(STOPPING) | S(DESTROYING)},
};

static bool is_state(enum bh_state state)
{
    return (unsigned)state < LIFECYCLE_N_STATES;
}

const char *bh_state_name(enum bh_state state)
{
    return box_states[is_state(state) ? state : BH_STATE_UNKNOWN].name;
}

enum bh_state lifecycle_parse(const char *name)
{
    for (unsigned i = 0; i < LIFECYCLE_N_STATES; i++)
        if (strcmp(box_states[i].name, name) == 0)
            return (enum bh_state)i;
    return BH_STATE_UNKNOWN;
}

bool lifecycle_is_legal(enum bh_state from, enum bh_state to)
{
    return is_state(from) && is_state(to) && (box_states[from].next & (1u << to)) != 0;
}

bool lifecycle_is_transitional(enum bh_state state)
{
    const unsigned at_work = S(REQUESTED) | S(PROVISIONING) | S(BOOTSTRAPPING) | S(PAUSING) |
                             S(RESUMING) | S(STOPPING) | S(DESTROYING);

    return is_state(state) && (at_work & (1u << state)) != 0;
}
