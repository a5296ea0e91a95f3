# shellcheck shell=sh
# The layers of a root file system. Each is a directory $image_cache/layers/KEY/fs, the upper
# directory of an overlay over those before it; KEY stands for everything that decides what is in
# it, so that a change makes anew what comes after it and nothing else. The caller runs in a mount
# namespace of its own: no mount of ours outlives it.
# shellcheck disable=SC2154

layers=$image_cache/layers
# The layers so far, the newest first, as the kernel wants them; $tip is the newest one's key.
chain=
tip=

# How apt, npm and pip say that there is no way to their servers.
offline_words='could not (connect|resolve)|failed to fetch|unable to connect|temporary failure'
offline_words="$offline_words|connection (refused|failed|timed out)|unreachable|ENOTFOUND|ECONNREFUSED"
offline_words="$offline_words|cannot initiate the connection"

# run_logged FIELD WHAT COMMAND...: its output goes to the log, of which an error is made. Our locks'
# descriptors stay here: mmdebstrap has scripts that know only those below 10.
run_logged()
{
    field=$1
    what=$2
    shift 2
    "$@" >"$log" 2>&1 </dev/null 6>&- 7>&- 8>&- 9>&- || explain "$field" "$what"
}

is_full()
{
    [ "$(df --output=avail --block-size=1M "$1" | tail -n 1)" -lt 2 ]
}

# What programs say of a full disk; mke2fs counts blocks, and what it has begun is gone by now.
full_words='no space left on device|disk quota exceeded|could not allocate block|not enough (free )?space'

# explain FIELD WHAT: the error that the log tells of.
explain()
{
    # On a full disk the log may be empty, too.
    if grep -Eiq "$full_words" "$log" || is_full "$tmp" || is_full "$layers"; then
        fail disk "no space left on device while $2"
    fi
    unknown=$(sed -n -e 's/^E: Unable to locate package //p' \
        -e "s/^E: Package '\\(.*\\)' has no installation candidate/\\1/p" "$log" | paste -sd ' ')
    if [ -n "$unknown" ]; then
        fail packages "Debian's $suite has no package '$unknown'"
    fi
    offline=$(grep -Eim 1 "$offline_words" "$log" | cut -c 1-200)
    [ -z "$offline" ] || fail network "$2 failed: $offline"
    # The log goes with us; whoever has to look into it needs all of it.
    kept=$image_cache/failed-$name.log
    cp "$log" "$kept"
    said=$(grep -Ei '^(E:|error|npm err|fatal|mount:)' "$log" | tail -n 1)
    [ -n "$said" ] || said=$(grep . "$log" | tail -n 1)
    fail "$1" "$2 failed: $(printf '%s' "$said" | cut -c 1-200); its log is $kept"
}

# ---- one layer ---------------------------------------------------------------------------------

# layer WHAT KEY FUNCTION: takes the layer, or makes it by FUNCTION in $root.
layer()
{
    key=$2
    mkdir -p "$layers"
    exec 8>"$layers/$key.lock"
    flock 8
    if [ ! -d "$layers/$key/fs" ] || [ -n "${IMAGE_FRESH:-}" ] && [ ! -e "$tmp/made.$key" ]; then
        say "$1"
        make_layer "$key" "$3"
        : >"$tmp/made.$key"
    fi
    exec 8>&-
    tip=$key
    chain=$key/fs${chain:+:$chain}
    touch "$layers/$key"
}

make_layer()
{
    work=$layers/.$1.$$
    rm -rf "$work"
    mkdir -p "$work/fs" "$work/work" "$work/root"
    root=$work/root
    if [ -n "$chain" ]; then
        mount_chain "$root" "upperdir=$work/fs,workdir=$work/work"
        "$2"
        leave_root
        umount "$root"
    else
        root=$work/fs
        "$2"
    fi
    rm -rf "$work/work" "$work/root"
    # One that is made anew: whoever reads the old one keeps it until the end.
    [ ! -e "$layers/$1" ] || mv -T "$layers/$1" "$layers/.$1.old.$$"
    mv -T "$work" "$layers/$1"
    rm -rf "$layers/.$1.old.$$"
}

