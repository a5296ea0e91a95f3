#pragma once
/*
 * agent_process: the guest agent as a process of this machine, in a session of its own and without
 * any isolation. For trying things out, for tests, and where nothing else works. It claims no
 * capability that needs isolation, so that an option which does is an error.
 */
#include "lib/provider/provider.h"

extern const struct provider provider_process;
