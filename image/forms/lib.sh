# shellcheck shell=sh disable=SC2034,SC2154
# Functions of the forms. A form is a script FORM.sh ARGUMENT VERB IMAGE_DIR WORK_DIR, run by `bellhop image test`; the
# last line that it prints is its error. $image and $work are the last two arguments. The verbs:
#   probe   0: this machine can boot it; 3: it lacks something that this needs
#   start   boots it; writes `url`, the address of the agent, and its `token` to WORK_DIR
#   log     prints the output of the booted image
#   stop    removes everything, also after a partial start

agent_port=4711

# no_engine TEXT: reports that this machine cannot boot it.
no_engine()
{
    echo "$1"
    exit 3
}

need_program()
{
    command -v "$1" >/dev/null 2>&1 || no_engine "the program '$1' is not installed"
}

need_file()
{
    [ -e "$1" ] || {
        echo "the image has no $(basename "$1"): bellhop image build makes it"
        exit 1
    }
}

# make_token DIR: writes a new token to WORK_DIR and, for the box, to DIR.
make_token()
{
    mkdir -p "$1"
    (umask 077 && head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/token")
    install -m 0400 -o 1000 -g 1000 "$work/token" "$1/token" 2>/dev/null ||
        install -m 0444 "$work/token" "$1/token"
}
