# shellcheck shell=sh
# engines.sh: Docker and Podman with data of their own. Used by bats files and tests/long:
#
#   ENGINES=DIR; . tests/lib/engines.sh       (bats: `load` it by its full name)
#   start_dockerd; set_up_podman; ...; stop_engines
#
# start_dockerd           a daemon on its own socket, data directory and bridge; sets DOCKER_HOST; takes DOCKERD_OPTIONS
# stop_dockerd_hard       kills it; its containers run on
# restart_dockerd         starts it again with the same data, stopped before; it ends its containers without the option
#                         --live-restore
# share_run_netns         before the first `ip netns add`; set_up_podman does it
# set_up_podman           its own storage, by CONTAINERS_STORAGE_CONF, and what such a machine needs (CONTAINERS_CONF)
# start_podman_service    Podman's API on a socket; sets PODMAN_SOCKET; after set_up_podman
# start_rootless_dockerd, start_rootless_podman
#                         the same as an ordinary user made for it; set ROOTLESS_DOCKER_SOCKET, ROOTLESS_PODMAN_SOCKET
# as_rootless COMMAND...  a command as this user, which make_rootless_user makes
# All need root. stop_engines removes everything of them, and ends only processes that were started here.

start_dockerd()
{
    mkdir -p "$ENGINES/docker"
    # The client must have the daemon's version: another one may lack its builder.
    export PATH="/usr/sbin:/usr/bin:$PATH"
    export DOCKER_HOST="unix://$ENGINES/docker/sock"
    make_bridge
    run_dockerd
}

# Another daemon on this machine has docker0, and further ones a number each.
make_bridge()
{
    for _ in 1 2 3 4 5 6 7 8; do
        engines_n=$(($(od -An -N 1 -t u1 /dev/urandom) % 200 + 20))
        engines_bridge=bhdocker$engines_n
        ! ip link add "$engines_bridge" type bridge 2>/dev/null || break
    done
    echo "$engines_bridge 10.$engines_n.0.0/24" >"$ENGINES/bridge"
    ip addr add "10.$engines_n.0.1/24" dev "$engines_bridge"
    ip link set "$engines_bridge" up
}

# is_running PID: a zombie does not run.
is_running()
{
    grep -q '^State:.[^ZX]' "/proc/$1/status" 2>/dev/null
}

# answers_or_fails PID LOG COMMAND...: until the command succeeds; if the process ends before, its log is printed.
answers_or_fails()
{
    engines_pid=$1
    engines_log=$2
    shift 2
    engines_n=1800
    until "$@" >/dev/null 2>&1; do
        engines_n=$((engines_n - 1))
        if [ "$engines_n" -eq 0 ] || ! is_running "$engines_pid"; then
            tail -n 20 "$engines_log" >&2
            return 1
        fi
        sleep 0.1
    done
}

# socket_answers SOCKET: an API of Docker's kind.
socket_answers()
{
    curl -sf --max-time 5 -o /dev/null --unix-socket "$1" http://engine/_ping
}

# One at a time: daemons that start at once make the same chains of iptables, and fail.
run_dockerd()
{
    read -r engines_bridge _ <"$ENGINES/bridge"
    exec 9>/run/lock/bellhop-dockerd
    flock 9
    # A daemon that turns forwarding on sets the policy of FORWARD to DROP, too, and leaves both behind.
    sysctl -qw net.ipv4.ip_forward=1
    # 3 and 4 are bats' own.
    # shellcheck disable=SC2086 # a word an option
    dockerd --data-root "$ENGINES/docker/root" --exec-root "$ENGINES/docker/exec" -H "$DOCKER_HOST" \
        -p "$ENGINES/docker/pid" --bridge "$engines_bridge" --default-ulimit nofile=16384:16384 \
        ${DOCKERD_OPTIONS:-} >>"$ENGINES/docker/log" 2>&1 </dev/null 3>&- 4>&- 9>&- &
    echo $! >"$ENGINES/docker/started"
    engines_status=0
    answers_or_fails $! "$ENGINES/docker/log" docker version || engines_status=1
    exec 9>&-
    return "$engines_status"
}

stop_dockerd_hard()
{
    kill -9 "$(cat "$ENGINES/docker/started")"
    until_gone "$(cat "$ENGINES/docker/started")"
}

