# shellcheck shell=sh disable=SC2154,SC2164
version "$(bundle --version)"
: >Gemfile
is "bundler's list" "$(bundle list 2>/dev/null | tail -n 1)" "No gems in the Gemfile"
grep -q 'BUNDLED WITH' Gemfile.lock || fail "bundler wrote no lock file"
