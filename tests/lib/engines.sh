# shellcheck shell=sh
# engines.sh: Docker and Podman with data of their own. Used by bats files and tests/long:
#
#   ENGINES=DIR; . tests/lib/engines.sh       (bats: `load` it by its full name)
#   start_dockerd; set_up_podman; ...; stop_engines
#
# start_dockerd   a daemon on its own socket, data directory and bridge; sets DOCKER_HOST
# set_up_podman   its own storage, by CONTAINERS_STORAGE_CONF; and what this kind of machine needs (CONTAINERS_CONF)
# Both need root. stop_engines removes everything of them, and ends only processes that were started here.

start_dockerd()
{
    mkdir -p "$ENGINES/docker"
    # The client must have the daemon's version: another one may lack its builder.
    export PATH="/usr/sbin:/usr/bin:$PATH"
    export DOCKER_HOST="unix://$ENGINES/docker/sock"
    # Another daemon on this machine has docker0.
    engines_n=$(($(od -An -N 1 -t u1 /dev/urandom) % 200 + 20))
    engines_bridge=bhdocker$engines_n
    echo "$engines_bridge 10.$engines_n.0.0/24" >"$ENGINES/bridge"
    iptables -S FORWARD | sed -n 's/^-P FORWARD //p' >"$ENGINES/policy"
    ip link add "$engines_bridge" type bridge
    ip addr add "10.$engines_n.0.1/24" dev "$engines_bridge"
    ip link set "$engines_bridge" up
    # 3 and 4 are bats' own.
    dockerd --data-root "$ENGINES/docker/root" --exec-root "$ENGINES/docker/exec" -H "$DOCKER_HOST" \
        -p "$ENGINES/docker/pid" --bridge "$engines_bridge" --default-ulimit nofile=16384:16384 \
        >"$ENGINES/docker/log" 2>&1 </dev/null 3>&- 4>&- &
    echo $! >"$ENGINES/docker/started"
    engines_n=1800
    until docker version >/dev/null 2>&1; do
        engines_n=$((engines_n - 1))
        if [ "$engines_n" -eq 0 ] || ! kill -0 "$(cat "$ENGINES/docker/started")" 2>/dev/null; then
            tail -n 20 "$ENGINES/docker/log" >&2
            return 1
        fi
        sleep 0.1
    done
}

set_up_podman()
{
    mkdir -p "$ENGINES/podman"
    # No limit can be raised on a machine that lacks CAP_SYS_RESOURCE, and crun wants whole cgroups.
    cat >"$ENGINES/podman/containers.conf" <<END
[containers]
default_ulimits = ["nofile=16384:16384","nproc=16384:16384"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
END
    cat >"$ENGINES/podman/storage.conf" <<END
[storage]
driver = "overlay"
graphroot = "$ENGINES/podman/root"
runroot = "$ENGINES/podman/run"
END
    export CONTAINERS_CONF="$ENGINES/podman/containers.conf"
    export CONTAINERS_STORAGE_CONF="$ENGINES/podman/storage.conf"
}

# until_gone PID
until_gone()
{
    engines_n=600
    while kill -0 "$1" 2>/dev/null; do
        engines_n=$((engines_n - 1))
        [ "$engines_n" -gt 0 ] || kill -9 "$1" 2>/dev/null || return 0
        sleep 0.1
    done
}

# The daemon leaves its rules and its policy behind. They are removed one by one: restoring all saved rules would bring
# back rules that others have removed meanwhile, and break their ports.
take_back_network()
{
    read -r engines_bridge engines_net <"$ENGINES/bridge"
    ip link del "$engines_bridge" 2>/dev/null || true
    for engines_table in filter nat; do
        iptables -w -t "$engines_table" -S | grep -F -e "$engines_bridge" -e "$engines_net" | grep '^-A ' |
            while read -r _ engines_rule; do
                # shellcheck disable=SC2086 # the rule's words
                iptables -w -t "$engines_table" -D $engines_rule || true
            done
    done
    iptables -w -P FORWARD "$(cat "$ENGINES/policy")"
}

stop_engines()
{
    if [ -e "$ENGINES/docker/started" ]; then
        docker ps -aq | xargs -r docker rm -f >/dev/null 2>&1 || true
        kill "$(cat "$ENGINES/docker/started")" 2>/dev/null || true
        until_gone "$(cat "$ENGINES/docker/started")"
        take_back_network
    fi
    if [ -e "$ENGINES/podman/root" ]; then
        podman rm --all --force >/dev/null 2>&1 || true
    fi
    awk -v at="$ENGINES/" 'index($5, at) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
        xargs -r umount -l 2>/dev/null || true
    rm -rf --one-file-system "$ENGINES"
}
