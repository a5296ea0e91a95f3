#!/bin/sh
# build.sh DIR: builds the libraries of deps.lock with musl into DIR/{include,lib} and puts DIR/.done
# there when all is well. Nothing of the machine's apt settings is changed: the tarballs come from
# the mirror it names, through a private list, and count only when their SHA-256 is the lock's.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
lock=$here/deps.lock

OPT="-O2 -fPIE -ffunction-sections -fdata-sections -fno-strict-aliasing -w"
# Nothing unwinds a stack in the agent: the tables would be a tenth of it.
OPT="$OPT -fno-asynchronous-unwind-tables -fno-unwind-tables"

zstd_flags="-DZSTD_LEGACY_SUPPORT=0 -DXXH_NAMESPACE=ZSTD_"

# ---- fetching ----------------------------------------------------------------------------------

lock_rows()
{
    sed -e '/^#/d' -e '/^$/d' -e 's/ *| */|/g' "$lock"
}

is_good()
{
    printf '%s  %s\n' "$2" "$1" | sha256sum --check --status 2>/dev/null
}

# The versions of a source package that list this very tarball.
versions_with()
{
    apt-cache showsrc --only-source "$1" 2>/dev/null | awk -v sum="$2" -v tarball="$3" '
        /^Version:/ { version = $2 }
        $1 == sum && $3 == tarball && !seen[version]++ { print version }'
}

# fetch_from APTDIR: tries to get every tarball that is still missing.
fetch_from()
{
    lock_rows | while IFS='|' read -r name _ tarball sum _; do
        ! is_good "$src/$tarball" "$sum" || continue
        export APT_CONFIG="$1/apt.conf"
        for version in $(versions_with "$name" "$sum" "$tarball"); do
            (cd "$src" && apt-get -qq source --download-only --tar-only "$name=$version") \
                >>"$1/log" 2>&1 || true
            ! is_good "$src/$tarball" "$sum" || break
            rm -f "$src/$tarball"
        done
    done
}

still_missing()
{
    lock_rows | while IFS='|' read -r _ _ tarball sum _; do
        is_good "$src/$tarball" "$sum" || echo "$tarball"
    done
}

fetch_all()
{
    [ -n "$(still_missing)" ] || return 0
    # A suite that is gone must not keep the others from being used: the checksums decide.
    "$top/scripts/private-apt.sh" "$work/apt-own" deb-src || true
    fetch_from "$work/apt-own"
    [ -n "$(still_missing)" ] || return 0

    suites=$(lock_rows | cut -d '|' -f 5 | tr ' ' '\n' | sort -u)
    # shellcheck disable=SC2086 # one word a suite
    "$top/scripts/private-apt.sh" "$work/apt-more" deb-src $suites || true
    fetch_from "$work/apt-more"
    left=$(still_missing)
    if [ -n "$left" ]; then
        cat "$work/apt-own/log" "$work/apt-more/log" >&2
        echo "deps: no suite has these tarballs with the locked checksum:" >&2
        printf '%s\n' "$left" >&2
        exit 1
    fi
}

# ---- building ----------------------------------------------------------------------------------

# unpack NAME: the tarball's content in $work/NAME, without its top directory.
unpack()
{
    tarball=$(lock_rows | awk -F '|' -v name="$1" '$1 == name { print $3 }')
    mkdir -p "$work/$1"
    tar -xf "$src/$tarball" -C "$work/$1" --strip-components=1 --no-same-owner
    cd "$work/$1"
}

run_configure()
{
    ./configure --quiet --host="$(gcc -dumpmachine | sed 's/-gnu$/-musl/')" --prefix="$out" --libdir="$out/lib" \
        --disable-shared --enable-static CC=musl-gcc CFLAGS="$OPT" \
        CPPFLAGS="-I$out/include" LDFLAGS="-L$out/lib" PKG_CONFIG=false "$@"
}

