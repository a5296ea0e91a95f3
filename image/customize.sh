#!/bin/sh
# Runs as root inside the new root file system, after the packages, node and npm: makes of a plain
# Debian what a box needs. Used by build.sh and, with --in-container, by the Dockerfile: there the
# engine owns the network's files. Safe to run twice.
set -eu

where=${1:-}

# Debian calls it fdfind; everybody else, and the coding agents, fd.
link_fd()
{
    ln -sf fdfind /usr/bin/fd
}

add_user()
{
    id user >/dev/null 2>&1 ||
        useradd --create-home --uid 1000 --user-group --shell /bin/bash user
    echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/user
    chmod 0440 /etc/sudoers.d/user
    mkdir -p /workspace
    chown user:user /workspace
    chown root:root /usr/local/bin/*
    # So that `npm install -g` needs no sudo.
    chown -R user:user /usr/local/lib/node_modules
    chown user:user /usr/local/bin /usr/local/lib
}

# A repository that comes into the box must not bring hooks that run there.
configure_git()
{
    git config --system core.hooksPath /dev/null
    git config --system init.defaultBranch main
    git config --system advice.detachedHead false
}

# Where the host puts the agent: mounted over in a box, copied in a template.
make_agent_places()
{
    mkdir -p /run/bellhop
    touch /usr/local/bin/bellhopd
    chmod 755 /usr/local/bin/bellhopd
}

# Nothing of the machine that made the image, nothing that can be fetched again.
prune()
{
    apt-get clean
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/lib/dpkg/*-old \
        /var/log/* /tmp/* /var/tmp/* /root/.cache /usr/share/man/* /usr/share/info/*
    rm -f /var/lib/dbus/machine-id /etc/ssh/ssh_host_*
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
make_agent_places
prune
[ "$where" = --in-container ] || forget_network
