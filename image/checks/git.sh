# shellcheck shell=sh disable=SC2154,SC2164
version "$(git --version)"
make_repository
is "the commits" "$(git rev-list --count HEAD)" 1
git checkout -q -b other
echo more >>src/main.c
is "what has changed" "$(git status --porcelain)" " M src/main.c"
git -c user.name=box -c user.email=box@example.org commit -q -a -m second
git clone -q . ../copy
is "the clone's commits" "$(git -C ../copy log --format=%s other | tr '\n' ' ')" "second first "
# An uploaded repository must not run hooks.
printf '#!/bin/sh\ntouch hooked\n' >.git/hooks/post-checkout
chmod 755 .git/hooks/post-checkout
git checkout -q -
[ ! -e hooked ] || fail "a hook of the repository was run"
