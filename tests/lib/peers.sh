# shellcheck shell=sh
# peers.sh: the programs of others that ours are compared with, fetched from npm once and kept in
# build/cache. To be sourced with `top` set to the repository.
#
#   peer_sandbox_agent    sets sandbox_agent, the program
#   peer_codex            sets codex

top=${top:?is to be set to the repository}

# peer NAME PATH-BELOW-THE-REGISTRY SHA512 PROGRAM: unpacked once; sets peer_program.
peer()
{
    peer_dir=$top/build/cache/conformance/$1-$(printf %s "$3" | cut -c1-12)
    peer_program=$peer_dir/$4
    [ ! -e "$peer_dir/.done" ] || return 0
    peer_registry=${peer_registry:-$("$top/scripts/npm-registry.sh")}
    echo "fetching $1 ..." >&2
    rm -rf "$peer_dir"
    mkdir -p "$peer_dir"
    curl -fsSL --retry 3 --max-time 600 -o "$peer_dir/package.tgz" "$peer_registry/$2"
    echo "$3  $peer_dir/package.tgz" | sha512sum -c --quiet -
    tar -xzf "$peer_dir/package.tgz" -C "$peer_dir"
    rm "$peer_dir/package.tgz"
    chmod 755 "$peer_program"
    : >"$peer_dir/.done"
}

peer_sandbox_agent()
{
    peer sandbox-agent @sandbox-agent/cli-linux-x64/-/cli-linux-x64-0.4.2.tgz \
        1fd45baaad03464087bda93379f2540eb0dadb2faf263958779fed79fcca6d0df8968704d774c63728112f1744557a411028caf7055d0704d512985036c39c8f \
        package/bin/sandbox-agent
    # shellcheck disable=SC2034
    sandbox_agent=$peer_program
}

peer_codex()
{
    peer codex @openai/codex/-/codex-0.169.0-linux-x64.tgz \
        a34e4dc803820f28123d1a35ca29f3c6f91149d9ac672043f44ee66e99a345a9d27ccf25ca9a96b50804a385df364c21b82476685bbc9a518eb101855d56d5c3 \
        package/vendor/x86_64-unknown-linux-musl/bin/codex
    # shellcheck disable=SC2034
    codex=$peer_program
}