# compile_into LIB FLAG... -- FILE...: for libraries whose own build would be more work than theirs.
compile_into()
{
    lib=$1
    shift
    flags=
    while [ "$1" != -- ]; do
        flags="$flags $1"
        shift
    done
    shift
    # shellcheck disable=SC2016,SC2086 # the inner shell expands; one word a flag
    printf '%s\n' "$@" | xargs -P "$jobs" -I '{}' musl-gcc $OPT $flags -c '{}' -o '{}.o'
    rm -f "$out/lib/$lib"
    find . -name '*.[cS].o' | sort | xargs ar rcs "$out/lib/$lib"
}

build_zlib()
{
    CC=musl-gcc CFLAGS="$OPT" ./configure --static --prefix="$out" >/dev/null
    make -s -j"$jobs" libz.a
    cp zlib.h zconf.h "$out/include/"
    cp libz.a "$out/lib/"
}

build_bzip2()
{
    compile_into libbz2.a -D_FILE_OFFSET_BITS=64 -- \
        blocksort.c huffman.c crctable.c randtable.c compress.c decompress.c bzlib.c
    cp bzlib.h "$out/include/"
}

build_xz_utils()
{
    run_configure --disable-xz --disable-xzdec --disable-lzmadec --disable-lzmainfo \
        --disable-lzma-links --disable-scripts --disable-doc --disable-nls --disable-threads
    make -s -j"$jobs" -C src/liblzma install >/dev/null
}

