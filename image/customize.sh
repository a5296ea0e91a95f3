#!/bin/sh
# customize.sh [USER [WORKDIR]] [--in-container]: turns a plain Debian into a box. Runs as root inside the new root file
# system, after the packages, node and npm. Used by layers.sh and, with --in-container, by the Dockerfile: there the
# engine owns the files of the network. Safe to run twice.
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

# Debian names it fdfind; all others, and the coding agents, name it fd.
link_fd()
{
    [ ! -e /usr/bin/fdfind ] || ln -sf fdfind /usr/bin/fd
}

# The user of a template below is renamed to this one: the files stay theirs.
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
        # Copy: a directory of a lower layer cannot be renamed.
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
    # Lets `pip install` and `npm install -g` work without sudo. Existing files are not changed: in a layer of
    # its own that would copy them.
    find /usr/local -user 0 ! -name bellhopd -exec chown -h "$user:$user" '{}' +
}

# A repository that is uploaded must not bring hooks that run in the box.
configure_git()
{
    command -v git >/dev/null || return 0
    git config --system core.hooksPath /dev/null
    git config --system init.defaultBranch main
    git config --system advice.detachedHead false
}

# pip may install into the system: Debian's protection is for machines that its packages manage.
configure_pip()
{
    printf '[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\nroot-user-action = ignore\n' \
        >/etc/pip.conf
}

# The place of the agent: a mount point in a box, a file in a template.
make_agent_places()
{
    mkdir -p /run/bellhop
    [ -e /usr/local/bin/bellhopd ] || : >/usr/local/bin/bellhopd
    chown root:root /usr/local/bin/bellhopd
    chmod 755 /usr/local/bin/bellhopd
}

# Remove traces of the build machine, and files that can be fetched again.
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
