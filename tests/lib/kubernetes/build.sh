# shellcheck shell=sh
# build.sh: the programs of the cluster, in $CACHE/bin. Sourced by cluster.sh.
#
# Go modules come from the module proxy by their exact version, containerd and the network plugins are Debian's,
# unpacked and not installed.
set -eu

# 1.37 is the last version for cgroup v1.
KUBERNETES_VERSION=v1.37.2
AGENT_SANDBOX_VERSION=v0.5.6
KWOK_VERSION=v0.7.0

RUNTIME=$BIN/runtime/usr/bin

go_env()
{
    export GOMODCACHE="$CACHE/gomod" GOCACHE="$CACHE/gocache" GOFLAGS='-buildvcs=false -mod=mod'
    export CGO_ENABLED=0 GOTOOLCHAIN=local
}

# MODULE VERSION: fetches the module, and prints its directory.
module_dir()
{
    (cd / && go mod download -json "$1@$2") >"$LOG/module.json"
    sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' "$LOG/module.json" | grep . ||
        die "$1 $2 cannot be had: see $LOG/module.json"
}

# is_version PROGRAM VERSION, mark_version PROGRAM VERSION
is_version()
{
    [ -x "$BIN/$1" ] && [ "$(cat "$BIN/$1.version" 2>/dev/null)" = "$2" ]
}

mark_version()
{
    echo "$2" >"$BIN/$1.version"
}

# One program has etcd, the four of Kubernetes and kubectl: they share most of their code. Kubernetes' own go.mod
# names the modules of its staging directory by path; here they are the published ones.
build_kubernetes()
{
    ! is_version kubernetes "$KUBERNETES_VERSION" || return 0
    say "building Kubernetes $KUBERNETES_VERSION"
    staging=v0.${KUBERNETES_VERSION#v1.}
    minor=${KUBERNETES_VERSION#v1.}
    module=$(module_dir k8s.io/kubernetes "$KUBERNETES_VERSION")
    mkdir -p "$CACHE/src/kubernetes"
    cd "$CACHE/src/kubernetes"
    sed -e 's#^module k8s.io/kubernetes#module cluster#' \
        -e "s#=> ./staging/src/k8s.io/\([a-z-]*\)\$#=> k8s.io/\1 $staging#" "$module/go.mod" >go.mod
    cat "$module/go.sum" >go.sum
    go mod edit -require="k8s.io/kubernetes@$KUBERNETES_VERSION"
    cp "$HERE"/go/*.go .
    flags='-s -w'
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags="$flags -X $package.gitVersion=$KUBERNETES_VERSION"
        flags="$flags -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
    done
    nice go build -trimpath -gcflags=all=-dwarf=false -ldflags "$flags" -o "$BIN/kubernetes" .
    for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
        ln -sf kubernetes "$BIN/$name"
    done
    mark_version kubernetes "$KUBERNETES_VERSION"
}

# build_main PROGRAM MODULE VERSION PACKAGE: one main package of a published module, with the module's own versions of
# everything else.
build_main()
{
    ! is_version "$1" "$3" || return 0
    say "building $1 $3"
    module=$(module_dir "$2" "$3")
    mkdir -p "$CACHE/src/$1"
    cd "$CACHE/src/$1"
    sed -e 's#^module .*#module cluster#' -e '/^toolchain/d' "$module/go.mod" >go.mod
    cat "$module/go.sum" >go.sum
    go mod edit -require="$2@$3"
    nice go build -trimpath -gcflags=all=-dwarf=false -ldflags '-s -w' -o "$BIN/$1" "$2/$4"
    mark_version "$1" "$3"
}

# With its definitions of objects.
build_agent_sandbox()
{
    build_main agent-sandbox-controller sigs.k8s.io/agent-sandbox "$AGENT_SANDBOX_VERSION" cmd/agent-sandbox-controller
    mkdir -p "$CACHE/agent-sandbox"
    [ ! -e "$CACHE/agent-sandbox/$AGENT_SANDBOX_VERSION" ] || return 0
    module=$(module_dir sigs.k8s.io/agent-sandbox "$AGENT_SANDBOX_VERSION")
    cp "$module"/k8s/crds/*.yaml "$CACHE/agent-sandbox/"
    chmod u+w "$CACHE"/agent-sandbox/*.yaml
    : >"$CACHE/agent-sandbox/$AGENT_SANDBOX_VERSION"
}

unpack_containerd()
{
    [ ! -x "$RUNTIME/containerd" ] || return 0
    packages='containerd containernetworking-plugins'
    command -v runc >/dev/null || packages="$packages runc"
    rm -rf "$CACHE/deb"
    mkdir -p "$CACHE/deb" "$BIN/runtime"
    cd "$CACHE/deb"
    # shellcheck disable=SC2086 # a word a package
    apt-get -qq download $packages >&2
    for file in *.deb; do
        dpkg-deb -x "$file" "$BIN/runtime"
    done
}

# The image of a pod's first container, and the first process of a node.
build_pause()
{
    [ ! -s "$BIN/pause.oci.tar" ] || return 0
    compiler=gcc
    ! command -v musl-gcc >/dev/null || compiler=musl-gcc
    $compiler -static -Os -s -o "$BIN/pause" "$HERE/pause.c"
    "$HERE/oci_image.py" "$BIN/pause.oci.tar" localhost/bellhop/pause:1 "$BIN/pause"
}

build()
{
    mkdir -p "$BIN" "$LOG"
    exec 9>"$CACHE/lock"
    flock 9
    (
        go_env
        command -v go >/dev/null || is_built "$@" || die 'building needs go'
        build_kubernetes
        unpack_containerd
        build_pause
        for option in "$@"; do
            case $option in
            --agent-sandbox) build_agent_sandbox ;;
            --kwok) build_main kwok sigs.k8s.io/kwok "$KWOK_VERSION" cmd/kwok ;;
            '') ;;
            *) die "build: there is no option $option" ;;
            esac
        done
    ) 9>&-
    exec 9>&-
}

is_built()
{
    is_version kubernetes "$KUBERNETES_VERSION" && [ -x "$RUNTIME/containerd" ] && [ -s "$BIN/pause.oci.tar" ] ||
        return 1
    for option in "$@"; do
        case $option in
        --agent-sandbox) is_version agent-sandbox-controller "$AGENT_SANDBOX_VERSION" || return 1 ;;
        --kwok) is_version kwok "$KWOK_VERSION" || return 1 ;;
        '') ;;
        *) die "built: there is no option $option" ;;
        esac
    done
}
