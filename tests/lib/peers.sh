# shellcheck shell=sh
# peers.sh: the programs of others that ours are compared with, fetched from npm once and kept in
# build/cache. To be sourced with `top` set to the repository.
#
#   peer_sandbox_agent    sets sandbox_agent, the program
#   peer_codex            sets codex

top=${top:?is to be set to the repository}

# peer NAME PATH-BELOW-THE-REGISTRY SHA256 PROGRAM: unpacked once; sets peer_program.
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
    echo "$3  $peer_dir/package.tgz" | sha256sum -c --quiet -
    tar -xzf "$peer_dir/package.tgz" -C "$peer_dir"
    rm "$peer_dir/package.tgz"
    chmod 755 "$peer_program"
    : >"$peer_dir/.done"
}

peer_sandbox_agent()
{
    peer sandbox-agent @sandbox-agent/cli-linux-x64/-/cli-linux-x64-0.4.2.tgz \
        47ce5b254a57bb6c023bb0b086ecbfb217811122c6cb4b0a870a697f04494320 \
        package/bin/sandbox-agent
    # shellcheck disable=SC2034
    sandbox_agent=$peer_program
}

peer_codex()
{
    peer codex @openai/codex/-/codex-0.169.0-linux-x64.tgz \
        89801b4b97faba562eb80fe0a833159ac79399be674022f4b1a0ccab1d153faa \
        package/vendor/x86_64-unknown-linux-musl/bin/codex
    # shellcheck disable=SC2034
    codex=$peer_program
}
