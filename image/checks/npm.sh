# shellcheck shell=sh disable=SC2154,SC2164
version "$(npm --version)"
# A global installation by the box's user, without sudo.
npm install --global --no-audit --no-fund --loglevel=error is-odd@3.0.1 semver@7.7.3 >log 2>&1 ||
    fail "$(grep -m 1 -i error log || tail -n 1 log)"
is "the installed command" "$(semver -r '>=1.2' 1.2.3 1.1.0)" 1.2.3
mkdir project && cd project
npm init -y >/dev/null 2>&1
npm install --no-audit --no-fund --loglevel=error --prefer-offline is-odd@3.0.1 >log 2>&1 ||
    fail "$(grep -m 1 -i error log || tail -n 1 log)"
is "the project's package" "$(node -p 'require("is-odd")(3)')" true
npm uninstall --global --loglevel=error is-odd semver >/dev/null 2>&1
! command -v semver >/dev/null || fail "the command is still there"
