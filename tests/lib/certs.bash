# certs.bash: certificates of an engine and of its client. Sourced by bats files.
#
# make_authority DIR NAME           DIR/NAME.pem and DIR/NAME-key.pem
# make_certificate DIR NAME USAGE   the same for 127.0.0.1, signed by the authority "ca" (serverAuth, clientAuth)
# client_files DIR TO AUTHORITY [CERTIFICATE]
#                                   the directory TO, as DOCKER_CERT_PATH names one

make_authority()
{
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$2" \
        -keyout "$1/$2-key.pem" -out "$1/$2.pem" 2>/dev/null
}

make_certificate()
{
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" \
        -keyout "$1/$2-key.pem" -out "$1/$2.csr" 2>/dev/null
    printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=%s\n' "$3" >"$1/$2.ext"
    openssl x509 -req -in "$1/$2.csr" -CA "$1/ca.pem" -CAkey "$1/ca-key.pem" -CAcreateserial \
        -days 2 -extfile "$1/$2.ext" -out "$1/$2.pem" 2>/dev/null
}

client_files()
{
    mkdir -p "$2"
    cp "$1/$3.pem" "$2/ca.pem"
    [ -n "${4:-}" ] || return 0
    cp "$1/$4.pem" "$2/cert.pem"
    cp "$1/$4-key.pem" "$2/key.pem"
}