# mount_chain DIR [OPTIONS]: the layers so far, read-only without an upper directory. Relative
# names, since the kernel takes one page of options.
mount_chain()
{
    lower=$chain
    case ${2:-}$lower in
    upperdir=* | *:*) ;;
    *)
        mkdir -p "$layers/empty"
        lower=$lower:empty
        ;;
    esac
    # From inside: only there the names are short.
    (cd "$layers" && mount -t overlay overlay -o "lowerdir=$lower${2:+,$2}" "$1") 2>"$log" ||
        fail overlay "the kernel does not mount the layers: $(tail -n 1 "$log")"
}

# What maintainer scripts, pip and npm expect of a machine; no daemon is started.
enter_root()
{
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/tmp"
    mount -t tmpfs tmpfs "$root/run"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    is_entered=yes
}

leave_root()
{
    [ "${is_entered:-}" = yes ] || return 0
    rm -f "$root/usr/sbin/policy-rc.d"
    rm -rf "$root"/var/log/* "$root"/var/cache/ldconfig/aux-cache "$root"/var/cache/debconf/*-old \
        "$root"/var/lib/dpkg/*-old "$root"/var/cache/fontconfig/* "$root"/var/tmp/* "$root/root/.cache" \
        "$root/root/.npm" "$root/root/.wget-hsts"
    find "$root/usr" -name __pycache__ -prune -exec rm -rf '{}' +
    umount -R "$root/run" "$root/tmp" "$root/dev" "$root/proc"
    is_entered=
}

in_root()
{
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
}

# ---- Debian ------------------------------------------------------------------------------------

sources_list()
{
    if [ -n "${IMAGE_SOURCES:-}" ]; then
        cat "$IMAGE_SOURCES"
        return
    fi
    "$top/scripts/debian-sources.sh" >"$tmp/suites" 2>"$log" || fail network "$(tail -n 1 "$log")"
    # A suite that is not this machine's own: what the main mirror has of it.
    [ "$suite" = bookworm ] || "$top/scripts/debian-sources.sh" "$suite" "$suite-updates" >"$tmp/suites"
    while read -r uri archive keyring; do
        echo "deb [signed-by=$keyring] $uri $archive main"
    done <"$tmp/suites"
}

exclude_lines()
{
    image_list "$image_dir/excludes.txt" | sed 's/^/path-exclude=/'
    echo path-include=/usr/share/locale/locale.alias
}

make_minbase()
{
    sources_list >"$tmp/sources.list"
    exclude_lines >"$tmp/excludes"
    # shellcheck disable=SC2046 # one word an option
    run_logged suite "making the base of $suite" env TMPDIR="${TMPDIR:-/tmp}" mmdebstrap --mode=root \
        --variant=minbase --format=directory --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
        --aptopt='APT::Install-Recommends "false"' \
        --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' \
        --dpkgopt=force-unsafe-io $(sed 's/^/--dpkgopt=/' "$tmp/excludes") \
        "$suite" "$work/made" "$tmp/sources.list"
    rmdir "$work/fs"
    mv -T "$work/made" "$work/fs"
    root=$work/fs
    cp "$tmp/excludes" "$root/etc/dpkg/dpkg.cfg.d/99bellhop"
    printf 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n' >"$root/etc/apt/apt.conf.d/99bellhop"
    rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap"
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/log/* "$root"/var/lib/dpkg/*-old \
        "$root"/var/cache/ldconfig/aux-cache "$root"/var/cache/debconf/*-old
}

# This machine's apt with lists of its own; dpkg runs in the new root. Nothing of this machine's
# apt settings counts but how the network is reached.
write_apt_conf()
{
    mkdir -p "$image_cache/apt/lists/partial" "$image_cache/apt/archives/partial"
    sources_list >"$tmp/sources.list"
    {
        cat <<END
Dir::Etc::sourcelist "$tmp/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::parts "-";
Dir::Etc::preferencesparts "-";
Dir::State "$root/var/lib/apt";
Dir::State::status "$root/var/lib/dpkg/status";
Dir::State::lists "$image_cache/apt/lists";
Dir::State::extended_states "$root/var/lib/apt/extended_states";
Dir::Cache::archives "$root/var/cache/apt/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Log "$tmp/apt-log";
DPkg::Chroot-Directory "$root";
DPkg::Options:: "--force-unsafe-io";
DPkg::Options:: "--force-confnew";
APT::Architecture "$(image_arch)";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Get::Assume-Yes "true";
APT::Keep-Downloaded-Packages "true";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "3";
Dpkg::Use-Pty "false";
END
        apt-config dump | grep -Ei '^Acquire::(http|https|ftp)::' || true
    } >"$tmp/apt.conf"
    mkdir -p "$tmp/apt-log"
}

# way_out: the proxies and indexes that whoever started the build has, as NAME=VALUE words.
way_out()
{
    names='(https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST)'
    env | grep -E "^($names)=[^[:space:]]+\$" || true
}

# One update is enough for all layers of a build.
apt_update()
{
    [ ! -e "$tmp/updated" ] || return 0
    exec 7>"$image_cache/apt/lock"
    flock 7
    run_logged network "reading Debian's package lists" env APT_CONFIG="$tmp/apt.conf" apt-get -q update
    exec 7>&-
    : >"$tmp/updated"
}

# Two builds share the packages that were fetched, and apt does not wait for another apt.
lock_archives()
{
    exec 7>"$image_cache/apt/archives.lock"
    if ! flock --nonblock 7; then
        say "waiting for the packages of another build"
        flock 7
    fi
}

make_packages()
{
    if [ -s "$def/exclude" ]; then
        sed 's/^/path-exclude=/' "$def/exclude" >>"$root/etc/dpkg/dpkg.cfg.d/99bellhop"
    fi
    mkdir -p "$root/var/cache/apt/archives"
    write_apt_conf
    apt_update
    enter_root
    lock_archives
    mount --bind "$image_cache/apt/archives" "$root/var/cache/apt/archives"
    # shellcheck disable=SC2046 # one word a package
    run_logged packages "installing packages" env -i $(way_out) PATH="$PATH" HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive APT_CONFIG="$tmp/apt.conf" apt-get -q install \
        $(cat "$def/packages")
    umount "$root/var/cache/apt/archives"
    exec 7>&-
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
}

# ---- npm and pip -------------------------------------------------------------------------------

make_node()
{
    image_unpack_node "$tmp/local"
    cp -a --no-preserve=ownership "$tmp/local/." "$root/usr/local/"
    give_local
    rm -rf "$tmp/local"
}

# in_root_online COMMAND...: with this machine's way to the network; caches stay out of the layer.
in_root_online()
{
    mkdir -p "$image_cache/npm-cache" "$image_cache/pip-cache" "$root/run/cache/npm" "$root/run/cache/pip"
    mount --bind "$image_cache/npm-cache" "$root/run/cache/npm"
    mount --bind "$image_cache/pip-cache" "$root/run/cache/pip"
    bind_file /etc/resolv.conf
    bind_file /etc/hosts
    set -- HOME=/root LC_ALL=C.UTF-8 npm_config_cache=/run/cache/npm PIP_CACHE_DIR=/run/cache/pip \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" "$@"
    if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
        cp /etc/ssl/certs/ca-certificates.crt "$root/run/ca.crt"
        set -- SSL_CERT_FILE=/run/ca.crt PIP_CERT=/run/ca.crt NODE_EXTRA_CA_CERTS=/run/ca.crt "$@"
    fi
    # shellcheck disable=SC2046 # one word a variable
    env -i $(way_out) "$@"
}

bind_file()
{
    [ -e "$root$1" ] || : >"$root$1"
    mount --bind "$(readlink -f "$1")" "$root$1"
}

leave_network()
{
    umount "$root/etc/resolv.conf" "$root/etc/hosts"
}

# /usr/local is the box's user's, so that `pip install` and `npm install -g` need no sudo. Here,
# since a change of owner in a later layer would be a second copy of it all.
give_local()
{
    find "$root/usr/local" -user 0 -exec chown -h "$image_uid:$image_uid" '{}' +
}

make_npm()
{
    registry=$("$top/scripts/npm-registry.sh" 2>"$log") || fail npm "$(tail -n 1 "$log")"
    enter_root
    # shellcheck disable=SC2046 # one word a package
    run_logged npm "installing npm packages" in_root_online npm install --global --no-audit --no-fund \
        --no-update-notifier --registry "$registry" $(cat "$def/npm")
    leave_network
    give_local
}

make_pip()
{
    index=${PIP_INDEX_URL:-$(pip3 config get global.index-url 2>/dev/null || true)}
    enter_root
    # shellcheck disable=SC2046 # one word a package
    run_logged pip "installing pip packages" in_root_online python3 -m pip install --no-compile \
        --root-user-action=ignore --break-system-packages --disable-pip-version-check \
        ${index:+--index-url "$index"} $(cat "$def/pip")
    leave_network
    give_local
}

# ---- coding agents -----------------------------------------------------------------------------

# A line each: NAME VERSION TARBALL COMMAND..., as host-client/lib/image/image_agents.c writes them. They
# go where bootstrap looks for them; the command's own name is what people type.
make_agents()
{
    user=$(image_value "$def" user)
    while read -r who release tarball command; do
        [ -n "$who" ] || continue
        install=$root/home/$user/.bellhop/agents/$who-$release
        mkdir -p "$install"
        run_logged agents "unpacking $who" tar -xaf "$tarball" -C "$install" --no-same-owner
        # shellcheck disable=SC2016 # "$@" is the new script's
        printf '#!/bin/sh\nexec %s "$@"\n' "$command" >"$root/usr/local/bin/$who"
        chmod 755 "$root/usr/local/bin/$who"
    done <"$def/agents"
    in_root chown -R "$user:$user" "/home/$user/.bellhop"
    give_local
}

# ---- the last ----------------------------------------------------------------------------------

make_final()
{
    cp "$image_dir/customize.sh" "$root/mnt/"
    in_root sh /mnt/customize.sh "$(image_value "$def" user)" "$(image_value "$def" workdir)" >"$log" 2>&1 ||
        explain user "settling the box's user"
    rm -f "$root/mnt/customize.sh"
}

# What a box can read about its template; not a part of what others stand on.
make_stamp()
{
    mkdir -p "$root/etc/bellhop"
    for value in name version user workdir start_cmd ready_cmd env; do
        cp "$def/$value" "$root/etc/bellhop/$value"
    done
    image_start_file "$def" "$root/etc/bellhop"
}

# layers_of DEF: all layers of a definition, those of what it stands on first.
layers_of()
{
    if [ -d "$1/from" ]; then
        layers_of "$1/from"
    else
        suite=$(image_value "$1" suite)
        layer "making a minimal Debian $suite" \
            "$(image_minbase "$suite")" make_minbase
    fi
    def=$1
    suite=$(image_value "$1" suite)
    [ ! -s "$1/packages" ] || layer "installing $(image_count "$1/packages" package) for $(image_value "$1" name)" \
        "$(cat "$1/packages" "$1/exclude" | image_key packages "$tip")" make_packages
    [ "$(image_value "$1" node)" != true ] || layer "unpacking Node.js $(image_locked node 4)" \
        "$(image_key node "$tip" <"$image_dir/npm.lock")" make_node
    [ ! -s "$1/npm" ] || layer "installing npm packages" \
        "$(image_key npm "$tip" <"$1/npm")" make_npm
    [ ! -s "$1/pip" ] || layer "installing pip packages" \
        "$(image_key pip "$tip" <"$1/pip")" make_pip
    layer "settling $(image_value "$1" name)" \
        "$(cat "$1/user" "$1/workdir" "$image_dir/customize.sh" | image_key final "$tip")" make_final
    [ ! -s "$1/agents" ] || layer "putting $(cut -d ' ' -f 1,2 "$1/agents" | paste -sd , | sed 's/,/, /g') into it" \
        "$(sed 's| /[^ ]*/| |' "$1/agents" | image_key agents "$tip")" make_agents
}

# all_layers DEF: those, and the stamp.
all_layers()
{
    layers_of "$1"
    def=$1
    layer "stamping it" "$(cat "$1/name" "$1/version" "$1/user" "$1/workdir" "$1/start_cmd" "$1/ready_cmd" \
        "$1/env" | image_key stamp "$tip")" make_stamp
}
