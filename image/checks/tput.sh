# shellcheck shell=sh disable=SC2154,SC2164
version "$(tput -V)"
is "bold on an xterm" "$(tput -T xterm bold | od -An -tx1 | tr -d ' \n')" 1b5b316d
is "the colours of xterm-256color" "$(tput -T xterm-256color colors)" 256
