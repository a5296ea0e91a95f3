# shellcheck shell=sh
# The layers of a root file system. Each is a directory $image_cache/layers/KEY/fs, the upper directory of an overlay
# over the layers before it. KEY is a hash of all inputs of the layer, so that a change rebuilds that layer and
# those after it. The caller runs in a mount namespace of its own: no mount outlives it.
# shellcheck disable=SC2154

layers=$image_cache/layers
# The layers so far, newest first, as the kernel expects them; $tip is the key of the newest.
chain=
tip=

# Messages of apt, npm and pip for an unreachable server.
offline_words='could not (connect|resolve)|failed to fetch|unable to connect|temporary failure'
offline_words="$offline_words|connection (refused|failed|timed out)|unreachable|ENOTFOUND|ECONNREFUSED"
offline_words="$offline_words|cannot initiate the connection"

# run_logged FIELD WHAT COMMAND...: writes the output to the log; a failure becomes an error with its reason. The
# descriptors of our locks are closed for the command; they are below 10 because mmdebstrap runs scripts whose shell
# knows no others.
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

# Messages for a full disk. mke2fs only counts blocks, and has removed its file by now.
full_words='no space left on device|disk quota exceeded|could not allocate block|not enough (free )?space'

# explain FIELD WHAT: fails with the error found in the log.
explain()
{
    # On a full disk the log may be empty.
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
    # The log would be removed with $tmp: keep a copy.
    kept=$image_cache/failed-$name.log
    cp "$log" "$kept"
    said=$(grep -Ei '^(E:|error|npm err|fatal|mount:)' "$log" | tail -n 1)
    [ -n "$said" ] || said=$(grep . "$log" | tail -n 1)
    fail "$1" "$2 failed: $(printf '%s' "$said" | cut -c 1-200); its log is $kept"
}

# ---- one layer ---------------------------------------------------------------------------------

# layer WHAT KEY FUNCTION: uses the layer KEY, or makes it by FUNCTION in $root.
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
    # A layer that is rebuilt: its readers keep the old one until they end.
    [ ! -e "$layers/$1" ] || mv -T "$layers/$1" "$layers/.$1.old.$$"
    mv -T "$work" "$layers/$1"
    rm -rf "$layers/.$1.old.$$"
}

# mount_chain DIR [OPTIONS]: mounts the layers so far; read-only without an upper directory. The names are relative,
# because the kernel accepts one page of options.
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
    # From inside the folder, where the names are short.
    (cd "$layers" && mount -t overlay overlay -o "lowerdir=$lower${2:+,$2}" "$1") 2>"$log" ||
        fail overlay "the kernel does not mount the layers: $(tail -n 1 "$log")"
}

# Prepares a root for maintainer scripts, pip and npm; prevents the start of daemons.
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
    # A suite that this machine does not use: take it from the main mirror.
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

# Runs this machine's apt with separate lists; dpkg runs in the new root. Of this machine's apt settings only those for
# the network apply.
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

# way_out: the proxies and indexes of the caller's environment, as NAME=VALUE words.
way_out()
{
    names='(https?|all|no)_proxy|(HTTPS?|ALL|NO)_PROXY|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST)'
    env | grep -E "^($names)=[^[:space:]]+\$" || true
}

# One update serves all layers of a build.
apt_update()
{
    [ ! -e "$tmp/updated" ] || return 0
    exec 7>"$image_cache/apt/lock"
    flock 7
    run_logged network "reading Debian's package lists" env APT_CONFIG="$tmp/apt.conf" apt-get -q update
    exec 7>&-
    : >"$tmp/updated"
}

# Builds share the cache of packages; apt does not wait for another apt, so this does.
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

# in_root_online COMMAND...: runs it with this machine's network settings; caches stay out of the layer.
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

# Makes the box's user the owner of /usr/local, so that `pip install` and `npm install -g` need no sudo. It is done in
# this layer because a change of owner in a later one would copy every file.
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

# One line per agent: NAME VERSION TARBALL COMMAND..., as host-client/lib/image/image_agents.c writes them. They are
# installed where bootstrap looks for them; the name of the command is the one that users type.
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

# Facts about the template that a box can read; not part of the layers that other templates use.
make_stamp()
{
    mkdir -p "$root/etc/bellhop"
    for value in name version user workdir start_cmd ready_cmd env; do
        cp "$def/$value" "$root/etc/bellhop/$value"
    done
    image_start_file "$def" "$root/etc/bellhop"
}

# layers_of DEF: all layers of a definition, those of its base template first.
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

# all_layers DEF: the same, and the stamp.
all_layers()
{
    layers_of "$1"
    def=$1
    layer "stamping it" "$(cat "$1/name" "$1/version" "$1/user" "$1/workdir" "$1/start_cmd" "$1/ready_cmd" \
        "$1/env" | image_key stamp "$tip")" make_stamp
}
