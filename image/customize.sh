#!/bin/sh
# customize.sh [USER [WORKDIR]] [--in-container]: runs as root inside the new root file system, after
# the packages, node and npm: makes of a plain Debian what a box needs. Used by layers.sh and, with
# --in-container, by the Dockerfile: there the engine owns the network's files. Safe to run twice.
set -eu

user=user
workdir=
where=
for word; do
    case $word in
    --in-container) where=$word ;;
    /*) workdir=$word ;;
    *) user=$word ;;
    esac
done

# Debian calls it fdfind; everybody else, and the coding agents, fd.
link_fd()
{
    [ ! -e /usr/bin/fdfind ] || ln -sf fdfind /usr/bin/fd
}

# Another user of a template below becomes this one: it is the same person, whose things stay theirs.
add_user()
{
    was=$(getent passwd 1000 | cut -d : -f 1)
    if id "$user" >/dev/null 2>&1; then
        :
    elif [ -z "$was" ]; then
        useradd --create-home --uid 1000 --user-group --shell /bin/bash "$user"
    else
        groupmod --new-name "$user" "$was"
        usermod --login "$user" --home "/home/$user" "$was"
        # Copied: a directory of a layer below cannot be renamed.
        cp -a "/home/$was" "/home/$user"
        rm -rf "/home/${was:?}" "/etc/sudoers.d/$was"
    fi
    mkdir -p /etc/sudoers.d /workspace
    echo "$user ALL=(ALL:ALL) NOPASSWD: ALL" >"/etc/sudoers.d/$user"
    chmod 0440 "/etc/sudoers.d/$user"
    chown "$user:$user" /workspace
    if [ -n "$workdir" ] && [ ! -d "$workdir" ]; then
        mkdir -p "$workdir"
        chown "$user:$user" "$workdir"
    fi
    # So that `pip install` and `npm install -g` need no sudo; what is there already is not touched,
    # since in a layer of its own that would be a copy of it.
    find /usr/local -user 0 ! -name bellhopd -exec chown -h "$user:$user" '{}' +
}

# A repository that comes into the box must not bring hooks that run there.
configure_git()
{
    command -v git >/dev/null || return 0
    git config --system core.hooksPath /dev/null
    git config --system init.defaultBranch main
    git config --system advice.detachedHead false
}

# The box is there to install things in: Debian's refusal is for machines that it looks after.
configure_pip()
{
    printf '[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\nroot-user-action = ignore\n' \
        >/etc/pip.conf
}

# Where the host puts the agent: mounted over in a box, copied in a template.
make_agent_places()
{
    mkdir -p /run/bellhop
    [ -e /usr/local/bin/bellhopd ] || : >/usr/local/bin/bellhopd
    chown root:root /usr/local/bin/bellhopd
    chmod 755 /usr/local/bin/bellhopd
}

# Nothing of the machine that made the image, nothing that can be fetched again.
prune()
{
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/lib/dpkg/*-old \
        /var/log/* /root/.cache /usr/share/man/* /usr/share/info/* /var/cache/ldconfig/aux-cache
    [ "$where" != --in-container ] || rm -rf /tmp/* /var/tmp/*
    rm -f /var/lib/dbus/machine-id /etc/ssh/ssh_host_* /etc/passwd- /etc/shadow- /etc/group- /etc/gshadow- \
        /etc/subuid- /etc/subgid-
    : >/etc/machine-id
    find /usr/lib/python3* /usr/share/python3 -name __pycache__ -prune -exec rm -rf '{}' + 2>/dev/null || true
}

# The names and addresses of the machine that made the image.
forget_network()
{
    : >/etc/resolv.conf
    : >/etc/hostname
    printf '127.0.0.1 localhost\n::1 localhost\n' >/etc/hosts
}

link_fd
add_user
configure_git
configure_pip
make_agent_places
prune
[ "$where" = --in-container ] || forget_network