# The levels that the agent does not use (above 4) are built small: at full speed they are a fifth of
# the agent. What one call compiles, the next call's archive has too.
build_libzstd()
{
    mkdir rare
    mv lib/compress/zstd_lazy.c lib/compress/zstd_opt.c lib/compress/zstd_ldm.c rare/
    # shellcheck disable=SC2086 # one word a flag
    compile_into libzstd.a $zstd_flags -DZSTD_NO_INLINE -Ilib/compress -Os -- rare/*.c
    # shellcheck disable=SC2086 # one word a flag
    compile_into libzstd.a $zstd_flags -- \
        lib/common/*.c lib/compress/*.c lib/decompress/*.c lib/decompress/*.S
    cp lib/zstd.h lib/zstd_errors.h lib/zdict.h "$out/include/"
}

build_jansson()
{
    cat >src/jansson_private_config.h <<'END'
#define HAVE_ENDIAN_H 1
#define HAVE_FCNTL_H 1
#define HAVE_SCHED_H 1
#define HAVE_UNISTD_H 1
#define HAVE_SYS_PARAM_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_STDINT_H 1
#define HAVE_CLOSE 1
#define HAVE_GETPID 1
#define HAVE_GETTIMEOFDAY 1
#define HAVE_OPEN 1
#define HAVE_READ 1
#define HAVE_SCHED_YIELD 1
#define HAVE_STRTOLL 1
#define HAVE_LOCALE_H 1
#define HAVE_LOCALECONV 1
#define HAVE_SYNC_BUILTINS 1
#define HAVE_ATOMIC_BUILTINS 1
#define USE_URANDOM 1
#define INITIAL_HASHTABLE_ORDER 3
END
    sed -e 's/@json_inline@/inline/' -e 's/@json_have_[a-z_]*@/1/' \
        src/jansson_config.h.in >src/jansson_config.h
    compile_into libjansson.a -DHAVE_CONFIG_H -Isrc -- src/*.c
    cp src/jansson.h src/jansson_config.h "$out/include/"
}

build_pcre2()
{
    run_configure --enable-jit --enable-unicode --disable-pcre2grep-jit --disable-pcre2grep-callout
    make -s -j"$jobs" libpcre2-8.la
    cp .libs/libpcre2-8.a "$out/lib/"
    cp src/pcre2.h "$out/include/"
}

build_nettle()
{
    run_configure --disable-public-key --disable-openssl --disable-documentation
    make -s -j"$jobs" libnettle.a
    mkdir -p "$out/include/nettle"
    cp ./*.h "$out/include/nettle/"
    cp libnettle.a "$out/lib/"
}

# mend FILE OLD NEW: replaces text in a library's source that has to be there (sed's words).
mend()
{
    grep -q -- "$2" "$1" || { echo "deps: $1 has no '$2' to mend" >&2; return 1; }
    sed -i -e "s|$2|$3|" "$1"
}

build_libmicrohttpd()
{
    # What the library answers by itself to a broken request is HTML: make it an error of ours.
    error='"{\\"code\\":\\"invalid_argument\\",\\"message\\":\\"the HTTP request is malformed or too large\\"}"'
    sed -i -e "s|\"<html>.*</html>\"|$error|" -e "s|\"<html>.*</head>\"|$error|" \
        -e 's|"<body>.*</html>"|""|' src/microhttpd/connection.c
    # A refusal while the headers are parsed has queued its answer: going on as if they were good would
    # queue another one, and the head would be sent twice.
    grep -A 1 'parse_connection_headers (connection);' src/microhttpd/connection.c |
        grep -q 'if (MHD_CONNECTION_CLOSED == connection->state)'
    sed -i -e '/^ *parse_connection_headers (connection);/{n;s/CLOSED ==/HEADERS_RECEIVED !=/}' \
        src/microhttpd/connection.c
    # Its own answers get the type that they have.
    mend src/microhttpd/connection.c '^  iret = MHD_queue_response (connection,$' \
        '  (void) MHD_add_response_header (response, "Content-Type", "application/json");\n&'
    # A NUL in a head would end the line for whoever looks at it here, and not for others.
    refusal='transmit_error_response_static (connection, MHD_HTTP_BAD_REQUEST, REQUEST_MALFORMED);'
    mend src/microhttpd/connection.c '^    const char c = rbuf\[pos\];$' \
        "&\\n    if (0 == c) { $refusal if (line_len) *line_len = 0; return NULL; }"
    # Blanks behind a header's value belong neither to it nor to a length.
    trim='for (char *end = strchr (connection->colon, 0); end != connection->colon; *--end = 0)'
    mend src/microhttpd/connection.c '^  mhd_assert ( (NULL != last) &&$' \
        "  $trim if (NULL == strchr (\" \\\\t\", end[-1])) break;\\n&"
    # The end of what a client sends is read before the part of a body that waits for room has been
    # taken: it must not be dropped for that. The next reading of the end, which the agent sees to
    # (request_sweep), closes the connection.
    early='! connection->read_closed \&\& connection->read_buffer_offset'
    early="$early \\&\\& MHD_CONNECTION_HEADERS_PROCESSED <= connection->state"
    early="$early \\&\\& MHD_CONNECTION_CONTINUE_SENT >= connection->state"
    mend src/microhttpd/connection.c '^    connection->read_closed = true;$' \
        "    if ($early) { connection->read_closed = true; return; }\\n&"
    # What sendfile did not take may be for want of room, which the next call tells, or because the file has become
    # shorter: then the plain reader finds its end, and breaks off. Else the connection would wait for
    # room that there is.
    mend src/microhttpd/mhd_send.c '^  else if (send_size > (size_t) ret)$' \
        '  else if (0 == ret) { connection->resp_sender = MHD_resp_sender_std; return MHD_ERR_AGAIN_; }\n  else if (0)'
    # One connection may send 2 MiB at a time by sendfile, not 128 KiB: after each piece the library goes once around
    # epoll and its lists, which costs a fast reader up to half of its speed. The kernel stops a call when the socket's
    # buffer is full, so only a reader that keeps up gets as much; the others wait for about a millisecond if the file
    # is in the page cache, and for the disk if it is not.
    mend src/microhttpd/mhd_send.c '^#define MHD_SENFILE_CHUNK_         (0x20000)$' \
        '#define MHD_SENFILE_CHUNK_ (0x200000)'
    run_configure --disable-https --disable-dauth --disable-bauth --disable-curl --disable-doc \
        --disable-examples --disable-tools --enable-epoll
    make -s -j"$jobs" -C src/microhttpd install >/dev/null
    make -s -C src/include install >/dev/null
}

build_libarchive()
{
    # CVE-2025-5917: room for the slash that may be added to each part of a name.
    mend libarchive/archive_write_set_format_pax.c 'suffix_length = 99;' 'suffix_length = 98;'
    mend libarchive/archive_write_set_format_pax.c 'prefix_end = prefix + 155;' 'prefix_end = prefix + 154;'
    run_configure --without-xml2 --without-expat --without-nettle --without-openssl --without-lz4 \
        --without-libb2 --without-iconv --without-cng --disable-acl --enable-xattr \
        --disable-bsdtar --disable-bsdcpio --disable-bsdcat
    make -s -j"$jobs" libarchive.la
    make -s install-libLTLIBRARIES install-includeHEADERS >/dev/null
}

build_protobuf_c()
{
    compile_into libprotobuf-c.a -I. -- protobuf-c/protobuf-c.c
    mkdir -p "$out/include/protobuf-c"
    cp protobuf-c/protobuf-c.h "$out/include/protobuf-c/"
}

build_mimalloc()
{
    # shellcheck disable=SC2086 # one word a flag
    musl-gcc $OPT -DNDEBUG -DMI_MALLOC_OVERRIDE -Iinclude -c src/static.c -o "$out/lib/mimalloc.o"
    cp include/*.h "$out/include/"
}

# build_lane NAME...: one after the other; the first that fails ends the lane and shows its log.
# Each in a process of its own, since errexit is off inside a condition.
build_lane()
{
    for name in "$@"; do
        start=$(date +%s)
        if ! "$here/build.sh" --one "$name" >"$work/$name.log" 2>&1; then
            tail -n 40 "$work/$name.log" >&2
            echo "deps: $name could not be built" >&2
            return 1
        fi
        echo "  MUSL  $name ($(($(date +%s) - start)) s)"
    done
}

# The kernel's own headers, which musl does not bring: nothing else of /usr/include may be seen.
link_kernel_headers()
{
    ln -sf /usr/include/linux "$out/include/linux"
    ln -sf /usr/include/asm-generic "$out/include/asm-generic"
    ln -sf "/usr/include/$(gcc -print-multiarch)/asm" "$out/include/asm"
}

case $1 in
--lane)
    # shellcheck disable=SC2086 # one word a library
    build_lane $2
    exit
    ;;
--one)
    unpack "$2"
    "build_$(echo "$2" | tr - _)"
    exit
    ;;
esac

final=$(mkdir -p "$(dirname "$1")" && cd "$(dirname "$1")" && pwd)/$(basename "$1")
[ ! -e "$final/.done" ] || exit 0

src=$(dirname "$final")/src
mkdir -p "$src"
exec 9>"$src/lock"
flock 9
[ ! -e "$final/.done" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
out=$final
jobs=$(nproc)
unset MAKEFLAGS MFLAGS MAKELEVEL
export LC_ALL=C src work out jobs

start=$(date +%s)
fetch_all
rm -rf "$out"
mkdir -p "$out/include" "$out/lib"
link_kernel_headers

# Two lanes that take about as long as each other; libarchive needs the four before it.
"$here/build.sh" --lane "zlib bzip2 xz-utils libzstd libarchive" &
first=$!
"$here/build.sh" --lane "pcre2 libmicrohttpd nettle jansson protobuf-c mimalloc" &
second=$!
status=0
wait $first || status=1
wait $second || status=1
[ "$status" -eq 0 ] || exit 1

find "$out/lib" -name '*.la' -delete
rm -rf "${out:?}/share" "${out:?}/bin" "${out:?}/lib/pkgconfig"
touch "$out/.done"
echo "  MUSL  all libraries in $(($(date +%s) - start)) s"
