#!/bin/sh
# install.sh install|install-image|uninstall: the make targets of these names, under $DESTDIR$PREFIX. Install and
# uninstall use the same list, so that nothing is left behind.
set -eu

cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}$prefix
built=build/release

# MODE TARGET SOURCE, one line per file.
files()
{
    echo "755 bin/bellhop $built/bellhop"
    echo "755 libexec/bellhop/bellhop-monitor $built/bellhop-monitor"
    echo "755 libexec/bellhop/bellhop-daemon $built/bellhop-daemon"
    echo "755 lib/bellhop/bellhopd $built/bellhopd"
    echo "644 lib/libbellhop.a $built/libbellhop.a"
    echo "644 lib/libbellhop.so.0 $built/libbellhop.so.0"
    for f in host-client/include/bellhop/*.h; do
        echo "644 include/bellhop/${f##*/} $f"
    done
    for f in bootstrap/*.json bootstrap/*/*.json; do
        [ ! -e "$f" ] || echo "644 share/bellhop/$f $f"
    done
    # The scripts that build images; image/ expects scripts/ next to it.
    for f in image/*.sh scripts/debian-sources.sh scripts/npm-registry.sh scripts/private-apt.sh; do
        echo "755 share/bellhop/$f $f"
    done
    for f in image/checks/* image/forms/* image/*.txt image/npm.lock image/templates/*/e2b.toml Dockerfile.template; do
        [ ! -e "$f" ] || echo "644 share/bellhop/$f $f"
    done
    for f in bellhop.service bellhop.socket; do
        echo "644 lib/systemd/system/$f host-client/daemon/systemd/$f"
    done
    for f in docs/man/*.[1-8]; do
        [ ! -e "$f" ] || echo "644 share/man/man${f##*.}/${f##*/} $f"
    done
    completion bash bash-completion/completions/bellhop
    completion zsh zsh/site-functions/_bellhop
    completion fish fish/vendor_completions.d/bellhop.fish
}

completion()
{
    for f in "host-client/cli/completion/bellhop.$1" "docs/completion/bellhop.$1" "scripts/completion/bellhop.$1"; do
        [ ! -e "$f" ] || echo "644 share/$2 $f"
    done
}

pkg_config()
{
    cat <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: libbellhop
Description: coding agents in sandboxes
Version: $VERSION
Libs: -L\${libdir} -lbellhop
Libs.private: -lcurl -ljansson -larchive -lsqlite3
Cflags: -I\${includedir}
END
}

do_install()
{
    files | while read -r mode target source; do
        if [ ! -e "$source" ]; then
            echo "install: $source is not built yet: run make first" >&2
            exit 1
        fi
        install -D -m "$mode" "$source" "$root/$target"
    done
    # Images are built next to the templates, not under the prefix that was compiled in.
    install -d "$root/share/bellhop/images"
    ln -sf libbellhop.so.0 "$root/lib/libbellhop.so"
    install -d "$root/lib/pkgconfig"
    pkg_config >"$root/lib/pkgconfig/libbellhop.pc"
    chmod 644 "$root/lib/pkgconfig/libbellhop.pc"
    echo "  OK    installed under $root"
}

do_uninstall()
{
    files | while read -r _ target _; do
        rm -f "$root/$target"
    done
    rm -f "$root/lib/libbellhop.so" "$root/lib/pkgconfig/libbellhop.pc"
    rm -rf --one-file-system "$root/share/bellhop/images"
    rm -rf --one-file-system "$root/share/bellhop/image"
    for dir in libexec/bellhop lib/bellhop include/bellhop share/bellhop/bootstrap/pi share/bellhop/bootstrap \
        share/bellhop/scripts \
        share/bellhop; do
        [ ! -d "$root/$dir" ] || rmdir --ignore-fail-on-non-empty "$root/$dir"
    done
    echo "  OK    uninstalled from $root"
}

# A box's root file system belongs to root and is large: a separate target.
do_install_image()
{
    image=$(readlink -f build/image/slim)
    install -d "$root/share/bellhop/images"
    cp -a "$image" "$root/share/bellhop/images/"
    ln -sfn "$(basename "$image")" "$root/share/bellhop/images/slim"
    echo "  OK    installed the image under $root/share/bellhop/images"
}

case ${1:-} in
install-image) do_install_image ;;
install) do_install ;;
uninstall) do_uninstall ;;
*)
    echo "usage: install.sh install|install-image|uninstall" >&2
    exit 2
    ;;
esac