restart_dockerd()
{
    if is_running "$(cat "$ENGINES/docker/started")"; then
        kill "$(cat "$ENGINES/docker/started")"
        until_gone "$(cat "$ENGINES/docker/started")"
    fi
    # A killed daemon leaves the files, and the numbers in them can be those of other processes, or of zombies.
    rm -f "$ENGINES/docker/pid"
    engines_file=$ENGINES/docker/exec/containerd/containerd.pid
    if [ -e "$engines_file" ] && ! is_running "$(cat "$engines_file")"; then
        rm -f "$engines_file"
    fi
    run_dockerd
}

# write_podman_config DIR: containers.conf and storage.conf for a storage in it.
write_podman_config()
{
    # No limit can be raised on a machine that lacks CAP_SYS_RESOURCE, and crun wants whole cgroups.
    cat >"$1/containers.conf" <<END
[containers]
default_ulimits = ["nofile=16384:16384","nproc=16384:16384"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
END
    cat >"$1/storage.conf" <<END
[storage]
driver = "overlay"
graphroot = "$1/root"
runroot = "$1/run"
END
}

# share_run_netns: `ip netns add` and Podman make /run/netns a mount point when they first use it. If both do so at
# once, the namespaces of one are hidden under the mount of the other.
share_run_netns()
(
    exec 9>/run/lock/bellhop-netns
    flock 9
    mkdir -p /run/netns
    mountpoint -q /run/netns || mount --rbind /run/netns /run/netns
    mount --make-shared /run/netns
)

set_up_podman()
{
    share_run_netns
    mkdir -p "$ENGINES/podman"
    write_podman_config "$ENGINES/podman"
    export CONTAINERS_CONF="$ENGINES/podman/containers.conf"
    export CONTAINERS_STORAGE_CONF="$ENGINES/podman/storage.conf"
}

start_podman_service()
{
    PODMAN_SOCKET=$ENGINES/podman/sock
    export PODMAN_SOCKET
    # Its conmon leaves files where it was started.
    (cd "$ENGINES/podman" && exec podman system service --time=0 "unix://$PODMAN_SOCKET") \
        >"$ENGINES/podman/log" 2>&1 </dev/null 3>&- 4>&- &
    echo $! >"$ENGINES/podman/started"
    answers_or_fails $! "$ENGINES/podman/log" socket_answers "$PODMAN_SOCKET"
}

# ---- rootless ----------------------------------------------------------------------------------

# A user with ranges of users of its own, and a home that it can reach: the directories of bats are closed. Where only
# root can open /dev/net/tun, which the network needs, a node of the user's own stands in.
make_rootless_user()
{
    [ ! -e "$ENGINES/rootless" ] || return 0
    mkdir -p "$ENGINES"
    ROOTLESS_HOME=$(mktemp -d /tmp/bellhop-rootless-XXXXXX)
    ROOTLESS_USER=bellhop-$(od -An -N 4 -t x4 /dev/urandom | tr -d ' ')
    export ROOTLESS_HOME ROOTLESS_USER
    echo "$ROOTLESS_USER $ROOTLESS_HOME" >"$ENGINES/rootless"
    useradd --no-create-home --home-dir "$ROOTLESS_HOME" --shell /bin/sh "$ROOTLESS_USER"
    mkdir "$ROOTLESS_HOME/podman" "$ROOTLESS_HOME/docker"
    mkdir -m 0700 "$ROOTLESS_HOME/run"
    write_podman_config "$ROOTLESS_HOME/podman"
    mknod -m 0666 "$ROOTLESS_HOME/tun" c 10 200
    chown -R "$ROOTLESS_USER:" "$ROOTLESS_HOME"
}

# as_rootless COMMAND...: in the background, $! is the command itself.
as_rootless()
{
    # shellcheck disable=SC2016 # for the shell in the namespace
    set -- sh -c '
        user=$1 home=$2
        shift 2
        cd "$home"
        mount --bind "$home/tun" /dev/net/tun
        exec setpriv --reuid "$user" --regid "$user" --init-groups env -u DOCKER_HOST HOME="$home" \
            XDG_RUNTIME_DIR="$home/run" CONTAINERS_CONF="$home/podman/containers.conf" \
            CONTAINERS_STORAGE_CONF="$home/podman/storage.conf" "$@"' sh "$ROOTLESS_USER" "$ROOTLESS_HOME" "$@"
    unshare --mount --propagation slave "$@"
}

# rootless_service NAME SOCKET COMMAND...
rootless_service()
{
    engines_name=$1
    engines_socket=$2
    shift 2
    as_rootless "$@" >"$ROOTLESS_HOME/$engines_name.log" 2>&1 </dev/null 3>&- 4>&- &
    answers_or_fails $! "$ROOTLESS_HOME/$engines_name.log" socket_answers "$engines_socket"
}

start_rootless_podman()
{
    make_rootless_user
    ROOTLESS_PODMAN_SOCKET=$ROOTLESS_HOME/run/podman.sock
    export ROOTLESS_PODMAN_SOCKET
    rootless_service podman "$ROOTLESS_PODMAN_SOCKET" podman system service --time=0 "unix://$ROOTLESS_PODMAN_SOCKET"
}

# Needs rootlesskit.
start_rootless_dockerd()
{
    make_rootless_user
    ROOTLESS_DOCKER_SOCKET=$ROOTLESS_HOME/run/docker.sock
    export ROOTLESS_DOCKER_SOCKET
    rootless_service docker "$ROOTLESS_DOCKER_SOCKET" env PATH="/usr/sbin:/usr/bin:/sbin:/bin" \
        sh /usr/share/docker.io/contrib/dockerd-rootless.sh \
        -H "unix://$ROOTLESS_DOCKER_SOCKET" --data-root "$ROOTLESS_HOME/docker/root" \
        --exec-root "$ROOTLESS_HOME/run/docker" -p "$ROOTLESS_HOME/run/docker.pid" \
        --default-ulimit nofile=16384:16384
}

# All processes of the user are the engines': nobody else has this user.
stop_rootless()
{
    read -r ROOTLESS_USER ROOTLESS_HOME <"$ENGINES/rootless"
    if [ -S "$ROOTLESS_HOME/run/podman.sock" ]; then
        as_rootless podman rm --all --force >/dev/null 2>&1 || true
    fi
    if [ -S "$ROOTLESS_HOME/run/docker.sock" ]; then
        docker -H "unix://$ROOTLESS_HOME/run/docker.sock" ps -aq |
            xargs -r docker -H "unix://$ROOTLESS_HOME/run/docker.sock" rm -f >/dev/null 2>&1 || true
        kill "$(cat "$ROOTLESS_HOME/run/docker.pid")" 2>/dev/null || true
        until_gone "$(cat "$ROOTLESS_HOME/run/docker.pid")"
    fi
    for engines_pid in $(pgrep -u "$ROOTLESS_USER"); do
        kill "$engines_pid" 2>/dev/null || true
        until_gone "$engines_pid"
    done
    userdel "$ROOTLESS_USER"
    rm -rf --one-file-system "$ROOTLESS_HOME"
}

# ---- the end -----------------------------------------------------------------------------------

# until_gone PID: it was told to end; after a minute it is killed.
until_gone()
{
    engines_n=600
    while is_running "$1"; do
        engines_n=$((engines_n - 1))
        [ "$engines_n" -gt 0 ] || kill -9 "$1" 2>/dev/null || return 0
        sleep 0.1
    done
}

# The daemon leaves its rules behind. They are removed one by one: restoring all saved rules would bring back rules that
# others have removed meanwhile, and break their ports.
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
}

stop_engines()
{
    [ ! -e "$ENGINES/rootless" ] || stop_rootless
    if [ -e "$ENGINES/docker/started" ]; then
        # A killed daemon leaves its containerd and its containers, which end with the next one.
        is_running "$(cat "$ENGINES/docker/started")" || restart_dockerd || true
        docker ps -aq | xargs -r docker rm -f >/dev/null 2>&1 || true
        kill "$(cat "$ENGINES/docker/started")" 2>/dev/null || true
        until_gone "$(cat "$ENGINES/docker/started")"
        take_back_network
    fi
    if [ -e "$ENGINES/podman/root" ]; then
        podman rm --all --force >/dev/null 2>&1 || true
    fi
    if [ -e "$ENGINES/podman/started" ]; then
        kill "$(cat "$ENGINES/podman/started")" 2>/dev/null || true
        until_gone "$(cat "$ENGINES/podman/started")"
    fi
    awk -v at="$ENGINES/" 'index($5, at) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
        xargs -r umount -l 2>/dev/null || true
    rm -rf --one-file-system "$ENGINES"
}
