#!/usr/bin/env bats
# The result of `make`: the form of the programs, and the files that install places.
# early

setup()
{
    TOP=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    BUILT=$TOP/build/release
    cd "$BATS_TEST_TMPDIR"
    unset MAKEFLAGS MFLAGS MAKELEVEL
}

@test "the agent that ships is static and stripped" {
    run file "$BUILT/bellhopd"
    [[ "$output" == *"statically linked"* ]]
    [[ "$output" == *", stripped"* ]]
    run ldd "$BUILT/bellhopd"
    [ "$status" -ne 0 ]
}

@test "the agent that ships is smaller than 2.5 MB" {
    [ "$(stat -c %s "$BUILT/bellhopd")" -lt 2500000 ]
}

@test "the agent's symbols are kept beside it" {
    run file "$BUILT/bellhopd.debug"
    [[ "$output" == *"not stripped"* ]]
}

@test "the manifests and the document of the daemon in a cluster name the image of this version" {
    local version places

    version=$(sed -n 's/^VERSION := //p' "$TOP/Makefile")
    grep -qx " *image: docker.io/bellhop/daemon:$version" "$TOP/image/kubernetes/daemon.yaml"
    places=$(grep -rhoE 'bellhop/daemon:[0-9][^ ]*' "$TOP/image/kubernetes" "$TOP/docs/kubernetes.md" | sort -u)
    [ "$places" = "bellhop/daemon:$version" ]
    grep -q "bellhop/slim:$(sed -n 's/^version = "\(.*\)"/\1/p' "$TOP/image/templates/slim/e2b.toml")" "$TOP/docs/kubernetes.md"
}

@test "the shared library exports nothing but bh_ names" {
    nm --dynamic --defined-only "$BUILT/libbellhop.so" | awk '$2 ~ /[TDBR]/ { print $3 }' >names
    [ -s names ]
    run grep -v '^bh_' names
    [ -z "$output" ]
}

@test "the shared library's soname is libbellhop.so.0" {
    readelf -d "$BUILT/libbellhop.so" | grep -q 'soname: \[libbellhop.so.0\]'
}

@test "what is installed is found and works from its own place" {
    make -s -C "$TOP" install DESTDIR="$PWD/root" PREFIX=/usr
    [ -x root/usr/libexec/bellhop/bellhop-monitor ]
    [ -x root/usr/lib/bellhop/bellhopd ]
    grep -q '^prefix=/usr$' root/usr/lib/pkgconfig/libbellhop.pc
    root/usr/bin/bellhop --version
    for page in man1/bellhop.1 man1/bellhop-up.1 man3/libbellhop.3 man5/bellhop-recipe.5 man5/e2b.toml.5 \
        man8/bellhopd.8; do
        [ -s "root/usr/share/man/$page" ]
    done
    # It takes its parts from where it stands, not from the tree it was built in.
    run root/usr/bin/bellhop doctor
    [[ "$output" == *"$PWD/root/usr/libexec/bellhop/bellhop-monitor"* ]]
    [[ "$output" == *"$PWD/root/usr/share/bellhop/bootstrap"* ]]
    [[ "$output" == *"image slim"*"not built yet"* ]]
    # A program built against the installed files alone.
    printf '#include <bellhop/bellhop.h>\nint main(void) { return 0; }\n' >main.c
    gcc -I root/usr/include main.c -L root/usr/lib -lbellhop -o main
}

@test "uninstall removes all that install made" {
    make -s -C "$TOP" install DESTDIR="$PWD/root" PREFIX=/usr
    make -s -C "$TOP" uninstall DESTDIR="$PWD/root" PREFIX=/usr
    run find root -not -type d
    [ -z "$output" ]
}

@test "make help names each target for people" {
    run make -s -C "$TOP" help
    for target in all deps run test lint image install bench; do
        [[ "$output" == *" $target "* ]]
    done
}

@test "installing packages does nothing when all are there" {
    run "$TOP/scripts/install-packages.sh" build run test
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

@test "calls go down only" {
    "$TOP/scripts/check-layers.sh"
}

@test "names and comments keep the rules of docs/style.md" {
    "$TOP/scripts/check-names.sh"
}

@test "documents and man pages keep the rules of docs/style.md" {
    "$TOP/scripts/check-docs.sh"
}

@test "each header compiles alone" {
    make -s -C "$TOP" check-headers
}

@test "the files that are made from others are what their generators make now" {
    "$TOP/scripts/check-generated.sh"
}
