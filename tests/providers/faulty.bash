# faulty.bash: the programs with faulty.c between them and the providers.

# build_faulty: for setup_file. Sets FAULTY_DIR, in build/, where the programs find images and recipes.
build_faulty()
{
    local libs program

    FAULTY_DIR=$(mktemp -d "$REPO/build/faulty-XXXXXX")
    export FAULTY_DIR
    libs="$(pkg-config --libs libcurl jansson libarchive sqlite3 nettle) -pthread"
    gcc -D_GNU_SOURCE -std=gnu11 -O1 -c -I"$REPO/guest" -I"$REPO/host-client" -I"$REPO/host-client/include" \
        -o "$FAULTY_DIR/faulty.o" "$REPO/tests/providers/faulty.c"
    for program in cli:bellhop monitor:bellhop-monitor; do
        # shellcheck disable=SC2086
        gcc -Wl,--wrap=provider_find,--wrap=provider_at -o "$FAULTY_DIR/${program#*:}" \
            "$BELLHOP_BUILD/obj/host/host-client/${program%:*}"/*.o "$FAULTY_DIR/faulty.o" "$BELLHOP_BUILD/libbellhop.a" $libs
    done
    ln -s "$AGENT" "$FAULTY_DIR/bellhopd"
}
